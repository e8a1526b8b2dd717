//! Running a kernel.

mod block;
pub(crate) mod warp;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use block::{Arena, Progress, Runner};

use crate::check::{Finding, LaunchCheck};
use crate::decode::Code;
use crate::fault::{Fault, FaultKind};
use crate::memory::{Memory, Slots};
use crate::module::Kernel;

/// The most shared memory a block may have, in bytes (what compute capability 9.0 offers).
pub const MAX_SHARED: u32 = 227 << 10;
/// The most threads a block may have.
pub const MAX_THREADS: u32 = 1024;
/// The most threads that can be resident at once, for cooperative launches: 132 multiprocessors of 2048.
pub const MAX_RESIDENT: u64 = 132 * 2048;

/// How a launch may touch the memory behind one of its pointer parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Loads only.
    Read,
    /// Stores, and loads of what was stored.
    Write,
    /// Anything.
    ReadWrite,
}

/// What a launch declares about one pointer parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PointerAccess {
    /// Index of the parameter.
    pub param: u16,
    /// The access declared.
    pub access: Access,
    /// Bytes behind the pointer that the launch may touch; 0 for all up to the next pointer, or the allocation's end.
    pub bytes: u64,
}

/// One launch.
#[derive(Debug, Clone, Copy)]
pub struct LaunchConfig<'a> {
    /// What to run.
    pub kernel: &'a Kernel,
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    /// The parameter block, laid out as [`Kernel::params`] says; exactly [`Kernel::param_bytes`] long.
    pub params: &'a [u8],
    /// The device that runs it.
    pub device: u32,
    /// Declared accesses, for the checkers; parameters not listed are not checked.
    pub access: &'a [PointerAccess],
    /// All blocks are resident at once, so that a grid-wide barrier works.
    pub cooperative: bool,
    /// Launched with programmatic dependence on the launch before it.
    pub programmatic: bool,
}

/// Which checks run beyond bounds and alignment, which always do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checks(u32);

impl Checks {
    /// Only what always runs: bounds, alignment, use after free, converged warp operations.
    pub const NONE: Checks = Checks(0);
    /// Reads of memory that nobody gave a value: shared, local, and, where [`Memory::track_values`] was called before,
    /// global.
    pub const UNINITIALISED: Checks = Checks(1);
    /// Shared-memory races between warps, judged by barriers.
    pub const RACE: Checks = Checks(2);
    /// Warps of a block that meet at a barrier by different instructions, and arrivals that no block waits for.
    pub const BARRIER: Checks = Checks(4);
    /// Accesses to one place in global memory, of different blocks or warps, that nothing orders.
    pub const BLOCK: Checks = Checks(8);
    /// Stores through read-only arguments, reads of outputs before they are written, accesses beside all arguments,
    /// arguments that overlap.
    pub const ACCESS: Checks = Checks(16);
    /// Dependent launches that do not wait, or not in time.
    pub const DEPENDENCY: Checks = Checks(32);
    /// All of them.
    pub const ALL: Checks = Checks(63);
    /// Each of them, with its name.
    pub const NAMES: [(Checks, &'static str); 6] = [
        (Checks::UNINITIALISED, "uninitialised"),
        (Checks::RACE, "race"),
        (Checks::BARRIER, "barrier"),
        (Checks::BLOCK, "block"),
        (Checks::ACCESS, "access"),
        (Checks::DEPENDENCY, "dependency"),
    ];

    /// These and `others`.
    #[must_use]
    pub const fn with(self, others: Checks) -> Checks {
        Checks(self.0 | others.0)
    }

    /// These without `others`.
    #[must_use]
    pub const fn without(self, others: Checks) -> Checks {
        Checks(self.0 & !others.0)
    }

    /// Whether all of `others` are among these.
    pub const fn has(self, others: Checks) -> bool {
        self.0 & others.0 == others.0
    }
}

/// How to run launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecOptions {
    /// CPU threads to spread the blocks over, at least 1. Results do not depend on it.
    pub threads: usize,
    /// The checks.
    pub checks: Checks,
    /// A launch that executes more warp instructions than this faults (a kernel that spins for ever would hang
    /// otherwise). `None` for no limit.
    pub budget: Option<u64>,
}

impl Default for ExecOptions {
    /// All the CPU's threads, no further checks, no budget.
    fn default() -> ExecOptions {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        ExecOptions { threads, checks: Checks::NONE, budget: None }
    }
}

/// What a launch did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LaunchStats {
    /// Blocks run.
    pub blocks: u64,
    /// Warp instructions executed.
    pub warp_instructions: u64,
}

