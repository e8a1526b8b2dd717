use std::sync::Arc;

use serde_json::{Map, Value};

use super::record::{RecordError, by_events, by_host, launches, matched, warm_up};
use super::{Span, Summary, Timeline, TraceClock, read_only_rate};
use crate::decode::{GraphDecodeState, Session};
use crate::device::{Device, DeviceSpec, KernelRecord};
use crate::engine::Engine;
use crate::kernel::Cost;
use crate::models::{Checkpoint, HybridModel};
use crate::options::EngineOptions;
use crate::plan::Label;

fn session() -> Session {
    let device = Device::open(DeviceSpec::Sim(0)).unwrap();
    let engine = Arc::new(Engine::new(device, EngineOptions::default()).unwrap());
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../gates/fixtures/tiny-llama.gguf");
    let file = Checkpoint::open(path.as_ref()).unwrap();
    let model = HybridModel::load_from_source(&engine, file.source(), &mut |_, _| {}).unwrap();
    let mut session = Session::new(&engine, &Arc::new(model), 192).unwrap();
    session.prime(&[1, 2, 3]).unwrap();
    session
}

#[test]
fn a_summary_is_the_middle_and_both_ends() {
    let summary = Summary::of(&[3.0, 1.0, 2.0]).unwrap();
    assert_eq!((summary.median, summary.least, summary.most, summary.count), (2.0, 1.0, 3.0, 3));
    assert_eq!(summary.spread(), 100.0);
    assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    assert_eq!(Summary::of(&[]), None);
}

fn span(start: u64, end: u64, family: &'static str) -> Span {
    Span {
        kernel: "k",
        family,
        label: Label { layer: Some(0), what: "w" },
        stage: 0,
        grid: [1; 3],
        block: [32, 1, 1],
        dependent: true,
        start,
        end,
        cost: Cost { read: 900, write: 100, flops: 0 },
        opcodes: None,
    }
}

/// Four launches: a gap of 5 before the second, which the third overlaps; the fourth lies within the third and leaves no gap.
fn timeline() -> Timeline {
    let spans =
        vec![span(10, 20, "a"), span(25, 40, "b"), span(35, 90, "b"), span(50, 60, "c"), span(91, 92, "c")];
    Timeline { spans, token: 100, clock: TraceClock::Events, replayed: true }
}

#[test]
fn gaps_are_where_no_launch_runs() {
    let timeline = timeline();
    let gaps: Vec<_> = timeline.gaps().iter().map(|gap| (gap.before, gap.start, gap.end)).collect();
    assert_eq!(gaps, [(1, 20, 25), (4, 90, 91)]);
    assert_eq!((timeline.extent(), timeline.idle(), timeline.busy()), (82, 6, 76));
    assert_eq!(timeline.kernel_time(), 10 + 15 + 55 + 10 + 1);
    assert_eq!(timeline.longest(3), [2, 1, 0]);
    assert!(timeline.overlaps().is_empty());
    let mut ordered = timeline.clone();
    ordered.spans.iter_mut().for_each(|span| span.dependent = false);
    assert_eq!(ordered.overlaps(), [2, 3]);
    let families: Vec<_> =
        timeline.families().iter().map(|f| (f.name, f.launches, f.time, f.bytes)).collect();
    assert_eq!(families, [("b", 2, 70, 2000), ("c", 2, 11, 2000), ("a", 1, 10, 1000)]);
    // 1000 bytes in 10 ns.
    assert_eq!(timeline.spans[0].rate(), Some(1e11));
}

