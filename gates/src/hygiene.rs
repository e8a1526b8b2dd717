//! `hygiene`: graphs in the lives that sessions lead. Each case runs replayed and eager, and every logit's bits are compared;
//! what must stay bounded is counted.

use anyhow::Result;
use bitwalk::decode::{GraphDecodeState, Session};
use bitwalk::device::DeviceKind;
use bitwalk::options::EngineOptions;

use crate::context::GateContext;
use crate::delayed;
use crate::gate::{Gate, Tooth};
use crate::glm5;
use crate::outcome::Report;
use crate::pipeline::{Pipeline, open_devices, open_up_to};
use crate::ptx_fault::PtxFault;
use crate::runs::{Recording, compare, prompt};

/// The gate.
#[derive(Debug)]
pub struct Hygiene;

impl Gate for Hygiene {
    const NAME: &'static str = "hygiene";
    const PROVES: &'static str = "graphs survive long prompts, boundaries, hundreds of requests, late producers and lost peer access, with bounded captures and memory";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "graphs that are made anew for every request",
            must_say: "captures",
            bite: |cx, report| {
                requests(cx, report, &glm5_model(cx)?, 14, true)?;
                Ok(())
            },
        },
        Tooth {
            fault: "a bit of the replayed run flipped at a boundary",
            must_say: "1 of",
            bite: |cx, report| boundaries(cx, report, &glm5_model(cx)?, 12, true),
        },
        Tooth {
            fault: "a replayed kernel that reads the launch ahead's output before it waits for it",
            must_say: "next token) may read `value` before it waits",
            bite: |cx, report| {
                let fault = ("argmax_advance", PtxFault::ReadsEarly("value"));
                delayed::producers(cx, report, &llama(cx)?, 2, Some(fault))
            },
        },
        Tooth {
            fault: "a replayed kernel that stores before it waits",
            must_say: "stores before griddepcontrol.wait",
            bite: |cx, report| {
                let fault = ("argmax_advance", PtxFault::StoresEarly("tokens"));
                delayed::producers(cx, report, &llama(cx)?, 2, Some(fault))
            },
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        let models = [llama(cx)?, glm5_model(cx)?];
        // The simulated device takes a second for what a GPU does in a millisecond.
        let gpu = models[0].stages[0].0.device().info().kind == DeviceKind::Cuda;
        let scale = |quick: usize, simulated: usize, cuda: usize| match (cx.quick, gpu) {
            (true, _) => quick,
            (false, false) => simulated,
            (false, true) => cuda,
        };
        delayed::every_entry_waits(report)?;
        for model in &models {
            report.note(model.label());
            long_prompt(cx, report, model)?;
            first_decode(report, model)?;
            boundaries(cx, report, model, scale(24, 70, 300), false)?;
            requests(cx, report, model, scale(20, 60, 500), false)?;
            alternating(cx, report, model, scale(6, 12, 100))?;
            delayed::producers(cx, report, model, scale(4, 8, 1000), None)?;
        }
        let lengths = [16, 60, 150, 300, 2049, 4090];
        one_capture(cx, report, &models[1], &lengths[..scale(2, 3, 6)])?;
        without_peer_access(cx, report)
    }
}

fn llama(cx: &GateContext) -> Result<Pipeline> {
    Pipeline::load(cx, &open_devices(cx, &[0])?, 1, &EngineOptions::default(), &cx.fixture()?)
}

fn glm5_model(cx: &GateContext) -> Result<Pipeline> {
    let folder = glm5::checkpoint(glm5::CHECKPOINTS[0])?;
    Pipeline::load(cx, &open_devices(cx, &[0])?, 1, &EngineOptions::default(), &folder)
}

/// Runs `steps` steps, replayed from `graphs` or else eager.
fn decode(
    session: &mut Session,
    mut graphs: Option<&mut GraphDecodeState>,
    steps: usize,
) -> Result<Recording> {
    let mut recording = Recording::new(session.model().config().vocab);
    for _ in 0..steps {
        match &mut graphs {
            Some(graphs) => session.decode_step_graph(graphs)?,
            None => session.decode_step()?,
        }
        recording.push(session.next_token()?, &session.logits()?);
    }
    Ok(recording)
}

