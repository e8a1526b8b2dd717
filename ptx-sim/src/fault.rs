//! What can go wrong while a kernel runs, with enough of where to find it.

use std::fmt;

/// Why a launch stopped. The first fault in the lowest-numbered block is the one reported, whatever the number
/// of threads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The module's name.
    pub module: String,
    /// The entry's name.
    pub entry: String,
    /// Line in the PTX text, 1-based; 0 when the launch never started.
    pub line: u32,
    /// The block at fault.
    pub block: [u32; 3],
    /// The thread at fault within its block: the lowest one, when several are.
    pub thread: [u32; 3],
    /// What happened.
    pub kind: FaultKind,
    /// The address at fault, for memory faults.
    pub address: Option<u64>,
    /// The allocation or variable that the address belongs to, where one is known.
    pub allocation: Option<String>,
}

/// The kinds of [`Fault`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// The launch's configuration does not fit the kernel or the machine.
    Launch(String),
    /// An access outside every allocation, or past the end of one.
    OutOfBounds {
        /// Which memory.
        space: &'static str,
        /// `true` for a store or an atomic.
        store: bool,
        /// Bytes accessed.
        bytes: u32,
        /// Size of the allocation or window, 0 when the address is in none.
        size: u64,
    },
    /// An access to an allocation that was freed before the launch.
    UseAfterFree,
    /// An access to another device's memory without peer access.
    NoPeerAccess {
        /// The device that runs the kernel.
        device: u32,
        /// The device whose memory it is.
        owner: u32,
    },
    /// An address that is no multiple of the access size.
    Misaligned {
        /// Which memory.
        space: &'static str,
        /// Bytes accessed, which is the alignment needed.
        bytes: u32,
    },
    /// A barrier, shuffle, vote or matrix operation that some threads it names did not reach together.
    Divergence(String),
    /// No warp can go on: some wait at a barrier that the others left the kernel without.
    Deadlock(String),
    /// The block ends, and a barrier at which warps arrived is not complete.
    MissedArrival(String),
    /// The instruction budget of [`ExecOptions`](crate::exec::ExecOptions) ran out.
    Budget {
        /// Warp instructions executed.
        executed: u64,
    },
    /// A read of bytes that nobody gave a value.
    Uninitialised {
        /// Which memory.
        space: &'static str,
        /// Bytes read.
        bytes: u32,
    },
    /// Two warps access one place in shared memory, one of them writing, with no barrier between; or two lanes of one warp
    /// without `bar.warp.sync` between.
    SharedRace {
        /// The warp that accessed it before.
        other: u32,
        /// Whether that warp wrote.
        wrote: bool,
        /// Whether this one writes.
        writes: bool,
        /// Whether they are lanes of one warp.
        lanes: bool,
    },
    /// Two warps of a block access one place in global memory, one of them writing, with no barrier between.
    GlobalRace {
        /// The warp that accessed it before.
        other: u32,
        /// Whether that warp wrote.
        wrote: bool,
        /// Whether this one writes.
        writes: bool,
    },
    /// Two blocks access one place in global memory, one of them writing, with nothing that orders them.
    BlockConflict {
        /// The block that accessed it before.
        other: [u32; 3],
        /// Whether that block wrote.
        wrote: bool,
        /// Whether this one writes.
        writes: bool,
    },
    /// A store through an argument that is declared to be read only.
    ReadOnly {
        /// Index of the parameter.
        param: u16,
    },
    /// An access to an allocation that arguments point into, outside of what they are declared to cover.
    OutsideArguments {
        /// Whether it writes.
        writes: bool,
    },
    /// Two arguments cover the same memory, and one of them is written.
    Aliasing {
        /// Index of the parameter that is written.
        written: u16,
        /// Index of the other.
        other: u16,
    },
    /// A read of an output argument's place that the launch has not written.
    OutRead {
        /// Index of the parameter.
        param: u16,
    },
    /// A dependent launch does not wait for the one before it as it must.
    Dependency(String),
    /// The kernel executed `trap`.
    Trap,
    /// An operand has a value that the instruction leaves undefined.
    Undefined(String),
}

