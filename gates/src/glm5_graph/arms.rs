//! The two arms, and the faults planted in one of them.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use bitwalk::cache::LayerCache;
use bitwalk::decode::{GraphCounters, GraphDecodeState, GraphFault, GraphOptions, Session, argmax};
use bitwalk::device::Buffer;
use bitwalk::engine::Engine;
use bitwalk::ledger::Ledger;
use bitwalk::models::{Checkpoint, Ffn, HybridModel};
use bitwalk::options::EngineOptions;

use super::budget::Meter;
use super::{Arguments, prompt, reseat_step};
use crate::context::GateContext;
use crate::graph_decode::reseat;
use crate::outcome::Report;
use crate::pipeline::{Pipeline, open_list};
use crate::runs::Recording;

/// What is planted, if anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// In the pool of graphs.
    Graph(GraphFault),
    /// The ledger is not kept.
    NoLedger,
    /// One expert's weight is off by its last bit.
    ExpertBit,
    /// The kernel that attends does not see the incomplete pool.
    NoTail,
    /// The position is set back before a replay.
    StalePosition,
}

/// What one arm did.
#[derive(Debug)]
pub struct ArmRun {
    /// Ids and logits, a row a step.
    pub recording: Recording,
    /// The selections of every step.
    pub ledger: Ledger,
    /// At the end.
    pub counters: GraphCounters,
    /// Replays before the re-seat.
    pub replays_before: u64,
    /// Layers in graphs before the re-seat, of all stages.
    pub captured_layers: u64,
    /// Nodes of a token, of all stages.
    pub nodes: u64,
    /// What was re-seated.
    pub reseat: String,
}

impl ArmRun {
    /// The likeliest id of the first step, its logit, and how many logits are not zero.
    pub fn first_step(&self) -> (u32, f32, usize) {
        let logits = self.recording.logits(0);
        let best = argmax(&logits);
        let value = logits.get(best as usize).copied().unwrap_or(f32::NAN);
        (best, value, logits.iter().filter(|&&logit| logit != 0.0).count())
    }
}

/// Drains every stage's selections of the walk just run.
fn drain(ledger: &mut Ledger, session: &Session) -> Result<()> {
    let stages: Vec<_> = session
        .stages()
        .iter()
        .map(|stage| (stage.engine().stream(), stage.cache(), stage.engine().ordinal()))
        .collect();
    Ok(ledger.drain_stages(&stages, 1)?)
}

fn arm_ledger(session: &Session) -> Result<()> {
    for stage in session.stages() {
        Ledger::arm(stage.engine().stream(), stage.cache())?;
    }
    Ok(())
}

