//! A PTX module: parsed, decoded once, ready to launch.

use std::collections::BTreeMap;
use std::sync::Arc;

/// One parameter of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Its name in the PTX.
    pub name: String,
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// Offset in the parameter block, in bytes.
    pub offset: u32,
}

/// An entry of a module.
#[derive(Debug)]
pub struct Kernel {
    /// The entry's name.
    pub name: String,
    /// The module's name.
    pub module: String,
    /// Its parameters, in order.
    pub params: Vec<Param>,
    /// Size of the parameter block in bytes: the end of the last parameter.
    pub param_bytes: u32,
    /// `.maxntid`: the most threads a block may have, by dimension.
    pub max_ntid: Option<[u32; 3]>,
    /// `.reqntid`: the threads a block must have, by dimension.
    pub req_ntid: Option<[u32; 3]>,
    /// Bytes of shared memory declared with a size.
    pub static_shared: u32,
}

/// Why PTX text was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{module}.ptx:{line}: {what}")]
pub struct ParseError {
    /// The module's name.
    pub module: String,
    /// 1-based line of the text.
    pub line: u32,
    /// What is wrong, naming the opcode or operand.
    pub what: String,
}

/// A module: a set of entries.
#[derive(Debug)]
pub struct Module {
    name: String,
    entries: BTreeMap<String, Arc<Kernel>>,
}

impl Module {
    /// The name given to [`Module::parse`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The entry called `name`.
    pub fn entry(&self, name: &str) -> Option<&Arc<Kernel>> {
        self.entries.get(name)
    }

    /// All entries, by name.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Kernel>> {
        self.entries.values()
    }
}
