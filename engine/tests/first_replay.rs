//! A graph's first replay is compared with an eager run, without being asked for: by default, on one device and on two.

use std::path::Path;
use std::process::Command;

use bitwalk::decode::{CaptureMode, GraphDecodeState, GraphFault, GraphOptions, SeatPolicy, Session};
use bitwalk::device::{DeviceError, DeviceList};
use bitwalk::models::Checkpoint;
use bitwalk::options::EngineOptions;
use bitwalk::pipeline::Pipeline;
use ptx_sim::exec::{Checks, ExecOptions};
use ptx_sim::system::{System, SystemConfig};

const PROMPT: [u32; 3] = [5, 6, 7];

fn load(system: &std::sync::Arc<System>, name: &str, stages: u32) -> Pipeline {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gates/fixtures").join(name);
    let file = Checkpoint::open(&path).unwrap();
    let devices = DeviceList::Sim(stages).open_in(system).unwrap();
    Pipeline::load(&devices, stages, &EngineOptions::default(), file.source(), &mut |_, _, _| {}).unwrap()
}

fn machine(devices: u32) -> std::sync::Arc<System> {
    System::new(SystemConfig { devices, ..SystemConfig::default() })
}

/// Ids and the last logits of `steps` walks.
fn decode(
    session: &mut Session,
    graphs: Option<&mut GraphDecodeState>,
    steps: usize,
) -> (Vec<u32>, Vec<u32>) {
    session.clear().unwrap();
    session.prime(&PROMPT).unwrap();
    let mut ids = vec![session.next_token().unwrap()];
    let mut graphs = graphs;
    for _ in 0..steps {
        match &mut graphs {
            Some(graphs) => session.decode_step_graph(graphs).unwrap(),
            None => session.decode_step().unwrap(),
        }
        ids.push(session.next_token().unwrap());
    }
    (ids, session.logits().unwrap().into_iter().map(f32::to_bits).collect())
}

#[test]
fn every_capture_is_verified_by_default() {
    for (name, stages) in [("tiny-llama.gguf", 1), ("tiny-llama.gguf", 2), ("glm5-next-tiny", 2)] {
        let pipeline = load(&machine(2), name, stages);
        let mut session = pipeline.session(80).unwrap();
        // Past a boundary of 64 keys, so that a second bucket is captured where there are buckets.
        let wanted = decode(&mut session, None, 66);
        let mut graphs = GraphDecodeState::new();
        let found = decode(&mut session, Some(&mut graphs), 66);
        assert!(wanted == found, "{name}, {stages} stages");
        let counters = graphs.counters();
        let buckets = if session.stages()[0].model().has_buckets() { 2 } else { 1 };
        assert_eq!(counters.captures, buckets * u64::from(stages), "{name}");
        assert_eq!((counters.verified, counters.latches), (counters.captures, 0));
        assert_eq!(counters.replays, 66 * u64::from(stages));
        assert!(counters.verifying > std::time::Duration::ZERO);
    }
}

#[test]
fn nothing_is_compared_where_that_is_off() {
    let pipeline = load(&machine(1), "tiny-llama.gguf", 1);
    let options = GraphOptions { verify: false, ..GraphOptions::default() };
    let mut graphs = GraphDecodeState::with_options(options);
    decode(&mut pipeline.session(16).unwrap(), Some(&mut graphs), 3);
    assert_eq!((graphs.counters().captures, graphs.counters().verified), (1, 0));
}

#[test]
fn nothing_is_captured_where_that_is_off() {
    let pipeline = load(&machine(1), "tiny-llama.gguf", 1);
    let mut session = pipeline.session(16).unwrap();
    let options = GraphOptions { mode: CaptureMode::Nothing, ..GraphOptions::default() };
    let mut graphs = GraphDecodeState::with_options(options);
    let wanted = decode(&mut session, None, 3);
    assert!(decode(&mut session, Some(&mut graphs), 3) == wanted);
    assert_eq!((graphs.counters().captures, graphs.counters().replays), (0, 0));
}

/// With all checks on: copying the state away and back does not make memory look written that is not.
#[test]
fn verification_passes_all_checks() {
    let system = machine(1);
    system.set_exec_options(ExecOptions { checks: Checks::ALL, ..ExecOptions::default() });
    let pipeline = load(&system, "glm5-next-tiny", 1);
    let mut graphs = GraphDecodeState::new();
    decode(&mut pipeline.session(16).unwrap(), Some(&mut graphs), 3);
    assert_eq!((graphs.counters().verified, graphs.counters().latches), (1, 0));
}

/// A device without room for the copies: they are kept on the host.
#[test]
fn copies_go_to_the_host_where_the_device_is_full() {
    let system = System::new(SystemConfig { memory: 64 << 20, ..SystemConfig::default() });
    let pipeline = load(&system, "tiny-llama.gguf", 1);
    let mut session = pipeline.session(16).unwrap();
    let wanted = decode(&mut session, None, 3);
    let device = pipeline.devices().remove(0);
    // Larger pieces first, until none fits.
    let mut ballast = Vec::new();
    let mut bytes = 64 << 20;
    while bytes > 0 {
        match device.alloc(bytes, "ballast") {
            Ok(piece) => ballast.push(piece),
            Err(DeviceError::OutOfMemory { .. }) => bytes /= 2,
            Err(error) => panic!("{error}"),
        }
    }
    let mut graphs = GraphDecodeState::new();
    assert!(decode(&mut session, Some(&mut graphs), 3) == wanted);
    assert_eq!((graphs.counters().verified, graphs.counters().replays), (1, 3));
}

/// A graph whose replay does nothing is given up at once; what is said stays right.
fn planted() {
    let pipeline = load(&machine(1), "tiny-llama.gguf", 1);
    let mut session = pipeline.session(16).unwrap();
    let wanted = decode(&mut session, None, 5);
    let fault = Some(GraphFault::ReplayNothing);
    for policy in SeatPolicy::ALL {
        let mut graphs = GraphDecodeState::with_options(GraphOptions {
            policy: *policy,
            fault,
            ..GraphOptions::default()
        });
        assert!(decode(&mut session, Some(&mut graphs), 5) == wanted, "{policy}");
        let counters = graphs.counters();
        assert_eq!((counters.captures, counters.verified, counters.latches), (1, 1, 1));
        assert_eq!((counters.replays, counters.latched), (0, 5));
    }
}

#[test]
fn a_mismatch_latches() {
    planted();
}

/// The line on standard error, of a process of its own.
#[test]
fn a_mismatch_says_where() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_mismatch_latches", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let lines: Vec<&str> =
        said.lines().filter(|line| line.contains("latched: its first replay differs")).collect();
    assert_eq!(lines.len(), SeatPolicy::ALL.len(), "{said}");
    assert!(
        lines.iter().all(|line| line.starts_with("bitwalk: graph of ") && line.contains(" at byte ")),
        "{said}"
    );
    assert!(lines.iter().all(|line| line.ends_with(" replayed")), "{said}");
}
