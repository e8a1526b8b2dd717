//! A PTX module: parsed, decoded once, ready to launch.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::decode::{Code, decode};
use crate::ops::Level;
use crate::ptx::ast::{ModuleAst, ParamDecl, Variable};
use crate::ptx::parse::parse;

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
    /// 1-based line of the entry in the PTX text.
    pub line: u32,
    pub(crate) code: Code,
    /// The code with check ops, made when first asked for.
    checked: OnceLock<Result<Code, ParseError>>,
    pub(crate) variables: Arc<Variables>,
    source: Arc<ModuleAst>,
}

impl Kernel {
    /// The code with check ops.
    pub(crate) fn checked_code(&self) -> Result<&Code, &ParseError> {
        let make = || {
            let function = self.source.functions.iter().find(|f| f.entry && f.name == self.name);
            let fail = |(line, what): (u32, String)| ParseError { module: self.module.clone(), line, what };
            let function = function.ok_or_else(|| fail((0, format!("entry {} is gone", self.name))))?;
            decode(&self.source, function, Level::detect(), true).map_err(fail)
        };
        self.checked.get_or_init(make).as_ref()
    }

    /// The number of decoded operations.
    pub fn op_count(&self) -> usize {
        self.code.ops.len()
    }

    /// Bytes of registers and constants that a warp of this kernel takes in the simulator.
    pub fn frame_bytes(&self) -> usize {
        self.code.frame_bytes
    }
}

/// A module's global and constant variables. A device gets them when it first runs a kernel of the module.
#[derive(Debug)]
pub(crate) struct Variables {
    pub(crate) module: String,
    pub(crate) list: Vec<Variable>,
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

/// Places parameters one after the other by their alignments; with the size of the whole.
pub(crate) fn lay_out(params: &[ParamDecl]) -> (Vec<Param>, u32) {
    let mut end = 0u32;
    let list = params
        .iter()
        .map(|param| {
            let offset = end.next_multiple_of(param.align);
            end = offset + param.size;
            Param { name: param.name.clone(), size: param.size, align: param.align, offset }
        })
        .collect();
    (list, end)
}

impl Module {
    /// Parses PTX and decodes every entry. `name` is used in messages (the file's stem).
    ///
    /// # Errors
    /// Text that is not PTX, and any instruction that the simulator does not execute, with its line.
    pub fn parse(name: &str, ptx: &str) -> Result<Module, ParseError> {
        let fail = |(line, what): (u32, String)| ParseError { module: name.into(), line, what };
        let ast = Arc::new(parse(ptx).map_err(fail)?);
        let variables = Arc::new(Variables { module: name.into(), list: ast.variables.clone() });
        let level = Level::detect();
        let mut entries = BTreeMap::new();
        for function in ast.functions.iter().filter(|f| f.entry && f.body.is_some()) {
            let code = decode(&ast, function, level, false).map_err(fail)?;
            let (params, param_bytes) = lay_out(&function.params);
            let kernel = Kernel {
                name: function.name.clone(),
                module: name.into(),
                params,
                param_bytes,
                max_ntid: function.max_ntid,
                req_ntid: function.req_ntid,
                static_shared: code.static_shared,
                line: function.line,
                code,
                checked: OnceLock::new(),
                variables: variables.clone(),
                source: ast.clone(),
            };
            if entries.insert(function.name.clone(), Arc::new(kernel)).is_some() {
                return Err(fail((function.line, format!("entry {} is defined twice", function.name))));
            }
        }
        Ok(Module { name: name.into(), entries })
    }

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
