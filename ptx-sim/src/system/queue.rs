//! Work that a stream has still to do, where the machine does it as late as it may.

use super::graph::{Node, Operation, run_nodes};
use super::{Result, System};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One thing to do.
#[derive(Debug)]
pub(super) enum Work {
    /// An operation of the stream's device.
    Operation(Operation),
    /// A run of a graph: its nodes as they were at the launch.
    Graph(Vec<Node>),
    /// First what another stream did up to there.
    Wait(Point),
}

/// A place in a stream's work: after the first so many of its things.
#[derive(Debug, Clone)]
pub(super) struct Point {
    queue: Arc<Queue>,
    count: u64,
}

impl Point {
    /// The device of the stream.
    pub(super) fn device(&self) -> u32 {
        self.queue.device
    }

    /// Has the work before the place done.
    pub(super) fn reach(&self, system: &System) -> Result<()> {
        self.queue.run_to(system, self.count)
    }
}

/// The work of one stream.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) device: u32,
    waiting: Mutex<VecDeque<Work>>,
    submitted: AtomicU64,
    done: AtomicU64,
    /// Held while one thing is done, so that two threads do not do the next one as well.
    running: Mutex<()>,
}

impl Queue {
    pub(super) fn new(device: u32) -> Arc<Self> {
        Arc::new(Self {
            device,
            waiting: Mutex::default(),
            submitted: AtomicU64::new(0),
            done: AtomicU64::new(0),
            running: Mutex::default(),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Work>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, work: Work) {
        let mut waiting = self.waiting();
        waiting.push_back(work);
        self.submitted.fetch_add(1, Ordering::Release);
    }

    /// After all that was submitted so far.
    pub(super) fn point(self: &Arc<Self>) -> Point {
        Point { queue: self.clone(), count: self.submitted.load(Ordering::Acquire) }
    }

    /// Does all that was submitted so far.
    pub(super) fn run(&self, system: &System) -> Result<()> {
        self.run_to(system, self.submitted.load(Ordering::Acquire))
    }

    /// Does the first `count` things, as far as they are not done.
    ///
    /// A wait has the other stream's work done first, within. That cannot come back here: an event is waited for after it
    /// was recorded, so waits point to earlier work only, and what is done already takes no lock.
    fn run_to(&self, system: &System, count: u64) -> Result<()> {
        while self.done.load(Ordering::Acquire) < count {
            let _running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
            if self.done.load(Ordering::Acquire) >= count {
                break;
            }
            let Some(work) = self.waiting().pop_front() else { break };
            let result = match &work {
                Work::Operation(operation) => operation.execute(system, self.device),
                Work::Graph(nodes) => run_nodes(system, nodes),
                Work::Wait(point) => point.reach(system),
            };
            // Done with, failed or not: a failure is told once, to who waits.
            self.done.fetch_add(1, Ordering::Release);
            result?;
        }
        Ok(())
    }
}
