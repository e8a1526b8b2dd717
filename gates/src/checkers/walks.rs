//! The fixtures' walks with every check: a prompt in pieces, then steps eager and replayed.

use std::borrow::Cow;

use anyhow::{Context, Result};
use bitwalk::decode::{GraphDecodeState, Session};
use bitwalk::engine::Engine;
use bitwalk::kernel::by_name;
use bitwalk::options::{Activations, EngineOptions};
use ptx_sim::Checks;

use crate::context::{GateContext, simulated};
use crate::glm5;
use crate::outcome::Report;
use crate::pipeline::Pipeline;
use crate::ptx_fault::PtxFault;
use crate::runs::{Subject, prompt};

/// More than a walk takes at a time, and past the first chunk of keys.
const PROMPT: usize = 70;
/// Steps, as many eager as replayed.
const STEPS: usize = 4;
/// Positions of a session: the steps may look one ahead.
const CAPACITY: usize = PROMPT + 2 * STEPS + 1;

/// Walks every fixture; a finding is a failure.
///
/// # Errors
/// A fixture that is not there.
pub(super) fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
    let mut models = vec![(cx.fixture()?, Activations::Exact), (cx.fixture()?, Activations::I16)];
    for name in glm5::CHECKPOINTS {
        models.push((glm5::checkpoint(name)?, Activations::Exact));
    }
    let bar = cx.bar(models.len(), "the fixtures' walks with every check");
    for (path, activations) in models {
        let options = EngineOptions { activations, ..EngineOptions::default() };
        let device = simulated(0, None, Checks::ALL)?;
        let pipeline = Pipeline::load(cx, &[device], 1, &options, &path)?;
        judge(report, &pipeline.label(), pipeline.session(CAPACITY)?, pipeline.vocab());
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// A walk of the fixture whose `kernel` has a fault, with `checks`.
///
/// # Errors
/// A fault for which there is no place.
pub(super) fn bite(
    cx: &GateContext,
    report: &mut Report,
    kernel: &str,
    fault: PtxFault,
    checks: Checks,
) -> Result<()> {
    let decl =
        by_name(kernel).with_context(|| format!("kernel {kernel} is gone: plant the fault in another"))?;
    let device = simulated(0, None, checks)?;
    let engine = Engine::with_edited_ptx(device, EngineOptions::default(), &|module, text| {
        if module == decl.module {
            Cow::Owned(fault.plant(decl, text).unwrap_or_default())
        } else {
            Cow::Borrowed(text)
        }
    })?;
    let subject = Subject::with_engine(cx, engine, &cx.fixture()?)?;
    judge(report, &subject.label(), subject.session(CAPACITY)?, subject.vocab());
    Ok(())
}

fn judge(report: &mut Report, label: &str, session: Session, vocab: u32) {
    match walk(session, vocab) {
        Ok(tokens) => report.compared("tokens walked with every check", tokens),
        Err(error) => report.fail(format!("{label}: {error:#}")),
    }
}

fn walk(mut session: Session, vocab: u32) -> Result<u64> {
    let mut graphs = GraphDecodeState::new();
    session.prime(&prompt(PROMPT, vocab))?;
    for _ in 0..STEPS {
        session.decode_step()?;
    }
    for _ in 0..STEPS {
        session.decode_step_graph(&mut graphs)?;
    }
    session.logits()?;
    Ok((PROMPT + 2 * STEPS) as u64)
}
