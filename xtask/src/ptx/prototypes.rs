//! `kernels-ptx/src/bw_prototypes.cuh`: a C++ prototype of each entry, from the Rust declarations. Every `.cu` includes it,
//! so nvcc rejects a definition that has drifted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, bail};
use bitwalk::kernel::{EntryParam, KERNELS, KernelDecl};
use ptx_sim::{EntryAbi, census};

use super::Built;

/// The declared kernels by module, each module's in the order of their entries' names.
fn by_module() -> BTreeMap<&'static str, Vec<&'static KernelDecl>> {
    let mut modules: BTreeMap<&str, Vec<&KernelDecl>> = BTreeMap::new();
    for decl in KERNELS {
        modules.entry(decl.module).or_default().push(decl);
    }
    for decls in modules.values_mut() {
        decls.sort_by_key(|decl| decl.entry);
    }
    modules
}

/// The header's text.
pub fn header() -> String {
    let mut text = String::from(
        "// A prototype of each kernel entry, from its Rust declaration: a definition that differs does not compile.\n\
         // Written by `cargo xtask ptx`; do not edit.\n#pragma once\n#include <stdint.h>\n",
    );
    for (module, decls) in by_module() {
        write!(text, "\n// {module}.cu\n").expect("writing to a String does not fail");
        for decl in decls {
            text.push_str(&decl.prototype());
            text.push('\n');
        }
    }
    text
}

/// Fails unless the entries of the compiled modules are exactly the declared ones, with the declared parameters. nvcc
/// compares only what is both declared and defined: an entry that nobody declared, or a declared one that nobody wrote,
/// shows here, and so does a lowering that C++ types do not show.
pub fn compare(built: &[Built]) -> Result<()> {
    let declared = by_module();
    let mut differences = Vec::new();
    for module in built {
        let path = module.path();
        let compiled = census(&module.module, &module.text)?.entries;
        let wanted = declared.get(module.module.as_str()).map_or(&[][..], Vec::as_slice);
        for entry in compiled.iter().filter(|entry| wanted.iter().all(|decl| decl.entry != entry.name)) {
            differences
                .push(format!("{path}: entry {} has no declaration in engine/src/kernels", entry.name));
        }
        for decl in wanted {
            match compiled.iter().find(|entry| entry.name == decl.entry) {
                None => differences.push(format!("{path}: declared entry {} is not defined", decl.entry)),
                Some(entry) => {
                    let has_wait = module.target != "compute_80";
                    differences.extend(mismatch(decl, entry, has_wait).map(|what| format!("{path}: {what}")));
                }
            }
        }
    }
    for module in declared.keys().filter(|name| !built.iter().any(|module| module.module == **name)) {
        differences
            .push(format!("kernels are declared in module {module}, but src/{module}.cu does not exist"));
    }
    if differences.is_empty() {
        return Ok(());
    }
    bail!("declarations and sources do not agree:\n{}", differences.join("\n"));
}

/// What the entry's parameters, limits and dependence on the launch ahead say against the declaration.
fn mismatch(decl: &'static KernelDecl, entry: &EntryAbi, has_wait: bool) -> Option<String> {
    let param = |p: &ptx_sim::module::Param| EntryParam {
        offset: p.offset as usize,
        size: p.size as usize,
        align: p.align as usize,
    };
    let params: Vec<EntryParam> = entry.params.iter().map(param).collect();
    let threads = entry.max_ntid.map_or(1024, |limit| limit.iter().product());
    let checked = decl.check_abi(&params, threads);
    let checked = checked.and_then(|()| decl.check_dependence(&entry.dependence, has_wait));
    checked.err().map(|mismatch| mismatch.to_string())
}
