//! What one token costs: time, launches, and bytes between host and device.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;
use bitwalk::decode::Session;
use bitwalk::device::{Device, DeviceCounters, Event};

/// What all devices of a session did so far.
pub fn counters(session: &Session) -> DeviceCounters {
    let mut sum = DeviceCounters::default();
    let mut seen: Vec<&Device> = Vec::new();
    for stage in session.stages() {
        let device = stage.engine().device();
        if !seen.contains(&device) {
            seen.push(device);
            sum += device.counters();
        }
    }
    sum
}

/// A token that is being produced.
#[derive(Debug)]
pub struct Meter {
    before: DeviceCounters,
    begun: Instant,
    /// Of each stage's stream, where the token's work begins.
    starts: Vec<Event>,
}

/// What it took.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// On the host, until the token was there.
    pub host: Duration,
    /// From the first launch to the end of the last one, on the device that took longest; waits included.
    pub device_ms: f32,
    /// On all devices.
    pub did: DeviceCounters,
}

impl Meter {
    /// Begins with the next thing that is queued. The streams should be idle.
    pub fn start(session: &Session) -> Result<Meter> {
        let starts = marks(session)?;
        Ok(Meter { before: counters(session), begun: Instant::now(), starts })
    }

    /// The token is there.
    pub fn stop(self, session: &Session) -> Result<Budget> {
        let (host, did) = (self.begun.elapsed(), counters(session).since(self.before));
        let mut device_ms = 0.0_f32;
        for (start, end) in self.starts.iter().zip(marks(session)?) {
            device_ms = device_ms.max(end.elapsed_ms(start)?);
        }
        Ok(Budget { host, device_ms, did })
    }
}

/// An event recorded now in the stream of each stage.
fn marks(session: &Session) -> Result<Vec<Event>> {
    let stages = session.stages().iter().map(|stage| {
        let event = Event::new(stage.engine().device())?;
        stage.engine().stream().record(&event)?;
        Ok(event)
    });
    stages.collect()
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let did = self.did;
        write!(
            f,
            "host {:.3} ms, device {:.3} ms; {} launches, {} graphs of {} kernels; {} bytes to the device, {} to the host",
            self.host.as_secs_f64() * 1e3,
            self.device_ms,
            did.kernel_launches,
            did.graph_launches,
            did.graph_kernels,
            did.host_to_device.bytes,
            did.device_to_host.bytes
        )
    }
}
