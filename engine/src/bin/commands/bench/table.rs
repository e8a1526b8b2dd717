//! The table of dense models: a row is a process of its own, which measures the ceiling beside what it compares with it, so that
//! one model's memory, graphs and failures are no other's.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::{interrupt, tell};
use super::Args;

/// What stands for the rows that are built in.
pub const BUILT_IN: &str = "dense";
/// These rows.
const DENSE: &str = include_str!("dense.json");

/// A row as the file gives it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    model: String,
    programs: Vec<String>,
    context: Option<u32>,
    /// The weight bytes that a token reads over the machine's read-only rate, when that was last agreed.
    floor_ms: Option<f64>,
    /// What another engine does.
    peer_ms: Option<f64>,
    target_ms: Option<f64>,
    target_of: Option<TargetOf>,
}

/// A target that is another row's figure times a factor.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetOf {
    row: String,
    times: f64,
}

/// One line of the table.
struct Line {
    cells: Vec<String>,
    object: Value,
}

const HEADER: [&str; 14] = [
    "model",
    "program",
    "launches",
    "eager ms",
    "graph ms",
    "spread",
    "of read-only",
    "floor ms",
    "of floor",
    "peer ms",
    "target ms",
    "met",
    "submitting",
    "largest gap",
];

/// Runs the rows and prints the table.
pub fn run(args: &Args, file: &Path) -> Result<()> {
    let text = match file == Path::new(BUILT_IN) {
        true => DENSE.to_owned(),
        false => fs::read_to_string(file).with_context(|| format!("{}", file.display()))?,
    };
    let rows: Vec<Row> =
        serde_json::from_str(&text).with_context(|| format!("rows of {}", file.display()))?;
    let wanted = |row: &&Row| {
        args.rows.is_empty()
            || args
                .rows
                .iter()
                .any(|word| row.name.contains(word.as_str()) || row.model.contains(word.as_str()))
    };
    let rows: Vec<&Row> = rows.iter().filter(wanted).collect();
    ensure!(!rows.is_empty(), "no row's name or model contains {}", args.rows.join(" or "));
    let mut lines: Vec<Line> = Vec::new();
    // Line by line, so that a run which is cut short leaves what it has.
    let mut add = |line: Line| -> Result<()> {
        if !args.json {
            let mut out = io::stdout().lock();
            if lines.is_empty() {
                writeln!(out, "| {} |", HEADER.join(" | "))?;
                writeln!(out, "|{}", "---|".repeat(HEADER.len()))?;
            }
            writeln!(out, "| {} |", line.cells.join(" | "))?;
            out.flush()?;
        }
        lines.push(line);
        Ok(())
    };
    let mut measured: HashMap<(String, String), f64> = HashMap::new();
    let mut rates = Vec::new();
    let mut device = Value::Null;
    for (index, row) in rows.iter().enumerate() {
        tell(format_args!("bitwalk: row {} of {}: {}", index + 1, rows.len(), row.name));
        let bench = child(&bench_words(args, row));
        interrupt::check()?;
        let bench = match bench {
            Ok(bench) => bench,
            Err(error) => {
                add(failed(row, &format!("{error:#}")))?;
                continue;
            }
        };
        rates.extend(bench["read_only_bytes_s"].as_f64());
        device = bench["device_name"].clone();
        for program in bench["programs"].as_array().into_iter().flatten() {
            let act = program["act"].as_str().unwrap_or_default();
            let trace = child(&trace_words(args, row, act));
            interrupt::check()?;
            add(line(row, act, program, trace, &mut measured))?;
        }
    }
    let mut out = io::stdout().lock();
    if args.json {
        let rows: Vec<&Value> = lines.iter().map(|line| &line.object).collect();
        let object = json!({ "device_name": device, "read_only_bytes_s": rates, "rows": rows });
        serde_json::to_writer_pretty(&mut out, &object).map_err(io::Error::from)?;
        writeln!(out)?;
        return Ok(out.flush()?);
    }
    let terabytes: Vec<f64> = rates.iter().map(|rate| rate / 1e12).collect();
    if let (Some(least), Some(most)) =
        (terabytes.iter().copied().reduce(f64::min), terabytes.iter().copied().reduce(f64::max))
    {
        writeln!(out, "\nRead-only rate, measured in each row's process: {least:.2} to {most:.2} TB/s.")?;
    }
    writeln!(
        out,
        "Device {}, prompt {} tokens, {} decoded, {} a synchronisation.",
        device.as_str().unwrap_or("unknown"),
        args.prompt_tokens,
        args.tokens(),
        args.queue
    )?;
    Ok(out.flush()?)
}

