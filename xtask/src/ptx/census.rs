//! `cargo xtask ptx-census`: the opcodes of the checked-in PTX.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use bitwalk_kernels::Arch;

use ptx_sim::census;

/// Arguments of `cargo xtask ptx-census`.
#[derive(Debug, clap::Args)]
pub struct CensusArgs {
    /// Count one module only, by its name.
    #[arg(long)]
    module: Option<String>,
}

/// Prints each opcode with how often it stands in the PTX of each target and in which modules.
pub fn run(arguments: &CensusArgs) -> Result<ExitCode> {
    let mut counts: BTreeMap<String, ([u64; 2], Vec<&str>)> = BTreeMap::new();
    for (target, arch) in [Arch::Compute80, Arch::Compute90].into_iter().enumerate() {
        for module in bitwalk_kernels::modules(arch) {
            if arguments.module.as_deref().is_some_and(|wanted| wanted != module.name) {
                continue;
            }
            for (opcode, count) in census(module.name, module.text)?.opcodes {
                let (numbers, modules) = counts.entry(opcode).or_default();
                numbers[target] += count;
                if !modules.contains(&module.name) {
                    modules.push(module.name);
                }
            }
        }
    }
    println!("{:<40} {:>10} {:>10}  modules", "opcode", "compute_80", "compute_90");
    for (opcode, (numbers, modules)) in &counts {
        println!("{opcode:<40} {:>10} {:>10}  {}", numbers[0], numbers[1], modules.join(" "));
    }
    println!("{} opcodes", counts.len());
    Ok(ExitCode::SUCCESS)
}
