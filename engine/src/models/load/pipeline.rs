//! Threads that take pieces of matrices from their source to the device.
//!
//! A thread has page-locked memory of its own, in two halves: while one is copied it reads the next piece and takes it apart
//! into the other. What is in host memory is so bounded by the number of threads, whatever the model's size.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use super::LoadError;
use crate::device::{Buffer, Device, DeviceError, Uploader};
use crate::format::{FormatError, PlaneReader};

/// Bytes on the device that a piece is of, unless one row has more: enough that the bus copies at its full rate.
pub(super) const PIECE: u64 = 4 << 20;

/// More threads than this are of no use: a few of them read as fast as the bus copies.
const MAX_THREADS: usize = 16;

/// Some rows of a matrix.
pub(super) struct Job<'a> {
    pub reader: Arc<PlaneReader<'a>>,
    pub rows: Range<u64>,
    /// A part of each plane of the matrix.
    pub to: Vec<Buffer<u8>>,
    /// Bytes of the source that count as loaded with it.
    pub stored: u64,
}

/// What a thread has done.
pub(super) enum Done {
    /// A piece is on its way; these bytes of the source.
    Piece(u64),
    /// It failed, and so does the load.
    Failed(LoadError),
    /// It has ended, and everything that it sent is on the device.
    Ended(WorkerTimes),
}

/// What a thread did with its time and memory.
#[derive(Debug, Default)]
pub(super) struct WorkerTimes {
    pub making: Duration,
    pub waiting: Duration,
    pub pinned_bytes: u64,
}

/// The threads, as the one that feeds them sees them.
pub(super) struct Pipeline<'a> {
    /// Taken when the last job has been sent.
    jobs: Option<SyncSender<Job<'a>>>,
    done: Receiver<Done>,
    stop: Arc<AtomicBool>,
    pub threads: usize,
}

impl<'a> Pipeline<'a> {
    /// Starts threads for `bytes` bytes on `device`.
    pub fn start<'env>(
        scope: &'a Scope<'a, 'env>,
        device: &'env Device,
        bytes: u64,
    ) -> Result<Pipeline<'a>, LoadError> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min(MAX_THREADS).min(bytes.div_ceil(PIECE) as usize).max(1);
        let (jobs, queue) = sync_channel::<Job<'a>>(2 * threads);
        let (report, done) = channel();
        // The threads alone own the queue's end: were they all gone, sending would fail, not wait.
        let queue = Arc::new(Mutex::new(queue));
        let stop = Arc::new(AtomicBool::new(false));
        let pipeline = Pipeline { jobs: Some(jobs), done, stop: stop.clone(), threads };
        for number in 0..threads {
            let worker = Worker { device, queue: queue.clone(), report: report.clone(), stop: stop.clone() };
            let thread = Builder::new().name(format!("load {number}"));
            if let Err(source) = thread.spawn_scoped(scope, move || worker.run()) {
                pipeline.stop();
                return Err(LoadError::Thread { source });
            }
        }
        Ok(pipeline)
    }

    /// Hands a job to the threads, when one of them is about to be free.
    pub fn send(&mut self, job: Job<'a>) {
        if let Some(jobs) = &self.jobs {
            // Threads end early only by failing, which they report, or by a panic, which the scope passes on.
            let _ = jobs.send(job);
        }
    }

    /// What the threads have reported since the last call.
    pub fn reports(&self) -> impl Iterator<Item = Done> {
        self.done.try_iter()
    }

    /// No more jobs come: what the threads report until they have all ended.
    pub fn finish(&mut self) -> impl Iterator<Item = Done> {
        self.jobs = None;
        self.done.iter()
    }

    /// Has the threads drop the jobs that they have not begun.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl Drop for Pipeline<'_> {
    fn drop(&mut self) {
        self.stop();
    }
}

struct Worker<'a, 'env> {
    device: &'env Device,
    queue: Arc<Mutex<Receiver<Job<'a>>>>,
    report: Sender<Done>,
    stop: Arc<AtomicBool>,
}

/// Why a piece did not get to the device.
enum PieceError {
    Device(DeviceError),
    Format(FormatError),
}

impl From<DeviceError> for PieceError {
    fn from(error: DeviceError) -> Self {
        PieceError::Device(error)
    }
}

impl Worker<'_, '_> {
    fn run(self) {
        let done = match self.work() {
            Ok(times) => Done::Ended(times),
            Err(error) => {
                self.stop.store(true, Ordering::Relaxed);
                Done::Failed(error)
            }
        };
        // Nobody listens any more when the load has failed already.
        let _ = self.report.send(done);
    }

    fn work(&self) -> Result<WorkerTimes, LoadError> {
        let (mut uploader, mut scratch, mut times) = (None, Vec::new(), WorkerTimes::default());
        let mut last = String::new();
        let failed = |tensor: &str, source| LoadError::Device { tensor: tensor.to_owned(), source };
        while let Some(job) = self.next() {
            last = job.to.first().map_or_else(String::new, |buffer| buffer.name().to_owned());
            let uploader = match &mut uploader {
                Some(uploader) => uploader,
                none => none.insert(Uploader::new(self.device).map_err(|source| failed(&last, source))?),
            };
            let making = &mut times.making;
            let sent = uploader.upload(&job.to, |planes| {
                let start = Instant::now();
                let made = job.reader.write(job.rows.clone(), &mut scratch, planes);
                *making += start.elapsed();
                made.map_err(PieceError::Format)
            });
            match sent {
                Ok(()) => drop(self.report.send(Done::Piece(job.stored))),
                Err(PieceError::Device(source)) => return Err(failed(&last, source)),
                Err(PieceError::Format(error)) => return Err(error.into()),
            }
        }
        if let Some(uploader) = &mut uploader {
            uploader.finish().map_err(|source| failed(&last, source))?;
            times.waiting = uploader.waited();
            times.pinned_bytes = uploader.pinned_bytes() as u64;
        }
        Ok(times)
    }

    /// The next job; `None` when there are no more, or when the load has failed.
    fn next(&self) -> Option<Job<'_>> {
        // A receiver is consistent whatever happened to a thread that held it.
        let job = self.queue.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()?;
        (!self.stop.load(Ordering::Relaxed)).then_some(job)
    }
}
