//! A graph's first replay, compared with the same launches run eagerly from the same state.

use crate::device::{Buffer, DeviceError, Stream};
use crate::engine::Engine;
use crate::plan::{CapturedPlan, PlanError};

/// Bytes that are compared at a time: both sides pass through the host.
const PIECE: usize = 16 << 20;

/// The contents of a buffer at some moment.
enum Copy {
    /// On the device: a copy there takes next to no time.
    Device(Buffer<u8>),
    /// On the host, where the device has no room.
    Host(Vec<u8>),
}

impl Copy {
    fn of(engine: &Engine, buffer: &Buffer<u8>) -> Result<Copy, DeviceError> {
        match engine.uninit(buffer.len(), "contents before a replay") {
            Ok(copy) => {
                engine.stream().copy(&copy, buffer)?;
                Ok(Copy::Device(copy))
            }
            Err(DeviceError::OutOfMemory { .. }) => {
                let mut bytes = vec![0; buffer.len()];
                engine.stream().read(buffer, &mut bytes)?;
                Ok(Copy::Host(bytes))
            }
            Err(error) => Err(error),
        }
    }

    fn of_all(engine: &Engine, buffers: &[Buffer<u8>]) -> Result<Vec<Copy>, DeviceError> {
        buffers.iter().map(|buffer| Copy::of(engine, buffer)).collect()
    }

    /// Gives the buffer these contents.
    fn restore(&self, stream: &Stream, buffer: &Buffer<u8>) -> Result<(), DeviceError> {
        match self {
            Copy::Device(copy) => stream.copy(buffer, copy),
            Copy::Host(bytes) => stream.write(buffer, bytes),
        }
    }

    /// The first byte in which the buffer differs: where it is, what it was and what it is now.
    fn difference(
        &self,
        stream: &Stream,
        buffer: &Buffer<u8>,
    ) -> Result<Option<(usize, u8, u8)>, DeviceError> {
        for from in (0..buffer.len()).step_by(PIECE) {
            let range = from..buffer.len().min(from + PIECE);
            let mut now = vec![0; range.len()];
            stream.read(&buffer.slice(range.clone())?, &mut now)?;
            let mut piece = Vec::new();
            let then = match self {
                Copy::Host(bytes) => &bytes[range],
                Copy::Device(copy) => {
                    piece.resize(range.len(), 0);
                    stream.read(&copy.slice(range)?, &mut piece)?;
                    &piece[..]
                }
            };
            if now != then {
                let at = then.iter().zip(&now).position(|(a, b)| a != b).unwrap_or(0);
                return Ok(Some((from + at, then[at], now[at])));
            }
        }
        Ok(None)
    }
}

/// Runs the plan eagerly, takes the state back, replays the graph (`replay` does), and compares every byte of the device's
/// memory that the plan may write. The state afterwards is the one before. `None` when nothing differs; else where the first
/// difference is.
///
/// # Errors
/// What the device says.
pub(super) fn first_replay(
    engine: &Engine,
    captured: &CapturedPlan,
    replay: impl FnOnce(&CapturedPlan) -> Result<(), PlanError>,
) -> Result<Option<String>, PlanError> {
    let stream = engine.stream();
    // What a stage writes into the next one's inbox is a copy of rows that are compared here.
    let mut written = captured.plan().written();
    written.retain(|buffer| buffer.device() == engine.device());
    let before = Copy::of_all(engine, &written)?;
    let restore = || {
        let pairs = written.iter().zip(&before);
        pairs.into_iter().try_for_each(|(buffer, copy)| copy.restore(stream, buffer))
    };
    captured.plan().run(stream)?;
    let eager = Copy::of_all(engine, &written)?;
    restore()?;
    replay(captured)?;
    let mut first = None;
    for (buffer, copy) in written.iter().zip(&eager) {
        if let Some((at, a, b)) = copy.difference(stream, buffer)? {
            let name = buffer.name();
            first = Some(format!("in `{name}` at byte {at}: {a:02x} launched eagerly, {b:02x} replayed"));
            break;
        }
    }
    restore()?;
    // The copies are given back; what reads them must have run.
    engine.synchronize()?;
    Ok(first)
}