/// A launch being run.
pub(crate) struct Launch<'a> {
    pub(crate) config: &'a LaunchConfig<'a>,
    pub(crate) code: &'a Code,
    pub(crate) slots: Slots,
    /// Addresses of the module's variables, in the order of the code's symbols.
    pub(crate) symbols: Vec<u64>,
    pub(crate) threads: u32,
    pub(crate) warps: u32,
    pub(crate) shared_bytes: u32,
    pub(crate) started: Instant,
    budget: Option<(u64, AtomicU64)>,
}

impl Launch<'_> {
    /// Counts ops against the budget.
    pub(crate) fn spend(&self, executed: u64) -> Result<(), FaultKind> {
        if let Some((limit, spent)) = &self.budget {
            let total = spent.fetch_add(executed, Ordering::Relaxed) + executed;
            if total > *limit {
                return Err(FaultKind::Budget { executed: total });
            }
        }
        Ok(())
    }
}

/// What the threads of a launch share: the next block, and the fault in the lowest block so far.
struct Shared {
    next: AtomicU64,
    blocks: u64,
    /// Blocks above this need not run any more.
    last: AtomicU64,
    fault: Mutex<Option<(u64, Box<Fault>)>>,
    executed: AtomicU64,
}

impl Shared {
    fn record(&self, block: u64, fault: Box<Fault>) {
        self.last.fetch_min(block, Ordering::Relaxed);
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|(other, _)| block < *other) {
            *first = Some((block, fault));
        }
    }
}

thread_local! {
    static ARENA: RefCell<Arena> = const { RefCell::new(Vec::new()) };
}

/// Runs a launch to its end. Blocks run in the order of their index, several at once on `options.threads` CPU threads;
/// a cooperative launch has all of them resident and gives each a turn.
///
/// # Errors
/// The fault of the lowest-numbered block that had one. Memory keeps what was stored up to then.
pub fn run(memory: &Memory, launch: &LaunchConfig<'_>, options: &ExecOptions) -> Result<LaunchStats, Fault> {
    let refuse = |why: String| Fault {
        module: launch.kernel.module.clone(),
        entry: launch.kernel.name.clone(),
        line: 0,
        block: [0; 3],
        thread: [0; 3],
        kind: FaultKind::Launch(why),
        address: None,
        allocation: None,
    };
    let (threads, shared_bytes) = check(launch).map_err(refuse)?;
    let blocks = launch.grid.iter().map(|&n| u64::from(n)).product::<u64>();
    let warps = threads.div_ceil(32);
    if launch.cooperative && blocks * u64::from(warps) * 32 > MAX_RESIDENT {
        return Err(refuse(format!("{blocks} blocks of {threads} threads cannot all be resident at once")));
    }
    let checked = options.checks != Checks::NONE;
    let code = if checked {
        launch.kernel.checked_code().map_err(|error| refuse(error.to_string()))?
    } else {
        &launch.kernel.code
    };
    let symbols = memory
        .module_symbols(&launch.kernel.variables, launch.device)
        .map_err(|error| refuse(error.to_string()))?;
    let job = Launch {
        config: launch,
        code,
        symbols: code.symbols.iter().map(|&index| symbols[index]).collect(),
        slots: memory.slots_for(launch.device),
        threads,
        warps,
        shared_bytes,
        started: Instant::now(),
        budget: options.budget.map(|limit| (limit, AtomicU64::new(0))),
    };
    let shared = Shared {
        next: AtomicU64::new(0),
        blocks,
        last: AtomicU64::new(u64::MAX),
        fault: Mutex::new(None),
        executed: AtomicU64::new(0),
    };
    let workers = (options.threads.max(1) as u64).min(blocks);
    if !checked {
        // What it stores is not followed, so nothing can be said about values any more.
        memory.assume_values();
    }
    if checked {
        let mut history = memory.history();
        let at_start = |line: u32, finding: Finding, address: Option<u64>| Fault {
            line,
            kind: finding.kind,
            address,
            allocation: finding.allocation,
            ..refuse(String::new())
        };
        let check = LaunchCheck::new(options.checks, &mut history, launch, &job.slots)
            .map_err(|(finding, address)| at_start(launch.kernel.line, finding, Some(address)))?;
        let check = RefCell::new(check);
        if launch.cooperative {
            resident(&job, &shared, 0, 1, Some(&check));
        } else {
            work(&job, &shared, Some(&check));
        }
        let mut check = check.borrow_mut();
        check.finish();
        // No thread took such a path, or there would be a fault.
        if check.must_wait()
            && let Some(line) = code.unwaited
        {
            let what = "a path leads here without griddepcontrol.wait".to_string();
            shared.record(u64::MAX, Box::new(at_start(line, FaultKind::Dependency(what).into(), None)));
        }
    } else if launch.cooperative {
        // Real threads: blocks wait for each other, so each of these must make progress.
        std::thread::scope(|scope| {
            for worker in 1..workers {
                let (job, shared) = (&job, &shared);
                scope.spawn(move || resident(job, shared, worker, workers, None));
            }
            resident(&job, &shared, 0, workers, None);
        });
    } else if workers == 1 {
        work(&job, &shared, None);
    } else {
        rayon::in_place_scope(|scope| {
            for _ in 1..workers {
                scope.spawn(|_| work(&job, &shared, None));
            }
            work(&job, &shared, None);
        });
    }
    match shared.fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, fault)) => Err(*fault),
        None => Ok(LaunchStats { blocks, warp_instructions: shared.executed.into_inner() }),
    }
}

