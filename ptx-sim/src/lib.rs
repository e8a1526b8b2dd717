//! A simulated GPU: executes PTX on the CPU, bit for bit, with a sanitizer's checks.

mod census;
mod check;
mod decode;
mod dependence;
pub mod exec;
pub mod fault;
mod known;
pub mod memory;
pub mod module;
mod num;
mod ops;
mod ptx;
pub mod system;

pub use census::{Census, EntryAbi, census};
pub use dependence::Dependence;
pub use exec::{Access, Checks, ExecOptions, LaunchConfig, LaunchStats, PointerAccess};
pub use fault::{Fault, FaultKind};
pub use memory::{Memory, MemoryError};
pub use module::{Kernel, Module, Param, ParseError};
