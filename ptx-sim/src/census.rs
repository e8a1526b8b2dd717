//! What a module contains, without decoding or running it: opcodes by count, and each entry's ABI.

use std::collections::{BTreeMap, BTreeSet};

use crate::dependence::{Dependence, analyse};
use crate::module::{Param, ParseError, lay_out};
use crate::ptx::ast::{Function, ModuleAst, Operand, Space, Statement, Variable};
use crate::ptx::parse::parse;

/// An entry's binary interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryAbi {
    /// The entry's name.
    pub name: String,
    /// Its parameters, in order.
    pub params: Vec<Param>,
    /// Size of the parameter block in bytes.
    pub param_bytes: u32,
    /// `.maxntid`, where given.
    pub max_ntid: Option<[u32; 3]>,
    /// `.reqntid`, where given.
    pub req_ntid: Option<[u32; 3]>,
    /// Bytes of shared memory that the entry itself declares with a size, aligned as the simulator lays them out.
    pub static_shared: u64,
    /// What it does around `griddepcontrol.wait`.
    pub dependence: Dependence,
}

/// The contents of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Census {
    /// `.version`.
    pub version: (u32, u32),
    /// The first `.target`.
    pub target: String,
    /// Full opcode (with every modifier) to how often it stands in the text.
    pub opcodes: BTreeMap<String, u64>,
    /// The entries, in the order of the text.
    pub entries: Vec<EntryAbi>,
}

/// Counts the opcodes of a module and lists its entries. Opcodes need not be ones that the simulator executes.
///
/// # Errors
/// Where the text is not PTX.
pub fn census(name: &str, ptx: &str) -> Result<Census, ParseError> {
    let fail = |(line, what): (u32, String)| ParseError { module: name.into(), line, what };
    let ast = parse(ptx).map_err(fail)?;
    let mut opcodes = BTreeMap::new();
    for function in &ast.functions {
        count(function.body.as_deref().unwrap_or_default(), &mut opcodes);
    }
    let entries = ast.functions.iter().filter(|f| f.entry).map(|f| entry_abi(&ast, f));
    let entries = entries.collect::<Result<_, _>>().map_err(fail)?;
    Ok(Census { version: ast.version, target: ast.target.clone(), opcodes, entries })
}

fn count(statements: &[Statement], opcodes: &mut BTreeMap<String, u64>) {
    for statement in statements {
        match statement {
            Statement::Inst(inst) => *opcodes.entry(inst.opcode.clone()).or_insert(0) += 1,
            Statement::Scope(inner) => count(inner, opcodes),
            _ => {}
        }
    }
}

fn entry_abi(ast: &ModuleAst, function: &Function) -> Result<EntryAbi, (u32, String)> {
    let (params, param_bytes) = lay_out(&function.params);
    let static_shared = shared_variables(ast, function)
        .into_iter()
        .fold(0u64, |total, v| align_up(total, v.align).saturating_add(v.size.unwrap_or(0)));
    Ok(EntryAbi {
        name: function.name.clone(),
        params,
        param_bytes,
        max_ntid: function.max_ntid,
        req_ntid: function.req_ntid,
        static_shared,
        dependence: analyse(function)?,
    })
}

/// The shared variables with a size that `function` has: its own, then the module's that it names.
pub(crate) fn shared_variables<'a>(ast: &'a ModuleAst, function: &'a Function) -> Vec<&'a Variable> {
    let body = function.body.as_deref().unwrap_or_default();
    let (mut own, mut names) = (Vec::new(), BTreeSet::new());
    collect(body, &mut own, &mut names);
    let module = ast.variables.iter().filter(|v| names.contains(v.name.as_str()));
    own.extend(module.filter(|v| v.space == Space::Shared && v.size.is_some()));
    own
}

/// `n` rounded up to a multiple of `align`, a power of two.
pub(crate) fn align_up(n: u64, align: u32) -> u64 {
    let mask = u64::from(align) - 1;
    n.saturating_add(mask) & !mask
}

fn collect<'a>(statements: &'a [Statement], own: &mut Vec<&'a Variable>, names: &mut BTreeSet<&'a str>) {
    for statement in statements {
        match statement {
            Statement::Var(v) if v.space == Space::Shared && v.size.is_some() => own.push(v),
            Statement::Scope(inner) => collect(inner, own, names),
            Statement::Inst(inst) => inst.operands.iter().for_each(|o| mentioned(o, names)),
            _ => {}
        }
    }
}

fn mentioned<'a>(operand: &'a Operand, names: &mut BTreeSet<&'a str>) {
    match operand {
        Operand::Name(name) => {
            names.insert(name);
        }
        Operand::Not(o) | Operand::Neg(o) | Operand::Address(o, _) | Operand::Offset(o, _) => {
            mentioned(o, names)
        }
        Operand::Vector(list) | Operand::List(list) => list.iter().for_each(|o| mentioned(o, names)),
        Operand::Pair(a, b) => {
            mentioned(a, names);
            mentioned(b, names);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
.version 9.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dyn[];
.visible .entry k(.param .u64 .ptr .global .align 16 k_param_0, .param .u32 k_param_1, .param .align 8 .b8 k_param_2[24], .param .u8 k_param_3)
.maxntid 128, 1, 1
{
 .reg .pred %p<2>; .reg .b32 %r<4>;
 .shared .align 4 .b8 s[10];
 .shared .align 8 .b8 t[8];
 ld.param.u32 %r1, [k_param_1];
 { .reg .b32 x; mov.u32 x, %r1; }
 mov.u32 %r2, %tid.x;
 wgmma.whatever.sync %r1;
 ret;
}";

    #[test]
    fn opcodes_and_abi() {
        let census = census("m", TEXT).unwrap();
        assert_eq!((census.version, census.target.as_str()), ((9, 0), "sm_80"));
        assert_eq!(census.opcodes["mov.u32"], 2);
        assert_eq!(census.opcodes["wgmma.whatever.sync"], 1);
        let entry = &census.entries[0];
        let layout: Vec<_> = entry.params.iter().map(|p| (p.size, p.align, p.offset)).collect();
        assert_eq!(layout, [(8, 8, 0), (4, 4, 8), (24, 8, 16), (1, 1, 40)]);
        assert_eq!((entry.param_bytes, entry.max_ntid, entry.static_shared), (41, Some([128, 1, 1]), 24));
    }

    #[test]
    fn errors_name_module_and_line() {
        let error = census("m", "\n.bogus").unwrap_err();
        assert_eq!(error.to_string(), "m.ptx:2: unknown directive `.bogus`");
    }
}
