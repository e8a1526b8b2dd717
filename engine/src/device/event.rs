//! Events: points in a stream's work.

use super::backend::EventHandle;
use super::capture::Violation;
use super::stream::forbid_in_capture;
use super::waits::waiting;
use super::{Device, Result};
use std::fmt;
use std::sync::Arc;

struct EventInner {
    device: Device,
    handle: EventHandle,
}

impl Drop for EventInner {
    fn drop(&mut self) {
        self.device.backend().event_destroy(self.handle);
    }
}

/// A point in a stream: other streams can wait for it, the host too, and the time between two can be taken.
#[derive(Clone)]
pub struct Event(Arc<EventInner>);

impl Event {
    pub(super) fn handle(&self) -> EventHandle {
        self.0.handle
    }

    /// An event of `device`, not yet recorded. Waiting for it before it is recorded does nothing.
    ///
    /// # Errors
    /// [`DeviceError::Call`].
    pub fn new(device: &Device) -> Result<Self> {
        let handle = device.backend().event_create()?;
        Ok(Self(Arc::new(EventInner { device: device.clone(), handle })))
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Waits until the work before the event is done.
    ///
    /// # Errors
    /// A fault of an earlier launch; in a capture, [`CaptureError::Forbidden`].
    pub fn synchronize(&self) -> Result<()> {
        forbid_in_capture(|| Violation::Synchronisation("event synchronize"))?;
        waiting(|| self.device().backend().event_synchronize(self.0.handle))
    }

    /// Milliseconds from `start` to this event, waiting for both. On the simulated device this is the host's
    /// time, of no meaning for a GPU.
    ///
    /// # Errors
    /// An event that was never recorded; another device; in a capture, [`CaptureError::Forbidden`].
    pub fn elapsed_ms(&self, start: &Event) -> Result<f32> {
        forbid_in_capture(|| Violation::Synchronisation("event elapsed time"))?;
        self.device().expect_same(start.device(), "event", "start")?;
        let backend = self.device().backend();
        waiting(|| backend.event_synchronize(self.0.handle))?;
        backend.event_elapsed_ms(start.0.handle, self.0.handle)
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Event({:#x} of {})", self.0.handle.0, self.device())
    }
}
