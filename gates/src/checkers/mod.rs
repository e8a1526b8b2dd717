//! `checkers`: the simulated device's checks, on kernels that they must catch and kernels that they must not flag.

mod cases;
mod cost;
mod run;
mod walks;

use anyhow::{Context, Result};
use bitwalk::device::DeviceKind;
use ptx_sim::Checks;

use crate::cli::Usage;
use crate::context::GateContext;
use crate::gate::{Gate, Tooth};
use crate::outcome::{Need, Report};
use crate::ptx_fault::PtxFault;
use cases::{CASES, Case, Verdict};

/// The gate.
#[derive(Debug)]
pub struct Checkers;

impl Gate for Checkers {
    const NAME: &'static str = "checkers";
    const PROVES: &'static str = "the simulated device's checks catch what they must, and flag nothing else, the fixtures' walks included";
    const ARGUMENTS: &'static str = "[list | cost | KERNEL]
  list     print the corpus: kernel, what must come of it, the tool of compute-sanitizer that has the check, and whether a
           GPU would hang
  cost     measure what each check costs on the fixture's walk
  KERNEL   launch this one on the device and judge nothing: for compute-sanitizer to look at";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "a kernel expected clean, its barriers taken out",
            must_say: "rounds_with_two_barriers: shared race",
            bite: |_, report| {
                judge(report, named("rounds_with_two_barriers")?, Checks::RACE, |ptx| {
                    ptx.replace("bar.sync \t0;", "")
                })
            },
        },
        Tooth {
            fault: "a kernel expected clean, its fences taken out",
            must_say: "last_block_fold: block conflict",
            bite: |_, report| {
                judge(report, named("last_block_fold")?, Checks::ALL, |ptx| ptx.replace("membar.gl;", ""))
            },
        },
        Tooth {
            fault: "a kernel to catch, its check switched off",
            must_say: "reverse_without_barrier was not caught",
            bite: |_, report| {
                let checks = Checks::ALL.without(Checks::RACE);
                judge(report, named("reverse_without_barrier")?, checks, str::to_owned)
            },
        },
        Tooth {
            fault: "a kernel caught for another reason than it should be",
            must_say: "writes_its_input should be `block conflict`",
            bite: |_, report| {
                let case = Case { verdict: Verdict::Caught("block conflict"), ..*named("writes_its_input")? };
                judge(report, &case, Checks::ALL, str::to_owned)
            },
        },
        Tooth {
            fault: "a walk with an argmax that lost its barriers",
            must_say: "kernel argmax_partial: shared-memory race",
            bite: |cx, report| {
                walks::bite(cx, report, "argmax_partial", PtxFault::Unsynchronised, Checks::RACE)
            },
        },
        Tooth {
            fault: "a walk with an argmax that stores through its logits",
            must_say: "kernel argmax_partial: store through parameter",
            bite: |cx, report| {
                walks::bite(cx, report, "argmax_partial", PtxFault::Stores("logits"), Checks::ALL)
            },
        },
        Tooth {
            fault: "a walk with a kernel that reads the launch ahead's output before it waits for it",
            must_say: "kernel argmax_advance: dependency: reads what a launch before uses",
            bite: |cx, report| {
                let fault = PtxFault::ReadsEarly("value");
                walks::bite(cx, report, "argmax_advance", fault, Checks::DEPENDENCY)
            },
        },
        Tooth {
            fault: "no kernel to judge",
            must_say: "compared no kernels",
            bite: |_, report| {
                report.compared("kernels caught", 0);
                report.compared("kernels not flagged", 0);
                Ok(())
            },
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        match &cx.args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => all(cx, report),
            ["list"] => {
                list(report);
                Ok(())
            }
            ["cost"] => cost::run(cx, report),
            [name] => one(cx, report, named(name)?),
            _ => Err(Usage(format!("usage: checkers -- {}", Self::ARGUMENTS)).into()),
        }
    }
}

fn named(name: &str) -> Result<&'static Case> {
    let found = CASES.iter().find(|case| case.name() == name);
    found.ok_or_else(|| {
        Usage(format!("no kernel of the corpus is called `{name}`: `list` prints them")).into()
    })
}

/// Every case on the simulated machine; the clean ones on a GPU too, if there is one, which must write the same.
fn all(cx: &GateContext, report: &mut Report) -> Result<()> {
    let cuda = match cx.open_cuda()? {
        Ok(device) => Some(device),
        Err(why) => {
            report.skip(
                Need::Cuda,
                "the clean kernels on CUDA, what they write compared with the simulator",
                &why,
            );
            None
        }
    };
    for case in CASES {
        judge(report, case, Checks::ALL, str::to_owned)?;
        let Some(device) = cuda.as_ref().filter(|_| case.verdict == Verdict::Clean) else { continue };
        let simulated = run::simulate(case, run::module(case)?.text, Checks::NONE)?;
        let expected = simulated.with_context(|| format!("{} on the simulator", case.name()))?;
        let found = run::launch(case, device).with_context(|| format!("{} on {device}", case.name()))?;
        report.compared("bytes written on CUDA", found.len() as u64);
        report.check(found == expected, || format!("{} writes something else on {device}", case.name()));
    }
    let clean = CASES.iter().filter(|case| case.verdict == Verdict::Clean).count();
    report.note(format!("{} kernels to catch, {clean} not to flag", CASES.len() - clean));
    walks::run(cx, report)
}

