//! `kernel-check`: every declared kernel against its float64 reference, over its sweep of shapes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use bitwalk::device::{Device, DeviceKind, Module};
use bitwalk::kernel::check::check_kernel;
use bitwalk::kernel::{KERNELS, KernelDecl, by_name};
use bitwalk_kernels::Arch;
use ptx_sim::Checks;

use crate::context::{GateContext, simulated, targets};
use crate::gate::{Gate, Tooth};
use crate::outcome::Report;
use crate::ptx_fault::PtxFault;

/// Kernels that are checked at a time on a GPU. Each has two references computed at once, and some of them take gigabytes.
const AT_A_TIME: usize = 8;

/// The gate.
#[derive(Debug)]
pub struct KernelCheck;

impl Gate for KernelCheck {
    const NAME: &'static str = "kernel-check";
    const PROVES: &'static str =
        "every kernel computes what its float64 reference says, all of it and nothing beside it";
    const ARGUMENTS: &'static str = "KERNEL…   the kernels to check (all), each with its worst error";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "an off-by-one bound: the last columns are left out",
            must_say: "argument `y`",
            bite: |cx, report| {
                bite(&cx.open()?, report, "rms_norm", PtxFault::OffByOne { scalar: "cols", by: -1 })
            },
        },
        Tooth {
            fault: "an off-by-one bound: one row too many",
            must_say: "is outside it, and was overwritten",
            // Out of bounds for real, so on the simulated device only.
            bite: |_, report| one_row_too_many(report, Checks::NONE),
        },
        Tooth {
            fault: "an off-by-one bound, with the simulated device's checks on",
            must_say: "outside of what the launch's arguments cover",
            bite: |_, report| one_row_too_many(report, Checks::ALL),
        },
        Tooth {
            fault: "swapped arguments: the activation takes up for gate",
            must_say: "argument `y`",
            bite: |cx, report| bite(&cx.open()?, report, "swiglu", PtxFault::Swapped("gate", "up")),
        },
        Tooth {
            fault: "a norm without its barriers",
            must_say: "shared-memory race",
            // A race for real, so on the simulated device only.
            bite: |_, report| {
                bite(&simulated(0, None, Checks::RACE)?, report, "rms_norm", PtxFault::Unsynchronised)
            },
        },
        Tooth {
            fault: "a kernel that stores through an argument declared read-only",
            must_say: "store through parameter",
            bite: |_, report| {
                bite(&simulated(0, None, Checks::ALL)?, report, "rms_norm", PtxFault::Stores("weight"))
            },
        },
        Tooth {
            fault: "a kernel that reads its output before writing it",
            must_say: "read of output parameter",
            bite: |_, report| {
                bite(&simulated(0, None, Checks::ALL)?, report, "quantise_i16", PtxFault::Swapped("x", "q"))
            },
        },
        Tooth {
            fault: "no kernel to check",
            must_say: "compared no kernels",
            bite: |cx, report| check(cx, &cx.open()?, report, Arch::Compute80, &[]),
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        let mut decls: Vec<&'static KernelDecl> = match &cx.args[..] {
            [] => KERNELS.iter().copied().filter(|decl| !decl.module.starts_with("test_")).collect(),
            names => names.iter().map(|name| named(name)).collect::<Result<_>>()?,
        };
        decls.sort_by_key(|decl| decl.name);
        let device = cx.open()?;
        for arch in targets(&device) {
            check(cx, &device, report, arch, &decls)?;
        }
        Ok(())
    }
}

fn named(name: &str) -> Result<&'static KernelDecl> {
    by_name(name).with_context(|| format!("no kernel is called {name}"))
}

