//! The gate: which forms there are, and whether the devices agree with what was worked out.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use bitwalk::device::Device;
use bitwalk_kernels::Arch;

use super::probe::Probe;
use super::run::{Outputs, run};
use super::{form, probes};
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
        let cuda = cx.open_cuda()?;
        if let Err(why) = &cuda {
            report.skip(Need::Cuda, "the GPU's part: the same probes on CUDA, compared with sim and expected", why);
        }
        let mut devices = vec![simulated(0, None)?];
        devices.extend(cuda.ok());
        let mut all = BTreeSet::new();
        for (arch, target) in TARGETS {
            let forms = census(report, arch)?;
            let found = collect(report, forms.iter().cloned());
            compare(cx, report, arch.name(), target, &devices, &found);
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
        let simulator = ptx_sim::census::census(module.name, module.text)
            .with_context(|| format!("the simulator cannot read {}.ptx of {}", module.name, arch.name()))?
            .opcodes;
        report.check(opcodes == simulator, || {
            let here: Vec<_> = opcodes.iter().filter(|(form, n)| simulator.get(*form) != Some(n)).collect();
            let there: Vec<_> = simulator.iter().filter(|(form, n)| opcodes.get(*form) != Some(n)).collect();
            format!("{}, {}.ptx: two readings of its opcodes differ: {here:?} and {there:?}", arch.name(), module.name)
        });
        forms.extend(found.into_keys());
    }
    Ok(forms)
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
fn compare(cx: &GateContext, report: &mut Report, what: &str, target: &str, devices: &[Device], probes: &[Probe]) {
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
        if let [Ok(first), Ok(second)] = &outputs.iter().map(|outputs| outputs[i].as_ref()).collect::<Vec<_>>()[..] {
            for (launch, (first, second)) in probe.launches.iter().zip(first.iter().zip(*second)) {
                if let Err(difference) = launch.compare(first, second) {
                    report.fail(format!("{what}: {}: {} against {}: {difference}", probe.form, devices[0], devices[1]));
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
    compare(&cx, report, "planted", "sm_80", &[simulated(0, None)?], &found);
    Ok(())
}
