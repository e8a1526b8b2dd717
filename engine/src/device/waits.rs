//! How much of a thread's CPU time went into waiting for a device, and how much into giving it work.
//!
//! The driver waits as it sees fit: bitwalk sets no scheduling flag on the primary context, so `CU_CTX_SCHED_AUTO` holds, under
//! which a wait spins as long as there are no more contexts than processors. That is the shortest wait there is, and it
//! makes a thread look busy that has nothing to do. So the two are told apart where the waits are.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// What a thread has spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ThreadTimes {
    /// Time on the wall's clock.
    pub wall: Duration,
    /// CPU time, waits included.
    pub cpu: Duration,
    /// Time in waits for a device, on the wall's clock.
    pub waiting: Duration,
    /// CPU time in those waits: all of it where they spin, next to none where they sleep.
    pub waiting_cpu: Duration,
    /// The waits.
    pub waits: u64,
}

impl ThreadTimes {
    /// CPU time outside waits: what submitting the work costs.
    pub fn submitting(&self) -> Duration {
        self.cpu.saturating_sub(self.waiting_cpu)
    }
}

thread_local! {
    static WAITS: Cell<Option<ThreadTimes>> = const { Cell::new(None) };
}

/// Measures this thread's time from when it is made.
#[derive(Debug)]
pub struct ThreadMeter {
    wall: Instant,
    cpu: Duration,
}

impl ThreadMeter {
    /// Begins to measure; `None` where the system has no clock for one thread's CPU time. One at a time: a second one takes
    /// over the waits.
    pub fn start() -> Option<ThreadMeter> {
        let cpu = thread_cpu()?;
        WAITS.set(Some(ThreadTimes::default()));
        Some(ThreadMeter { wall: Instant::now(), cpu })
    }

    /// What this thread has spent since.
    pub fn stop(self) -> ThreadTimes {
        let waited = WAITS.take().unwrap_or_default();
        let cpu = thread_cpu().unwrap_or_default().saturating_sub(self.cpu);
        ThreadTimes { wall: self.wall.elapsed(), cpu, ..waited }
    }
}

/// Runs a wait for a device, noting what it takes when this thread is measured.
pub(super) fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let Some(so_far) = WAITS.get() else { return wait() };
    let (wall, cpu) = (Instant::now(), thread_cpu().unwrap_or_default());
    let out = wait();
    WAITS.set(Some(ThreadTimes {
        waiting: so_far.waiting + wall.elapsed(),
        waiting_cpu: so_far.waiting_cpu + thread_cpu().unwrap_or_default().saturating_sub(cpu),
        waits: so_far.waits + 1,
        ..so_far
    }));
    out
}

/// CPU time of this thread so far.
#[cfg(target_os = "linux")]
fn thread_cpu() -> Option<Duration> {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).ok().map(Duration::from)
}

#[cfg(not(target_os = "linux"))]
fn thread_cpu() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    /// A wait that sleeps costs wall time and hardly any CPU time; one that computes costs both. Compared with each other, not
    /// with any number of milliseconds.
    #[test]
    #[cfg(target_os = "linux")]
    fn waits_are_told_apart_from_work() {
        let meter = ThreadMeter::start().unwrap();
        waiting(|| thread::sleep(Duration::from_millis(30)));
        let slept = meter.stop();
        assert_eq!(slept.waits, 1);
        assert!(slept.waiting >= Duration::from_millis(30) && slept.wall >= slept.waiting, "{slept:?}");
        assert!(slept.waiting_cpu < slept.waiting, "{slept:?}");

        let spin = || {
            let until = thread_cpu().unwrap() + Duration::from_millis(20);
            while thread_cpu().unwrap() < until {}
        };
        let meter = ThreadMeter::start().unwrap();
        waiting(spin);
        spin();
        let spun = meter.stop();
        assert!(spun.waiting_cpu >= Duration::from_millis(20), "{spun:?}");
        assert!(spun.submitting() >= Duration::from_millis(20), "{spun:?}");
        assert!(spun.cpu >= spun.submitting() + spun.waiting_cpu, "{spun:?}");
        // Not measured: nothing is kept.
        waiting(spin);
        assert_eq!(WAITS.get(), None);
    }
}
