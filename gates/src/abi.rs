//! `abi`: every declared kernel against the parameters of its compiled entry, for both PTX targets; on CUDA against the
//! driver's own description too.

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::{Context, Result};
use bitwalk::kernel::{EntryParam, KERNELS, KernelDecl, by_name};
use bitwalk_kernels::Arch;
use ptx_sim::{census, module::Module};

use crate::context::{GateContext, targets};
use crate::gate::{Gate, Tooth};
use crate::outcome::{Need, Report};
use crate::ptx_fault::PtxFault;

/// The gate.
#[derive(Debug)]
pub struct Abi;

const TARGETS: [Arch; 2] = [Arch::Compute80, Arch::Compute90];

impl Gate for Abi {
    const NAME: &'static str = "abi";
    const PROVES: &'static str = "every kernel's declared parameters are those of its compiled entry, and dependent ones wait on every path";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "an entry compiled with a 64-bit scalar where 32 bits are declared",
            must_say: "parameter `rows`",
            bite: |_, report| bite(report, PtxFault::Widened("rows")),
        },
        Tooth {
            fault: "an entry compiled with one parameter less",
            must_say: "the declaration lowers to",
            bite: |_, report| bite(report, PtxFault::Dropped),
        },
        Tooth {
            fault: "a dependent kernel that some threads leave without waiting",
            must_say: "without griddepcontrol.wait",
            bite: |_, report| bite_dependent(report, "hc_expand", PtxFault::LeavesEarly),
        },
        Tooth {
            fault: "a dependent kernel that stores before it waits",
            must_say: "stores before griddepcontrol.wait",
            bite: |_, report| bite_dependent(report, "hc_expand", PtxFault::StoresEarly("streams")),
        },
        Tooth {
            fault: "a kernel that waits and is not declared dependent",
            must_say: "not declared `dependent`",
            bite: |_, report| bite_dependent(report, "read_only", PtxFault::Waits),
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        for arch in TARGETS {
            compare_ptx(report, arch, &|_, text| Ok(Cow::Borrowed(text)))?;
        }
        match cx.open_cuda()? {
            Err(why) => report.skip(Need::Cuda, "the driver's view of the parameters", why),
            Ok(device) => {
                let mut seen = 0;
                for arch in targets(&device) {
                    let mut here = 0;
                    for ptx in bitwalk_kernels::modules(arch) {
                        // Loading compares: a mismatch is its error.
                        let module = device.load_module(ptx.name, ptx.text)?;
                        here += module
                            .functions()
                            .iter()
                            .map(|f| f.info().params_checked_by_driver as u64)
                            .sum::<u64>();
                    }
                    report.note(format!(
                        "{device}, {}: {here} parameters seen by cuFuncGetParamInfo",
                        arch.name()
                    ));
                    seen += here;
                }
                report.compared("parameters in the driver's view", seen);
            }
        }
        Ok(())
    }
}

fn bite(report: &mut Report, fault: PtxFault) -> Result<()> {
    bite_in(report, Arch::Compute80, "matvec_q8_0", fault)
}

fn bite_dependent(report: &mut Report, kernel: &str, fault: PtxFault) -> Result<()> {
    bite_in(report, Arch::Compute90, kernel, fault)
}

fn bite_in(report: &mut Report, arch: Arch, kernel: &str, fault: PtxFault) -> Result<()> {
    let decl =
        by_name(kernel).with_context(|| format!("kernel {kernel} is gone: plant the fault in another"))?;
    compare_ptx(report, arch, &|module, text| {
        Ok(if module == decl.module { Cow::Owned(fault.plant(decl, text)?) } else { Cow::Borrowed(text) })
    })
}

/// Edits a module's text, given its name.
type Edit<'a> = &'a dyn Fn(&str, &'static str) -> Result<Cow<'static, str>>;

fn compare_ptx(report: &mut Report, arch: Arch, edit: Edit<'_>) -> Result<()> {
    let (mut modules, mut dependence) = (BTreeMap::new(), BTreeMap::new());
    for ptx in bitwalk_kernels::modules(arch) {
        let text = edit(ptx.name, ptx.text)?;
        let module = Module::parse(ptx.name, &text)?;
        for entry in census(ptx.name, &text)?.entries {
            dependence.insert((ptx.name, entry.name), entry.dependence);
        }
        modules.insert(ptx.name, module);
    }
    let mut decls: Vec<&'static KernelDecl> =
        KERNELS.iter().copied().filter(|decl| !decl.module.starts_with("test_")).collect();
    decls.sort_by_key(|decl| decl.name);
    let (mut params, mut waits) = (0, 0);
    for decl in &decls {
        let Some(kernel) = modules.get(decl.module).and_then(|module| module.entry(decl.entry)) else {
            report.fail(format!(
                "kernel {}: no entry {} in {}.ptx of {}",
                decl.name,
                decl.entry,
                decl.module,
                arch.name()
            ));
            continue;
        };
        let compiled: Vec<EntryParam> = kernel
            .params
            .iter()
            .map(|p| EntryParam { offset: p.offset as usize, size: p.size as usize, align: p.align as usize })
            .collect();
        // An entry without `.maxntid` takes what the architecture takes.
        let threads = kernel.max_ntid.map_or(1024, |limit| limit.iter().product());
        if let Err(mismatch) = decl.check_abi(&compiled, threads) {
            report.fail(format!("{}: {mismatch}", arch.name()));
        }
        if let Some(found) = dependence.get(&(decl.module, decl.entry.to_owned())) {
            if let Err(mismatch) = decl.check_dependence(found, arch.has_dependent_launch()) {
                report.fail(format!("{}: {mismatch}", arch.name()));
            }
            waits += u64::from(found.waits());
        }
        params += compiled.len() as u64;
    }
    // An entry that nobody declared is dead weight, or a declaration has been lost. Modules with no declared kernel at all
    // are probes of the compiler's arithmetic, run by tests.
    let mut probes = 0;
    for (name, module) in &modules {
        let declared: Vec<&str> = decls.iter().filter(|d| d.module == *name).map(|d| d.entry).collect();
        let undeclared: Vec<&str> = module
            .entries()
            .map(|kernel| kernel.name.as_str())
            .filter(|entry| !declared.contains(entry))
            .collect();
        if declared.is_empty() {
            probes += undeclared.len();
        } else if !undeclared.is_empty() {
            report.fail(format!(
                "{}, {name}.ptx: entries without a declaration: {}",
                arch.name(),
                undeclared.join(", ")
            ));
        }
    }
    report.compared("kernels", decls.len() as u64);
    report.compared("parameters", params);
    if arch.has_dependent_launch() {
        report.compared("dependent kernels", waits);
    }
    report.note(format!(
        "{}: {} kernels, {params} parameters compared with the PTX, {waits} dependent; {probes} probe entries have no declaration",
        arch.name(),
        decls.len()
    ));
    Ok(())
}
