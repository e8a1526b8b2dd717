//! `gate`: runs gates or their teeth, prints a table, decides the exit code.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use bitwalk::decode::GraphOptions;
use bitwalk::device::{Device, DeviceSpec};
use bitwalk::options::{RunOptions, VARIABLES};
use serde_json::json;

use crate::context::GateContext;
use crate::gate::{Bite, Entry};
use crate::outcome::{Count, Need, Outcome, Report};
use crate::{GATES, determinism};

/// Arguments that are not understood: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Exit code of wrong usage.
pub const WRONG_USAGE: u8 = 2;

/// Options of `gate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The gates to run; all of them by default
    names: Vec<String>,
    /// The device: auto, cuda, cuda:N, sim or sim:N [env: BITWALK_DEVICE] [default: auto]
    #[arg(long)]
    device: Option<DeviceSpec>,
    /// What must not be skipped: `cuda`, `model`
    #[arg(long, value_name = "WHAT", value_parser = parse_need)]
    require: Vec<Need>,
    /// A real model (a file, or a name such as `smollm2`) for the gates that take one, beside the fixture
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Plant every gate's faults and prove that they are noticed
    #[arg(long)]
    teeth: bool,
    /// Print what each gate proves, and its faults
    #[arg(long)]
    list: bool,
    /// Print one JSON object instead of lines and a table
    #[arg(long)]
    json: bool,
    /// Shorter runs, for a first look
    #[arg(long)]
    quick: bool,
    /// Print the hash that the determinism gate compares between processes
    #[arg(long, hide = true)]
    walk_hash: bool,
    /// Arguments of the one gate named
    #[arg(last = true)]
    args: Vec<String>,
}

fn parse_need(word: &str) -> Result<Need, String> {
    match word {
        "cuda" => Ok(Need::Cuda),
        "model" => Ok(Need::Model),
        _ => Err("it is `cuda` or `model`".to_owned()),
    }
}

/// One gate's result.
struct Row {
    gate: &'static Entry,
    report: Report,
    outcome: Outcome,
    time: Duration,
}

/// Runs what the options ask for.
///
/// # Errors
/// [`Usage`] for names and arguments that are not understood. What goes wrong in a gate is that gate's failure.
pub fn run(args: &Args) -> Result<ExitCode> {
    let selected = select(&args.names)?;
    if args.list {
        list(&selected);
        return Ok(ExitCode::SUCCESS);
    }
    if let [word, ..] = &args.args[..] {
        let [gate] = &selected[..] else {
            return Err(Usage(format!("arguments (`{word}` …) go to one gate: name it before `--`")).into());
        };
        if gate.arguments.is_empty() || args.teeth {
            return Err(Usage(format!("gate {} takes no arguments here", gate.name)).into());
        }
    }
    let environment = environment()?;
    let cx = GateContext {
        device: args.device.unwrap_or(environment.device),
        model: args.model.as_deref().map(crate::context::model_file).transpose()?,
        quick: args.quick,
        json: args.json,
        require: args.require.clone(),
        args: args.args.clone(),
    };
    if args.walk_hash {
        println!("{}", determinism::walk_hash(&cx)?);
        return Ok(ExitCode::SUCCESS);
    }
    // Opened once here, so that a device that does not work is one message and not one a gate.
    let device = Device::open(cx.device)?;
    if cx.live() {
        announce(&device);
    }
    if args.teeth { teeth(&cx, &device, &selected) } else { gates(&cx, &device, &selected) }
}

/// Prints where gates run, and the options that hold where a gate's lines name no others.
pub fn announce(device: &Device) {
    println!("device {}", device.opened_because());
    println!("options {}, where a gate does not say otherwise", GraphOptions::default());
}

fn select(names: &[String]) -> Result<Vec<&'static Entry>> {
    if names.is_empty() {
        return Ok(GATES.iter().collect());
    }
    let find = |name: &String| {
        GATES.iter().find(|gate| gate.name == name).ok_or_else(|| {
            let known: Vec<&str> = GATES.iter().map(|gate| gate.name).collect();
            Usage(format!("no gate is called `{name}`; there are: {}", known.join(", "))).into()
        })
    };
    names.iter().map(find).collect()
}

