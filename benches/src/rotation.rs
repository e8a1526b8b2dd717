//! A case launched over copies of its operands that together are larger than the second-level cache, so that each launch
//! finds its weights in memory, as a walk does.

use std::time::Duration;

use bitwalk::device::{DeviceError, DeviceKind, Event, GraphExec, Stream};
use bitwalk::kernel::ArgSlot;
use bitwalk::kernel::check::PreparedCase;

/// How many times the cache's size all copies are: a cache of several partitions keeps more of what was read twice.
const TIMES_L2: u64 = 3;
/// Copies at most: what is so small that more would be needed lies in the cache in a walk too.
const MOST_COPIES: u64 = 64;
/// Launches that are timed together at least: an event's time is half a microsecond fine.
const LEAST_LAUNCHES: usize = 32;
/// Bytes of all copies at most.
const MOST_BYTES: u64 = 16 << 30;

/// The copies, and the launches of one pass over them.
pub struct Rotation {
    stream: Stream,
    copies: Vec<PreparedCase>,
    /// What copies with state are reset from.
    first: Option<PreparedCase>,
    /// The launches of a pass as one graph, so that the host's launching is not what is timed.
    graph: Option<GraphExec>,
    launches: usize,
    start: Event,
    end: Event,
}

impl Rotation {
    /// Copies `case` as often as it takes and makes ready to launch.
    ///
    /// # Errors
    /// What the device says; a refused capture, in words.
    pub fn new(case: PreparedCase, stream: &Stream) -> Result<Rotation, Box<dyn std::error::Error>> {
        let device = stream.device();
        let gpu = device.info().kind == DeviceKind::Cuda;
        let bytes = case.bytes().max(1);
        let wanted = if gpu { (TIMES_L2 * device.info().l2_bytes).div_ceil(bytes) } else { 1 };
        let fits = (MOST_BYTES / bytes).clamp(1, MOST_COPIES);
        let state = case.has_state();
        // Each copy with state is launched once a pass, so there must be enough of them to time.
        let wanted = if state && gpu { wanted.max(LEAST_LAUNCHES as u64) } else { wanted };
        let count = wanted.clamp(1, fits);
        let mut copies = Vec::with_capacity(count as usize);
        for _ in 1..count + u64::from(state) {
            copies.push(case.duplicate(stream)?);
        }
        let first = match state {
            true => Some(case),
            false => {
                copies.push(case);
                None
            }
        };
        let rounds = if state || !gpu { 1 } else { LEAST_LAUNCHES.div_ceil(copies.len()) };
        let launches = rounds * copies.len();
        let submit = |stream: &Stream| -> Result<(), DeviceError> {
            (0..rounds).try_for_each(|_| copies.iter().try_for_each(|copy| copy.submit(stream)))
        };
        let eager_only = copies.iter().any(|copy| copy.launch().decl.eager_only);
        let graph = if gpu && !eager_only {
            let slots = copies.iter().flat_map(|copy| copy.launch().args.slots());
            let allocations = slots.filter_map(|slot| match slot {
                ArgSlot::Pointer { buffer, .. } => Some(buffer.allocation()),
                _ => None,
            });
            Some(stream.capture(submit)?.instantiate(allocations.collect())?)
        } else {
            None
        };
        let (start, end) = (device.event()?, device.event()?);
        Ok(Rotation { stream: stream.clone(), copies, first, graph, launches, start, end })
    }

    /// Copies that are launched in turn.
    pub fn copies(&self) -> usize {
        self.copies.len()
    }

    /// Launches of a pass.
    pub fn launches(&self) -> usize {
        self.launches
    }

    /// Time of `launches` launches, by the device's events: of as many whole passes as that takes, brought to this number.
    ///
    /// # Errors
    /// What the device says.
    pub fn time(&self, launches: u64) -> Result<Duration, DeviceError> {
        let passes = launches.div_ceil(self.launches as u64).max(1);
        let milliseconds = match &self.first {
            // Reset between passes, untimed.
            Some(first) => {
                let mut sum = 0.0;
                for _ in 0..passes {
                    self.copies.iter().try_for_each(|copy| copy.restore(&self.stream, first))?;
                    sum += self.timed(1)?;
                }
                sum
            }
            None => self.timed(passes)?,
        };
        let run = passes as f64 * self.launches as f64;
        Ok(Duration::from_secs_f64(milliseconds * 1e-3 * launches as f64 / run))
    }

    /// Milliseconds of so many passes back to back.
    fn timed(&self, passes: u64) -> Result<f64, DeviceError> {
        self.stream.record(&self.start)?;
        for _ in 0..passes {
            match &self.graph {
                Some(graph) => graph.launch(&self.stream)?,
                None => {
                    let rounds = self.launches / self.copies.len();
                    for _ in 0..rounds {
                        self.copies.iter().try_for_each(|copy| copy.submit(&self.stream))?;
                    }
                }
            }
        }
        self.stream.record(&self.end)?;
        Ok(f64::from(self.end.elapsed_ms(&self.start)?))
    }
}
