//! What the checks cost: the fixture's walk with each of them, and with all, beside the walk without.

use std::time::Duration;

use anyhow::{Context, Result};
use bitwalk::options::EngineOptions;
use indicatif::ProgressBar;
use ptx_sim::Checks;

use crate::context::{GateContext, simulated};
use crate::outcome::Report;
use crate::runs::{Subject, eager, prompt};

/// Tokens of the prompt and tokens generated: past the first chunk of keys.
const PROMPT: usize = 64;
const TOKENS: usize = 32;
/// How often each is measured; the fastest counts, as the least disturbed.
const ROUNDS: usize = 3;
/// The most that all checks together may slow the walk down.
const BOUND: f64 = 20.0;

/// Measures and prints; a slow-down above the bound is a failure.
///
/// # Errors
/// Those of the walk.
pub fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
    let rounds = if cx.quick { 1 } else { ROUNDS };
    let off = fastest(cx, Checks::NONE, rounds)?;
    let tokens = (PROMPT + TOKENS) as f64;
    let per_token = |time: Duration| time.as_secs_f64() * 1e3 / tokens;
    report.note(format!("{:<14} {:>8} {:>9}", "checks", "ms/token", "slow-down"));
    report.note(format!("{:<14} {:>8.2} {:>9.2}", "none", per_token(off), 1.0));
    let mut all = 0.0;
    for (checks, name) in Checks::NAMES.into_iter().chain([(Checks::ALL, "all")]) {
        let time = fastest(cx, checks, rounds)?;
        all = time.as_secs_f64() / off.as_secs_f64();
        report.note(format!("{name:<14} {:>8.2} {all:>9.2}", per_token(time)));
        report.compared("walks timed", rounds as u64);
    }
    report.check(all <= BOUND, || format!("all checks slow the walk down {all:.1} times, above {BOUND}"));
    Ok(())
}

/// The time of one walk, on one thread with checks and without.
fn fastest(cx: &GateContext, checks: Checks, rounds: usize) -> Result<Duration> {
    let device = simulated(0, Some(1), checks)?;
    let subject = Subject::load(cx, device, EngineOptions::default(), &cx.fixture()?)?;
    let prompt = prompt(PROMPT, subject.vocab());
    let mut fastest = Duration::MAX;
    for _ in 0..rounds {
        let mut session = subject.session(PROMPT + TOKENS)?;
        let begun = cpu_time()?;
        eager(&mut session, &prompt, TOKENS, &ProgressBar::hidden())?;
        fastest = fastest.min(cpu_time()?.saturating_sub(begun));
    }
    Ok(fastest)
}

/// The time that this thread has run, which other work on the machine does not add to.
fn cpu_time() -> Result<Duration> {
    let file = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {file}"))?;
    let nanoseconds = text.split_whitespace().next().and_then(|word| word.parse().ok());
    Ok(Duration::from_nanos(nanoseconds.with_context(|| format!("{file} holds {text:?}"))?))
}
