//! `bitwalk trace`: one token's timeline.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use bitwalk::decode::{GraphDecodeState, GraphOptions, Session};
use bitwalk::device::{DeviceKind, KernelTracer};
use bitwalk::measure::record::{self, RecordError};
use bitwalk::measure::{Summary, Timeline, read_only_rate};
use serde_json::json;

use super::model::{Loaded, ModelArgs};
use super::synthetic::SyntheticArgs;
use super::{interrupt, tell};

/// Tokens before the traced one, once whatever records it is there.
const WARM_UP: usize = 4;
/// Tokens timed before anything records, to tell what recording adds.
const UNTRACED: usize = 16;
/// Launches listed.
const LONGEST: usize = 10;
/// Gaps longer than this many nanoseconds are counted as such.
const LONG_GAP: u64 = 5000;
/// Gaps longer than this many nanoseconds are marked in the file.
const MARKED_GAP: u64 = 500;

/// Arguments of `bitwalk trace`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    synthetic: SyntheticArgs,
    /// Tokens of the prompt
    #[arg(long, value_name = "N", default_value_t = 64)]
    prompt_tokens: usize,
    /// Trace at a context of N positions of zeros, not at the prompt's end
    #[arg(long, value_name = "N")]
    context: Option<u32>,
    /// Trace the walk launched kernel by kernel; a GPU's graph is traced otherwise
    #[arg(long)]
    eager: bool,
    /// Where to write the timeline, for chrome://tracing or Perfetto
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON object instead of a summary
    #[arg(long)]
    json: bool,
}

/// Traces a token.
pub fn run(args: &Args) -> Result<()> {
    ensure!(args.prompt_tokens > 0, "at least one prompt token is needed");
    interrupt::install()?;
    let loaded = args.synthetic.applied_to(&args.model)?.load()?;
    let gpu = loaded.engine.device().info().kind == DeviceKind::Cuda;
    // Warming up goes on to the end of a bucket of 64 keys, at worst.
    let start = args.prompt_tokens.max(args.context.unwrap_or(0) as usize);
    let room = start + UNTRACED + 2 * WARM_UP + 8;
    let mut session = loaded.session(room)?;
    ensure!(
        session.cache().capacity() as usize >= room,
        "{room} tokens, and the model's context is {}",
        session.cache().capacity()
    );
    let vocab = loaded.model.config().vocab;
    let prompt: Vec<u32> = (0..args.prompt_tokens as u32).map(|i| (100 + i * 7 % 900) % vocab).collect();
    let restart = |session: &mut Session| -> Result<()> {
        session.clear()?;
        session.prime(&prompt)?;
        if let Some(context) = args.context {
            session.pretend_context(context)?;
        }
        Ok(session.engine().synchronize()?)
    };
    // Refused before anything is timed.
    record::launches(&mut session)?;
    restart(&mut session)?;
    let untraced = if gpu { Some(untraced(&mut session, args.eager)?) } else { None };
    restart(&mut session)?;
    let (timeline, note) =
        if gpu { on_gpu(&mut session, args, restart)? } else { on_sim(&mut session, args)? };
    let ceiling = if gpu { Some(read_only_rate(&loaded.engine)?) } else { None };
    if let Some(path) = &args.out {
        write(path, args, &loaded, &timeline, ceiling)?;
    }
    let found = Found { timeline, note, untraced, ceiling };
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        found.json(&mut out, args, &loaded)?
    } else {
        found.summary(&mut out, args)?
    }
    Ok(out.flush()?)
}

/// No graphs yet; the eager walks that verify a first replay have no place among what is recorded.
fn graphs() -> GraphDecodeState {
    GraphDecodeState::with_options(GraphOptions { verify: false, ..GraphOptions::default() })
}

/// Milliseconds of a token that nothing records.
fn untraced(session: &mut Session, eager: bool) -> Result<f64> {
    let mut graphs = graphs();
    let mut arm = (!eager).then_some(&mut graphs);
    record::warm_up(session, arm.as_deref_mut(), WARM_UP)?;
    let mut times = Vec::with_capacity(UNTRACED);
    while times.len() < UNTRACED && session.cache().held() < session.cache().capacity() {
        let begun = Instant::now();
        match &mut arm {
            Some(graphs) => session.decode_step_graph(graphs)?,
            None => session.decode_step()?,
        }
        session.next_token()?;
        times.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Summary::of(&times).context("no token was timed")?.median)
}

