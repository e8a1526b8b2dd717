//! The arms timed side by side, with what a token moves between host and device.

use std::time::Instant;

use anyhow::Result;
use bitwalk::decode::{GraphDecodeState, GraphOptions, Session};

use super::budget::counters;
use super::{Arguments, prompt};
use crate::context::GateContext;
use crate::outcome::Report;
use crate::pipeline::Pipeline;

/// Times both arms, interleaved, ledger off and nothing re-seated, and holds a replayed token to what it may move in steady
/// state: nothing to the device, and 4 bytes, the token, to the host.
pub fn run(
    cx: &GateContext,
    report: &mut Report,
    eager: &Pipeline,
    graph: &Pipeline,
    arguments: &Arguments,
) -> Result<()> {
    let steps = arguments.steps as usize;
    let capacity = arguments.prompt_len as usize + steps + 1;
    let (mut a, mut b) = (eager.session(capacity)?, graph.session(capacity)?);
    // Verified in the arms; here it would be timed.
    let options = GraphOptions { verify: false, ..GraphOptions::default() };
    let mut graphs = GraphDecodeState::with_options(options);
    let ids = prompt(arguments.prompt_len, graph.vocab());
    let (mut eager_ms, mut graph_ms) = (Vec::new(), Vec::new());
    let bar = cx.bar(arguments.reps as usize, "timing, arms interleaved");
    for rep in 0..arguments.reps {
        let (ms, a_ids) = time(&mut a, &ids, steps, |session| Ok(session.decode_step()?))?;
        eager_ms.push(ms);
        let (ms, b_ids) = time(&mut b, &ids, steps, |session| Ok(session.decode_step_graph(&mut graphs)?))?;
        graph_ms.push(ms);
        report.check(a_ids == b_ids, || format!("timing, repetition {rep}: the arms' ids differ"));
        bar.inc(1);
    }
    bar.finish_and_clear();
    steady_state(report, &mut b, &mut graphs)?;
    let list = |ms: &[f64]| ms.iter().map(|ms| format!("{ms:.3}")).collect::<Vec<_>>().join(" ");
    let (eager_median, graph_median) = (median(&mut eager_ms.clone()), median(&mut graph_ms.clone()));
    report.note(format!("timing: eager ms/token {}; median {eager_median:.3}", list(&eager_ms)));
    report.note(format!(
        "timing: graph ms/token {}; median {graph_median:.3} ({:+.1} %)",
        list(&graph_ms),
        (graph_median / eager_median - 1.0) * 100.0
    ));
    Ok(())
}

/// What replayed tokens move, of all devices.
fn steady_state(report: &mut Report, session: &mut Session, graphs: &mut GraphDecodeState) -> Result<()> {
    // One step is left in the cache; the graphs were captured long before.
    let before = counters(session);
    session.decode_step_graph(graphs)?;
    session.next_token()?;
    let moved = counters(session).since(before);
    report.note(format!(
        "steady state: {} bytes to the device, {} bytes to the host a token",
        moved.host_to_device, moved.device_to_host
    ));
    report.check(moved.host_to_device.bytes == 0 && moved.device_to_host.bytes == 4, || {
        format!(
            "a replayed token moves {} bytes to the device and {} to the host, not 0 and 4",
            moved.host_to_device.bytes, moved.device_to_host.bytes
        )
    });
    Ok(())
}

/// Milliseconds a step, and the ids.
fn time(
    session: &mut Session,
    prompt: &[u32],
    steps: usize,
    mut step: impl FnMut(&mut Session) -> Result<()>,
) -> Result<(f64, Vec<u32>)> {
    session.clear()?;
    session.prime(prompt)?;
    let mut ids = vec![session.next_token()?];
    let begun = Instant::now();
    for _ in 0..steps {
        step(session)?;
        ids.push(session.next_token()?);
    }
    Ok((begun.elapsed().as_secs_f64() * 1e3 / steps as f64, ids))
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
