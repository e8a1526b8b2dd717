//! Streams: work in order, executed at submission or captured.

use super::event::{Event, Recording};
use super::graph::{Graph, GraphExec, KernelLaunch, Node, Operation, Place};
use super::queue::{Queue, Work};
use super::{HostMemory, Result, Schedule, System, SystemError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// A capture under way, shared by the streams that take part.
#[derive(Debug, Default)]
pub(super) struct Capture {
    state: Mutex<CaptureState>,
}

#[derive(Debug, Default)]
struct CaptureState {
    ended: bool,
    nodes: Vec<Node>,
    /// The streams that events drew in.
    drawn_in: Vec<Arc<StreamState>>,
    /// Why the capture cannot give a graph any more.
    invalid: Option<SystemError>,
}

impl Capture {
    fn state(&self) -> MutexGuard<'_, CaptureState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream's part in a capture.
#[derive(Debug, Clone)]
struct Part {
    capture: Arc<Capture>,
    /// The nodes that the next one runs after.
    after: Vec<usize>,
    /// Whether this stream began the capture.
    origin: bool,
}

#[derive(Debug)]
struct StreamState {
    part: Mutex<Option<Part>>,
    queue: Arc<Queue>,
}

impl StreamState {
    fn part(&self) -> MutexGuard<'_, Option<Part>> {
        self.part.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A queue of work on one device.
#[derive(Debug)]
pub struct Stream {
    system: Arc<System>,
    state: Arc<StreamState>,
}

impl Stream {
    pub(super) fn new(system: Arc<System>, queue: Arc<Queue>) -> Self {
        Self { system, state: Arc::new(StreamState { part: Mutex::new(None), queue }) }
    }

    /// The device that it runs on.
    pub fn device(&self) -> u32 {
        self.state.queue.device
    }

    /// Whether work waits to be done.
    fn deferred(&self) -> bool {
        self.system.schedule() == Schedule::Deferred
    }

    /// Executes an operation, or captures it.
    ///
    /// # Errors
    /// The operation's own; none when it is captured.
    pub fn submit(&self, operation: Operation) -> Result<()> {
        // Held while an operation executes: a stream that two threads share still runs in order.
        let mut part = self.state.part();
        let Some(part) = part.as_mut() else {
            if self.deferred() {
                self.state.queue.push(Work::Operation(operation));
                return Ok(());
            }
            self.state.queue.run(&self.system)?;
            return operation.execute(&self.system, self.device());
        };
        let mut capture = part.capture.state();
        let index = capture.nodes.len();
        let after = std::mem::replace(&mut part.after, vec![index]);
        capture.nodes.push(Node { operation, device: self.device(), after });
        Ok(())
    }

    /// Launches a kernel.
    ///
    /// # Errors
    /// [`SystemError::Fault`].
    pub fn launch(&self, launch: KernelLaunch) -> Result<()> {
        self.submit(Operation::Kernel(launch))
    }

    /// Copies between device memories, of any devices.
    ///
    /// # Errors
    /// [`SystemError::Memory`].
    pub fn copy(&self, dst: u64, src: u64, bytes: u64) -> Result<()> {
        self.submit(Operation::Copy { dst: Place::Device(dst), src: Place::Device(src), bytes })
    }

    /// Sets bytes of device memory.
    ///
    /// # Errors
    /// [`SystemError::Memory`].
    pub fn fill(&self, dst: u64, byte: u8, bytes: u64) -> Result<()> {
        self.submit(Operation::Fill { dst, byte, bytes })
    }

    /// Copies from page-locked host memory, from byte `offset` on.
    ///
    /// # Errors
    /// [`SystemError::Memory`], [`SystemError::HostRange`].
    pub fn upload_pinned(&self, dst: u64, src: Arc<HostMemory>, offset: usize, bytes: u64) -> Result<()> {
        self.submit(Operation::Copy { dst: Place::Device(dst), src: Place::Host(src, offset), bytes })
    }

    /// Copies to page-locked host memory.
    ///
    /// # Errors
    /// [`SystemError::Memory`], [`SystemError::HostRange`].
    pub fn download_pinned(&self, dst: Arc<HostMemory>, src: u64, bytes: u64) -> Result<()> {
        self.submit(Operation::Copy { dst: Place::Host(dst, 0), src: Place::Device(src), bytes })
    }

    /// Copies from pageable host memory.
    ///
    /// # Errors
    /// [`SystemError::Memory`]; [`SystemError::NotCapturable`] in a capture, which is invalid from then on.
    pub fn upload(&self, dst: u64, src: &[u8]) -> Result<()> {
        self.not_capturable("a copy from pageable memory")?;
        self.state.queue.run(&self.system)?;
        Ok(self.system.memory().write(dst, src)?)
    }

    /// Copies to pageable host memory.
    ///
    /// # Errors
    /// As [`Stream::upload`].
    pub fn download(&self, dst: &mut [u8], src: u64) -> Result<()> {
        self.not_capturable("a copy to pageable memory")?;
        self.state.queue.run(&self.system)?;
        Ok(self.system.memory().read(src, dst)?)
    }

    /// Waits for all work submitted.
    ///
    /// # Errors
    /// [`SystemError::NotCapturable`] in a capture, which is invalid from then on; a failing operation's, of those put off.
    pub fn synchronize(&self) -> Result<()> {
        self.not_capturable("a synchronisation")?;
        self.state.queue.run(&self.system)
    }

    /// Runs an executable graph after the work submitted so far.
    ///
    /// # Errors
    /// The first failing node's; [`SystemError::NotCapturable`] in a capture.
    pub fn launch_graph(&self, exec: &GraphExec) -> Result<()> {
        self.not_capturable("a graph launch")?;
        if self.deferred() {
            self.state.queue.push(Work::Graph(exec.snapshot()));
            return Ok(());
        }
        self.state.queue.run(&self.system)?;
        exec.run()
    }

    /// Fails, and makes the capture invalid, when the stream takes part in one.
    fn not_capturable(&self, what: &'static str) -> Result<()> {
        let Some(part) = &*self.state.part() else { return Ok(()) };
        let error = SystemError::NotCapturable(what);
        part.capture.state().invalid.get_or_insert(error.clone());
        Err(error)
    }

    /// Records an event after the work submitted so far.
    pub fn record(&self, event: &Event) {
        let part = self.state.part();
        *event.recording() = match &*part {
            None => Recording::At { time: Instant::now(), after: self.state.queue.point() },
            Some(part) => Recording::Captured { capture: part.capture.clone(), after: part.after.clone() },
        };
    }

    /// Makes what is submitted from here on run after an event. An event of a capture draws the stream into
    /// that capture.
    ///
    /// # Errors
    /// [`SystemError::Isolation`] when stream and event are not of the same capture, or the event's capture
    /// has ended.
    pub fn wait(&self, event: &Event) -> Result<()> {
        let mut part = self.state.part();
        let recording = event.recording();
        match (&*recording, part.as_mut()) {
            (Recording::Never, _) => Ok(()),
            (Recording::At { after, .. }, None)
                if self.system.config().lost_waits && after.device() != self.device() =>
            {
                Ok(())
            }
            (Recording::At { after, .. }, None) => {
                if self.deferred() {
                    self.state.queue.push(Work::Wait(after.clone()));
                    return Ok(());
                }
                let after = after.clone();
                drop((part, recording));
                after.reach(&self.system)
            }
            (Recording::At { .. }, Some(part)) => {
                part.capture.state().invalid.get_or_insert(SystemError::Isolation);
                Err(SystemError::Isolation)
            }
            (Recording::Captured { capture, after }, None) => {
                let mut state = capture.state();
                if state.ended {
                    return Err(SystemError::Isolation);
                }
                state.drawn_in.push(self.state.clone());
                *part = Some(Part { capture: capture.clone(), after: after.clone(), origin: false });
                Ok(())
            }
            (Recording::Captured { capture, after }, Some(part)) => {
                if !Arc::ptr_eq(capture, &part.capture) {
                    part.capture.state().invalid.get_or_insert(SystemError::Isolation);
                    return Err(SystemError::Isolation);
                }
                part.after.extend_from_slice(after);
                part.after.sort_unstable();
                part.after.dedup();
                Ok(())
            }
        }
    }

    /// Begins a capture.
    ///
    /// # Errors
    /// [`SystemError::AlreadyCapturing`].
    pub fn begin_capture(&self) -> Result<()> {
        let mut part = self.state.part();
        if part.is_some() {
            return Err(SystemError::AlreadyCapturing);
        }
        *part = Some(Part { capture: Arc::default(), after: Vec::new(), origin: true });
        Ok(())
    }

    /// Ends the capture that this stream began. Whatever the result, no stream takes part in it afterwards.
    ///
    /// # Errors
    /// [`SystemError::NotCapturing`], what made the capture invalid, or [`SystemError::Unjoined`].
    pub fn end_capture(&self) -> Result<Graph> {
        let taken = self.state.part().take_if(|part| part.origin);
        let Some(part) = taken else { return Err(SystemError::NotCapturing) };
        // Locks are taken stream first, capture second, as submissions do.
        let drawn_in = {
            let mut state = part.capture.state();
            state.ended = true;
            std::mem::take(&mut state.drawn_in)
        };
        let parts: Vec<_> = drawn_in
            .iter()
            .filter_map(|stream| {
                let theirs = stream.part().take_if(|theirs| Arc::ptr_eq(&theirs.capture, &part.capture));
                theirs.map(|theirs| (stream.queue.device, theirs.after))
            })
            .collect();
        let mut state = part.capture.state();
        let joined = ancestors(&state.nodes, &part.after);
        let unjoined = parts.into_iter().find(|(_, after)| after.iter().any(|&node| !joined[node]));
        if let Some(error) =
            state.invalid.take().or(unjoined.map(|(device, _)| SystemError::Unjoined { device }))
        {
            return Err(error);
        }
        Ok(Graph { system: self.system.clone(), nodes: std::mem::take(&mut state.nodes) })
    }
}

impl Drop for Stream {
    /// Lets the work that was put off finish. What fails in it is told to nobody, as after a GPU's stream was destroyed.
    fn drop(&mut self) {
        let _ = self.state.queue.run(&self.system);
    }
}

/// Which nodes are among `last` or run before one of them.
fn ancestors(nodes: &[Node], last: &[usize]) -> Vec<bool> {
    let mut marked = vec![false; nodes.len()];
    last.iter().for_each(|&node| marked[node] = true);
    // Dependencies point to lower indices, so one pass down is enough.
    for index in (0..nodes.len()).rev() {
        if marked[index] {
            nodes[index].after.iter().for_each(|&before| marked[before] = true);
        }
    }
    marked
}
