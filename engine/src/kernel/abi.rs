//! The ABI check: a declaration against the `.param` list of the PTX entry that it names.

use thiserror::Error;

use super::KernelDecl;

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
}