/// By the device's own records where they can be had, else by events; and why not.
fn on_gpu(
    session: &mut Session,
    args: &Args,
    restart: impl Fn(&mut Session) -> Result<()>,
) -> Result<(Timeline, Option<String>)> {
    let recorded = (|| -> Result<Timeline, RecordError> {
        let tracer = KernelTracer::start()?;
        // Captured and instantiated while the tracer records: it sees nodes only of such graphs.
        let mut graphs = graphs();
        let mut arm = (!args.eager).then_some(&mut graphs);
        record::warm_up(session, arm.as_deref_mut(), WARM_UP)?;
        record::by_records(session, arm, &tracer)
    })();
    match recorded {
        Ok(timeline) => Ok((timeline, None)),
        Err(error @ (RecordError::Tracer(_) | RecordError::Records(_))) => {
            restart(session)?;
            record::warm_up(session, None, WARM_UP)?;
            Ok((record::by_events(session)?, Some(error.to_string())))
        }
        Err(error) => Err(error.into()),
    }
}

fn on_sim(session: &mut Session, args: &Args) -> Result<(Timeline, Option<String>)> {
    record::warm_up(session, None, 1)?;
    let note = "the simulated device runs a graph's nodes one by one, so the walk is launched";
    Ok((record::by_host(session)?, (!args.eager).then(|| note.to_owned())))
}

fn write(
    path: &PathBuf,
    args: &Args,
    loaded: &Loaded,
    timeline: &Timeline,
    ceiling: Option<f64>,
) -> Result<()> {
    let mut about = loaded.about();
    about.insert("prompt_tokens".to_owned(), args.prompt_tokens.into());
    about.insert("context".to_owned(), args.context.into());
    let named = || format!("writing {}", path.display());
    let mut file = BufWriter::new(File::create(path).with_context(named)?);
    serde_json::to_writer(&mut file, &timeline.chrome_trace(&about, ceiling, MARKED_GAP))
        .with_context(named)?;
    file.flush().with_context(named)?;
    tell(format_args!(
        "bitwalk: {}: {} launches; chrome://tracing and ui.perfetto.dev show it",
        path.display(),
        timeline.spans.len()
    ));
    Ok(())
}

/// A timeline, and what is to be said with it.
struct Found {
    timeline: Timeline,
    /// Why it is not the one asked for.
    note: Option<String>,
    /// Milliseconds of a token that nothing recorded.
    untraced: Option<f64>,
    ceiling: Option<f64>,
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

impl Found {
    fn share(&self, bytes: u64, time: u64) -> Option<f64> {
        let ceiling = self.ceiling.filter(|_| time > 0)?;
        Some(bytes as f64 / (time as f64 * 1e-9) / ceiling * 100.0)
    }

    fn json(&self, out: &mut impl Write, args: &Args, loaded: &Loaded) -> Result<()> {
        let t = &self.timeline;
        let gaps = t.gaps();
        let longest: Vec<_> = t
            .longest(LONGEST)
            .into_iter()
            .map(|index| {
                let span = &t.spans[index];
                json!({
                    "index": index, "kernel": span.kernel, "layer": span.label.layer, "what": span.label.what,
                    "us": microseconds(span.duration()),
                    "percent_of_read_only": self.share(span.cost.read + span.cost.write, span.duration()),
                })
            })
            .collect();
        let families: Vec<_> = t
            .families()
            .into_iter()
            .map(|family| {
                json!({
                    "family": family.name, "launches": family.launches, "us": microseconds(family.time),
                    "bytes": family.bytes, "percent_of_read_only": self.share(family.bytes, family.time),
                })
            })
            .collect();
        let mut object = loaded.about();
        let more = json!({
            "prompt_tokens": args.prompt_tokens,
            "context": args.context,
            "arm": if t.replayed { "graph" } else { "eager" },
            "clock": t.clock.to_string(),
            "note": self.note,
            "launches": t.spans.len(),
            "token_us": microseconds(t.token),
            "untraced_us": self.untraced.map(|ms| ms * 1e3),
            "extent_us": microseconds(t.extent()),
            "busy_us": microseconds(t.busy()),
            "idle_us": microseconds(t.idle()),
            "kernel_us": microseconds(t.kernel_time()),
            "gaps": gaps.len(),
            "gaps_over_5_us": gaps.iter().filter(|gap| gap.duration() > LONG_GAP).count(),
            "largest_gap_us": gaps.iter().map(|gap| gap.duration()).max().map_or(0.0, microseconds),
            "overlaps_not_dependent": t.overlaps().len(),
            "bytes": t.bytes(),
            "read_only_bytes_s": self.ceiling,
            "opcodes": t.spans.iter().map(|span| span.opcodes).sum::<Option<u64>>(),
            "longest": longest,
            "families": families,
        });
        if let serde_json::Value::Object(more) = more {
            object.extend(more);
        }
        serde_json::to_writer_pretty(&mut *out, &object).map_err(io::Error::from)?;
        Ok(writeln!(out)?)
    }

