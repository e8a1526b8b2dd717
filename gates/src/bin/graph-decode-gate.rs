//! `graph-decode-gate MODEL [P] [N] [bench]`: the `graph-decode` gate on one model.
//!
//! Exit codes: 0 passed, 1 failed, 2 arguments that do not parse.

use std::process::ExitCode;

use anyhow::Result;
use bitwalk_gates::cli::{Usage, announce, exit_code, take_device};
use bitwalk_gates::graph_decode::{Arguments, run_arguments};
use bitwalk_gates::{GateContext, Outcome, Report};

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("graph-decode-gate: {error:#}");
        exit_code(&error)
    })
}

fn run() -> Result<ExitCode> {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let device = take_device(&mut args)?;
    let arguments = Arguments::parse(&args)?;
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
            for count in compared {
                println!("compared {} {}", count.compared, count.what);
            }
            println!("PASS");
            ExitCode::SUCCESS
        }
        Outcome::Fail { reasons } => {
            reasons.iter().for_each(|reason| println!("{reason}"));
            println!("FAIL");
            ExitCode::FAILURE
        }
        Outcome::Skipped { why } => {
            println!("SKIPPED: {why}");
            ExitCode::FAILURE
        }
    })
}