/// What a trace viewer asks of the file: events of one row nest or follow each other.
#[test]
fn the_file_is_a_trace() {
    let mut about = Map::new();
    about.insert("model".to_owned(), "m".into());
    let text = timeline().chrome_trace(&about, Some(2e11), 1).to_string();
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(file["otherData"]["model"], "m");
    assert_eq!(file["otherData"]["arm"], "graph");
    let events = file["traceEvents"].as_array().unwrap();
    let of = |category: &str| events.iter().filter(|e| e["cat"] == category).cloned().collect::<Vec<_>>();
    let launches = of("launch");
    assert_eq!(launches.len(), 5);
    assert_eq!(launches[0]["args"]["percent_of_read_only"], 50.0);
    assert_eq!((&launches[1]["ts"], &launches[1]["dur"]), (&0.025.into(), &0.015.into()));
    for row in 0..2 {
        let row: Vec<_> = launches.iter().filter(|event| event["tid"] == row).collect();
        let times = row.iter().map(|e| (e["ts"].as_f64().unwrap(), e["dur"].as_f64().unwrap()));
        let times: Vec<_> = times.collect();
        assert!(times.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0), "{times:?}");
    }
    // The gap of 1 ns is not longer than what is marked.
    let gaps = of("gap");
    assert_eq!(gaps.len(), 1);
    assert_eq!(gaps[0]["args"]["before"], "k");
}

#[test]
fn a_walk_is_traced_launch_by_launch() {
    let mut session = session();
    warm_up(&mut session, None, 2).unwrap();
    let plan = launches(&mut session).unwrap();
    for timeline in [by_host(&mut session).unwrap(), by_events(&mut session).unwrap()] {
        let kernels: Vec<_> = timeline.spans.iter().map(|span| (span.kernel, span.label)).collect();
        let steps: Vec<_> = plan.steps().iter().map(|step| (step.launch.decl.name, step.label)).collect();
        assert_eq!(kernels, steps);
        assert!(timeline.spans.windows(2).all(|pair| pair[0].start <= pair[1].start));
        assert_eq!(timeline.kernel_time(), timeline.busy(), "on one device nothing overlaps");
        assert!(timeline.kernel_time() <= timeline.token && timeline.overlaps().is_empty());
        let cost = plan.cost();
        assert_eq!(timeline.bytes(), cost.read + cost.write);
        let opcodes: Option<u64> = timeline.spans.iter().map(|span| span.opcodes).sum();
        assert_eq!(opcodes.is_some(), timeline.clock == TraceClock::Host);
        assert!(opcodes.is_none_or(|opcodes| opcodes > 0));
    }
}

/// Position 64 begins a bucket: the walk that captures it is not the one to trace.
#[test]
fn warming_up_ends_within_a_bucket() {
    let mut session = session();
    let mut graphs = GraphDecodeState::new();
    warm_up(&mut session, Some(&mut graphs), 61).unwrap();
    assert_eq!(session.cache().held(), 65);
    let captures = graphs.counters().captures;
    session.decode_step_graph(&mut graphs).unwrap();
    assert_eq!(graphs.counters().captures, captures);
}

#[test]
fn records_must_be_those_of_the_walk() {
    let mut session = session();
    let plan = launches(&mut session).unwrap();
    let record = |index: usize, name: &str| KernelRecord {
        name: name.to_owned(),
        start: 1000 + 10 * index as u64,
        end: 1008 + 10 * index as u64,
        device: 0,
        stream: 7,
        graph_node: 1,
    };
    let mut records: Vec<_> =
        plan.steps().iter().enumerate().map(|(index, step)| record(index, step.launch.decl.entry)).collect();
    let spans = matched(plan.steps(), &records, 990).unwrap();
    assert_eq!((spans[1].start, spans[1].end), (20, 28));
    let refused = |records: &[KernelRecord]| match matched(plan.steps(), records, 990) {
        Err(RecordError::Records(reason)) => reason,
        other => panic!("{other:?}"),
    };
    assert!(refused(&records[1..]).contains("launches in the walk"));
    records[2].end = 0;
    assert!(refused(&records).contains("kernel 2"));
    records[2] = record(2, "another");
    assert!(refused(&records).contains("`another`"));
}

#[test]
fn a_ceiling_is_a_rate() {
    let session = session();
    assert!(read_only_rate(session.engine()).unwrap() > 0.0);
}
