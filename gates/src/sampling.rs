//! `sampling`: what the device draws is what the options, the seed and the logits say, eager and replayed.

use anyhow::{Context, Result};
use bitwalk::decode::{GraphDecodeState, Production, Sampling, SamplingOptions, Session, argmax};
use bitwalk::options::{Activations, EngineOptions};
use indicatif::ProgressBar;
use std::num::NonZeroUsize;

use crate::context::GateContext;
use crate::gate::{Gate, Tooth};
use crate::outcome::Report;
use crate::runs::{Subject, prompt};

const PROMPT: usize = 8;
const TOKENS: usize = 24;
/// Tokens a synchronisation; each must give the same stream.
const QUEUES: [usize; 3] = [1, 4, 16];

/// The gate.
#[derive(Debug)]
pub struct SamplingGate;

impl Gate for SamplingGate {
    const NAME: &'static str = "sampling";
    const PROVES: &'static str = "draws on the device are those of the logits, the options and the seed, eager and replayed, however queued";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "another seed in the replayed run",
            must_say: "queue of 1, token",
            bite: |cx, report| {
                let subject = subject(cx, Activations::Exact)?;
                let (name, options) = drawn();
                let drawn = eager(&subject, &Sampling::new(options)?, &bar())?;
                let other = SamplingOptions { seed: options.seed + 1, ..options };
                queued(report, &subject, name, &Sampling::new(other)?, &drawn)
            },
        },
        Tooth {
            fault: "one drawn token altered",
            must_say: "the host draws",
            bite: |cx, report| {
                let subject = subject(cx, Activations::Exact)?;
                let (name, options) = drawn();
                let sampling = Sampling::new(options)?;
                let mut drawn = eager(&subject, &sampling, &bar())?;
                drawn.ids[5] ^= 1;
                judge(report, name, &sampling, &drawn);
                Ok(())
            },
        },
        Tooth {
            fault: "a draw that is greedy",
            must_say: "never differ from the likeliest",
            bite: |cx, report| {
                let subject = subject(cx, Activations::Exact)?;
                let sampling = Sampling::new(SamplingOptions { top_k: Some(1), ..drawn().1 })?;
                let drawn = eager(&subject, &sampling, &bar())?;
                differs(report, "top-k 1", &drawn);
                Ok(())
            },
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        let programs = if cx.quick { &[Activations::Exact][..] } else { Activations::ALL };
        for &activations in programs {
            let subject = subject(cx, activations)?;
            let options = options();
            report.note(format!(
                "{}: prompt {PROMPT}, {TOKENS} tokens, {} sets of options",
                subject.label(),
                options.len()
            ));
            let progress = cx.bar(options.len() * TOKENS * 4, "draws");
            for (name, options) in options {
                let sampling = Sampling::new(options)?;
                let drawn = eager(&subject, &sampling, &progress)?;
                judge(report, name, &sampling, &drawn);
                if options.top_k == Some(1) && options.repeat_penalty == 1.0 {
                    greedy(report, name, &subject, &drawn)?;
                } else if options.top_k != Some(1) {
                    differs(report, name, &drawn);
                }
                queued(report, &subject, name, &sampling, &drawn)?;
                progress.inc(3 * TOKENS as u64);
            }
            progress.finish_and_clear();
        }
        Ok(())
    }
}

fn bar() -> ProgressBar {
    ProgressBar::hidden()
}

fn subject(cx: &GateContext, activations: Activations) -> Result<Subject> {
    let options = EngineOptions { activations, ..EngineOptions::default() };
    Subject::load(cx, cx.open()?, options, &cx.fixture()?)
}

/// The options that draw most freely.
fn drawn() -> (&'static str, SamplingOptions) {
    ("temperature 1.5", SamplingOptions { temperature: 1.5, seed: 42, ..SamplingOptions::default() })
}

fn options() -> Vec<(&'static str, SamplingOptions)> {
    let off = SamplingOptions { temperature: 2.0, seed: 7, ..SamplingOptions::default() };
    vec![
        drawn(),
        ("top-k 1", SamplingOptions { top_k: Some(1), ..off }),
        ("top-k 1, penalty 1.2", SamplingOptions { top_k: Some(1), repeat_penalty: 1.2, ..off }),
        ("top-k 20", SamplingOptions { top_k: Some(20), ..off }),
        ("top-p 0.9", SamplingOptions { top_p: Some(0.9), seed: u64::MAX, ..off }),
        ("min-p 0.05", SamplingOptions { min_p: Some(0.05), ..off }),
        (
            "all",
            SamplingOptions {
                top_k: Some(50),
                top_p: Some(0.95),
                min_p: Some(0.01),
                repeat_penalty: 1.1,
                ..off
            },
        ),
    ]
}

/// A run, with the logits that each token was drawn from.
struct Drawn {
    prompt: Vec<u32>,
    ids: Vec<u32>,
    logits: Vec<Vec<f32>>,
}

fn session(subject: &Subject, sampling: Option<&Sampling>) -> Result<Session> {
    let mut session = subject.session(PROMPT + TOKENS)?;
    session.set_sampling(sampling)?;
    Ok(session)
}

