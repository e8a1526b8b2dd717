//! `glm5 [FOLDER …]`: glm5_next checkpoints against an independent implementation's golden data, both expert arms.

mod golden;
mod measure;

use std::path::PathBuf;

use anyhow::{Context, Result};
use bitwalk::device::Device;
use bitwalk::options::{Activations, EngineOptions, ExpertArm, KvType};

pub use golden::{Array, Floats, Golden, Indices};

use crate::cli::Usage;
use crate::context::{GateContext, folders};
use crate::gate::{Gate, Tooth};
use crate::outcome::Report;
use measure::{Bounds, measure};

/// The checkpoints with golden data in the repository.
pub const CHECKPOINTS: [&str; 4] =
    ["glm5-next-tiny", "glm5-next-tiny-nvfp4", "glm5-variant", "glm5-variant-unbounded"];

/// Whether a checkpoint of the repository has weights that program `i16` multiplies in integers; else it is `exact`.
pub fn has_integer_weights(name: &str) -> bool {
    matches!(name, "glm5-next-tiny-nvfp4" | "glm5-variant")
}

/// The gate.
#[derive(Debug)]
pub struct Glm5;

impl Gate for Glm5 {
    const NAME: &'static str = "glm5";
    const PROVES: &'static str =
        "glm5_next's logits, ids, experts, selections and streams are those of an independent implementation";
    const ARGUMENTS: &'static str =
        "FOLDER …   checkpoints with golden data (those of the repository by default)";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "one golden id changed",
            must_say: "id",
            bite: |cx, report| bite(cx, report, |golden| golden.ids[3] ^= 1),
        },
        Tooth {
            fault: "a golden logit of the prompt moved by 3e-4",
            must_say: "prompt logit",
            bite: |cx, report| bite(cx, report, |golden| golden.prefill_logits.values[700] += 3e-4),
        },
        Tooth {
            fault: "a golden expert exchanged for another",
            must_say: "experts",
            bite: |cx, report| bite(cx, report, |golden| golden.experts[1].values[2] += 1),
        },
        Tooth {
            fault: "a golden expert's weight moved by 2e-6",
            must_say: "expert weight",
            bite: |cx, report| bite(cx, report, |golden| golden.weights[0].values[5] += 2e-6),
        },
        Tooth {
            fault: "a position left out of a golden selection",
            must_say: "selected",
            bite: |cx, report| bite(cx, report, |golden| golden.selections[1].values[4] = -1),
        },
        Tooth {
            fault: "a hyper-connection's map moved by what one Sinkhorn round makes",
            must_say: "attn_comb",
            bite: |cx, report| bite(cx, report, |golden| golden.comb[0].values[3] += 4.8e-5),
        },
        Tooth {
            fault: "streams after the last layer scaled by 1 + 1e-5",
            must_say: "streams",
            bite: |cx, report| {
                bite(cx, report, |golden| {
                    let row = golden.streams.shape[1] * golden.streams.shape[2];
                    let from = golden.streams.values.len() - row;
                    golden.streams.values[from..].iter_mut().for_each(|value| *value *= 1.0 + 1e-5);
                })
            },
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        let folders = match &cx.args[..] {
            [] => CHECKPOINTS.iter().map(|name| checkpoint(name)).collect::<Result<Vec<_>>>()?,
            named => named.iter().map(PathBuf::from).collect(),
        };
        for folder in folders {
            if !folder.is_dir() {
                return Err(Usage(format!("{}: no folder with a checkpoint", folder.display())).into());
            }
            let mut golden = Golden::read(&folder)?;
            if cx.quick {
                shorten(&mut golden, 12);
            }
            both_arms(cx, report, &golden)?;
        }
        Ok(())
    }
}

/// The folder of a checkpoint in the repository.
///
/// # Errors
/// The places that were looked at.
pub fn checkpoint(name: &str) -> Result<PathBuf> {
    folders("fixtures")
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|folder| folder.is_dir())
        .with_context(|| format!("no folder {name} in any of {:?}", folders("fixtures")))
}

/// Leaves `steps` decode steps.
fn shorten(golden: &mut Golden, steps: usize) {
    golden.ids.truncate(steps + 1);
    golden.full_steps.retain(|&step| (step as usize) < steps);
}

fn bite(cx: &GateContext, report: &mut Report, plant: fn(&mut Golden)) -> Result<()> {
    let mut golden = Golden::read(&checkpoint(CHECKPOINTS[0])?)?;
    // As little as shows the fault.
    shorten(&mut golden, 6);
    plant(&mut golden);
    let options = options(Activations::Exact, ExpertArm::Device);
    measure(cx, report, cx.open()?, options, &golden, Some(Bounds::EXACT))?;
    Ok(())
}

fn options(activations: Activations, experts: ExpertArm) -> EngineOptions {
    // The reference keeps its latents in float32.
    EngineOptions { activations, experts, kv: KvType::F32, ..EngineOptions::default() }
}

fn both_arms(cx: &GateContext, report: &mut Report, golden: &Golden) -> Result<()> {
    let device = || -> Result<Device> { cx.open() };
    let run = |report: &mut Report, activations, experts, bounds| {
        measure(cx, report, device()?, options(activations, experts), golden, bounds)
    };
    let exact = run(report, Activations::Exact, ExpertArm::Device, Some(Bounds::EXACT))?;
    let oracle = run(report, Activations::Exact, ExpertArm::HostOracle, Some(Bounds::EXACT))?;
    measure::same_bits(report, ("device arm", &exact), ("host-oracle arm", &oracle));
    let name = golden.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if CHECKPOINTS.contains(&name.as_str()) && !has_integer_weights(&name) {
        report.note(format!("{name}: no weight is an integer, so program i16 is exact"));
        return Ok(());
    }
    // Program i16 states its error; its ids are held to the golden ones where those are clear of it.
    let device_arm = run(report, Activations::I16, ExpertArm::Device, None)?;
    let host_arm = run(report, Activations::I16, ExpertArm::HostOracle, None)?;
    measure::same_bits(report, ("device arm, i16", &device_arm), ("host-oracle arm, i16", &host_arm));
    measure::clear_ids(report, golden, &device_arm);
    Ok(())
}
