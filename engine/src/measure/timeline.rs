//! One token's launches in time.

use std::collections::BTreeMap;
use std::fmt;

use crate::kernel::{Cost, Launch};
use crate::plan::{Label, Step};

/// What a timeline's times were read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceClock {
    /// The device's own record of each kernel, by CUPTI of this version. Recording lengthens what it records.
    Cupti {
        /// What `cuptiGetVersion` says.
        version: u32,
    },
    /// Events before and after each launch of the eager walk: half a microsecond fine, and launches do not overlap.
    Events,
    /// The host's clock around each launch, which on the simulated device is run when it is submitted.
    Host,
}

impl fmt::Display for TraceClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TraceClock::Cupti { version } => write!(f, "CUPTI activity records (version {version})"),
            TraceClock::Events => f.write_str("events around each launch of the eager walk"),
            TraceClock::Host => f.write_str("the host's clock around each launch"),
        }
    }
}

/// One launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The module that it is of.
    pub family: &'static str,
    /// Where it stands in the walk.
    pub label: Label,
    /// The stage whose walk it is of.
    pub stage: u32,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads a block.
    pub block: [u32; 3],
    /// Whether it may start before the launch before it has ended.
    pub dependent: bool,
    /// When it began, in nanoseconds from the token's beginning.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// What it moves and computes.
    pub cost: Cost,
    /// Warp instructions executed, on the simulated device.
    pub opcodes: Option<u64>,
}

impl Span {
    /// The span of a plan's step.
    pub fn of(step: &Step, stage: u32, start: u64, end: u64) -> Span {
        let Launch { decl, grid, block, cost, .. } = step.launch;
        Span {
            kernel: decl.name,
            family: decl.module,
            label: step.label,
            stage,
            grid,
            block,
            dependent: decl.dependent,
            start,
            end,
            cost,
            opcodes: None,
        }
    }

    /// Nanoseconds that it took.
    pub fn duration(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Bytes a second by the declared cost; `None` for a launch too short to be measured.
    pub fn rate(&self) -> Option<f64> {
        let seconds = self.duration() as f64 * 1e-9;
        (seconds > 0.0).then(|| (self.cost.read + self.cost.write) as f64 / seconds)
    }
}

/// Time in which no launch ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// Index of the span after it.
    pub before: usize,
    /// When it began, in nanoseconds from the token's beginning.
    pub start: u64,
    /// When it ended.
    pub end: u64,
}

impl Gap {
    /// Nanoseconds.
    pub fn duration(&self) -> u64 {
        self.end - self.start
    }
}

/// The launches of one module.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// The module.
    pub name: &'static str,
    /// Its launches.
    pub launches: usize,
    /// Their time in nanoseconds, overlaps counted twice.
    pub time: u64,
    /// Bytes that they move by their declared cost.
    pub bytes: u64,
    /// Warp instructions executed, on the simulated device.
    pub opcodes: Option<u64>,
}

/// One token's launches, in order of their beginning.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// The launches.
    pub spans: Vec<Span>,
    /// Nanoseconds from the token's submission until the host had the next one.
    pub token: u64,
    /// What the times were read from.
    pub clock: TraceClock,
    /// Whether a captured graph was replayed; else the walk was launched.
    pub replayed: bool,
}

impl Timeline {
    /// From the first launch's beginning to the last one's end, in nanoseconds.
    pub fn extent(&self) -> u64 {
        let start = self.spans.iter().map(|span| span.start).min().unwrap_or(0);
        self.spans.iter().map(|span| span.end).max().unwrap_or(0).saturating_sub(start)
    }

    /// Where no launch ran between the first and the last.
    pub fn gaps(&self) -> Vec<Gap> {
        let mut gaps = Vec::new();
        let mut covered: Option<u64> = None;
        for (index, span) in self.spans.iter().enumerate() {
            if let Some(until) = covered.filter(|&until| until < span.start) {
                gaps.push(Gap { before: index, start: until, end: span.start });
            }
            covered = Some(covered.unwrap_or(0).max(span.end));
        }
        gaps
    }

    /// Indices of launches that began before an earlier one had ended and are not dependent launches: on one stream there are
    /// none.
    pub fn overlaps(&self) -> Vec<usize> {
        let mut covered = 0;
        let mut found = Vec::new();
        for (index, span) in self.spans.iter().enumerate() {
            if span.start < covered && !span.dependent {
                found.push(index);
            }
            covered = covered.max(span.end);
        }
        found
    }

    /// Nanoseconds between the first and the last launch in which none ran.
    pub fn idle(&self) -> u64 {
        self.gaps().iter().map(Gap::duration).sum()
    }

    /// Nanoseconds in which at least one launch ran.
    pub fn busy(&self) -> u64 {
        self.extent() - self.idle()
    }

    /// The sum of all launches' times in nanoseconds, overlaps counted twice.
    pub fn kernel_time(&self) -> u64 {
        self.spans.iter().map(Span::duration).sum()
    }

    /// Indices of the `count` longest launches, longest first.
    pub fn longest(&self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.spans.len()).collect();
        order.sort_by_key(|&index| (std::cmp::Reverse(self.spans[index].duration()), index));
        order.truncate(count);
        order
    }

    /// Time by module, most first.
    pub fn families(&self) -> Vec<Family> {
        let mut by_name: BTreeMap<&'static str, Family> = BTreeMap::new();
        for span in &self.spans {
            let family = by_name.entry(span.family).or_insert(Family {
                name: span.family,
                launches: 0,
                time: 0,
                bytes: 0,
                opcodes: None,
            });
            family.launches += 1;
            family.time += span.duration();
            family.bytes += span.cost.read + span.cost.write;
            family.opcodes = span.opcodes.map(|opcodes| opcodes + family.opcodes.unwrap_or(0));
        }
        let mut families: Vec<Family> = by_name.into_values().collect();
        families.sort_by_key(|family| std::cmp::Reverse(family.time));
        families
    }

    /// Bytes that all launches move by their declared cost.
    pub fn bytes(&self) -> u64 {
        self.spans.iter().map(|span| span.cost.read + span.cost.write).sum()
    }
}
