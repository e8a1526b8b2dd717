//! `cargo xtask test`: all that must hold before a change is merged, on a machine without a GPU.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};

/// Options of `test`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Leave out what needs the network: rebuilding the PTX and the gates on a real model
    #[arg(long)]
    offline: bool,
    /// Run only the steps whose name contains this
    #[arg(long, value_name = "WORD")]
    only: Option<String>,
}

/// One step: a command that passes when it exits with 0.
struct Step {
    name: &'static str,
    /// What follows `cargo`.
    command: &'static [&'static str],
    /// Needs the network, the first time at least.
    network: bool,
}

const fn step(name: &'static str, command: &'static [&'static str]) -> Step {
    Step { name, command, network: false }
}

const fn network(name: &'static str, command: &'static [&'static str]) -> Step {
    Step { name, command, network: true }
}

const SMOLLM2: &str = "smollm2";

/// Cheapest first, so that the commonest mistakes show soonest.
const STEPS: [Step; 12] = [
    step("formatting", &["fmt", "--all", "--check"]),
    step("lints", &["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
    step("unit, UI and documentation tests", &["test", "--workspace", "--no-fail-fast"]),
    step("fixture is what its recipe makes", &["xtask", "fixture", "--check"]),
    network("PTX is what its sources compile to", &["xtask", "ptx", "--check"]),
    step("gates", &["xtask", "gate", "--device", "sim"]),
    step("teeth", &["xtask", "gate", "--teeth", "--device", "sim"]),
    network("a real model", &["xtask", "model", SMOLLM2]),
    network("reference data", &["xtask", "gate", "reference", "--device", "sim", "--", SMOLLM2]),
    network("text of a real model", &["xtask", "gate", "text", "--device", "sim", "--", SMOLLM2]),
    network(
        "screens of the README",
        &["test", "--package", "bitwalk", "--test", "readme", "--", "--include-ignored"],
    ),
    network(
        "graph decode of a real model",
        &["xtask", "gate", "graph-decode", "--device", "sim", "--", SMOLLM2, "64", "256"],
    ),
];

/// The folder of the workspace's Cargo.toml.
pub fn workspace_root() -> Result<PathBuf> {
    // Set by `cargo run`, which is what `cargo xtask` is.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("this verb builds the workspace: run it as `cargo xtask …` in the repository")?;
    let root = Path::new(&manifest).parent().context("the workspace's folder")?;
    Ok(root.to_path_buf())
}

/// The cargo that runs this.
pub fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Passed and failed, of tests or of steps.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
}

/// Reads `test result: ok. 12 passed; 0 failed; …`.
fn parse_result(line: &str) -> Option<Tally> {
    let rest = line.trim().strip_prefix("test result: ")?;
    let number = |word: &str| {
        let (before, _) = rest.split_once(&format!(" {word}"))?;
        before.rsplit([' ', ';']).next()?.parse().ok()
    };
    Some(Tally { passed: number("passed")?, failed: number("failed")? })
}

/// Runs the steps, all of them whatever fails, and prints a table.
pub fn run(args: &Args) -> Result<ExitCode> {
    let root = workspace_root()?;
    let mut rows = Vec::new();
    let mut all = Tally::default();
    for step in &STEPS {
        if args.only.as_ref().is_some_and(|word| !step.name.contains(word.as_str())) {
            continue;
        }
        if args.offline && step.network {
            rows.push(format!("SKIPPED  {:<36} --offline", step.name));
            continue;
        }
        println!("== {}: {}", step.name, step.command.join(" "));
        let begun = Instant::now();
        let (ok, mut tests) = run_step(&root, step)?;
        if tests == Tally::default() {
            // A step without tests of its own counts as one.
            tests = Tally { passed: u64::from(ok), failed: u64::from(!ok) };
        } else if !ok && tests.failed == 0 {
            // It did not compile, say.
            tests.failed = 1;
        }
        all.passed += tests.passed;
        all.failed += tests.failed;
        let verdict = if ok && tests.failed == 0 { "PASS" } else { "FAIL" };
        let seconds = begun.elapsed().as_secs();
        rows.push(format!(
            "{verdict:<8} {:<36} {:>4} passed, {} failed, {seconds} s",
            step.name, tests.passed, tests.failed
        ));
    }
    println!();
    for row in &rows {
        println!("{row}");
    }
    println!("{} passed, {} failed", all.passed, all.failed);
    let passed = all.failed == 0 && all.passed > 0;
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Runs one step, passing its output on, and counts the tests that it reports.
fn run_step(root: &Path, step: &Step) -> Result<(bool, Tally)> {
    // `xtask` too goes through cargo (its alias): what runs is then what the steps before have built.
    let mut child = Command::new(cargo())
        .args(step.command)
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {}", step.command.join(" ")))?;
    let mut tally = Tally::default();
    let mut out = std::io::stdout();
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).lines() {
            let line = line?;
            if let Some(tests) = parse_result(&line) {
                tally.passed += tests.passed;
                tally.failed += tests.failed;
            }
            writeln!(out, "{line}")?;
        }
    }
    Ok((child.wait()?.success(), tally))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_the_test_harness_are_counted() {
        let line =
            "test result: ok. 12 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.07s";
        assert_eq!(parse_result(line), Some(Tally { passed: 12, failed: 3 }));
        assert_eq!(
            parse_result("test result: FAILED. 1 passed; 10 failed;"),
            Some(Tally { passed: 1, failed: 10 })
        );
        assert_eq!(parse_result("running 3 tests"), None);
    }
}
