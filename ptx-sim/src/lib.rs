//! A simulated GPU: executes PTX on the CPU, bit for bit, with a sanitizer's checks.

pub mod exec;
pub mod fault;
pub mod memory;
pub mod module;
pub mod system;

pub use exec::{Access, Checks, ExecOptions, LaunchConfig, LaunchStats, PointerAccess};
pub use fault::{Fault, FaultKind};
pub use memory::{Memory, MemoryError};
pub use module::{Kernel, Module, Param, ParseError};