/// What every process of a row is given.
fn common(args: &Args, row: &Row) -> Vec<String> {
    let mut words = vec!["--json".to_owned(), "--model".to_owned(), row.model.clone()];
    words.extend(args.model.machine_words());
    words.extend(["--prompt-tokens".to_owned(), args.prompt_tokens.to_string()]);
    if let Some(context) = row.context {
        words.extend(["--context".to_owned(), context.to_string()]);
    }
    words
}

fn bench_words(args: &Args, row: &Row) -> Vec<String> {
    let mut words = vec!["bench".to_owned()];
    words.extend(common(args, row));
    words.extend(["--tokens".to_owned(), args.tokens().to_string()]);
    words.extend(["--queue".to_owned(), args.queue.to_string()]);
    words.extend(["--compare".to_owned(), row.programs.join(",")]);
    if let Some(reps) = args.reps {
        words.extend(["--reps".to_owned(), reps.to_string()]);
    }
    words
}

fn trace_words(args: &Args, row: &Row, act: &str) -> Vec<String> {
    let mut words = vec!["trace".to_owned()];
    words.extend(common(args, row));
    words.extend(["--act".to_owned(), act.to_owned()]);
    words
}

/// Runs this program with other arguments; the object that it prints.
fn child(words: &[String]) -> Result<Value> {
    let program = std::env::current_exe().context("the program's own path")?;
    let output = Command::new(program)
        .args(words)
        .env_remove("BITWALK_MODEL")
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .context("starting a row's process")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let last = said.lines().last().unwrap_or("it said nothing");
        anyhow::bail!("{}", last.strip_prefix("bitwalk: ").unwrap_or(last));
    }
    serde_json::from_slice(&output.stdout).context("what a row's process printed")
}

fn failed(row: &Row, why: &str) -> Line {
    let mut cells =
        vec![row.name.clone(), row.programs.join(", "), format!("not run: {}", why.replace('|', "/"))];
    cells.resize(HEADER.len(), String::new());
    let object = json!({ "name": row.name, "model": row.model, "error": why });
    Line { cells, object }
}

fn line(
    row: &Row,
    act: &str,
    program: &Value,
    trace: Result<Value>,
    measured: &mut HashMap<(String, String), f64>,
) -> Line {
    let (eager, graph) = (&program["eager"], &program["graph"]);
    let ms = graph["ms_per_token"].as_f64();
    measured.extend(ms.map(|ms| ((row.name.clone(), act.to_owned()), ms)));
    let target = row.target_ms.or_else(|| {
        let of = row.target_of.as_ref()?;
        Some(measured.get(&(of.row.clone(), act.to_owned()))? * of.times)
    });
    let met = target.zip(ms).map(|(target, ms)| ms <= target);
    let spread = (|| Some((graph["ms_most"].as_f64()? - graph["ms_least"].as_f64()?) / ms? * 100.0))();
    let of_floor = row.floor_ms.zip(ms).map(|(floor, ms)| floor / ms * 100.0);
    let submitting = graph["submitting_cpu_share"].as_f64().map(|share| share * 100.0);
    let (gap, trace) = match trace {
        // Between launches with an event on each side there is a gap of the events' own.
        Ok(trace) => {
            let records = trace["clock"].as_str().is_some_and(|clock| clock.starts_with("CUPTI"));
            (trace["largest_gap_us"].as_f64().filter(|_| records), trace)
        }
        Err(error) => (None, json!({ "error": format!("{error:#}") })),
    };
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "–".to_owned());
    let figure = |value: Option<f64>| or_dash(value.map(|value| format!("{value:.3}")));
    let percent = |value: Option<f64>| or_dash(value.map(|value| format!("{value:.1} %")));
    let verdict = met.map(|met| if met { "yes".to_owned() } else { "no".to_owned() });
    let cells = vec![
        row.name.clone(),
        format!("`{act}`"),
        program["launches_per_token"].to_string(),
        figure(eager["ms_per_token"].as_f64()),
        format!("**{}**", figure(ms)),
        percent(spread),
        percent(graph["percent_of_read_only"].as_f64()),
        figure(row.floor_ms),
        percent(of_floor),
        figure(row.peer_ms),
        figure(target),
        or_dash(verdict),
        percent(submitting),
        or_dash(gap.map(|gap| format!("{gap:.1} µs"))),
    ];
    let object = json!({
        "name": row.name, "model": row.model, "context": row.context, "floor_ms": row.floor_ms,
        "peer_ms": row.peer_ms, "target_ms": target, "met": met, "bench": program, "trace": trace,
    });
    Line { cells, object }
}
