//! What a gate is, and the list of all of them.

use anyhow::Result;

use crate::cli::Usage;
use crate::context::GateContext;
use crate::outcome::{Outcome, Report};

/// A planted fault that a gate must notice.
#[derive(Debug, Clone, Copy)]
pub struct Tooth {
    /// The fault, in a few words.
    pub fault: &'static str,
    /// What the gate's reasons must contain.
    pub must_say: &'static str,
    /// Runs the gate's own comparison on the faulty subject. What it finds goes into the report; it must not judge.
    pub bite: fn(&GateContext, &mut Report) -> Result<()>,
}

/// A gate. It reports what it compared and what differed; [`Report::finish`] draws the conclusion.
pub trait Gate {
    /// What it is called on the command line.
    const NAME: &'static str;
    /// What a pass proves, in one line.
    const PROVES: &'static str;
    /// How its arguments are written; empty for a gate that takes none.
    const ARGUMENTS: &'static str = "";
    /// The faults that it is proven to notice; at least one.
    const TEETH: &'static [Tooth];

    /// Compares.
    ///
    /// # Errors
    /// What keeps the comparison from being made: a device that fails, a file that cannot be read. It counts as a
    /// failure of the gate.
    fn run(cx: &GateContext, report: &mut Report) -> Result<()>;
}

/// A gate in the list.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// [`Gate::NAME`].
    pub name: &'static str,
    /// [`Gate::PROVES`].
    pub proves: &'static str,
    /// [`Gate::ARGUMENTS`].
    pub arguments: &'static str,
    /// [`Gate::TEETH`].
    pub teeth: &'static [Tooth],
    run: fn(&GateContext, &mut Report) -> Result<()>,
}

impl Entry {
    /// Registers a gate. One without a tooth does not compile.
    ///
    /// ```compile_fail
    /// use bitwalk_gates::{Entry, Gate, GateContext, Report, Tooth};
    /// struct Toothless;
    /// impl Gate for Toothless {
    ///     const NAME: &'static str = "toothless";
    ///     const PROVES: &'static str = "nothing that could be wrong";
    ///     const TEETH: &'static [Tooth] = &[];
    ///     fn run(_: &GateContext, _: &mut Report) -> anyhow::Result<()> { Ok(()) }
    /// }
    /// let _ = Entry::of::<Toothless>();
    /// ```
    pub const fn of<G: Gate>() -> Entry {
        const { assert!(!G::TEETH.is_empty(), "a gate without a tooth does not register: plant a fault for it") };
        Entry { name: G::NAME, proves: G::PROVES, arguments: G::ARGUMENTS, teeth: G::TEETH, run: G::run }
    }

    /// Runs the gate.
    ///
    /// # Errors
    /// Only [`Usage`]: arguments that the gate does not understand. Every other error is the gate's failure.
    pub fn run(&self, cx: &GateContext) -> Result<(Report, Outcome)> {
        let mut report = Report::new(cx.live());
        if let Err(error) = (self.run)(cx, &mut report) {
            if error.is::<Usage>() {
                return Err(error);
            }
            report.fail(format!("{error:#}"));
        }
        let outcome = report.finish(&cx.require);
        Ok((report, outcome))
    }
}

/// What became of one tooth.
#[derive(Debug)]
pub struct Bite {
    /// The gate.
    pub gate: &'static str,
    /// The tooth.
    pub tooth: &'static Tooth,
    /// What the gate made of the fault.
    pub outcome: Outcome,
}

impl Bite {
    /// Plants the fault and lets the gate look.
    pub fn run(gate: &'static str, tooth: &'static Tooth, cx: &GateContext) -> Bite {
        let mut report = Report::new(false);
        if let Err(error) = (tooth.bite)(cx, &mut report) {
            report.fail(format!("{error:#}"));
        }
        Bite { gate, tooth, outcome: report.finish(&[]) }
    }

    /// Whether the gate failed, and for the right reason.
    pub fn noticed(&self) -> bool {
        self.outcome.reason().is_some_and(|reason| reason.contains(self.tooth.must_say))
    }
}