    fn summary(&self, out: &mut impl Write, args: &Args) -> Result<()> {
        let t = &self.timeline;
        let arm = if t.replayed { "graph" } else { "eager" };
        writeln!(out, "one token, {arm}, {} launches, by {}", t.spans.len(), t.clock)?;
        if let Some(note) = &self.note {
            let what = if args.eager { "no records" } else { "not the graph" };
            writeln!(out, "{what}: {note}")?;
        }
        let us = |time: u64| format!("{:.1} µs", microseconds(time));
        let untraced = self.untraced.map_or(String::new(), |ms| format!(", {:.1} µs untraced", ms * 1e3));
        if !t.overlaps().is_empty() {
            writeln!(
                out,
                "{} launches began before the one before had ended, and are no dependent launches",
                t.overlaps().len()
            )?;
        }
        writeln!(
            out,
            "token {}{untraced}; first launch to last {}: kernels ran in {}, none in {}; the sum of all launches {}",
            us(t.token),
            us(t.extent()),
            us(t.busy()),
            us(t.idle()),
            us(t.kernel_time())
        )?;
        let gaps = t.gaps();
        let long = gaps.iter().filter(|gap| gap.duration() > LONG_GAP).count();
        match gaps.iter().max_by_key(|gap| gap.duration()) {
            None => writeln!(out, "no gaps")?,
            Some(largest) => writeln!(
                out,
                "{} gaps, {long} over 5 µs, the largest {} before {}, {}",
                gaps.len(),
                us(largest.duration()),
                t.spans[largest.before].kernel,
                t.spans[largest.before].label
            )?,
        }
        let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{share:.1} %"));
        // On the simulated device, what was executed says more than a share of a ceiling.
        let simulated = t.spans.iter().any(|span| span.opcodes.is_some());
        let last = if simulated { "opcodes" } else { "of read-only" };
        let measure = |opcodes: Option<u64>, bytes, time| match opcodes {
            Some(opcodes) => opcodes.to_string(),
            None => percent(self.share(bytes, time)),
        };
        writeln!(
            out,
            "\n{:<14} {:>8} {:>12} {:>8} {:>10} {last:>14}",
            "family", "launches", "µs", "share", "MB"
        )?;
        for family in t.families() {
            writeln!(
                out,
                "{:<14} {:>8} {:>12.1} {:>8} {:>10.3} {:>14}",
                family.name,
                family.launches,
                microseconds(family.time),
                percent(Some(family.time as f64 / t.kernel_time().max(1) as f64 * 100.0)),
                family.bytes as f64 / 1e6,
                measure(family.opcodes, family.bytes, family.time)
            )?;
        }
        writeln!(out, "\n{:<26} {:<26} {:>12} {:>10} {last:>14}", "longest", "", "µs", "MB")?;
        for index in t.longest(LONGEST) {
            let span = &t.spans[index];
            let bytes = span.cost.read + span.cost.write;
            writeln!(
                out,
                "{:<26} {:<26} {:>12.1} {:>10.3} {:>14}",
                span.kernel,
                span.label.to_string(),
                microseconds(span.duration()),
                bytes as f64 / 1e6,
                measure(span.opcodes, bytes, span.duration())
            )?;
        }
        Ok(())
    }
}
