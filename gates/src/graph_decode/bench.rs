//! `graph-decode … bench`: eager and graph decoding timed side by side.

use std::time::{Duration, Instant};

use anyhow::Result;
use bitwalk::decode::{GraphDecodeState, Session};
use bitwalk::options::BucketPolicy;

use super::Pair;
use crate::context::GateContext;
use crate::outcome::Report;
use crate::runs::prompt;

/// Repetitions of each arm, after one that warms up and is not counted. On the simulated device one has to do.
const REPETITIONS: usize = 5;

/// One repetition of one arm.
#[derive(Debug, Clone, Copy)]
struct Timing {
    /// The prompt alone, measured by a run that generates nothing.
    prime: Duration,
    /// Prompt and generation, captures included.
    total: Duration,
    captures: u64,
}

impl Timing {
    /// Time of the steps alone.
    fn decode(&self) -> Duration {
        self.total.saturating_sub(self.prime)
    }
}

/// Times both arms, interleaved, so that a change of the machine's speed meets both, and prints medians. The ids of the
/// arms are compared; nothing else is.
pub(super) fn run(cx: &GateContext, pair: &Pair, report: &mut Report) -> Result<()> {
    let subject = pair.subject(cx, BucketPolicy::Doubling)?;
    let prompt = prompt(pair.prompt, subject.vocab());
    let mut session = subject.session(pair.prompt + pair.tokens)?;
    let repetitions = if subject.engine.device().info().driver_version.is_some() { REPETITIONS } else { 1 };
    let steps = pair.tokens - 1;
    report.note(format!("{}: prompt {}, {steps} steps", subject.label(), prompt.len()));

    let (mut eager, mut graph) = (Vec::new(), Vec::new());
    let warm_up = usize::from(repetitions > 1);
    let bar = cx.bar(repetitions + warm_up, "eager and graph");
    for repetition in 0..repetitions + warm_up {
        let (timing, eager_ids) = time_eager(&mut session, &prompt, pair.tokens)?;
        let (graph_timing, graph_ids) = time_graph(&mut session, &prompt, pair.tokens)?;
        if repetition >= warm_up {
            eager.push(timing);
            graph.push(graph_timing);
        }
        report.compared("ids", graph_ids.len() as u64);
        report.check(eager_ids == graph_ids, || format!("repetition {repetition}: the arms' ids differ"));
        bar.inc(1);
    }
    bar.finish_and_clear();
    for (arm, timings) in [("eager", &mut eager), ("graph", &mut graph)] {
        // The median by decode time, its own prime and total beside it.
        timings.sort_by_key(Timing::decode);
        let median = timings[timings.len() / 2];
        let decode = median.decode().as_secs_f64();
        report.note(format!(
            "{arm}: {:.1} tok/s, {:.4} ms/token; total {:.3} s, prime {:.3} s; {} captures (median of {})",
            steps as f64 / decode,
            decode * 1e3 / steps as f64,
            median.total.as_secs_f64(),
            median.prime.as_secs_f64(),
            median.captures,
            timings.len()
        ));
    }
    Ok(())
}

fn time_eager(session: &mut Session, prompt: &[u32], tokens: usize) -> Result<(Timing, Vec<u32>)> {
    let prime = time_prime(session, prompt)?;
    session.clear()?;
    let mut ids = Vec::with_capacity(tokens);
    let begun = Instant::now();
    session.prime(prompt)?;
    ids.push(session.next_token()?);
    while ids.len() < tokens {
        session.decode_step()?;
        ids.push(session.next_token()?);
    }
    Ok((Timing { prime, total: begun.elapsed(), captures: 0 }, ids))
}

fn time_graph(session: &mut Session, prompt: &[u32], tokens: usize) -> Result<(Timing, Vec<u32>)> {
    let prime = time_prime(session, prompt)?;
    session.clear()?;
    // Fresh, so that the captures are inside the decode figure.
    let mut graphs = GraphDecodeState::new();
    let begun = Instant::now();
    let ids = session.generate_graph(&mut graphs, prompt, tokens, |_, _| Ok(true))?;
    // The comparison of first replays with eager walks is no part of decoding.
    let counters = graphs.counters();
    let total = begun.elapsed().saturating_sub(counters.verifying);
    Ok((Timing { prime, total, captures: counters.captures }, ids))
}

fn time_prime(session: &mut Session, prompt: &[u32]) -> Result<Duration> {
    session.clear()?;
    let begun = Instant::now();
    session.generate_graph(&mut GraphDecodeState::new(), prompt, 0, |_, _| Ok(true))?;
    session.engine().synchronize()?;
    Ok(begun.elapsed())
}
