//! Events: points in a stream's work.

use super::queue::Point;
use super::stream::Capture;
use super::{Result, System, SystemError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// What an event's last recording was.
#[derive(Debug, Default)]
pub(super) enum Recording {
    /// None.
    #[default]
    Never,
    /// In a running stream, at this time, after this work.
    At { time: Instant, after: Point },
    /// In a capture, after these nodes.
    Captured { capture: Arc<Capture>, after: Vec<usize> },
}

/// A point in a stream's work.
#[derive(Debug, Default)]
pub struct Event {
    recording: Mutex<Recording>,
}

impl Event {
    /// An event that was not recorded.
    pub fn new() -> Self {
        Self::default()
    }

    pub(super) fn recording(&self) -> MutexGuard<'_, Recording> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the work before it done, on `system`, whose stream recorded it.
    ///
    /// # Errors
    /// [`SystemError::NotCapturable`] when the event marks a point in a capture; a failing operation's, of those put off.
    pub fn synchronize(&self, system: &System) -> Result<()> {
        let after = match &*self.recording() {
            Recording::Captured { .. } => return Err(SystemError::NotCapturable("a wait for an event")),
            Recording::Never => return Ok(()),
            Recording::At { after, .. } => after.clone(),
        };
        after.reach(system)
    }

    /// Milliseconds of the host's clock between two recordings.
    ///
    /// # Errors
    /// [`SystemError::NotRecorded`].
    pub fn elapsed_ms(start: &Event, end: &Event) -> Result<f32> {
        let time = |event: &Event| match &*event.recording() {
            Recording::At { time, .. } => Ok(*time),
            Recording::Never | Recording::Captured { .. } => Err(SystemError::NotRecorded),
        };
        let (start, end) = (time(start)?, time(end)?);
        Ok(end.saturating_duration_since(start).as_secs_f32() * 1e3)
    }
}
