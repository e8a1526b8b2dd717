//! `prime [MODEL …]`: a prompt run in chunks of any size leaves the same bits, and goes on to the same decode.

use std::num::NonZeroU32;
use std::path::PathBuf;

use anyhow::Result;
use bitwalk::cache::Cache;
use bitwalk::decode::PrimeOptions;
use bitwalk::ledger::Ledger;
use bitwalk::options::{Activations, EngineOptions};

use crate::context::GateContext;
use crate::gate::{Gate, Tooth};
use crate::glm5;
use crate::outcome::Report;
use crate::runs::{Recording, Subject, compare, prompt};

/// Tokens of the prompt: past a chunk of 64, and no multiple of any chunk but 1.
const PROMPT: usize = 71;
/// Decode steps after it.
const STEPS: usize = 4;
/// The chunk sizes compared; the last takes the whole prompt.
const CHUNKS: [u32; 4] = [1, 7, 64, PROMPT as u32];

/// The gate.
#[derive(Debug)]
pub struct Prime;

impl Gate for Prime {
    const NAME: &'static str = "prime";
    const PROVES: &'static str = "a prompt in chunks of 1, 7, 64 tokens or whole leaves the same bits";
    const ARGUMENTS: &'static str = "MODEL …   models (the fixtures by default)";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "one bit of one prompt logit flipped",
            must_say: "logits",
            bite: |cx, report| bite(cx, report, |run| run.recording.flip(PROMPT / 2, 3, 0)),
        },
        Tooth {
            fault: "the last token of a chunk left out",
            must_say: "length mismatch",
            bite: |cx, report| bite(cx, report, |run| run.recording.truncate(PROMPT - 1)),
        },
        Tooth {
            fault: "one bit of the last hidden state flipped",
            must_say: "last hidden state",
            bite: |cx, report| bite(cx, report, |run| run.hidden[5] ^= 1),
        },
        Tooth {
            fault: "the ledger of one arm emptied",
            must_say: "rows",
            bite: |cx, report| bite(cx, report, |run| run.ledger.reset()),
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        let models: Vec<(PathBuf, bool)> = match &cx.args[..] {
            [] => {
                let mut models = vec![(cx.fixture()?, true)];
                for name in glm5::CHECKPOINTS {
                    // Where no weight is an integer, both programs are one.
                    models.push((glm5::checkpoint(name)?, glm5::has_integer_weights(name)));
                }
                models
            }
            named => named.iter().map(|name| (PathBuf::from(name), true)).collect(),
        };
        for (model, integers) in models {
            for activations in [Activations::Exact, Activations::I16] {
                if activations == Activations::I16 && !integers {
                    continue;
                }
                let options = EngineOptions { activations, ..EngineOptions::default() };
                let engine = bitwalk::engine::Engine::new(cx.open()?, options)?;
                let subject = Subject::with_engine(cx, engine, &model)?;
                check(cx, report, &subject)?;
            }
        }
        Ok(())
    }
}

/// What one chunk size left.
struct Run {
    /// Logits of the whole prompt and of the decode after it.
    recording: Recording,
    /// The bits that the head read for the last token.
    hidden: Vec<u32>,
    ledger: Ledger,
}

fn check(cx: &GateContext, report: &mut Report, subject: &Subject) -> Result<()> {
    let runs = CHUNKS.map(|chunk| run(cx, subject, chunk));
    let mut runs = runs.into_iter();
    let Some(first) = runs.next().transpose()? else { return Ok(()) };
    for (other, chunk) in runs.zip(&CHUNKS[1..]) {
        same(report, &first, &other?, *chunk);
    }
    report.note(format!(
        "{}: {PROMPT} tokens in chunks of {CHUNKS:?}, then {STEPS} steps: {}",
        subject.label(),
        &first.recording.hash()[..16]
    ));
    if let Some(why) = first.recording.degenerate() {
        report.fail(format!("{}: {why}", subject.label()));
    }
    Ok(())
}

fn run(cx: &GateContext, subject: &Subject, chunk: u32) -> Result<Run> {
    let ids = prompt(PROMPT, subject.vocab());
    let chunk = NonZeroU32::new(chunk).unwrap_or(NonZeroU32::MIN);
    let bar = cx.bar(PROMPT + STEPS, &format!("{} in chunks of {chunk}", subject.name()));
    let mut session = subject.session(PROMPT + STEPS)?;
    session.set_prompt_chunk(chunk);
    let (engine, ordinal) = (session.engine().clone(), session.engine().ordinal());
    let (mut recording, mut ledger) = (Recording::new(subject.vocab()), Ledger::new());
    Ledger::arm(engine.stream(), session.cache())?;
    // The ledger is drained a chunk at a time: every token of one has its own slots.
    let (mut drained, mut end) = (0, session.next_chunk(PROMPT));
    session.prime_with(&ids, true, |session, done| {
        let logits = session.logits()?;
        recording.push(bitwalk::decode::argmax(&logits), &logits);
        if done == end {
            ledger.drain(engine.stream(), session.cache(), ordinal, (done - drained) as u32)?;
            drained = done;
            end = done + session.next_chunk(PROMPT - done);
        }
        bar.set_position(done as u64);
        Ok(())
    })?;
    for _ in 0..STEPS {
        session.decode_step()?;
        ledger.drain(engine.stream(), session.cache(), ordinal, 1)?;
        recording.push(session.next_token()?, &session.logits()?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    // The same through the function that builds its own plans.
    let mut cache = Cache::new(&engine, &subject.model.cache_shape(), (PROMPT + STEPS) as u32)?;
    let options = PrimeOptions { chunk, ..PrimeOptions::default() };
    let primed = subject.model.prime_cache(&engine, &ids, &mut cache, 0, options)?;
    let logits: Vec<u32> = primed.logits.iter().map(|value| value.to_bits()).collect();
    anyhow::ensure!(
        logits == recording.row(PROMPT - 1),
        "chunks of {chunk}: the last logits of prime_cache are not the session's"
    );
    Ok(Run { recording, hidden: primed.hidden.iter().map(|value| value.to_bits()).collect(), ledger })
}

fn same(report: &mut Report, first: &Run, other: &Run, chunk: u32) {
    let (a, b) = ("chunks of 1", format!("chunks of {chunk}"));
    let logits = compare((a, &first.recording), (&b, &other.recording));
    report.compared("logits", logits.logits);
    logits.differences.into_iter().for_each(|line| report.fail(line));
    let wrong = first.hidden.iter().zip(&other.hidden).filter(|(x, y)| x != y).count();
    report.compared("elements of the last hidden state", first.hidden.len() as u64);
    report.check(wrong == 0 && first.hidden.len() == other.hidden.len(), || {
        format!("{wrong} elements of the last hidden state differ between {a} and {b}")
    });
    if !first.ledger.rows().is_empty() {
        let rows = Ledger::compare((a, &first.ledger), (&b, &other.ledger));
        report.compared("ledger rows", rows.equal);
        rows.differences.into_iter().for_each(|line| report.fail(line));
        report.check(first.ledger.missing() == 0, || "rows of the ledger are missing".to_owned());
    }
}

fn bite(cx: &GateContext, report: &mut Report, plant: fn(&mut Run)) -> Result<()> {
    let engine = bitwalk::engine::Engine::new(cx.open()?, EngineOptions::default())?;
    let subject = Subject::with_engine(cx, engine, &glm5::checkpoint(glm5::CHECKPOINTS[0])?)?;
    let first = run(cx, &subject, 64)?;
    let mut other = run(cx, &subject, 64)?;
    plant(&mut other);
    same(report, &first, &other, 64);
    Ok(())
}