fn eager(subject: &Subject, sampling: &Sampling, progress: &ProgressBar) -> Result<Drawn> {
    let mut session = session(subject, Some(sampling))?;
    let prompt = prompt(PROMPT, subject.vocab());
    session.prime(&prompt)?;
    let (mut ids, mut logits) = (Vec::new(), Vec::new());
    for step in 0..TOKENS {
        if step > 0 {
            session.decode_step()?;
        }
        logits.push(session.logits()?);
        ids.push(session.next_token()?);
        progress.inc(1);
    }
    Ok(Drawn { prompt, ids, logits })
}

/// Each token against the host's draw, which sorts where the device selects.
fn judge(report: &mut Report, name: &str, sampling: &Sampling, drawn: &Drawn) {
    let mut occurred = drawn.prompt.clone();
    for (step, (&id, logits)) in drawn.ids.iter().zip(&drawn.logits).enumerate() {
        let wanted = sampling.next_token(logits, &occurred);
        report.check(id == wanted, || {
            format!("{name}, token {step}: the device drew {id}, the host draws {wanted}")
        });
        report.check(
            sampling.distribution(logits, &occurred).get(wanted as usize).is_some_and(|&p| p > 0.0),
            || format!("{name}, token {step}: {wanted} has no probability in float64"),
        );
        occurred.push(id);
    }
    report.compared("draws", drawn.ids.len() as u64);
}

/// A draw that always takes the likeliest proves nothing.
fn differs(report: &mut Report, name: &str, drawn: &Drawn) {
    let other = drawn.ids.iter().zip(&drawn.logits).filter(|(id, logits)| **id != argmax(logits)).count();
    report.check(other > 0, || {
        format!("{name}: {} draws never differ from the likeliest token", drawn.ids.len())
    });
}

fn greedy(report: &mut Report, name: &str, subject: &Subject, drawn: &Drawn) -> Result<()> {
    let mut session = session(subject, None)?;
    session.prime(&drawn.prompt)?;
    let ask = Production { graphs: None, tokens: TOKENS, queue: NonZeroUsize::MIN, stop: &[] };
    let ids = session.produce(ask, |_| Ok(true))?.ids;
    report.check(ids == drawn.ids, || format!("{name}: drew {:?}, greedy decoding gives {ids:?}", drawn.ids));
    report.compared("greedy ids", ids.len() as u64);
    Ok(())
}

/// The same stream by replay, whatever the queue; stopped at a token in its middle, it ends there and can be continued.
fn queued(
    report: &mut Report,
    subject: &Subject,
    name: &str,
    sampling: &Sampling,
    drawn: &Drawn,
) -> Result<()> {
    let mut graphs = GraphDecodeState::new();
    let mut session = session(subject, Some(sampling))?;
    for queue in QUEUES {
        let size = NonZeroUsize::new(queue).context("a queue of none")?;
        session.clear()?;
        session.prime(&drawn.prompt)?;
        let ask = Production { graphs: Some(&mut graphs), tokens: TOKENS, queue: size, stop: &[] };
        let produced = session.produce(ask, |_| Ok(true))?;
        report.check(produced.synchronisations == TOKENS.div_ceil(queue), || {
            format!("{name}, queue of {queue}: {} synchronisations", produced.synchronisations)
        });
        let first = produced.ids.iter().zip(&drawn.ids).position(|(a, b)| a != b);
        if let Some(step) = first {
            let (graph, eager) = (produced.ids[step], drawn.ids[step]);
            report
                .fail(format!("{name}, queue of {queue}, token {step}: {graph} by replay, {eager} eagerly"));
            continue;
        }
        report.check(produced.ids.len() == TOKENS, || {
            format!("{name}, queue of {queue}: {} tokens", produced.ids.len())
        });
        report.compared("queued ids", produced.ids.len() as u64);
        stopped(report, name, &mut session, &mut graphs, drawn, size)?;
    }
    let counters = graphs.counters();
    report.compared("replays", counters.replays);
    report.compared("graph nodes", counters.nodes_compared);
    report.compared("ordered pairs", counters.pairs_covered);
    Ok(())
}

/// Stops at the first occurrence of the token in the middle, then goes on from there.
fn stopped(
    report: &mut Report,
    name: &str,
    session: &mut Session,
    graphs: &mut GraphDecodeState,
    drawn: &Drawn,
    queue: NonZeroUsize,
) -> Result<()> {
    let stop = drawn.ids[TOKENS / 2];
    let at = drawn.ids.iter().position(|&id| id == stop).context("a token that was drawn")?;
    session.clear()?;
    session.prime(&drawn.prompt)?;
    let ask = Production { graphs: Some(&mut *graphs), tokens: TOKENS, queue, stop: &[stop] };
    let before = session.produce(ask, |_| Ok(true))?.ids;
    report.check(before == drawn.ids[..at], || {
        format!("{name}, queue of {queue}: {} tokens before the stop token, not {at}", before.len())
    });
    // The stop token is the next one: without it as a stop, the stream goes on as if it had never been one.
    let ask = Production { graphs: Some(graphs), tokens: TOKENS - at, queue, stop: &[] };
    let after = session.produce(ask, |_| Ok(true))?.ids;
    report.check(after == drawn.ids[at..], || {
        format!("{name}, queue of {queue}: after the stop token {after:?}, not {:?}", &drawn.ids[at..])
    });
    report.compared("stops", 1);
    Ok(())
}