impl FaultKind {
    /// What it is called, without the particulars.
    pub fn name(&self) -> &'static str {
        match self {
            FaultKind::Launch(_) => "launch",
            FaultKind::OutOfBounds { .. } => "out of bounds",
            FaultKind::UseAfterFree => "use after free",
            FaultKind::NoPeerAccess { .. } => "no peer access",
            FaultKind::Misaligned { .. } => "misaligned",
            FaultKind::Divergence(_) => "divergence",
            FaultKind::Deadlock(_) => "deadlock",
            FaultKind::MissedArrival(_) => "missed arrival",
            FaultKind::Budget { .. } => "budget",
            FaultKind::Uninitialised { .. } => "uninitialised",
            FaultKind::SharedRace { .. } => "shared race",
            FaultKind::GlobalRace { .. } => "global race",
            FaultKind::BlockConflict { .. } => "block conflict",
            FaultKind::ReadOnly { .. } => "store through read-only",
            FaultKind::OutRead { .. } => "output read",
            FaultKind::OutsideArguments { .. } => "outside arguments",
            FaultKind::Aliasing { .. } => "aliasing",
            FaultKind::Dependency(_) => "dependency",
            FaultKind::Trap => "trap",
            FaultKind::Undefined(_) => "undefined",
        }
    }
}

fn access(writes: bool) -> &'static str {
    if writes { "write" } else { "read" }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::Launch(why) => write!(f, "cannot launch: {why}"),
            FaultKind::OutOfBounds { space, store, bytes, size } => {
                let verb = if *store { "store" } else { "load" };
                write!(f, "{verb} of {bytes} bytes out of bounds of {space} memory ({size} bytes)")
            }
            FaultKind::UseAfterFree => write!(f, "use after free"),
            FaultKind::NoPeerAccess { device, owner } => write!(
                f,
                "access by device {device} to the memory of device {owner}, to which it has no peer access"
            ),
            FaultKind::Misaligned { space, bytes } => {
                write!(f, "{space} access of {bytes} bytes is not aligned to its size")
            }
            FaultKind::Divergence(what) => write!(f, "divergence: {what}"),
            FaultKind::Deadlock(what) => write!(f, "deadlock: {what}"),
            FaultKind::MissedArrival(what) => write!(f, "missed arrival: {what}"),
            FaultKind::Budget { executed } => {
                write!(f, "stopped after {executed} warp instructions, the launch's budget")
            }
            FaultKind::Uninitialised { space, bytes } => {
                write!(f, "read of {bytes} bytes of {space} memory that nobody gave a value")
            }
            FaultKind::SharedRace { wrote, writes, lanes: true, .. } => write!(
                f,
                "shared-memory race: this {} and the {} by another lane of the warp have no bar.warp.sync between them",
                access(*writes),
                access(*wrote)
            ),
            FaultKind::SharedRace { other, wrote, writes, lanes: false } => write!(
                f,
                "shared-memory race: this {} and the {} by warp {other} have no barrier between them",
                access(*writes),
                access(*wrote)
            ),
            FaultKind::GlobalRace { other, wrote, writes } => write!(
                f,
                "global-memory race: this {} and the {} by warp {other} of the block have no barrier between them",
                access(*writes),
                access(*wrote)
            ),
            FaultKind::BlockConflict { other: [x, y, z], wrote, writes } => write!(
                f,
                "conflict between blocks: nothing orders this {} and the {} by block ({x}, {y}, {z})",
                access(*writes),
                access(*wrote)
            ),
            FaultKind::ReadOnly { param } => {
                write!(f, "store through parameter {param}, which is declared read-only")
            }
            FaultKind::OutsideArguments { writes } => {
                write!(f, "{} outside of what the launch's arguments cover", access(*writes))
            }
            FaultKind::Aliasing { written, other } => {
                write!(f, "parameters {written} and {other} overlap, and parameter {written} is written")
            }
            FaultKind::OutRead { param } => {
                write!(f, "read of output parameter {param} before the launch wrote there")
            }
            FaultKind::Dependency(what) => write!(f, "dependency: {what}"),
            FaultKind::Trap => write!(f, "trap"),
            FaultKind::Undefined(what) => write!(f, "undefined: {what}"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, "{}.ptx", self.module)?;
        if self.line != 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": kernel {}: {}", self.entry, self.kind)?;
        if let Some(address) = self.address {
            write!(f, " at {address:#x}")?;
        }
        if let Some(name) = &self.allocation {
            write!(f, " (`{name}`)")?;
        }
        if self.line != 0 {
            write!(f, ", block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})")?;
        }
        Ok(())
    }
}