fn list(selected: &[&'static Entry]) {
    for gate in selected {
        println!("{:<13} {}", gate.name, gate.proves);
        if !gate.arguments.is_empty() {
            println!("{:<13}   arguments: {}", "", gate.arguments.lines().next().unwrap_or_default());
        }
        for tooth in gate.teeth {
            println!("{:<13}   notices: {}", "", tooth.fault);
        }
    }
}

fn gates(cx: &GateContext, device: &Device, selected: &[&'static Entry]) -> Result<ExitCode> {
    let mut rows = Vec::new();
    for &gate in selected {
        if cx.live() {
            println!("\n{}: {}", gate.name, gate.proves);
        }
        let begun = Instant::now();
        let (report, outcome) = gate.run(cx)?;
        rows.push(Row { gate, report, outcome, time: begun.elapsed() });
    }
    let failed = rows.iter().filter(|row| matches!(row.outcome, Outcome::Fail { .. })).count();
    let passed = rows.iter().filter(|row| matches!(row.outcome, Outcome::Pass { .. })).count();
    let skips: usize = rows.iter().map(|row| row.report.skips().len()).sum();
    // Everything skipped is no pass.
    let pass = failed == 0 && passed > 0;
    if cx.json {
        let gates: Vec<_> = rows.iter().map(row_json).collect();
        let (device, description) = (device.to_string(), device.opened_because());
        let result = json!({ "device": device, "description": description, "pass": pass, "gates": gates });
        println!("{result:#}");
    } else {
        println!();
        for row in &rows {
            println!(
                "{:<13} {:<7} {:>6.1} s  {}",
                row.gate.name,
                row.outcome.word(),
                row.time.as_secs_f64(),
                tail(row)
            );
        }
        println!("{} passed, {failed} failed, {skips} SKIPPED", passed);
        println!("{}", if pass { "PASS" } else { "FAIL" });
    }
    Ok(if pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn row_json(row: &Row) -> serde_json::Value {
    json!({
        "gate": row.gate.name,
        "proves": row.gate.proves,
        "outcome": row.outcome,
        "lines": row.report.notes(),
        "skipped": row.report.skips(),
        "seconds": row.time.as_secs_f64(),
    })
}

fn tail(row: &Row) -> String {
    match &row.outcome {
        Outcome::Pass { compared } => {
            let counts: Vec<String> = compared.iter().map(count).collect();
            let skips = match row.report.skips().len() {
                0 => String::new(),
                n => format!("; {n} SKIPPED"),
            };
            format!("compared {}{skips}", counts.join(", "))
        }
        Outcome::Fail { reasons } => match &reasons[..] {
            [only] => only.clone(),
            [first, rest @ ..] => format!("{first} (and {} more)", rest.len()),
            [] => String::new(),
        },
        Outcome::Skipped { why } => why.clone(),
    }
}

fn count(count: &Count) -> String {
    let digits = count.compared.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    format!("{grouped} {}", count.what)
}

fn teeth(cx: &GateContext, device: &Device, selected: &[&'static Entry]) -> Result<ExitCode> {
    let mut bites = Vec::new();
    for gate in selected {
        for tooth in gate.teeth {
            let bite = Bite::run(gate.name, tooth, cx);
            if cx.live() {
                let said =
                    bite.outcome.reason().unwrap_or_else(|| format!("it says {}", bite.outcome.word()));
                // Reasons can be long; the end of one is detail.
                let said: String = said.chars().take(200).collect();
                let verdict = if bite.noticed() { "noticed" } else { "UNNOTICED" };
                println!("{verdict:<9} {} -> {} -> {said}", tooth.fault, gate.name);
                if !bite.noticed() {
                    println!("          it had to say `{}`", tooth.must_say);
                }
            }
            bites.push(bite);
        }
    }
    let noticed = bites.iter().filter(|bite| bite.noticed()).count();
    let pass = noticed == bites.len() && noticed > 0;
    if cx.json {
        let faults: Vec<_> = bites
            .iter()
            .map(|bite| {
                let (fault, noticed) = (bite.tooth.fault, bite.noticed());
                json!({ "gate": bite.gate, "fault": fault, "noticed": noticed, "outcome": bite.outcome })
            })
            .collect();
        println!("{:#}", json!({ "device": device.to_string(), "pass": pass, "faults": faults }));
    } else {
        println!("{noticed} of {} planted faults noticed", bites.len());
        println!("{}", if pass { "PASS" } else { "FAIL" });
    }
    Ok(if pass { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The exit code of an error that ended a program: 2 for wrong usage, else 1.
pub fn exit_code(error: &anyhow::Error) -> ExitCode {
    if error.is::<Usage>() { ExitCode::from(WRONG_USAGE) } else { ExitCode::FAILURE }
}

/// What the environment asks for. Gates and benchmarks take the device from it and set the other options themselves; those that are set are
/// named on standard error.
///
/// # Errors
/// [`Usage`] for a variable whose value cannot be read.
pub fn environment() -> Result<RunOptions> {
    let options = RunOptions::from_env().map_err(|error| Usage(error.to_string()))?;
    let set = |name: &str| std::env::var_os(name).is_some();
    let others: Vec<&str> = VARIABLES
        .iter()
        .map(|variable| variable.name)
        .filter(|&name| name != "BITWALK_DEVICE" && set(name))
        .collect();
    if !others.is_empty() {
        eprintln!(
            "{}: no part in gates and benchmarks, which set their options themselves",
            others.join(", ")
        );
    }
    Ok(options)
}

/// Takes `--device D` out of the arguments; without it `BITWALK_DEVICE` chooses.
///
/// # Errors
/// [`Usage`] for a device that does not parse, and those of [`environment`].
pub fn take_device(args: &mut Vec<String>) -> Result<DeviceSpec> {
    let environment = environment()?;
    let usage = |error: String| Usage(format!("--device: {error}"));
    let text = match args.iter().position(|word| word == "--device") {
        Some(at) if at + 1 < args.len() => {
            args.remove(at);
            args.remove(at)
        }
        Some(_) => return Err(usage("it wants a value".to_owned()).into()),
        None => return Ok(environment.device),
    };
    text.parse().map_err(|error: bitwalk::device::ParseDeviceSpecError| usage(error.to_string()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        let of = |compared| count(&Count { what: "logits".to_owned(), compared });
        assert_eq!(of(7), "7 logits");
        assert_eq!(of(1_234), "1,234 logits");
        assert_eq!(of(12_582_912), "12,582,912 logits");
    }

    #[test]
    fn gates_have_distinct_names_and_unknown_ones_are_wrong_usage() {
        for (index, gate) in GATES.iter().enumerate() {
            assert!(GATES[..index].iter().all(|other| other.name != gate.name), "{}", gate.name);
        }
        assert!(select(&["graph-decode".to_owned()]).is_ok_and(|gates| gates.len() == 1));
        assert!(select(&["no-such-gate".to_owned()]).is_err_and(|error| error.is::<Usage>()));
    }
}