/// Runs a case whose module's text was edited, and reports whether it came out as the table says.
fn judge(report: &mut Report, case: &Case, checks: Checks, edit: impl Fn(&str) -> String) -> Result<()> {
    let name = case.name();
    let result = run::simulate(case, &edit(run::module(case)?.text), checks)?;
    match (case.verdict, result) {
        (Verdict::Clean, Ok(_)) => report.compared("kernels not flagged", 1),
        (Verdict::Clean, Err(fault)) => {
            report.compared("kernels not flagged", 1);
            report.fail(format!("{name}: {}: it is right, and was flagged: {fault}", fault.kind.name()));
        }
        (Verdict::Caught(kind), Ok(_)) => {
            report.compared("kernels caught", 1);
            report.fail(format!("{name} was not caught: it should be `{kind}`"));
        }
        (Verdict::Caught(kind), Err(fault)) => {
            report.compared("kernels caught", 1);
            report.check(fault.kind.name() == kind, || format!("{name} should be `{kind}`: {fault}"));
            report.check(fault.line > 0, || format!("{name}: no line: {fault}"));
        }
    }
    Ok(())
}

fn list(report: &mut Report) {
    for case in CASES {
        let verdict = match case.verdict {
            Verdict::Clean => "clean",
            Verdict::Caught(kind) => kind,
        };
        let hangs = if case.hangs { "hangs" } else { "ends" };
        report.note(format!("{}\t{verdict}\t{}\t{hangs}", case.name(), case.tool.name()));
        report.compared("kernels listed", 1);
    }
}

/// Launches one case on the device, for a tool to look at.
fn one(cx: &GateContext, report: &mut Report, case: &Case) -> Result<()> {
    let device = cx.open()?;
    if device.info().kind == DeviceKind::Cuda && case.hangs {
        return Err(Usage(format!("{} would never end on {device}", case.name())).into());
    }
    match run::launch(case, &device) {
        Ok(_) => report.note(format!("{} on {device}: launched, and nothing was said", case.name())),
        Err(error) => report.note(format!("{} on {device}: {error:#}", case.name())),
    }
    report.compared("launches", 1);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_all_kernels_of_the_corpus_have_a_case() {
        for (i, case) in CASES.iter().enumerate() {
            assert!(CASES[i + 1..].iter().all(|other| other.name() != case.name()), "{}", case.name());
        }
        for module in bitwalk_kernels::corpus() {
            let entries = module.text.lines().filter_map(|line| line.split(".entry ").nth(1));
            for entry in entries.map(|name| name.trim_end_matches('(')) {
                let has = |case: &Case| case.kernel == entry || case.after == Some(entry);
                assert!(CASES.iter().any(|case| case.module == module.name && has(case)), "{entry}");
            }
        }
    }

    #[test]
    fn every_case_comes_out_as_the_table_says() {
        let mut report = Report::new(false);
        for case in CASES {
            judge(&mut report, case, Checks::ALL, str::to_owned).unwrap();
        }
        let outcome = report.finish(&[]);
        assert!(outcome.reason().is_none(), "{}", outcome.reason().unwrap_or_default());
    }

    /// Each check is what catches its kernels: without it they pass, or are caught as something else.
    #[test]
    fn each_check_is_needed() {
        for (checks, kind) in [
            (Checks::UNINITIALISED, "uninitialised"),
            (Checks::RACE, "shared race"),
            (Checks::BLOCK, "block conflict"),
            (Checks::BLOCK, "global race"),
            (Checks::BARRIER, "missed arrival"),
            (Checks::ACCESS, "store through read-only"),
            (Checks::ACCESS, "output read"),
            (Checks::ACCESS, "outside arguments"),
            (Checks::ACCESS, "aliasing"),
            (Checks::DEPENDENCY, "dependency"),
        ] {
            let mut tried = 0;
            for case in CASES.iter().filter(|case| case.verdict == Verdict::Caught(kind)) {
                let text = run::module(case).unwrap().text;
                let without = run::simulate(case, text, Checks::ALL.without(checks)).unwrap();
                assert!(without.err().is_none_or(|fault| fault.kind.name() != kind), "{}", case.name());
                let with = run::simulate(case, text, checks).unwrap();
                assert_eq!(with.unwrap_err().kind.name(), kind, "{}", case.name());
                tried += 1;
            }
            assert!(tried > 0, "{kind}");
        }
    }
}
