//! Dependent launch with producers that are late: replays of kernels that dawdle between letting the next launch begin and
//! doing their work, beside a stream that takes multiprocessors away, give the plain eager run's bits.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use anyhow::Result;
use bitwalk::decode::{GraphDecodeState, Session};
use bitwalk::device::{Buffer, DeviceKind, Stream};
use bitwalk::engine::Engine;
use bitwalk::kernel::{KERNELS, by_name};
use bitwalk::kernels::ceiling;
use bitwalk_kernels::Arch;
use ptx_sim::census;

use crate::context::GateContext;
use crate::outcome::Report;
use crate::pipeline::Pipeline;
use crate::ptx_fault::PtxFault;
use crate::runs::{Recording, compare, prompt};

/// After this the next launch may begin.
const TRIGGER: &str = "griddepcontrol.launch_dependents;";

/// Then a warp in eight sleeps for 20 µs, whichever the clock picks: other ones at each replay, and of each launch.
const DAWDLE: &str = "griddepcontrol.launch_dependents;
\t{ .reg .b32 now, place; .reg .pred late; mov.u32 now, %clock; mov.u32 place, %ctaid.x; add.s32 now, now, place;
\tshr.u32 now, now, 4; and.b32 now, now, 7; setp.eq.s32 late, now, 0; @late nanosleep.u32 20000; }";

/// Steps of a session before it begins anew.
const STEPS: usize = 40;
const PROMPT: usize = 30;

/// What is planted in the late producers' kernels.
pub(crate) type Planted = Option<(&'static str, PtxFault)>;

/// Every kernel that is declared dependent waits on every path, and all of a walk's launches that can do so begin early.
///
/// # Errors
/// PTX that does not parse.
pub(crate) fn every_entry_waits(report: &mut Report) -> Result<()> {
    let (arch, mut dependent) = (Arch::Compute90, 0);
    for module in bitwalk_kernels::modules(arch) {
        for entry in census(module.name, module.text)?.entries {
            let decl = KERNELS.iter().find(|decl| decl.module == module.name && decl.entry == entry.name);
            let Some(decl) = decl.filter(|decl| decl.dependent) else { continue };
            if let Err(wrong) = decl.check_dependence(&entry.dependence, true) {
                report.fail(wrong.to_string());
            }
            dependent += 1;
        }
    }
    report.compared("dependent kernels that wait", dependent);
    Ok(())
}

/// `replays` of them against as many plain eager steps.
///
/// # Errors
/// What engine and device say; a fault for which there is no place.
pub(crate) fn producers(
    cx: &GateContext,
    report: &mut Report,
    model: &Pipeline,
    replays: usize,
    fault: Planted,
) -> Result<()> {
    let (engine, loaded) = &model.stages[0];
    if !engine.arch().has_dependent_launch() {
        report.note(format!("{}: no dependent launch in {}", model.label(), engine.arch().name()));
        return Ok(());
    }
    let late = Cell::new(0);
    let dawdling =
        Engine::with_edited_ptx(engine.device().clone(), engine.options().clone(), &|name, text| {
            late.set(late.get() + text.matches(TRIGGER).count() as u64);
            let text = text.replace(TRIGGER, DAWDLE);
            match fault.and_then(|(kernel, fault)| Some((by_name(kernel)?, fault))) {
                Some((decl, fault)) if decl.module == name => {
                    fault.plant(decl, &text).unwrap_or_default().into()
                }
                _ => Cow::Owned(text),
            }
        })?;
    let dawdling = model.with_stage(Arc::new(dawdling), loaded.clone());
    let mut crowd = Crowd::new(engine)?;
    let bar = cx.bar(2 * replays.div_ceil(STEPS), "late producers");
    let mut done = 0;
    let mut graphs = GraphDecodeState::new();
    let (mut plain, mut session) =
        (model.session(PROMPT + STEPS + 1)?, dawdling.session(PROMPT + STEPS + 1)?);
    while done < replays {
        let steps = (replays - done).min(STEPS);
        let ids = prompt(PROMPT - done / STEPS % 8, model.vocab());
        let eager = run(&mut plain, &ids, steps, |session| Ok(session.decode_step()?))?;
        bar.inc(1);
        let replayed = run(&mut session, &ids, steps, |session| {
            crowd.iter_mut().try_for_each(Crowd::push_in)?;
            Ok(session.decode_step_graph(&mut graphs)?)
        });
        bar.inc(1);
        let replayed = match replayed {
            Ok(replayed) => replayed,
            Err(error) => {
                report.fail(format!("{}, late producers: {error:#}", model.label()));
                return Ok(());
            }
        };
        let result = compare(("eager", &eager), ("replayed with late producers", &replayed));
        report.compared("logits", result.logits);
        report.compared("ids", result.ids);
        result.differences.into_iter().for_each(|line| report.fail(line));
        done += steps;
    }
    bar.finish_and_clear();
    let early = graphs.counters().early_edges;
    report.compared("replays with late producers", graphs.counters().replays);
    report.compared("launches that begin early", early);
    report.compared("kernels made late", late.get());
    report.note(format!(
        "{}: {} replays with late producers{}, {early} of {} launches begin before the one ahead has ended",
        model.label(),
        graphs.counters().replays,
        if crowd.is_some() { " beside a stream of other work" } else { "" },
        graphs.counters().nodes_compared
    ));
    Ok(())
}

fn run(
    session: &mut Session,
    ids: &[u32],
    steps: usize,
    mut step: impl FnMut(&mut Session) -> Result<()>,
) -> Result<Recording> {
    session.clear()?;
    session.prime(ids)?;
    let mut recording = Recording::new(session.model().config().vocab);
    for _ in 0..steps {
        step(session)?;
        recording.push(session.next_token()?, &session.logits()?);
    }
    Ok(recording)
}

/// A stream whose launches fill the multiprocessors; on CUDA only, where launches of two streams run at once.
struct Crowd {
    engine: Arc<Engine>,
    stream: Stream,
    words: Buffer<u32>,
    folded: Buffer<u32>,
    turn: u32,
}

/// Groups of 16 bytes that a launch reads: 64 MiB.
const QUADS: u32 = 4 << 20;

impl Crowd {
    fn new(engine: &Arc<Engine>) -> Result<Option<Crowd>> {
        let device = engine.device();
        if device.info().kind == DeviceKind::Sim {
            return Ok(None);
        }
        Ok(Some(Crowd {
            engine: engine.clone(),
            stream: device.stream()?,
            words: Buffer::new(device, 4 * QUADS as usize, "crowd")?,
            folded: Buffer::new(device, 8 * device.info().sm_count as usize, "crowd's result")?,
            turn: 0,
        }))
    }

    /// Queues up to three launches.
    fn push_in(&mut self) -> Result<()> {
        let launch = ceiling::read_only(&self.words, &self.folded, QUADS, self.folded.len() as u32)?;
        let function = self.engine.function(launch.decl)?;
        for _ in 0..self.turn % 4 {
            launch.submit(&self.stream, function)?;
        }
        self.turn = self.turn.wrapping_add(1);
        Ok(())
    }
}
