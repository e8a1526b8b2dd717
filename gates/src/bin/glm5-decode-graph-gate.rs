//! `glm5-decode-graph-gate`: the `glm5-decode-graph` gate on one checkpoint.
//!
//! Exit codes: 0 with `ALL GREEN`, 1 with a `FAIL:` line for each cause, 2 arguments that do not parse.

use std::process::ExitCode;

use anyhow::Result;
use bitwalk_gates::cli::{Usage, announce, exit_code, take_device};
use bitwalk_gates::glm5_graph::{Arguments, run_arguments};
use bitwalk_gates::{GateContext, Outcome, Report};

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("glm5-decode-graph-gate: {error:#}");
        exit_code(&error)
    })
}

fn run() -> Result<ExitCode> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let device = take_device(&mut words)?;
    let arguments = Arguments::parse_words(&words)?;
    let cx = GateContext::new(device);
    announce(&cx.open()?);
    let mut report = Report::new(true);
    if let Err(error) = run_arguments(&cx, &arguments, &mut report) {
        if error.is::<Usage>() {
            return Err(error);
        }
        report.fail(format!("{error:#}"));
    }
    Ok(match report.finish(&[]) {
        Outcome::Pass { compared } => {
            compared.iter().for_each(|count| println!("compared {} {}", count.compared, count.what));
            println!("ALL GREEN");
            ExitCode::SUCCESS
        }
        Outcome::Fail { reasons } => {
            reasons.iter().for_each(|reason| println!("FAIL: {reason}"));
            ExitCode::FAILURE
        }
        Outcome::Skipped { why } => {
            println!("FAIL: nothing ran: {why}");
            ExitCode::FAILURE
        }
    })
}
