//! Running a kernel.

use crate::module::Kernel;

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
