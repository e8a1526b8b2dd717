//! The ABI check: a declaration against the `.param` list of the PTX entry that it names.

use thiserror::Error;

use super::KernelDecl;
use crate::device::Dependence;

/// One `.param` of a PTX entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryParam {
    /// Bytes from the start of the parameter block.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
    /// Alignment, bytes.
    pub align: usize,
}

/// How a PTX entry differs from its declaration.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum AbiMismatch {
    /// Another number of parameters.
    #[error(
        "kernel {kernel}: the declaration lowers to {declared} parameters, entry {entry} has {compiled}; \
             run `cargo xtask ptx`, or mend the signature"
    )]
    Count {
        /// The kernel.
        kernel: &'static str,
        /// The entry.
        entry: &'static str,
        /// Parameters declared.
        declared: usize,
        /// Parameters compiled.
        compiled: usize,
    },
    /// A parameter of another size, alignment or offset.
    #[error(
        "kernel {kernel}, parameter `{param}`: declared as {c_type} of {declared} bytes at offset {offset}, \
             compiled as {compiled:?}"
    )]
    Param {
        /// The kernel.
        kernel: &'static str,
        /// The parameter's C name.
        param: String,
        /// The declared C type.
        c_type: String,
        /// Its bytes.
        declared: usize,
        /// Its offset.
        offset: usize,
        /// What the PTX says.
        compiled: EntryParam,
    },
    /// A block larger than the entry was compiled for.
    #[error(
        "kernel {kernel}: blocks of {declared} threads are declared, entry {entry} was compiled for at most \
             {compiled}: make `__launch_bounds__` and `#[launch(block = …)]` agree"
    )]
    Block {
        /// The kernel.
        kernel: &'static str,
        /// The entry.
        entry: &'static str,
        /// Threads declared.
        declared: u32,
        /// Threads allowed.
        compiled: u32,
    },
    /// A kernel that is launched before its predecessor has ended, and does not deal with it, or the other way round.
    #[error("kernel {kernel}, entry {entry}: {what}")]
    Dependence {
        /// The kernel.
        kernel: &'static str,
        /// The entry.
        entry: &'static str,
        /// What is wrong, with the PTX line, and what to do.
        what: String,
    },
}

impl KernelDecl {
    /// Compares the declaration with the parameters and the thread limit (`.maxntid`) of its compiled entry.
    ///
    /// # Errors
    /// The first difference.
    pub fn check_abi(&'static self, compiled: &[EntryParam], max_threads: u32) -> Result<(), AbiMismatch> {
        let declared: Vec<_> = self.slots().collect();
        if declared.len() != compiled.len() {
            return Err(AbiMismatch::Count {
                kernel: self.name,
                entry: self.entry,
                declared: declared.len(),
                compiled: compiled.len(),
            });
        }
        let mut offset = 0_usize;
        for ((param, slot), compiled) in declared.into_iter().zip(compiled) {
            let size = slot.size as usize;
            offset = offset.next_multiple_of(size);
            if *compiled != (EntryParam { offset, size, align: size }) {
                return Err(AbiMismatch::Param {
                    kernel: self.name,
                    param,
                    c_type: slot.c_type(),
                    declared: size,
                    offset,
                    compiled: *compiled,
                });
            }
            offset += size;
        }
        match self.block {
            Some([x, y, z]) if x * y * z > max_threads => Err(AbiMismatch::Block {
                kernel: self.name,
                entry: self.entry,
                declared: x * y * z,
                compiled: max_threads,
            }),
            _ => Ok(()),
        }
    }

    /// Compares `dependent` with what the entry does around `griddepcontrol.wait`, in PTX for a target that has it
    /// (`has_wait`) or not.
    ///
    /// # Errors
    /// A `dependent` kernel with a path that does not wait, or that stores before the wait;
    /// any other kernel with a `griddepcontrol`.
    pub fn check_dependence(&self, compiled: &Dependence, has_wait: bool) -> Result<(), AbiMismatch> {
        let wrong =
            |what: String| Err(AbiMismatch::Dependence { kernel: self.name, entry: self.entry, what });
        match compiled.controls {
            Some(line) if !has_wait => {
                return wrong(format!("griddepcontrol in line {line} of PTX for a target that has none"));
            }
            Some(line) if !self.dependent => {
                return wrong(format!(
                    "griddepcontrol in line {line}, but it is not declared `dependent` in #[launch(…)]"
                ));
            }
            None if has_wait && self.dependent => {
                return wrong(
                    "declared `dependent`, but it has no griddepcontrol.wait: call bw::dependent_wait()"
                        .into(),
                );
            }
            None => return Ok(()),
            Some(_) => {}
        }
        if let Some(line) = compiled.unwaited {
            return wrong(format!(
                "a path ends in line {line} without griddepcontrol.wait: wait before the first `return`"
            ));
        }
        if let Some(line) = compiled.early_store {
            return wrong(format!("line {line} stores before griddepcontrol.wait: store after it"));
        }
        Ok(())
    }
}
