//! The gate: which forms there are, and whether the devices agree with what was worked out.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use bitwalk::device::Device;
use bitwalk_kernels::Arch;
use ptx_sim::Checks;

use super::probe::Probe;
use super::run::{Outputs, run};
use super::{form, probes};
use crate::cli::Usage;
use crate::context::{GateContext, simulated};
use crate::gate::{Gate, Tooth};
use crate::outcome::{Need, Report};

/// The gate.
#[derive(Debug)]
pub struct Opcodes;

const TARGETS: [(Arch, &str); 2] = [(Arch::Compute80, "sm_80"), (Arch::Compute90, "sm_90")];

impl Gate for Opcodes {
    const NAME: &'static str = "opcodes";
    const PROVES: &'static str = "every opcode of the shipped PTX gives, bit for bit, what the PTX ISA says";
    const ARGUMENTS: &'static str = "[all]";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "an expected value with one flipped bit",
            must_say: "add.rn.f32 on sim",
            bite: |_, report| bite(report, "add.rn.f32", |probe| probe.launches[0].expected[1000] ^= 1),
        },
        Tooth {
            fault: "an entry that executes add.s32 where sub.s32 is probed",
            must_say: "sub.s32 on sim",
            bite: |_, report| {
                bite(report, "sub.s32", |probe| probe.ptx = probe.ptx.replace("sub.s32", "add.s32"))
            },
        },
        Tooth {
            fault: "PTX with an opcode that no probe knows",
            must_say: "no probe for frobnicate.rn.f32",
            bite: |_, report| {
                let text = ".entry f()\n{\n\tfrobnicate.rn.f32 %r1, %r2;\n\tret;\n}\n";
                collect(report, form::scan(text).into_keys());
                Ok(())
            },
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        let beyond = match &cx.args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => false,
            ["all"] => true,
            other => {
                return Err(Usage(format!(
                    "opcodes takes `all` (forms beyond the shipped ones too), not {other:?}"
                ))
                .into());
            }
        };
        let cuda = cx.open_cuda()?;
        if let Err(why) = &cuda {
            report.skip(
                Need::Cuda,
                "the GPU's part: the same probes on CUDA, compared with sim and expected",
                why,
            );
        }
        let mut devices = vec![simulated(0, None, Checks::NONE)?];
        devices.extend(cuda.ok());
        let mut all = BTreeSet::new();
        for (arch, target) in TARGETS {
            let forms = census(report, arch)?;
            let found = collect(report, forms.iter().cloned());
            compare(cx, report, arch.name(), target, &devices, &found);
            if beyond {
                let more = known(target).filter(|form| !forms.contains(*form)).map(str::to_owned);
                let probes = collect(report, more);
                let probes = supported(report, &devices[0], target, probes);
                compare(cx, report, "beyond what ships", target, &devices, &probes);
            }
            all.extend(forms);
        }
        report.compared("opcode forms", all.len() as u64);
        Ok(())
    }
}

/// The forms of a target's modules. The gate reads the text itself and holds the simulator's own census against it, so that
/// an opcode that either overlooks is noticed.
fn census(report: &mut Report, arch: Arch) -> Result<BTreeSet<String>> {
    let mut forms = BTreeSet::new();
    for module in bitwalk_kernels::modules(arch) {
        let found = form::scan(module.text);
        let mut opcodes = std::collections::BTreeMap::<String, u64>::new();
        for (form, count) in &found {
            // Guards and special registers are no opcodes; notes after the opcode are this gate's own.
            if !form.starts_with(['@', '%']) {
                *opcodes.entry(form.split(' ').next().unwrap_or(form).into()).or_default() += *count as u64;
            }
        }
        let simulator = ptx_sim::census(module.name, module.text)
            .with_context(|| format!("the simulator cannot read {}.ptx of {}", module.name, arch.name()))?
            .opcodes;
        report.check(opcodes == simulator, || {
            let here: Vec<_> = opcodes.iter().filter(|(form, n)| simulator.get(*form) != Some(n)).collect();
            let there: Vec<_> = simulator.iter().filter(|(form, n)| opcodes.get(*form) != Some(n)).collect();
            format!(
                "{}, {}.ptx: two readings of its opcodes differ: {here:?} and {there:?}",
                arch.name(),
                module.name
            )
        });
        forms.extend(found.into_keys());
    }
    Ok(forms)
}

/// Forms that no shipped PTX need use but for which there are probes, so that a kernel that starts to use one finds
/// the simulator right. Those of `sm_90` alone are marked so.
fn known(target: &str) -> impl Iterator<Item = &'static str> {
    let newer = target == "sm_90";
    include_str!("known.txt")
        .lines()
        .filter_map(move |line| line.strip_prefix("sm_90 ").map_or(Some(line), |form| newer.then_some(form)))
}

