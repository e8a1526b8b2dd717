//! `parity`: the simulated device against CUDA, every bit of every logit.

use std::path::Path;

use anyhow::Result;
use bitwalk::decode::GraphDecodeState;
use bitwalk::device::Device;
use bitwalk::options::{Activations, EngineOptions, KvType};

use crate::cli::Usage;
use crate::context::{GateContext, checks_for, model_file, simulated, targets};
use crate::gate::{Gate, Tooth};
use crate::glm5;
use crate::outcome::{Need, Report};
use crate::runs::{Recording, Subject, compare, eager, prompt, replayed};

const PROMPT: usize = 64;
/// 64 steps after the prompt's own logits: from the first chunk of keys into the second.
const TOKENS: usize = 65;

/// The gate.
#[derive(Debug)]
pub struct Parity;

impl Gate for Parity {
    const NAME: &'static str = "parity";
    const PROVES: &'static str = "the simulated device computes the bits that the GPU computes";
    const ARGUMENTS: &'static str = "MODEL [PROMPT TOKENS]   one model: a file, a folder, or synthetic:NAME";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "one flipped bit in one logit of one device",
            must_say: "1 of",
            bite: |cx, report| bite(cx, report, |run| run.flip(2, 11, 0)),
        },
        Tooth {
            fault: "a device that produced nothing",
            must_say: "length mismatch",
            bite: |cx, report| bite(cx, report, |run| run.truncate(0)),
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        let cuda = match cx.open_cuda()? {
            Ok(device) => device,
            Err(why) => {
                report.skip(Need::Cuda, "simulated device against CUDA", why);
                return Ok(());
            }
        };
        if !cx.args.is_empty() {
            return one_model(cx, report, &cuda);
        }
        for arch in targets(&cuda) {
            for &activations in Activations::ALL {
                let options =
                    |kv| EngineOptions { activations, kv, ptx: Some(arch), ..EngineOptions::default() };
                for &kv in KvType::ALL {
                    on_both(cx, report, &cuda, &cx.fixture()?, &options(kv))?;
                }
                let few = Run { prompt: 16, tokens: 16 };
                few.on_both(cx, report, &cuda, &cx.k_fixture()?, &options(KvType::F16))?;
                if let Some(model) = &cx.model {
                    on_both(cx, report, &cuda, model, &options(KvType::F16))?;
                }
                for name in &glm5::CHECKPOINTS[..2] {
                    // As many steps as the golden data has.
                    let run = Run { tokens: 97, ..Run::default() };
                    run.on_both(cx, report, &cuda, &glm5::checkpoint(name)?, &options(KvType::F32))?;
                }
            }
        }
        Ok(())
    }
}

/// `MODEL [PROMPT TOKENS]`: one model, both programs, the newest PTX target.
fn one_model(cx: &GateContext, report: &mut Report, cuda: &Device) -> Result<()> {
    let number = |word: &String| -> Result<usize> {
        word.parse()
            .ok()
            .filter(|&n| n > 0)
            .ok_or_else(|| Usage(format!("{word}: a number is wanted")).into())
    };
    let (model, run) = match &cx.args[..] {
        [model] => (model, Run::default()),
        [model, prompt, tokens] => (model, Run { prompt: number(prompt)?, tokens: number(tokens)? }),
        _ => return Err(Usage("MODEL, or MODEL PROMPT TOKENS".to_owned()).into()),
    };
    let path = match model.strip_prefix("synthetic:") {
        Some(_) => Path::new(model).to_path_buf(),
        None => model_file(model).or_else(|error| {
            if Path::new(model).is_dir() { Ok(Path::new(model).to_path_buf()) } else { Err(error) }
        })?,
    };
    for &activations in Activations::ALL {
        let options = EngineOptions { activations, ..EngineOptions::default() };
        run.on_both(cx, report, cuda, &path, &options)?;
    }
    Ok(())
}

/// Lengths of a run.
#[derive(Debug, Clone, Copy)]
struct Run {
    prompt: usize,
    tokens: usize,
}

impl Default for Run {
    fn default() -> Self {
        Run { prompt: PROMPT, tokens: TOKENS }
    }
}

fn on_both(
    cx: &GateContext,
    report: &mut Report,
    cuda: &Device,
    model: &Path,
    options: &EngineOptions,
) -> Result<()> {
    Run::default().on_both(cx, report, cuda, model, options)
}

impl Run {
    fn on_both(
        self,
        cx: &GateContext,
        report: &mut Report,
        cuda: &Device,
        model: &Path,
        options: &EngineOptions,
    ) -> Result<()> {
        let Run { prompt: length, tokens } = self;
        let subject = Subject::load(cx, cuda.clone(), options.clone(), model)?;
        let ids = prompt(length, subject.vocab());
        let bar = cx.bar(length + tokens, "CUDA, replayed");
        // Replayed there and eager here: the two ways are compared as well.
        let mut session = subject.session(length + tokens)?;
        let there = replayed(&mut session, &mut GraphDecodeState::new(), &ids, tokens, &bar)?;
        bar.finish_and_clear();
        let here = simulate(cx, model, options, &ids, tokens)?;
        let label = subject.label();
        report.note(format!("{label}: prompt {length}, {} steps, against the simulated device", tokens - 1));
        judge(report, &label, &there, &here);
        Ok(())
    }
}

/// An eager run on a simulated device of its own, on all of the CPU's threads.
fn simulate(
    cx: &GateContext,
    model: &Path,
    options: &EngineOptions,
    prompt: &[u32],
    tokens: usize,
) -> Result<Recording> {
    let subject = Subject::load(cx, simulated(0, None, checks_for(model))?, options.clone(), model)?;
    let bar = cx.bar(prompt.len() + tokens, "simulated, eager");
    let recording = eager(&mut subject.session(prompt.len() + tokens)?, prompt, tokens, &bar)?;
    bar.finish_and_clear();
    Ok(recording)
}

fn judge(report: &mut Report, label: &str, there: &Recording, here: &Recording) {
    let comparison = compare(("cuda", there), ("sim", here));
    report.compared("logits", comparison.logits);
    report.compared("ids", comparison.ids);
    comparison.differences.into_iter().for_each(|line| report.fail(format!("{label}: {line}")));
    for (device, run) in [("cuda", there), ("sim", here)] {
        if let Some(reason) = run.degenerate() {
            report.fail(format!("{label}: {device}: {reason}"));
        }
    }
}

/// The comparison, between two runs that are both simulated, so that the tooth bites without a GPU too.
fn bite(cx: &GateContext, report: &mut Report, plant: fn(&mut Recording)) -> Result<()> {
    let (fixture, options) = (cx.fixture()?, EngineOptions::default());
    let there = simulate(cx, &fixture, &options, &[1, 2, 3], 4)?;
    let mut here = there.clone();
    plant(&mut here);
    judge(report, "planted", &there, &here);
    Ok(())
}
