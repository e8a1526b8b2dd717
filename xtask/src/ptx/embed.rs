//! `kernels-ptx/src/modules.rs`: the list by which the crate embeds its PTX.

use std::fmt::Write as _;

use super::{Built, TARGETS};

/// The Rust source of the list.
pub fn source(built: &[Built], corpus: &[Built]) -> String {
    let mut text = String::from(
        "//! The embedded modules. Written by `cargo xtask ptx`; do not edit.\n\nuse crate::{Arch, PtxModule, module};\n",
    );
    for target in TARGETS {
        let number = target.trim_start_matches("compute_");
        write!(text, "\n/// Built for {target}.\npub static COMPUTE_{number}: &[PtxModule] = &[\n")
            .expect("writing to a String does not fail");
        for module in built.iter().filter(|m| m.target == target) {
            let path = module.path();
            writeln!(
                text,
                "    module({:?}, Arch::Compute{number}, include_str!(\"../{path}\")),",
                module.module
            )
            .expect("writing to a String does not fail");
        }
        text.push_str("];\n");
    }
    text.push_str("\n/// What checkers are tested with.\npub static CORPUS: &[PtxModule] = &[\n");
    for module in corpus {
        let (path, number) = (module.path(), module.target.trim_start_matches("compute_"));
        writeln!(
            text,
            "    module({:?}, Arch::Compute{number}, include_str!(\"../{path}\")),",
            module.module
        )
        .expect("writing to a String does not fail");
    }
    text.push_str("];\n");
    text
}
