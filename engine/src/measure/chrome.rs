//! A timeline in the trace-event format that `chrome://tracing` and Perfetto read.
//!
//! The format: "Trace Event Format", Google, 2016; complete events (`X`) with microseconds in `ts` and `dur`, metadata (`M`) for
//! names. Events of one row must nest, and launches that overlap by dependent launch do not: they take turns on two
//! rows. Gaps have a row of their own.

use serde_json::{Map, Value, json};

use super::{Span, Timeline};

/// Rows of the file.
const LAUNCHES: u32 = 0;
const OVERLAPPING: u32 = 1;
const GAPS: u32 = 2;

impl Timeline {
    /// The file's contents. `about` describes the run and goes into the metadata; `ceiling` is the read-only rate in bytes a
    /// second, if it was measured; only gaps longer than `gap` nanoseconds are marked.
    pub fn chrome_trace(&self, about: &Map<String, Value>, ceiling: Option<f64>, gap: u64) -> Value {
        let mut events = vec![name("process_name", None, "one token")];
        let row = |tid, what: &str| name("thread_name", Some(tid), what);
        events.push(row(LAUNCHES, "launches"));
        events.push(row(OVERLAPPING, "launches that began before the one before had ended"));
        events.push(row(GAPS, "gaps"));
        let mut ends = [0; 2];
        for (index, span) in self.spans.iter().enumerate() {
            let row = usize::from(span.start < ends[0]);
            ends[row] = ends[row].max(span.end);
            let row = if row == 0 { LAUNCHES } else { OVERLAPPING };
            events.push(event(
                row,
                span.kernel,
                "launch",
                (span.start, span.end),
                arguments(index, span, ceiling),
            ));
        }
        for found in self.gaps().iter().filter(|found| found.duration() > gap) {
            let span = &self.spans[found.before];
            let before = json!({ "before": span.kernel, "layer": span.label.layer, "what": span.label.what });
            events.push(event(GAPS, "gap", "gap", (found.start, found.end), before));
        }
        let mut other = about.clone();
        other.insert("clock".to_owned(), self.clock.to_string().into());
        other.insert("arm".to_owned(), if self.replayed { "graph" } else { "eager" }.into());
        other.insert("token_us".to_owned(), microseconds(self.token).into());
        other.insert("read_only_bytes_s".to_owned(), ceiling.into());
        json!({ "traceEvents": events, "displayTimeUnit": "ns", "otherData": other })
    }
}

fn microseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e3
}

/// A metadata event that names the process or a row.
fn name(what: &str, tid: Option<u32>, name: &str) -> Value {
    json!({ "ph": "M", "pid": 0, "tid": tid.unwrap_or(0), "name": what, "args": { "name": name } })
}

fn event(row: u32, name: &str, category: &str, (start, end): (u64, u64), args: Value) -> Value {
    json!({
        "ph": "X", "pid": 0, "tid": row, "name": name, "cat": category,
        "ts": microseconds(start), "dur": microseconds(end.saturating_sub(start)), "args": args,
    })
}

fn arguments(index: usize, span: &Span, ceiling: Option<f64>) -> Value {
    let share = span.rate().zip(ceiling).map(|(rate, ceiling)| rate / ceiling * 100.0);
    json!({
        "index": index,
        "what": span.label.what,
        "layer": span.label.layer,
        "stage": span.stage,
        "family": span.family,
        "grid": span.grid,
        "block": span.block,
        "dependent": span.dependent,
        "read_bytes": span.cost.read,
        "write_bytes": span.cost.write,
        "flops": span.cost.flops,
        "bytes_s": span.rate(),
        "percent_of_read_only": share,
        "opcodes": span.opcodes,
    })
}
