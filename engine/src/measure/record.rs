//! Where a timeline comes from.
//!
//! - [`by_records`]: one token, replayed or launched, by the device's own records of its kernels (CUPTI)
//! - [`by_events`]: the eager walk with an event before and after each launch
//! - [`by_host`]: the eager walk on the simulated device, which runs a launch when it is submitted
//!
//! The last two run the launches themselves: the session's cache does not know of the token afterwards, so it is good for nothing
//! but to be cleared.

use std::time::Instant;

use thiserror::Error;

use super::{Span, Timeline, TraceClock};
use crate::decode::{DecodeError, GraphDecodeState, Session};
use crate::device::{DeviceError, Event, KernelRecord, KernelTracer, TracerError};
use crate::models::Segment;
use crate::plan::{Plan, PlanError, Step};

/// Why there is no timeline.
#[derive(Debug, Error)]
pub enum RecordError {
    /// A walk failed.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A launch failed.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The device's records cannot be had.
    #[error(transparent)]
    Tracer(#[from] TracerError),
    /// The host launches something that no plan knows before.
    #[error(
        "the host has a part in this walk ({0}), so its launches are not known before it runs: trace it with `--experts device`"
    )]
    Hosted(String),
    /// The session runs over several stages.
    #[error("a walk over {0} stages: one stage is traced at a time")]
    Stages(usize),
    /// The records are not those of the walk.
    #[error("the records are not those of the walk: {0}")]
    Records(String),
}

/// The launches of the session's next token.
///
/// # Errors
/// [`RecordError::Stages`], [`RecordError::Hosted`].
pub fn launches(session: &mut Session) -> Result<Plan, RecordError> {
    if session.stages().len() > 1 {
        return Err(RecordError::Stages(session.stages().len()));
    }
    let walk = session.walk()?;
    let hosted = walk.body.segments().iter().find_map(|segment| match segment {
        Segment::HostExperts(experts) => Some(match experts.layer() {
            Some(layer) => format!("the experts of layer {layer}"),
            None => "experts".to_owned(),
        }),
        Segment::Launches(_) | Segment::Probe(_) => None,
    });
    match hosted {
        Some(what) => Err(RecordError::Hosted(what)),
        None => Ok(walk.launches()),
    }
}

/// Steps through `graphs`, or eagerly without, until the walk is warm and the next token is of the same bucket: a traced token
/// must not capture.
///
/// # Errors
/// Those of a step, a full cache among them.
pub fn warm_up(
    session: &mut Session,
    mut graphs: Option<&mut GraphDecodeState>,
    steps: usize,
) -> Result<(), RecordError> {
    let mut done = 0;
    loop {
        let bucket = session.bucket();
        step(session, &mut graphs)?;
        done += 1;
        if done >= steps && session.bucket() == bucket {
            return Ok(());
        }
    }
}

fn step(session: &mut Session, graphs: &mut Option<&mut GraphDecodeState>) -> Result<u32, DecodeError> {
    match graphs {
        Some(graphs) => session.decode_step_graph(graphs)?,
        None => session.decode_step()?,
    }
    session.next_token()
}

/// Traces a token by the device's own records. The graphs must have been captured while `tracer` recorded, and be warm.
///
/// # Errors
/// Those of a step; what the library says; records that are not the walk's launches, one for one.
pub fn by_records(
    session: &mut Session,
    mut graphs: Option<&mut GraphDecodeState>,
    tracer: &KernelTracer,
) -> Result<Timeline, RecordError> {
    let plan = launches(session)?;
    session.engine().synchronize()?;
    tracer.take()?;
    let (begun, start) = (Instant::now(), tracer.now()?);
    step(session, &mut graphs)?;
    let token = begun.elapsed().as_nanos() as u64;
    let records = tracer.take()?;
    let clock = TraceClock::Cupti { version: tracer.version()? };
    let spans = matched(plan.steps(), &records, start)?;
    Ok(Timeline { spans, token, clock, replayed: graphs.is_some() })
}

/// The spans of a plan's steps by records in order of their beginning, from `start` on.
pub(super) fn matched(
    steps: &[Step],
    records: &[KernelRecord],
    start: u64,
) -> Result<Vec<Span>, RecordError> {
    let wrong = |reason: String| Err(RecordError::Records(reason));
    if records.len() != steps.len() {
        return wrong(format!("{} kernels recorded, {} launches in the walk", records.len(), steps.len()));
    }
    let mut spans = Vec::with_capacity(steps.len());
    for (index, (step, record)) in steps.iter().zip(records).enumerate() {
        let entry = step.launch.decl.entry;
        if record.name != entry {
            return wrong(format!("kernel {index} is `{}`, the walk launches `{entry}` there", record.name));
        }
        if record.end < record.start || record.start == 0 {
            return wrong(format!("kernel {index}, `{entry}`, ends before it begins or has no time"));
        }
        let since = |time: u64| time.saturating_sub(start);
        spans.push(Span::of(step, 0, since(record.start), since(record.end)));
    }
    Ok(spans)
}

/// Traces the eager walk of the next token by events around each launch.
///
/// # Errors
/// What the device says; those of [`launches`].
pub fn by_events(session: &mut Session) -> Result<Timeline, RecordError> {
    let plan = launches(session)?;
    let engine = session.engine().clone();
    let (stream, device) = (engine.stream(), engine.device());
    let first = device.event()?;
    let events: Vec<[Event; 2]> = plan
        .steps()
        .iter()
        .map(|_| Ok([device.event()?, device.event()?]))
        .collect::<Result<_, DeviceError>>()?;
    engine.synchronize()?;
    let begun = Instant::now();
    stream.record(&first)?;
    for (step, [before, after]) in plan.steps().iter().zip(&events) {
        stream.record(before)?;
        step.run(stream)?;
        stream.record(after)?;
    }
    engine.synchronize()?;
    let token = begun.elapsed().as_nanos() as u64;
    let since = |event: &Event| event.elapsed_ms(&first).map(|ms| (f64::from(ms) * 1e6).round() as u64);
    let mut spans = Vec::with_capacity(events.len());
    for (step, [before, after]) in plan.steps().iter().zip(&events) {
        spans.push(Span::of(step, 0, since(before)?, since(after)?));
    }
    Ok(Timeline { spans, token, clock: TraceClock::Events, replayed: false })
}

/// Traces the eager walk of the next token by the host's clock: for the simulated device.
///
/// # Errors
/// What the device says; those of [`launches`].
pub fn by_host(session: &mut Session) -> Result<Timeline, RecordError> {
    let plan = launches(session)?;
    let engine = session.engine().clone();
    let (stream, device) = (engine.stream(), engine.device());
    engine.synchronize()?;
    let begun = Instant::now();
    let now = || begun.elapsed().as_nanos() as u64;
    let mut spans = Vec::with_capacity(plan.steps().len());
    for step in plan.steps() {
        let opcodes = device.warp_instructions();
        let start = now();
        step.run(stream)?;
        engine.synchronize()?;
        let mut span = Span::of(step, 0, start, now());
        span.opcodes = device.warp_instructions().zip(opcodes).map(|(after, before)| after - before);
        spans.push(span);
    }
    Ok(Timeline { spans, token: now(), clock: TraceClock::Host, replayed: false })
}
