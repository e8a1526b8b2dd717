//! What a gate says in the end. A gate cannot say "pass" itself: it reports what it compared and what was wrong, and
//! [`Report::finish`] draws the conclusion, so that a gate that compared nothing fails whatever its code does.

use std::fmt;

use serde::Serialize;

/// What was missing where something was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Need {
    /// A CUDA device.
    Cuda,
    /// A real model's file.
    Model,
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Need::Cuda => "cuda",
            Need::Model => "model",
        })
    }
}

/// A part of a gate that did not run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Skip {
    /// What it was.
    pub what: String,
    /// Why it did not run.
    pub why: String,
    /// What it needs.
    pub need: Need,
}

/// How much of something was compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Of what: `logits`, `parameters`.
    pub what: String,
    /// How many.
    pub compared: u64,
}

/// A gate's conclusion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "verdict")]
pub enum Outcome {
    /// All that was compared agreed. No count is zero.
    Pass {
        /// What was compared.
        compared: Vec<Count>,
    },
    /// Something differed, broke, or was not compared at all.
    Fail {
        /// Every reason.
        reasons: Vec<String>,
    },
    /// Nothing could run here.
    Skipped {
        /// What is missing.
        why: String,
    },
}

impl Outcome {
    /// `PASS`, `FAIL` or `SKIPPED`.
    pub fn word(&self) -> &'static str {
        match self {
            Outcome::Pass { .. } => "PASS",
            Outcome::Fail { .. } => "FAIL",
            Outcome::Skipped { .. } => "SKIPPED",
        }
    }

    /// The reasons of a failure, in one line.
    pub fn reason(&self) -> Option<String> {
        match self {
            Outcome::Fail { reasons } => Some(reasons.join("; ")),
            _ => None,
        }
    }
}

/// Reasons that are listed in full; the rest are counted.
const REASONS_LISTED: usize = 12;

/// What a gate has found so far.
#[derive(Debug, Default)]
pub struct Report {
    notes: Vec<String>,
    counts: Vec<Count>,
    reasons: Vec<String>,
    unlisted: usize,
    skips: Vec<Skip>,
    live: bool,
}

impl Report {
    /// An empty report; a live one prints its lines as they come.
    pub fn new(live: bool) -> Self {
        Report { live, ..Report::default() }
    }

    /// A line to print: what is compared with what, on which device, under which program.
    pub fn note(&mut self, line: impl Into<String>) {
        let line = line.into();
        if self.live {
            println!("  {line}");
        }
        self.notes.push(line);
    }

    /// `count` more of `what` have been compared. Naming a count promises that it will not stay 0.
    pub fn compared(&mut self, what: &str, count: u64) {
        match self.counts.iter_mut().find(|known| known.what == what) {
            Some(known) => known.compared += count,
            None => self.counts.push(Count { what: what.to_owned(), compared: count }),
        }
    }

    /// Something is wrong. The gate goes on, so that one run shows all.
    pub fn fail(&mut self, reason: impl Into<String>) {
        let reason = reason.into();
        if self.live {
            println!("  FAIL: {reason}");
        }
        if self.reasons.len() < REASONS_LISTED { self.reasons.push(reason) } else { self.unlisted += 1 }
    }

    /// Fails unless `holds`.
    pub fn check(&mut self, holds: bool, reason: impl FnOnce() -> String) {
        if !holds {
            self.fail(reason());
        }
    }

    /// A part cannot run here.
    pub fn skip(&mut self, need: Need, what: impl Into<String>, why: impl Into<String>) {
        let skip = Skip { what: what.into(), why: why.into(), need };
        if self.live {
            println!("  SKIPPED {}: {}", skip.what, skip.why);
        }
        self.skips.push(skip);
    }

    /// The lines so far.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What was skipped so far.
    pub fn skips(&self) -> &[Skip] {
        &self.skips
    }

    /// The conclusion: FAIL where anything failed, where a skipped part is required, where a count is 0 or there is none;
    /// SKIPPED where nothing was compared because something is missing.
    pub fn finish(&self, required: &[Need]) -> Outcome {
        let mut reasons = self.reasons.clone();
        if self.unlisted > 0 {
            reasons.push(format!("and {} more", self.unlisted));
        }
        for skip in self.skips.iter().filter(|skip| required.contains(&skip.need)) {
            reasons.push(format!(
                "{} was skipped ({}), and --require {} forbids that",
                skip.what, skip.why, skip.need
            ));
        }
        for count in self.counts.iter().filter(|count| count.compared == 0) {
            reasons.push(format!("compared no {}", count.what));
        }
        if !reasons.is_empty() {
            return Outcome::Fail { reasons };
        }
        if self.counts.is_empty() {
            return match &self.skips[..] {
                [] => Outcome::Fail { reasons: vec!["compared nothing".to_owned()] },
                skips => {
                    let why: Vec<&str> = skips.iter().map(|skip| skip.why.as_str()).collect();
                    Outcome::Skipped { why: why.join("; ") }
                }
            };
        }
        Outcome::Pass { compared: self.counts.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(report: &Report, required: &[Need]) -> String {
        report.finish(required).reason().unwrap_or_else(|| panic!("no failure: {report:?}"))
    }

    #[test]
    fn nothing_compared_is_a_failure() {
        assert_eq!(reason(&Report::default(), &[]), "compared nothing");
        let mut report = Report::default();
        report.compared("logits", 0);
        assert_eq!(reason(&report, &[]), "compared no logits");
    }

    #[test]
    fn one_empty_count_fails_beside_full_ones() {
        let mut report = Report::default();
        report.compared("logits", 5);
        report.compared("replays", 0);
        assert_eq!(reason(&report, &[]), "compared no replays");
        report.compared("replays", 3);
        assert!(matches!(report.finish(&[]), Outcome::Pass { compared } if compared.len() == 2));
    }

    #[test]
    fn skips_are_skips_unless_required() {
        let mut report = Report::default();
        report.skip(Need::Cuda, "the CUDA side", "no driver");
        assert_eq!(report.finish(&[]), Outcome::Skipped { why: "no driver".to_owned() });
        assert_eq!(report.finish(&[Need::Model]).word(), "SKIPPED");
        assert!(reason(&report, &[Need::Cuda]).contains("--require cuda"));
        report.compared("parameters", 7);
        assert_eq!(report.finish(&[]).word(), "PASS");
        assert!(reason(&report, &[Need::Cuda]).contains("the CUDA side"));
    }

    #[test]
    fn failures_are_counted_past_the_listed_ones() {
        let mut report = Report::default();
        report.compared("logits", 1);
        for index in 0..40 {
            report.fail(format!("difference {index}"));
        }
        let Outcome::Fail { reasons } = report.finish(&[]) else { panic!("it passed") };
        assert_eq!(reasons.len(), REASONS_LISTED + 1);
        assert_eq!(reasons.last().map(String::as_str), Some("and 28 more"));
    }
}
