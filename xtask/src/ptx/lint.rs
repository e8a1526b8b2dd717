//! What the numeric contract forbids in PTX. nvcc's flags should already keep it out; a stray intrinsic or inline assembly must
//! not bring it back in.

use std::path::Path;

use super::Built;
use super::statements::{Statement, statements};

/// Opcodes whose results IEEE 754 does not define.
const UNDEFINED: [&str; 7] = ["ex2", "lg2", "sin", "cos", "tanh", "rsqrt", "wmma"];

/// Everything in `module` that breaks the contract, each as `file:line: what, and why`.
pub fn lint(module: &Built, root: &Path) -> Vec<String> {
    let mut findings = Vec::new();
    let mut report = |line: usize, what: String| findings.push(format!("{}:{line}: {what}", module.path()));
    for statement in statements(&module.text) {
        if let Some(what) = forbidden(&statement) {
            report(statement.line, what);
        }
    }
    let root = root.display().to_string();
    for (index, line) in module.text.lines().enumerate() {
        let directive = line.trim_start();
        if line.contains("_INTERNAL_") {
            report(
                index + 1,
                "an _INTERNAL_ symbol, whose name hashes a path: make the variable extern \"C\" or local"
                    .into(),
            );
        }
        if directive.starts_with(".file") || directive.starts_with(".loc") {
            report(index + 1, "line information holds paths: compile without -lineinfo".into());
        }
        if line.contains(&root) {
            report(index + 1, "the repository's path is in the text".into());
        }
    }
    findings
}

/// Why an instruction is not allowed, if it is not.
fn forbidden(statement: &Statement<'_>) -> Option<String> {
    let opcode = statement.opcode;
    let mut parts = opcode.split('.');
    let name = parts.next()?;
    let modifiers: Vec<&str> = parts.collect();
    let has = |modifier: &str| modifiers.contains(&modifier);
    let float = modifiers.iter().any(|m| is_float(m));
    if has("approx") || has("ftz") || has("full") {
        return Some(format!("{opcode}: approximate or flushing arithmetic is not defined by IEEE 754"));
    }
    if UNDEFINED.contains(&name) {
        return Some(format!("{opcode}: its result is not defined by IEEE 754; use bw_math.cuh"));
    }
    if ["add", "sub", "mul", "fma", "mad", "div", "sqrt", "rcp"].contains(&name) && float && !has("rn") {
        return Some(format!("{opcode}: without .rn ptxas may contract it, or it rounds otherwise"));
    }
    if ["atom", "red"].contains(&name) && float {
        return Some(format!("{opcode}: the order of floating-point atomics is not fixed"));
    }
    if ["mma", "wgmma", "tcgen05"].contains(&name) && float {
        return Some(format!("{opcode}: floating-point tensor cores do not define their order of summation"));
    }
    None
}

/// A floating-point type among an opcode's modifiers.
fn is_float(modifier: &str) -> bool {
    ["f16", "f16x2", "bf16", "bf16x2", "tf32", "f32", "f32x2", "f64", "e4m3", "e5m2", "e2m1"]
        .contains(&modifier)
}

#[cfg(test)]
mod tests {
    use super::super::Built;
    use super::lint;
    use std::path::Path;

    fn findings(line: &str) -> Vec<String> {
        let module =
            Built { folder: "src", module: "m".into(), target: "compute_90", text: format!("\t{line}\n") };
        lint(&module, Path::new("/home/someone/bitwalk"))
    }

    #[test]
    fn each_breach_of_the_contract_is_named_with_its_line() {
        for line in [
            "ex2.approx.f32 %f1, %f2;",
            "add.rn.ftz.f32 %f1, %f2, %f3;",
            "add.f32 %f1, %f2, %f3;",
            "mul.f32 %f1, %f2, %f3;",
            "sub.f32 %f1, %f2, %f3;",
            "div.full.f32 %f1, %f2, %f3;",
            "atom.global.add.f32 %f1, [%rd1], %f2;",
            "red.global.add.f32 [%rd1], %f2;",
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};",
            ".global .align 4 .u32 _INTERNAL_12_x_cu_table;",
            ".file 1 \"a.cu\"",
            ".loc 1 2 3",
            "// /home/someone/bitwalk/kernels-ptx",
        ] {
            let found = findings(line);
            assert_eq!(found.len(), 1, "{line}: {found:?}");
            assert!(found[0].starts_with("ptx/compute_90/m.ptx:1: "), "{found:?}");
        }
    }

    #[test]
    fn the_contract_itself_passes() {
        for line in [
            "add.rn.f32 %f1, %f2, %f3;",
            "fma.rn.f32 %f1, %f2, %f3, %f4;",
            "div.rn.f32 %f1, %f2, %f3;",
            "add.s32 %r1, %r2, %r3;",
            "atom.global.add.u32 %r1, [%rd1], %r2;",
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1}, {%r2}, {%r3}, {%r1};",
            "min.f32 %f1, %f2, %f3;",
        ] {
            assert!(findings(line).is_empty(), "{line}");
        }
    }
}
