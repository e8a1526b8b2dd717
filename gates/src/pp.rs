//! `pp`: a model in one stage against two and three, eager and replayed, two sessions in turns.

use anyhow::Result;
use bitwalk::decode::{GraphDecodeState, Session};
use bitwalk::device::Device;
use bitwalk::options::{Activations, EngineOptions, KvType};
use ptx_sim::system::SystemConfig;

use crate::context::GateContext;
use crate::gate::{Gate, Tooth};
use crate::glm5;
use crate::outcome::Report;
use crate::pipeline::{Pipeline, open_devices, open_simulated, open_up_to};
use crate::runs::{Recording, compare};

/// Tokens of the prompts of the two sessions.
const PROMPTS: [usize; 2] = [9, 14];
/// Steps of each.
const STEPS: usize = 6;

/// The gate.
#[derive(Debug)]
pub struct PipelineGate;

impl Gate for PipelineGate {
    const NAME: &'static str = "pp";
    const PROVES: &'static str =
        "a model split over 2 and 3 devices says what it says on one, to the last bit";
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "one bit of a logit of the last stage flipped",
            must_say: "1 of",
            bite: |cx, report| bite(cx, report, |run| run.recordings[0].flip(2, 1, 0)),
        },
        Tooth {
            fault: "the sessions' recordings exchanged",
            must_say: "ids differ",
            bite: |cx, report| bite(cx, report, |run| run.recordings.swap(0, 1)),
        },
        Tooth {
            fault: "a session that stopped early",
            must_say: "length mismatch",
            bite: |cx, report| bite(cx, report, |run| run.recordings[1].truncate(STEPS - 1)),
        },
        Tooth { fault: "stages that do not wait for each other", must_say: "differ", bite: no_waits },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        let [tiny, nvfp4, ..] = glm5::CHECKPOINTS;
        let models = [
            (cx.fixture()?, Activations::Exact),
            (cx.fixture()?, Activations::I16),
            (glm5::checkpoint(tiny)?, Activations::Exact),
            (glm5::checkpoint(nvfp4)?, Activations::Exact),
            (glm5::checkpoint(nvfp4)?, Activations::I16),
        ];
        for (model, activations) in models {
            let options = EngineOptions { activations, kv: KvType::F16, ..EngineOptions::default() };
            let load = |stages: u32| -> Result<Pipeline> {
                Pipeline::load(cx, &open_up_to(cx, stages)?, stages, &options, &model)
            };
            let reference = run(cx, &load(1)?, false)?;
            reference.recordings.iter().filter_map(Recording::degenerate).for_each(|why| report.fail(why));
            for stages in [2, 3] {
                // Where there are fewer devices, stages share one.
                let subject = load(stages)?;
                report.note(subject.label());
                for graph in [false, true] {
                    let found = run(cx, &subject, graph)?;
                    same(report, &reference, &found, &format!("{stages} stages, {}", how(graph)));
                }
            }
        }
        Ok(())
    }
}

fn how(graph: bool) -> &'static str {
    if graph { "replayed" } else { "eager" }
}

/// What two sessions, a step of each in turns, said.
struct Run {
    recordings: [Recording; 2],
    replays: u64,
}

fn run(cx: &GateContext, subject: &Pipeline, graph: bool) -> Result<Run> {
    let prompts = PROMPTS.map(|len| crate::runs::prompt(len, subject.vocab()));
    let mut sessions: Vec<(Session, GraphDecodeState, Recording)> = Vec::new();
    for prompt in &prompts {
        let mut session = subject.session(prompt.len() + STEPS)?;
        session.prime(prompt)?;
        sessions.push((session, GraphDecodeState::new(), Recording::new(subject.vocab())));
    }
    let bar = cx.bar(STEPS, &format!("{} stages, {}", subject.stages.len(), how(graph)));
    for _ in 0..STEPS {
        for (session, graphs, recording) in &mut sessions {
            if graph {
                session.decode_step_graph(graphs)?
            } else {
                session.decode_step()?
            }
            recording.push(session.next_token()?, &session.logits()?);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let replays = sessions.iter().map(|(_, graphs, _)| graphs.counters().replays).sum();
    let mut recordings = sessions.into_iter().map(|(_, _, recording)| recording);
    let pair = [recordings.next().unwrap_or_default(), recordings.next().unwrap_or_default()];
    Ok(Run { recordings: pair, replays })
}

fn same(report: &mut Report, reference: &Run, found: &Run, arm: &str) {
    for (index, (a, b)) in reference.recordings.iter().zip(&found.recordings).enumerate() {
        let other = format!("{arm}, session {index}");
        let result = compare(("one stage", a), (&other, b));
        report.compared("logits", result.logits);
        report.compared("ids", result.ids);
        result.differences.into_iter().for_each(|line| report.fail(line));
    }
    if arm.ends_with("replayed") {
        report.compared("replays", found.replays);
    }
}

fn bite(cx: &GateContext, report: &mut Report, plant: fn(&mut Run)) -> Result<()> {
    let options = EngineOptions::default();
    let subject = Pipeline::load(cx, &open_devices(cx, &[0])?, 1, &options, &cx.fixture()?)?;
    let reference = run(cx, &subject, false)?;
    let mut found = run(cx, &subject, false)?;
    plant(&mut found);
    same(report, &reference, &found, "the faulty run");
    Ok(())
}

/// Two stages on a machine whose streams do not wait for another device's events.
fn no_waits(cx: &GateContext, report: &mut Report) -> Result<()> {
    let options = EngineOptions::default();
    let load =
        |devices: &[Device]| Pipeline::load(cx, devices, devices.len() as u32, &options, &cx.fixture()?);
    let machine = SystemConfig { lost_waits: true, ..SystemConfig::default() };
    let reference = run(cx, &load(&open_simulated(&[0], SystemConfig::default())?)?, false)?;
    let found = run(cx, &load(&open_simulated(&[0, 1], machine)?)?, false)?;
    same(report, &reference, &found, "the stages that do not wait");
    Ok(())
}