fn same(report: &mut Report, case: &str, eager: &Recording, replayed: &Recording) {
    let result = compare((&format!("{case}, eager"), eager), (&format!("{case}, replayed"), replayed));
    report.compared("logits", result.logits);
    report.compared("ids", result.ids);
    result.differences.into_iter().for_each(|line| report.fail(line));
}

/// A prompt long enough to make all scratch grow, between two replays of one graph.
fn long_prompt(cx: &GateContext, report: &mut Report, model: &Pipeline) -> Result<()> {
    let bar = cx.bar(2, "a long prompt between replays");
    let run = |graph: bool| -> Result<[Recording; 2]> {
        let mut session = model.session(260)?;
        let mut graphs = GraphDecodeState::new();
        session.prime(&prompt(5, model.vocab()))?;
        let first = decode(&mut session, graph.then_some(&mut graphs), 3)?;
        // A prompt that continues the session: walks of 64 tokens, whose scratch is many times that of one.
        session.prime(&prompt(200, model.vocab()))?;
        let second = decode(&mut session, graph.then_some(&mut graphs), 6)?;
        bar.inc(1);
        Ok([first, second])
    };
    let (eager, replayed) = (run(false)?, run(true)?);
    bar.finish_and_clear();
    eager.iter().zip(&replayed).for_each(|(a, b)| same(report, "long prompt", a, b));
    Ok(())
}

/// The first decode step of a session is the captured one.
fn first_decode(report: &mut Report, model: &Pipeline) -> Result<()> {
    let ids = prompt(3, model.vocab());
    let run = |graph: bool| -> Result<Recording> {
        let mut session = model.session(8)?;
        let mut graphs = GraphDecodeState::new();
        session.prime(&ids)?;
        decode(&mut session, graph.then_some(&mut graphs), 1)
    };
    let (replayed, eager) = (run(true)?, run(false)?);
    same(report, "first decode captured", &eager, &replayed);
    Ok(())
}

/// Every position from the first one on: past every boundary of chunks, buckets, pools and selections up to there.
fn boundaries(
    cx: &GateContext,
    report: &mut Report,
    model: &Pipeline,
    steps: usize,
    fault: bool,
) -> Result<()> {
    let bar = cx.bar(2, "every position");
    let run = |graph: bool| -> Result<Recording> {
        let mut session = model.session(steps + 1)?;
        let mut graphs = GraphDecodeState::new();
        session.prime(&prompt(1, model.vocab()))?;
        let recording = decode(&mut session, graph.then_some(&mut graphs), steps)?;
        bar.inc(1);
        Ok(recording)
    };
    let (eager, mut replayed) = (run(false)?, run(true)?);
    bar.finish_and_clear();
    if fault {
        replayed.flip(steps / 2, 1, 0);
    }
    same(report, &format!("positions 1 to {steps}"), &eager, &replayed);
    Ok(())
}

