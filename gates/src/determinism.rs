//! `determinism`: one thread, two threads and twenty fresh processes give one hash of all logits, of the llama fixtures and of
//! glm5_next.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bitwalk::device::{Device, DeviceKind};
use bitwalk::options::EngineOptions;
use ptx_sim::Checks;

use crate::context::{GateContext, simulated};
use crate::gate::{Gate, Tooth};
use crate::glm5;
use crate::outcome::Report;
use crate::runs::{Recording, Subject, eager, prompt};

/// Tokens of the prompt, and as many generated.
const TOKENS: usize = 8;
const PROCESSES: usize = 20;

/// The gate.
#[derive(Debug)]
pub struct Determinism;

impl Gate for Determinism {
    const NAME: &'static str = "determinism";
    const PROVES: &'static str = "the bits depend neither on threads nor on the process";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "a flipped bit in one logit of the run on two threads",
            must_say: "2 threads",
            bite: |cx, report| {
                let one = walk(cx, simulated(0, Some(1), Checks::NONE)?)?;
                let mut two = one.clone();
                two.flip(4, 99, 0);
                judge(report, "1 thread", &one.hash(), &[("2 threads".to_owned(), two.hash())]);
                Ok(())
            },
        },
        Tooth {
            fault: "no process to compare with",
            must_say: "compared no",
            bite: |cx, report| {
                judge(report, "1 thread", &walk(cx, simulated(0, Some(1), Checks::NONE)?)?.hash(), &[]);
                Ok(())
            },
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        let mut others = Vec::new();
        let device = cx.open()?;
        let (first, reference) = if device.info().kind == DeviceKind::Sim {
            let ordinal = device.info().ordinal;
            others.push(("2 threads".to_owned(), walks(cx, simulated(ordinal, Some(2), Checks::NONE)?)?));
            ("1 thread", walks(cx, simulated(ordinal, Some(1), Checks::NONE)?)?)
        } else {
            ("this process", walks(cx, device.clone())?)
        };
        let processes = if cx.quick { 2 } else { PROCESSES };
        let bar = cx.bar(processes, "fresh processes");
        for number in 1..=processes {
            others.push((format!("process {number}"), in_fresh_process(&device)?));
            bar.inc(1);
        }
        bar.finish_and_clear();
        let threads = if others.len() > processes { ", 2 threads" } else { "" };
        report.note(format!(
            "{device}, {}: prompt {TOKENS}, {TOKENS} tokens on {first}{threads}, in {processes} processes: SHA-256 {reference}",
            EngineOptions::default().program(),
        ));
        judge(report, first, &reference, &others);
        Ok(())
    }
}

/// The hashes of the models' walks.
fn walks(cx: &GateContext, device: Device) -> Result<String> {
    let llama = walk(cx, device.clone())?;
    let k_quants = walk_of(cx, device.clone(), &cx.k_fixture()?, TOKENS / 2)?;
    let glm5 = walk_of(cx, device, &glm5::checkpoint(glm5::CHECKPOINTS[0])?, TOKENS)?;
    Ok(format!("{} {} {}", llama.hash(), k_quants.hash(), glm5.hash()))
}

fn walk(cx: &GateContext, device: Device) -> Result<Recording> {
    walk_of(cx, device, &cx.fixture()?, TOKENS)
}

/// A prompt of `tokens`, then as many generated.
fn walk_of(cx: &GateContext, device: Device, model: &Path, tokens: usize) -> Result<Recording> {
    let subject = Subject::load(cx, device, EngineOptions::default(), model)?;
    let prompt = prompt(tokens, subject.vocab());
    let bar = indicatif::ProgressBar::hidden();
    let recording = eager(&mut subject.session(2 * tokens)?, &prompt, tokens, &bar)?;
    match recording.degenerate() {
        Some(reason) => anyhow::bail!(reason),
        None => Ok(recording),
    }
}

/// The hash of the walk on the context's device: what a fresh process prints.
///
/// # Errors
/// Those of the walk.
pub fn walk_hash(cx: &GateContext) -> Result<String> {
    walks(cx, cx.open()?)
}

fn in_fresh_process(device: &Device) -> Result<String> {
    let exe = std::env::current_exe().context("this program's own file")?;
    let output = Command::new(&exe)
        .args(["gate", "--walk-hash", "--device", &device.to_string()])
        .output()
        .with_context(|| format!("starting {}", exe.display()))?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} gate --walk-hash: {}: {words}", exe.display(), output.status);
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn judge(report: &mut Report, first: &str, reference: &str, others: &[(String, String)]) {
    report.compared("hashes of logits", others.len() as u64);
    for (name, hash) in others {
        report.check(hash == reference, || format!("{name}: hash {hash}, {first} gave {reference}"));
    }
}
