//! A graph's first replay, compared with the same launches run eagerly from the same state.

use crate::device::{Buffer, DeviceError, Stream};
use crate::engine::Engine;
use crate::plan::{CapturedPlan, PlanError};

/// Runs the plan eagerly, takes the state back, replays the graph, and compares every byte of the device's memory that the plan may
/// write. The state
/// afterwards is the one before. `None` when nothing differs; else where the first difference is.
///
/// # Errors
/// What the device says.
pub(super) fn first_replay(engine: &Engine, captured: &CapturedPlan) -> Result<Option<String>, PlanError> {
    let stream = engine.stream();
    // What a stage writes into the next one's inbox is a copy of rows that are compared here.
    let mut written = captured.plan().written();
    written.retain(|buffer| buffer.device() == engine.device());
    let read = |stream: &Stream| -> Result<Vec<Vec<u8>>, DeviceError> {
        written
            .iter()
            .map(|buffer| {
                let mut bytes = vec![0; buffer.len()];
                stream.read(buffer, &mut bytes)?;
                Ok(bytes)
            })
            .collect()
    };
    let before = read(stream)?;
    let restore = || -> Result<(), DeviceError> {
        written
            .iter()
            .zip(&before)
            .try_for_each(|(buffer, bytes): (&Buffer<u8>, _)| engine.copy_into(buffer, bytes))
    };
    captured.plan().run(stream)?;
    let eager = read(stream)?;
    restore()?;
    captured.replay(stream)?;
    let replayed = read(stream)?;
    restore()?;
    for ((buffer, eager), replayed) in written.iter().zip(&eager).zip(&replayed) {
        if let Some(at) = eager.iter().zip(replayed).position(|(a, b)| a != b) {
            let (name, a, b) = (buffer.name(), eager[at], replayed[at]);
            return Ok(Some(format!("in `{name}` at byte {at}: {a:02x} launched eagerly, {b:02x} replayed")));
        }
    }
    Ok(None)
}
