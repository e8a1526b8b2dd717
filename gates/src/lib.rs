//! bitwalk's gates: two runs compared bit for bit, each proving that it ran.
//!
//! A gate reports what it compared and what differed; it cannot declare itself passed ([`Report::finish`] does, and a
//! gate that compared nothing fails). Each gate names faults that are planted to see it fail ([`Tooth`]); one without a
//! tooth does not compile into [`GATES`].

mod abi;
mod checkers;
pub mod cli;
mod context;
mod delayed;
mod determinism;
mod device;
mod gate;
pub mod glm5;
pub mod glm5_graph;
pub mod graph_decode;
mod hygiene;
mod kernel_check;
mod opcodes;
pub mod oracle;
mod oracle_gate;
mod outcome;
mod parity;
mod pipeline;
mod pp;
mod prime;
mod ptx_fault;
mod reference;
pub mod runs;
mod sampling;
mod text;

pub use context::{FIXTURE, GateContext, K_FIXTURE, find_file, model_file};
pub use gate::{Bite, Entry, Gate, Tooth};
pub use outcome::{Count, Need, Outcome, Report, Skip};

/// Every gate, in the order in which they run: what the later ones stand on first.
pub static GATES: &[Entry] = &[
    Entry::of::<abi::Abi>(),
    Entry::of::<device::DeviceGate>(),
    Entry::of::<opcodes::Opcodes>(),
    Entry::of::<checkers::Checkers>(),
    Entry::of::<kernel_check::KernelCheck>(),
    Entry::of::<oracle_gate::OracleGate>(),
    Entry::of::<reference::Reference>(),
    Entry::of::<glm5::Glm5>(),
    Entry::of::<prime::Prime>(),
    Entry::of::<determinism::Determinism>(),
    Entry::of::<graph_decode::GraphDecode>(),
    Entry::of::<sampling::SamplingGate>(),
    Entry::of::<glm5_graph::Glm5Graph>(),
    Entry::of::<pp::PipelineGate>(),
    Entry::of::<hygiene::Hygiene>(),
    Entry::of::<text::TextGate>(),
    Entry::of::<parity::Parity>(),
];