/// Takes blocks until there are none left.
fn work<'a>(job: &'a Launch<'a>, shared: &Shared, check: Option<&'a RefCell<LaunchCheck<'a>>>) {
    let arena = ARENA.with(|arena| std::mem::take(&mut *arena.borrow_mut()));
    let mut runner = Runner::new(job, arena, check);
    loop {
        let block = shared.next.fetch_add(1, Ordering::Relaxed);
        if block >= shared.blocks || block > shared.last.load(Ordering::Relaxed) {
            break;
        }
        runner.begin(block);
        if let Err(fault) = runner.finish() {
            shared.record(block, fault);
        }
    }
    shared.executed.fetch_add(runner.executed, Ordering::Relaxed);
    let arena = runner.into_arena();
    ARENA.with(|kept| *kept.borrow_mut() = arena);
}

/// Runs every `workers`-th block from `worker` on, all of them resident, turn by turn.
fn resident<'a>(
    job: &'a Launch<'a>,
    shared: &Shared,
    worker: u64,
    workers: u64,
    check: Option<&'a RefCell<LaunchCheck<'a>>>,
) {
    let mut runners: Vec<(u64, Runner<'_>)> = (worker..shared.blocks)
        .step_by(workers as usize)
        .map(|block| {
            let mut runner = Runner::new(job, Vec::new(), check);
            runner.begin(block);
            (block, runner)
        })
        .collect();
    while !runners.is_empty() && shared.last.load(Ordering::Relaxed) == u64::MAX {
        runners.retain_mut(|(block, runner)| {
            let more = match runner.round() {
                Ok(Progress::More) => return true,
                Ok(Progress::Done) => false,
                Err(fault) => {
                    shared.record(*block, fault);
                    false
                }
            };
            shared.executed.fetch_add(runner.executed, Ordering::Relaxed);
            more
        });
    }
}

/// Threads of a block and its bytes of shared memory.
fn check(launch: &LaunchConfig<'_>) -> Result<(u32, u32), String> {
    let (kernel, [bx, by, bz]) = (launch.kernel, launch.block);
    let [gx, gy, gz] = launch.grid;
    if gx == 0 || gy == 0 || gz == 0 || gx > i32::MAX as u32 || gy > 65535 || gz > 65535 {
        return Err(format!("grid ({gx}, {gy}, {gz}) is not within (1..2147483647, 1..65535, 1..65535)"));
    }
    let threads = u64::from(bx) * u64::from(by) * u64::from(bz);
    if threads == 0 || threads > MAX_THREADS.into() || bz > 64 {
        return Err(format!("block ({bx}, {by}, {bz}) does not have 1 to {MAX_THREADS} threads"));
    }
    if let Some([x, y, z]) = kernel.max_ntid
        && threads > u64::from(x) * u64::from(y) * u64::from(z)
    {
        return Err(format!("block ({bx}, {by}, {bz}) is above the kernel's .maxntid ({x}, {y}, {z})"));
    }
    if let Some(required) = kernel.req_ntid
        && required != launch.block
    {
        return Err(format!("block ({bx}, {by}, {bz}) is not the kernel's .reqntid {required:?}"));
    }
    if launch.params.len() != kernel.param_bytes as usize {
        return Err(format!(
            "{} bytes of parameters, but the kernel has {}",
            launch.params.len(),
            kernel.param_bytes
        ));
    }
    let code = &kernel.code;
    let shared = match launch.dynamic_shared {
        0 => u64::from(code.static_shared),
        dynamic => u64::from(code.dynamic_offset) + u64::from(dynamic),
    };
    if shared > MAX_SHARED.into() {
        return Err(format!("{shared} bytes of shared memory: at most {MAX_SHARED}"));
    }
    Ok((threads as u32, shared as u32))
}
