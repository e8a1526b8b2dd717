//! `kernels-ptx/src/bw_prototypes.cuh`: a C++ prototype of each entry, from the Rust declarations. Every `.cu` includes it,
//! so nvcc rejects a definition that has drifted.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, bail};
use bitwalk::kernel::{KERNELS, KernelDecl};

use super::Built;
use super::statements::entries;

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

/// Fails unless the entries of the compiled modules are exactly the declared ones. nvcc compares only what is both declared
/// and defined: an entry that nobody declared, or a declared one that nobody wrote, shows here.
pub fn complete(built: &[Built]) -> Result<()> {
    let declared = by_module();
    let mut differences = Vec::new();
    for module in built {
        let mut compiled = entries(&module.text);
        compiled.sort_unstable();
        let wanted: Vec<&str> =
            declared.get(module.module.as_str()).into_iter().flatten().map(|decl| decl.entry).collect();
        for entry in compiled.iter().filter(|entry| !wanted.contains(entry)) {
            differences
                .push(format!("{}: entry {entry} has no declaration in engine/src/kernels", module.path()));
        }
        for entry in wanted.iter().filter(|entry| !compiled.contains(entry)) {
            differences.push(format!("{}: declared entry {entry} is not defined", module.path()));
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
