//! `opcodes`: every opcode form of the shipped PTX, over special and random bit patterns, against expected values
//! worked out from the PTX ISA without the simulator.
//!
//! - [`form`]: forms and which of them a PTX text uses
//! - [`soft`], [`bits`], [`alu`]: what register operations compute
//! - [`inputs`]: operand patterns
//! - [`probe`], [`asm`]: entries that execute one form, with launches and expected outputs
//! - [`memory`], [`control`], [`warp`], [`atomic`], [`matrix`]: probes of what is no register operation

mod alu;
mod asm;
mod atomic;
mod bits;
mod control;
mod form;
mod gate;
mod inputs;
mod matrix;
mod memory;
mod probe;
mod run;
mod soft;
mod warp;

pub use gate::Opcodes;
use probe::Probe;

/// The probes of `form`; none when nothing here knows it, which fails the gate.
fn probes(form: &str) -> Option<Vec<Probe>> {
    probe::register_probes(form).or_else(|| {
        [memory::probe, control::probe, warp::probe, atomic::probe, matrix::probe]
            .iter()
            .find_map(|probe| probe(form))
            .map(|probe| vec![probe])
    })
}

/// The PTX of a module with these probes.
fn module_text<'a>(target: &str, probes: impl IntoIterator<Item = &'a Probe>) -> String {
    let mut text = format!(".version 9.0\n.target {target}\n.address_size 64\n\n");
    for probe in probes {
        text.push_str(&probe.ptx);
        text.push('\n');
    }
    text
}
