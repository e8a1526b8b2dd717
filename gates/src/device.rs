//! `device`: what must hold on any device, from copies to refused captures.

use anyhow::Result;
use bitwalk::device::DeviceKind;
use bitwalk::device::selftest::{Outcome, run_edited};

use crate::context::GateContext;
use crate::gate::{Gate, Tooth};
use crate::outcome::{Need, Report};

/// The gate.
#[derive(Debug)]
pub struct DeviceGate;

impl Gate for DeviceGate {
    const NAME: &'static str = "device";
    const PROVES: &'static str =
        "memory, launches, events, captures and graphs of the device do what they promise";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "a kernel that adds 2 where 1 is due",
            must_say: "launch",
            bite: |cx, report| {
                check(cx, report, |ptx| {
                    ptx.replace("mad.lo.s32 \t%r8, %r7, %r2, 1;", "mad.lo.s32 \t%r8, %r7, %r2, 2;")
                })
            },
        },
        Tooth {
            fault: "a kernel that subtracts where it should add",
            must_say: "launch",
            bite: |cx, report| {
                check(cx, report, |ptx| ptx.replace("add.s32 \t%r8, %r7, %r2;", "sub.s32 \t%r8, %r7, %r2;"))
            },
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        check(cx, report, str::to_owned)
    }
}

fn check(cx: &GateContext, report: &mut Report, edit: impl FnOnce(&str) -> String) -> Result<()> {
    let device = cx.open()?;
    let found = run_edited(&device, edit)?;
    report.note(&found.device);
    for check in &found.checks {
        match &check.outcome {
            Outcome::Passed(facts) => {
                report.compared("checks", 1);
                report.note(format!("{}: {facts}", check.name));
            }
            // A second device, say: on CUDA only a machine with more of them has it.
            Outcome::Skipped(why) if device.info().kind == DeviceKind::Cuda => {
                report.note(format!("{}: not on this machine: {why}", check.name));
            }
            Outcome::Skipped(why) => report.skip(Need::Cuda, check.name, why),
            Outcome::Failed(why) => report.fail(format!("{}: {why}", check.name)),
        }
    }
    Ok(())
}