/// The eager arm: the host takes the argmax of the logits it has downloaded, and feeds it back.
pub fn eager(
    cx: &GateContext,
    report: &mut Report,
    subject: &Pipeline,
    arguments: &Arguments,
) -> Result<ArmRun> {
    let ids = prompt(arguments.prompt_len, subject.vocab());
    let steps = arguments.steps as usize;
    let mut session = subject.session(ids.len() + steps + 1)?;
    let (mut recording, mut ledger) = (Recording::new(subject.vocab()), Ledger::new());
    let bar = cx.bar(steps, "arm A: eager");
    session.prime(&ids)?;
    let mut next = argmax(&session.logits()?);
    arm_ledger(&session)?;
    for step in 0..steps {
        let meter = arguments.trace.then(|| Meter::start(&session)).transpose()?;
        session.set_next_token(next)?;
        session.decode_step()?;
        let logits = session.logits()?;
        next = argmax(&logits);
        if let Some(meter) = meter {
            report.note(format!("arm A, step {step}: id {next}; {}", meter.stop(&session)?));
        }
        drain(&mut ledger, &session)?;
        recording.push(next, &logits);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(ArmRun {
        recording,
        ledger,
        counters: GraphCounters::default(),
        replays_before: 0,
        captured_layers: 0,
        nodes: 0,
        reseat: String::new(),
    })
}

/// The graph arm: the device chooses and feeds back. Half-way the first recurrent layer's state gets another buffer.
pub fn graph(
    cx: &GateContext,
    report: &mut Report,
    subject: &Pipeline,
    arguments: &Arguments,
    options: GraphOptions,
    fault: Option<Fault>,
) -> Result<ArmRun> {
    let ids = prompt(arguments.prompt_len, subject.vocab());
    let steps = arguments.steps;
    let mut session = subject.session(ids.len() + steps as usize + 1)?;
    let mut graphs = GraphDecodeState::with_options(options);
    let (mut recording, mut ledger) = (Recording::new(subject.vocab()), Ledger::new());
    let bar = cx.bar(steps as usize, &format!("arm B: graph, {:?}", options.policy));
    session.prime(&ids)?;
    arm_ledger(&session)?;
    let (mut reseated, mut replays_before, mut captured_layers, mut nodes) = (String::new(), 0, 0, 0);
    for step in 0..steps {
        if step == reseat_step(steps) {
            let counters = graphs.counters();
            (replays_before, captured_layers, nodes) =
                (counters.replays, counters.captured_layers, counters.nodes);
            let (layer, before, after) = reseat_state(&session)?;
            reseated = format!("forced re-seat at step {step} (layer {layer}): {before:#x} -> {after:#x}");
        }
        if fault == Some(Fault::StalePosition) && step == steps / 2 + 1 {
            let stage = &session.stages()[0];
            let position = stage.cache().position();
            stage.engine().copy_into(position, &[stage.cache().held() - 1])?;
        }
        let meter = arguments.trace.then(|| Meter::start(&session)).transpose()?;
        let before = graphs.counters();
        session.decode_step_graph(&mut graphs)?;
        let id = session.next_token()?;
        if let Some(meter) = meter {
            let budget = meter.stop(&session)?;
            let line = format!("arm B ({options}), step {step}: id {id}; {budget}");
            report.note(line + &recorded(before, graphs.counters()));
        }
        if fault != Some(Fault::NoLedger) {
            drain(&mut ledger, &session)?;
        }
        recording.push(id, &session.logits()?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(ArmRun {
        recording,
        ledger,
        counters: graphs.counters(),
        replays_before,
        captured_layers,
        nodes,
        reseat: reseated,
    })
}

/// What a step did beside replaying, whose cost its line holds too.
fn recorded(before: GraphCounters, now: GraphCounters) -> String {
    let did = [
        ("captured", now.captures - before.captures),
        ("re-captured", now.recaptures - before.recaptures),
        ("verified", now.verified - before.verified),
        ("patched", now.patches - before.patches),
        ("latched", now.latches - before.latches),
    ];
    did.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("; {what} {count}")).collect()
}

/// Gives the first recurrent layer's state a fresh buffer with the same bytes; the old one is overwritten with 0xFF and
/// released. The layer and both addresses.
fn reseat_state(session: &Session) -> Result<(u32, u64, u64)> {
    for stage in session.stages() {
        for (index, slot) in stage.cache().layers().iter().enumerate() {
            if let LayerCache::Recurrent { state, .. } = slot {
                let before = state.address();
                reseat(stage.engine().stream(), state).context("re-seating a layer's state")?;
                return Ok((stage.cache().first_layer() + index as u32, before, state.address()));
            }
        }
    }
    anyhow::bail!("no layer has a recurrent state to re-seat")
}

/// The graph arm's model with a fault in it, where the fault is in the model or its kernels.
pub fn load_faulty(cx: &GateContext, folder: &Path, arguments: &Arguments, fault: Fault) -> Result<Pipeline> {
    let devices = open_list(cx, &arguments.devices)?;
    let options = EngineOptions { kv: arguments.kv, ..EngineOptions::default() };
    let subject = Pipeline::load(cx, &devices, 1, &options, folder)?;
    match fault {
        Fault::ExpertBit => flip_expert_bit(&subject)?,
        Fault::NoTail => {
            let file = Checkpoint::open(folder)?;
            let engine = Engine::with_edited_ptx(devices[0].clone(), options, &|module, text| {
                if module == "latent" { Cow::Owned(without_tail(text)) } else { Cow::Borrowed(text) }
            })?;
            let model = HybridModel::load_from_source(&engine, file.source(), &mut |_, _| {})?;
            return Ok(subject.with_stage(Arc::new(engine), Arc::new(model)));
        }
        _ => {}
    }
    Ok(subject)
}

/// The module's text with every remainder in the kernels that attend taken as zero: no token of the incomplete pool is seen.
fn without_tail(text: &str) -> String {
    let (mut inside, mut lines) = (false, Vec::new());
    for line in text.lines() {
        if line.contains(".entry") {
            inside = line.contains("latent_split");
        }
        lines.push(line.to_owned());
        if inside && line.trim_start().starts_with("rem.u32") {
            let register = line.split_whitespace().nth(1).unwrap_or_default().trim_end_matches(',');
            lines.push(format!("\tmov.b32 \t{register}, 0;"));
        }
    }
    lines.join("\n")
}

/// Inverts the last bit of the first weight of the first routed layer's every expert: whichever is selected is off.
fn flip_expert_bit(subject: &Pipeline) -> Result<()> {
    for (engine, model) in &subject.stages {
        for layer in model.layers() {
            let Ffn::Routed(routed) = &layer.ffn else { continue };
            let plane: Buffer<u8> = routed.down.planes()[0].clone().typed()?;
            let mut bytes = vec![0; plane.len()];
            engine.stream().read(&plane, &mut bytes)?;
            let rows = routed.down.rows() as usize;
            let row = bytes.len() / rows;
            bytes.iter_mut().step_by(row).for_each(|byte| *byte ^= 1);
            engine.copy_into(&plane, &bytes)?;
            return Ok(());
        }
    }
    anyhow::bail!("no layer has routed experts")
}