/// Requests of random lengths over one session: memory in use at idle and the number of captures stay what they are.
fn requests(
    cx: &GateContext,
    report: &mut Report,
    model: &Pipeline,
    count: usize,
    forget: bool,
) -> Result<()> {
    let mut session = model.session(96)?;
    let mut graphs = GraphDecodeState::new();
    let mut captures = 0;
    let device = session.engine().device().clone();
    let (mut settled, mut length) = (None, 0x2545_f491_u32);
    let bar = cx.bar(count, "requests of random lengths");
    for request in 0..count {
        // xorshift; the lengths only have to differ.
        length ^= length << 13;
        length ^= length >> 17;
        length ^= length << 5;
        let tokens = FIRST_LENGTHS.get(request).copied().unwrap_or(1 + length as usize % 64);
        session.clear()?;
        session.prime(&prompt(tokens, model.vocab()))?;
        decode(&mut session, Some(&mut graphs), 2)?;
        if forget {
            captures += graphs.counters().captures;
            graphs = GraphDecodeState::new();
        }
        session.engine().synchronize()?;
        let used = device.bytes_in_use();
        if request + 1 == FIRST_LENGTHS.len() {
            settled = Some(used);
        }
        if let Some(settled) = settled {
            report.check(used == settled, || {
                format!("request {request}: {used} bytes in use at idle, {settled} after the tenth")
            });
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    captures += graphs.counters().captures;
    report.compared("requests", count as u64);
    report.check(captures <= 4, || format!("{captures} captures for {count} requests"));
    Ok(())
}

/// Walks take a power of two of tokens, or a chunk of 64: the first ten requests take each.
const FIRST_LENGTHS: [usize; 10] = [1, 2, 3, 5, 9, 17, 33, 64, 40, 63];

/// Decode steps and prompts of several tokens in turns.
fn alternating(cx: &GateContext, report: &mut Report, model: &Pipeline, turns: usize) -> Result<()> {
    let bar = cx.bar(2, "decode and prompts in turns");
    let mut captures = 0;
    let mut run = |graph: bool| -> Result<Recording> {
        let mut session = model.session(1 + turns * 5)?;
        let mut graphs = GraphDecodeState::new();
        let mut whole = Recording::new(model.vocab());
        session.prime(&prompt(1, model.vocab()))?;
        for turn in 0..turns {
            let steps = decode(&mut session, graph.then_some(&mut graphs), 2)?;
            (0..steps.len()).for_each(|row| whole.push(steps.ids[row], &steps.logits(row)));
            session.prime(&prompt(1 + turn % 3, model.vocab()))?;
        }
        captures = graphs.counters().captures.max(captures);
        bar.inc(1);
        Ok(whole)
    };
    let (eager, replayed) = (run(false)?, run(true)?);
    bar.finish_and_clear();
    same(report, "decode and prompts in turns", &eager, &replayed);
    report.check((1..=4).contains(&captures), || format!("{captures} captures over {turns} turns"));
    Ok(())
}

/// Attention whose launches do not depend on the length: one capture serves sessions of all lengths.
fn one_capture(cx: &GateContext, report: &mut Report, model: &Pipeline, lengths: &[usize]) -> Result<()> {
    let capacity = 4096;
    let mut session = model.session(capacity)?;
    let mut eager = model.session(capacity)?;
    let mut graphs = GraphDecodeState::new();
    let bar = cx.bar(lengths.len(), "lengths of one capture");
    for &length in lengths {
        let ids = prompt(length, model.vocab());
        let mut pair = Vec::new();
        for (session, graphs) in [(&mut session, Some(&mut graphs)), (&mut eager, None)] {
            session.clear()?;
            session.prime(&ids)?;
            pair.push(decode(session, graphs, 2)?);
        }
        same(report, &format!("{length} tokens of {capacity}"), &pair[1], &pair[0]);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let captures = graphs.counters().captures;
    report.check(captures == 1, || format!("{captures} captures for lengths {lengths:?}, not 1"));
    Ok(())
}

/// Two stages with and without peer access: staged copies, the same bits.
fn without_peer_access(cx: &GateContext, report: &mut Report) -> Result<()> {
    let devices = open_up_to(cx, 2)?;
    if devices.len() < 2 {
        report.note("one device: there is no peer whose access could be off");
        return Ok(());
    }
    let folder = glm5::checkpoint(glm5::CHECKPOINTS[0])?;
    let model = Pipeline::load(cx, &devices, 2, &EngineOptions::default(), &folder)?;
    let mut runs = Vec::new();
    for wanted in [true, false] {
        for (a, b) in [(&devices[0], &devices[1]), (&devices[1], &devices[0])] {
            let granted = a.set_peer_access(b, wanted)?;
            report.check(wanted || !granted, || format!("access of {a} to {b} could not be switched off"));
        }
        for graph in [false, true] {
            let mut session = model.session(40)?;
            let mut graphs = GraphDecodeState::new();
            session.prime(&prompt(20, model.vocab()))?;
            runs.push((wanted, graph, decode(&mut session, graph.then_some(&mut graphs), 8)?));
        }
    }
    let (_, _, reference) = &runs[0];
    for (peer, graph, run) in &runs[1..] {
        let case = format!(
            "peer access {}, {}",
            if *peer { "on" } else { "off" },
            if *graph { "replayed" } else { "eager" }
        );
        same(report, &case, reference, run);
    }
    for (a, b) in [(&devices[0], &devices[1]), (&devices[1], &devices[0])] {
        a.set_peer_access(b, true)?;
    }
    Ok(())
}
