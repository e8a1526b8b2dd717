//! `oracle`: the fixtures' logits against a float64 forward pass on the CPU.

use std::borrow::Cow;
use std::path::Path;

use anyhow::{Context, Result};
use bitwalk::engine::Engine;
use bitwalk::format::TensorSource;
use bitwalk::format::gguf::GgufFile;
use bitwalk::kernel::by_name;
use bitwalk::options::{Activations, EngineOptions, KvType};

use crate::context::GateContext;
use crate::gate::{Gate, Tooth};
use crate::oracle::Oracle;
use crate::outcome::Report;
use crate::ptx_fault::PtxFault;
use crate::runs::{Subject, forced, prompt};

/// Positions compared; attention folds two chunks of keys from position 64 on.
const POSITIONS: usize = 96;
const K_POSITIONS: usize = 12;

/// The gate.
#[derive(Debug)]
pub struct OracleGate;

/// The worst that a logit may be off. Logits of the fixture reach about 10, so one float32 rounding of one is 5e-7; three
/// layers of sums over at most 384 terms add up some tens of them (2.1e-5 was seen). Int16 activations round at 2⁻¹⁶ of a
/// block's largest element, some hundred times as coarsely (2.5e-3 was seen). Both bounds are about twice what was seen: the
/// arithmetic is deterministic, so they leave room only for another order of reduction.
fn tolerance(activations: Activations) -> f64 {
    match activations {
        Activations::Exact => 5e-5,
        Activations::I16 => 5e-3,
    }
}

impl Gate for OracleGate {
    const NAME: &'static str = "oracle";
    const PROVES: &'static str =
        "the fixtures' logits are those of a float64 forward pass that shares no code with them";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            // Both have the cache's size, so that nothing is read out of bounds, however many tokens a walk takes.
            fault: "swapped arguments: attention reads its values as its keys",
            must_say: "off by",
            bite: |cx, report| bite(cx, report, "attn_split_f32_64", PtxFault::Swapped("k", "v")),
        },
        Tooth {
            // It still writes every output, so that nothing is read that was never written.
            fault: "an off-by-one bound: a projection leaves out its last columns",
            must_say: "off by",
            bite: |cx, report| bite(cx, report, "matvec_q4_1", PtxFault::OffByOne { scalar: "cols", by: -1 }),
        },
        Tooth {
            fault: "one logit moved by twice the tolerance",
            must_say: "off by",
            bite: |cx, report| {
                let mut rows = oracle_rows(&cx.fixture()?, 4)?;
                rows[3][17] += 2.0 * tolerance(Activations::Exact);
                let subject = Subject::load(cx, cx.open()?, options(Activations::Exact), &cx.fixture()?)?;
                judge(cx, report, &subject, &rows)
            },
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        // The second is there for its formats, which a few positions show.
        for (fixture, positions) in [(cx.fixture()?, POSITIONS), (cx.k_fixture()?, K_POSITIONS)] {
            let rows = oracle_rows(&fixture, positions)?;
            for &activations in Activations::ALL {
                let subject = Subject::load(cx, cx.open()?, options(activations), &fixture)?;
                judge(cx, report, &subject, &rows)?;
            }
        }
        Ok(())
    }
}

fn options(activations: Activations) -> EngineOptions {
    // The oracle keeps keys and values as they are computed.
    EngineOptions { activations, kv: KvType::F32, ..EngineOptions::default() }
}

fn oracle_rows(model: &Path, positions: usize) -> Result<Vec<Vec<f64>>> {
    let file = GgufFile::open(model)?;
    let ids = prompt(positions, file.config()?.vocab);
    Ok(Oracle::new(&file)?.feed(&ids))
}

fn judge(cx: &GateContext, report: &mut Report, subject: &Subject, wanted: &[Vec<f64>]) -> Result<()> {
    let ids = prompt(wanted.len(), subject.vocab());
    let bar = cx.bar(ids.len(), "every position");
    let rows = forced(&mut subject.session(ids.len())?, &ids, &bar)?;
    bar.finish_and_clear();
    let bound = tolerance(subject.engine.options().activations);
    let (mut worst, mut at, mut compared) = (0_f64, (0, 0), 0);
    for (position, (row, wanted)) in rows.iter().zip(wanted).enumerate() {
        for (index, (&got, &wanted)) in row.iter().zip(wanted).enumerate() {
            let off = (f64::from(got) - wanted).abs();
            compared += 1;
            // A NaN is worse than any number.
            let off = if off.is_nan() { f64::INFINITY } else { off };
            if off > worst {
                (worst, at) = (off, (position, index));
            }
        }
    }
    report.compared("logits", compared);
    report.note(format!(
        "{}: {} positions, {compared} logits, worst off by {worst:.2e} (bound {bound:.0e})",
        subject.label(),
        rows.len()
    ));
    report.check(rows.len() == wanted.len(), || {
        format!("{} positions, the oracle gave {}", rows.len(), wanted.len())
    });
    report.check(worst <= bound, || {
        format!("position {}, logit {}: off by {worst:.3e}, the bound is {bound:.0e}", at.0, at.1)
    });
    Ok(())
}

fn bite(cx: &GateContext, report: &mut Report, kernel: &str, fault: PtxFault) -> Result<()> {
    let decl =
        by_name(kernel).with_context(|| format!("kernel {kernel} is gone: plant the fault in another"))?;
    let engine = Engine::with_edited_ptx(cx.open()?, options(Activations::Exact), &|module, text| {
        if module == decl.module {
            Cow::Owned(fault.plant(decl, text).unwrap_or_default())
        } else {
            Cow::Borrowed(text)
        }
    })?;
    let subject = Subject::with_engine(cx, engine, &cx.fixture()?)?;
    judge(cx, report, &subject, &oracle_rows(&cx.fixture()?, 4)?)
}