/// The probes that the simulator can load. It refuses opcodes that it does not know, which is its right for what does
/// not ship.
fn supported(report: &mut Report, device: &Device, target: &str, probes: Vec<Probe>) -> Vec<Probe> {
    let (good, refused): (Vec<_>, Vec<_>) = probes
        .into_iter()
        .partition(|probe| device.load_module("opcode_probe", &super::module_text(target, [probe])).is_ok());
    if !refused.is_empty() {
        let forms: BTreeSet<&str> = refused.iter().map(|probe| probe.form.as_str()).collect();
        let forms: Vec<&str> = forms.into_iter().collect();
        report.note(format!("{device} does not know {}, and no shipped PTX uses them", forms.join(", ")));
    }
    good
}

/// The probes of these forms. A form without one fails.
fn collect(report: &mut Report, forms: impl Iterator<Item = String>) -> Vec<Probe> {
    let mut found = Vec::new();
    for form in forms {
        match probes(&form) {
            Some(probes) => found.extend(probes),
            None => report.fail(format!(
                "no probe for {form}: write its expected values and its probe in gates/src/opcodes before it ships"
            )),
        }
    }
    found
}

/// Runs the probes on every device and compares each with what was worked out, and the devices with each other.
fn compare(
    cx: &GateContext,
    report: &mut Report,
    what: &str,
    target: &str,
    devices: &[Device],
    probes: &[Probe],
) {
    let mut outputs: Vec<Vec<Outputs>> = Vec::new();
    for device in devices {
        let bar = cx.bar(probes.len(), &format!("{what} on {device}"));
        let refs: Vec<&Probe> = probes.iter().collect();
        outputs.push(run(device, target, &refs, &|done| bar.set_position(done as u64)));
        bar.finish_and_clear();
    }
    let mut values = 0;
    for (i, probe) in probes.iter().enumerate() {
        for (device, outputs) in devices.iter().zip(&outputs) {
            match &outputs[i] {
                Err(error) => report.fail(format!("{what}: {} on {device}: {error:#}", probe.form)),
                Ok(outputs) => {
                    for (launch, output) in probe.launches.iter().zip(outputs) {
                        if let Err(difference) = launch.check(output) {
                            report.fail(format!("{what}: {} on {device}: {difference}", probe.form));
                        }
                        values += launch.values;
                    }
                }
            }
        }
        if let [Ok(first), Ok(second)] =
            &outputs.iter().map(|outputs| outputs[i].as_ref()).collect::<Vec<_>>()[..]
        {
            for (launch, (first, second)) in probe.launches.iter().zip(first.iter().zip(*second)) {
                if let Err(difference) = launch.compare(first, second) {
                    report.fail(format!(
                        "{what}: {}: {} against {}: {difference}",
                        probe.form, devices[0], devices[1]
                    ));
                }
            }
        }
    }
    report.compared("values", values as u64);
    let names: Vec<String> = devices.iter().map(Device::to_string).collect();
    let forms: BTreeSet<&str> = probes.iter().map(|probe| probe.form.as_str()).collect();
    report.note(format!(
        "{what}: {} forms probed, {values} values compared with what the PTX ISA says, on {}",
        forms.len(),
        names.join(" and ")
    ));
}

/// Runs one form's probe on the simulated device with a fault planted in it.
fn bite(report: &mut Report, form: &str, fault: impl Fn(&mut Probe)) -> Result<()> {
    let mut found = probes(form).with_context(|| format!("no probe for {form}"))?;
    fault(&mut found[0]);
    let cx = GateContext::new(bitwalk::device::DeviceSpec::Sim(0));
    compare(&cx, report, "planted", "sm_80", &[simulated(0, None, Checks::NONE)?], &found);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_without_a_probe_fails() {
        let mut report = Report::default();
        assert!(collect(&mut report, ["ex2.approx.ftz.f32".to_owned()].into_iter()).is_empty());
        report.compared("values", 1);
        assert!(
            report
                .finish(&[])
                .reason()
                .is_some_and(|reason| reason.contains("no probe for ex2.approx.ftz.f32"))
        );
    }

    #[test]
    fn every_known_form_has_a_probe() {
        for (_, target) in TARGETS {
            let mut report = Report::default();
            let probes = collect(&mut report, known(target).map(str::to_owned));
            assert!(probes.len() > 400);
            report.compared("probes", probes.len() as u64);
            assert_eq!(report.finish(&[]).reason(), None);
            // Entries of one module need names of their own.
            let names: BTreeSet<&str> = probes.iter().map(|probe| probe.entry.as_str()).collect();
            assert_eq!(names.len(), probes.len());
        }
    }

    #[test]
    fn every_shipped_form_has_a_probe() -> Result<()> {
        for (arch, _) in TARGETS {
            let mut report = Report::default();
            let forms = census(&mut report, arch)?;
            let probes = collect(&mut report, forms.into_iter());
            report.compared("probes", probes.len() as u64);
            assert_eq!(report.finish(&[]).reason(), None);
        }
        Ok(())
    }
}