fn check(
    cx: &GateContext,
    device: &Device,
    report: &mut Report,
    arch: Arch,
    decls: &[&'static KernelDecl],
) -> Result<()> {
    let mut modules: BTreeMap<&str, Module> = BTreeMap::new();
    for ptx in bitwalk_kernels::modules(arch) {
        modules.insert(ptx.name, device.load_module(ptx.name, ptx.text)?);
    }
    // The references take most of the time, and the simulated device more than a GPU.
    // Cases of real sizes are for the target that runs there: the older one's code is the same but for what a block loads.
    let newest = targets(device).last() == Some(&arch);
    let representative = device.info().kind == DeviceKind::Cuda && !cx.quick && newest;
    let (mut cases, mut elements, mut skipped) = (0, 0, 0);
    let mut nearest = (0.0, "");
    let bar = cx.bar(decls.len(), &format!("{device}, {}", arch.name()));
    let one = |index: usize| {
        let decl = decls[index];
        bar.set_message(decl.name);
        let module = modules.get(decl.module).with_context(|| format!("no module {}", decl.module))?;
        let outcome = check_kernel(decl, device, &module.function(decl.entry)?, representative);
        bar.inc(1);
        anyhow::Ok(outcome)
    };
    // A GPU is idle while references are computed, so several kernels are checked at a time there; the simulated device has
    // all cores busy itself.
    let threads = if device.info().kind == DeviceKind::Cuda { AT_A_TIME } else { 1 };
    let outcomes = in_threads(threads, decls.len(), one);
    bar.finish_and_clear();
    for (decl, outcome) in decls.iter().zip(outcomes) {
        match outcome? {
            Ok(found) => {
                if !cx.args.is_empty() {
                    report.note(format!(
                        "{}: {} cases, {} elements, worst error {:.2e} (case `{}`), tolerance {:.1e}",
                        found.kernel,
                        found.cases,
                        found.elements,
                        found.worst,
                        found.worst_case,
                        found.tolerance
                    ));
                }
                (cases, elements, skipped) =
                    (cases + found.cases, elements + found.elements, skipped + found.skipped);
                if found.tolerance > 0.0 && found.worst / found.tolerance > nearest.0 {
                    nearest = (found.worst / found.tolerance, decl.name);
                }
            }
            // With its causes: the device's own words are among them.
            Err(failure) => report.fail(format!("{}: {:#}", arch.name(), anyhow::Error::from(failure))),
        }
    }
    report.compared("kernels", decls.len() as u64);
    report.compared("elements", elements);
    report.note(format!(
        "{device}, {}: {} kernels, {cases} cases, {elements} elements; nearest to its tolerance is {} at {:.0} %",
        arch.name(),
        decls.len(),
        nearest.1,
        nearest.0 * 100.0
    ));
    if skipped > 0 {
        report
            .note(format!("{skipped} cases of real models' sizes are left to CUDA devices without --quick"));
    }
    Ok(())
}

/// `work` of each number below `count`, in their order, on several threads.
fn in_threads<T: Send>(threads: usize, count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let mut done: Vec<(usize, T)> = std::thread::scope(|scope| {
        let thread = || {
            let mut own = Vec::new();
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= count {
                    return own;
                }
                own.push((index, work(index)));
            }
        };
        let running: Vec<_> = (0..threads.min(count)).map(|_| scope.spawn(thread)).collect();
        let all = running.into_iter().flat_map(|running| match running.join() {
            Ok(own) => own,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        all.collect()
    });
    done.sort_by_key(|&(index, _)| index);
    done.into_iter().map(|(_, outcome)| outcome).collect()
}

fn one_row_too_many(report: &mut Report, checks: Checks) -> Result<()> {
    let fault = PtxFault::OffByOne { scalar: "rows", by: 1 };
    bite(&simulated(0, None, checks)?, report, "matvec_q8_0", fault)
}

fn bite(device: &Device, report: &mut Report, kernel: &str, fault: PtxFault) -> Result<()> {
    let decl = named(kernel)?;
    let ptx = bitwalk_kernels::modules(Arch::Compute80).iter().find(|ptx| ptx.name == decl.module);
    let ptx = ptx.with_context(|| format!("no module {}", decl.module))?;
    let text = fault.plant(decl, ptx.text)?;
    let module = device.load_module(ptx.name, &text)?;
    match check_kernel(decl, device, &module.function(decl.entry)?, false) {
        Ok(found) => report.compared("elements", found.elements),
        Err(failure) => report.fail(format!("{:#}", anyhow::Error::from(failure))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_threads_did_comes_in_order() {
        for threads in [1, 3, 50] {
            let squares = in_threads(threads, 20, |i| i * i);
            assert_eq!(squares, (0..20).map(|i| i * i).collect::<Vec<_>>());
        }
        assert!(in_threads(2, 0, |i| i).is_empty());
    }
}
