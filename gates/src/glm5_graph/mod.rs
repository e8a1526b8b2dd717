//! `glm5-decode-graph`: decoding of glm5_next by whole-token graphs against eager decoding whose experts the host launches:
//! ids, every logit's bits, every selection; with a re-seated state under each policy.

mod arguments;
mod arms;
mod budget;
mod timing;

use std::path::PathBuf;

use anyhow::Result;
pub use arguments::Arguments;
use bitwalk::decode::{CaptureMode, GraphFault, GraphOptions, SeatPolicy};
use bitwalk::device::DeviceList;
use bitwalk::ledger::Ledger;
use bitwalk::options::{Activations, EngineOptions, ExpertArm};

use crate::context::GateContext;
use crate::gate::{Gate, Tooth};
use crate::glm5;
use crate::outcome::Report;
use crate::pipeline::{Pipeline, open_list, open_up_to};
use crate::runs::compare;
use arms::{ArmRun, Fault};

/// The gate.
#[derive(Debug)]
pub struct Glm5Graph;

impl Gate for Glm5Graph {
    const NAME: &'static str = "glm5-decode-graph";
    const PROVES: &'static str = "glm5_next by whole-token graphs says what eager walks with host-launched experts say, re-seats included";
    const ARGUMENTS: &'static str = arguments::USAGE;
    const TEETH: &'static [Tooth] = &[
        Tooth {
            fault: "walks that run eagerly where they should be replayed",
            must_say: "replays",
            bite: |cx, report| bite(cx, report, SeatPolicy::Latch, Fault::Graph(GraphFault::ReplayNothing)),
        },
        Tooth {
            fault: "an arm whose ledger is off",
            must_say: "no ledger rows",
            bite: |cx, report| bite(cx, report, SeatPolicy::Latch, Fault::NoLedger),
        },
        Tooth {
            fault: "the pointer signature unchecked at the re-seat",
            must_say: "differ",
            bite: |cx, report| bite(cx, report, SeatPolicy::Latch, Fault::Graph(GraphFault::IgnoreSeats)),
        },
        Tooth {
            fault: "a patch that patches nothing",
            must_say: "differ",
            bite: |cx, report| bite(cx, report, SeatPolicy::Patch, Fault::Graph(GraphFault::PatchNothing)),
        },
        Tooth {
            fault: "the last bit of one expert's weight flipped on the device arm",
            must_say: "differ",
            bite: |cx, report| bite(cx, report, SeatPolicy::Latch, Fault::ExpertBit),
        },
        Tooth {
            fault: "the indexer's tail dropped in the captured form alone",
            must_say: "differ",
            bite: |cx, report| bite(cx, report, SeatPolicy::Latch, Fault::NoTail),
        },
        Tooth {
            fault: "a stage that replays a stale position",
            must_say: "differ",
            bite: |cx, report| bite(cx, report, SeatPolicy::Latch, Fault::StalePosition),
        },
    ];

    fn run(cx: &GateContext, report: &mut Report) -> Result<()> {
        if !cx.args.is_empty() {
            return run_arguments(cx, &Arguments::parse_words(&cx.args)?, report);
        }
        let defaults = Arguments::parse_words(&[])?;
        for checkpoint in &glm5::CHECKPOINTS[..2] {
            for stages in [1, 2] {
                // Where there is one device, two stages share it.
                let devices = open_up_to(cx, stages)?.len() as u32;
                let arguments = Arguments {
                    artifact: Some(glm5::checkpoint(checkpoint)?),
                    // Past a boundary of pools and of the selection either way; the binary runs more.
                    steps: if cx.quick { 6 } else { 16 },
                    reps: 1,
                    prompt_len: 30,
                    devices: DeviceList::Auto((0..devices).collect()),
                    stages: Some(stages),
                    act: match glm5::has_integer_weights(checkpoint) {
                        true => Activations::ALL.to_vec(),
                        false => vec![Activations::Exact],
                    },
                    ..defaults.clone()
                };
                run_arguments(cx, &arguments, report)?;
            }
        }
        Ok(())
    }
}

/// Runs what the arguments ask for.
///
/// # Errors
/// Those of the gate.
pub fn run_arguments(cx: &GateContext, arguments: &Arguments, report: &mut Report) -> Result<()> {
    let folder: PathBuf = match &arguments.artifact {
        Some(folder) => folder.clone(),
        None => glm5::checkpoint(glm5::CHECKPOINTS[0])?,
    };
    for &activations in &arguments.act {
        let case = Case { folder: folder.clone(), arguments: arguments.clone(), activations };
        case.run(cx, report)?;
    }
    Ok(())
}

/// The prompt of both arms.
fn prompt(len: u32, vocab: u32) -> Vec<u32> {
    (0..u64::from(len)).map(|i| ((101 + i * 7 % 900) % u64::from(vocab)) as u32).collect()
}

/// One checkpoint under one program.
struct Case {
    folder: PathBuf,
    arguments: Arguments,
    activations: Activations,
}

impl Case {
    fn options(&self, experts: ExpertArm) -> EngineOptions {
        EngineOptions {
            activations: self.activations,
            kv: self.arguments.kv,
            experts,
            ..EngineOptions::default()
        }
    }

    fn load(&self, cx: &GateContext, experts: ExpertArm) -> Result<Pipeline> {
        let devices = open_list(cx, &self.arguments.devices)?;
        let stages = self.arguments.stages.unwrap_or(devices.len() as u32);
        Pipeline::load(cx, &devices, stages, &self.options(experts), &self.folder)
    }

    fn run(&self, cx: &GateContext, report: &mut Report) -> Result<()> {
        let graph = self.load(cx, ExpertArm::Device)?;
        // One copy of the weights serves both arms: they may fill the devices.
        let eager = graph.with_options(&self.options(ExpertArm::HostOracle))?;
        self.header(report, &graph, &eager);
        let reference = arms::eager(cx, report, &eager, &self.arguments)?;
        self.describe(report, "arm A (eager, host-oracle experts)", &reference);
        for policy in [SeatPolicy::Latch, SeatPolicy::Patch, SeatPolicy::Recapture] {
            let options = GraphOptions { policy, ..GraphOptions::default() };
            let run = arms::graph(cx, report, &graph, &self.arguments, options, None)?;
            report.note(format!("options of the graphs: {options}"));
            self.judge(report, &graph, &reference, &run, policy);
        }
        // The base line and fall-back: runs of recurrent layers captured, the others eager between them.
        let options = GraphOptions {
            mode: CaptureMode::RecurrentRuns,
            policy: SeatPolicy::Patch,
            ..GraphOptions::default()
        };
        let runs = arms::graph(cx, report, &graph, &self.arguments, options, None)?;
        identity(report, "recurrent runs", &reference, &runs);
        report.check(runs.counters.replays > 0 && runs.counters.captured_layers > 0, || {
            "recurrent runs: no replays".to_owned()
        });
        timing::run(cx, report, &eager, &graph, &self.arguments)
    }

    fn header(&self, report: &mut Report, graph: &Pipeline, eager: &Pipeline) {
        let a = &self.arguments;
        let config = graph.stages[0].1.config();
        report.note(format!(
            "{}: {} steps, {} repetitions, prompt {}, devices {}, {} stages",
            graph.label(),
            a.steps,
            a.reps,
            a.prompt_len,
            a.devices,
            graph.stages.len()
        ));
        let ranges: Vec<String> = graph
            .stages
            .iter()
            .map(|(engine, model)| {
                let range = model.range();
                format!("{}..{} on {} ({})", range.first, range.end, engine.device(), engine.name())
            })
            .collect();
        let used: Vec<String> = graph
            .stages
            .iter()
            .map(|(engine, model)| format!("{} of {} in use", model.bytes(), engine.device().bytes_in_use()))
            .collect();
        report.note(format!("bytes of weights: {}", used.join("; ")));
        for (arm, subject, graphs) in [("A", eager, "none"), ("B", graph, "each policy in turn")] {
            report.note(format!("options of arm {arm}: {}; graphs: {graphs}", subject.stages[0].0.options()));
        }
        report.note(format!(
            "{} layers ({}), width {}, {} streams",
            graph.layers(),
            ranges.join("; "),
            config.hidden,
            config.streams
        ));
    }

    fn describe(&self, report: &mut Report, arm: &str, run: &ArmRun) {
        let (id, value, nonzero) = run.first_step();
        report.note(format!("{arm}: step 1: top-1 {id} = {value}, {nonzero} logits are not zero"));
        if let Some(why) = run.recording.degenerate() {
            report.fail(format!("{arm}: {why}"));
        }
        report.check(!run.ledger.rows().is_empty(), || format!("{arm}: no ledger rows"));
        report.check(run.ledger.missing() == 0, || {
            format!("{arm}: {} rows of the ledger were not written", run.ledger.missing())
        });
    }

    /// Holds a graph arm to the eager one, and its counters to what its policy promises.
    fn judge(
        &self,
        report: &mut Report,
        graph: &Pipeline,
        reference: &ArmRun,
        run: &ArmRun,
        policy: SeatPolicy,
    ) {
        let arm = format!("arm B (graph, device experts, {policy})");
        let c = run.counters;
        report.note(format!(
            "{arm}: {} captures, {} re-captures, {} patches ({} nodes), {} latches, {} replays, {} eager by a latch, \
             {} captured layers, {} nodes; {} first replays verified; {} nodes compared, {} pairs covered",
            c.captures,
            c.recaptures,
            c.patches,
            c.patched_nodes,
            c.latches,
            c.replays,
            c.latched,
            run.captured_layers,
            run.nodes,
            c.verified,
            c.nodes_compared,
            c.pairs_covered
        ));
        report.note(format!("{arm}: {}", run.reseat));
        self.describe(report, &arm, run);
        let (stages, steps) = (graph.stages.len() as u64, u64::from(self.arguments.steps));
        let at = u64::from(reseat_step(self.arguments.steps));
        let layers = u64::from(graph.layers());
        report.check(run.captured_layers == layers, || {
            format!("{arm}: {} of {layers} layers are captured", run.captured_layers)
        });
        report.check(run.replays_before == at * stages, || {
            format!(
                "{arm}: {} replays before the re-seat, not {}: it ran eagerly",
                run.replays_before,
                at * stages
            )
        });
        report.check(c.verified == c.captures + c.recaptures && c.captures == stages, || {
            let (captures, again, verified) = (c.captures, c.recaptures, c.verified);
            format!(
                "{arm}: {captures} captures of {stages} stages and {again} re-captures, {verified} verified"
            )
        });
        let after = (steps - at) * stages;
        // The stage whose state was re-seated stops under a latch, and goes on under the others.
        let (latches, patches, recaptures, replays) = match policy {
            SeatPolicy::Latch => (1, 0, 0, after - (steps - at)),
            SeatPolicy::Patch => (0, 1, 0, after),
            SeatPolicy::Recapture => (0, 0, 1, after),
        };
        report.check((c.latches, c.patches, c.recaptures) == (latches, patches, recaptures), || {
            format!(
                "{arm}: {} latches, {} patches and {} re-captures at the re-seat, not {latches}, {patches} and {recaptures}",
                c.latches, c.patches, c.recaptures
            )
        });
        report.check(policy != SeatPolicy::Patch || c.patched_nodes > 0, || {
            format!("{arm}: no node was patched")
        });
        report.check(c.replays - run.replays_before == replays, || {
            format!("{arm}: {} replays after the re-seat, not {replays}", c.replays - run.replays_before)
        });
        report.compared("replays", c.replays);
        report.compared("captured layers", run.captured_layers);
        report.compared("nodes", c.nodes_compared);
        report.compared("ordered pairs", c.pairs_covered);
        identity(report, &arm, reference, run);
    }
}

/// The walk before which the first recurrent layer's state is re-seated.
fn reseat_step(steps: u32) -> u32 {
    (steps / 2).max(2)
}

/// Ids, logits and selections of two arms, bit for bit.
fn identity(report: &mut Report, arm: &str, reference: &ArmRun, run: &ArmRun) {
    let logits = compare(("arm A", &reference.recording), (arm, &run.recording));
    let rows = Ledger::compare(("arm A", &reference.ledger), (arm, &run.ledger));
    let steps = reference.recording.len().min(run.recording.len());
    let tokens = (0..steps).filter(|&step| reference.recording.ids[step] == run.recording.ids[step]).count();
    let vocab = reference.recording.row(0).len();
    let equal: usize = (0..steps)
        .map(|step| {
            let pairs = reference.recording.row(step).iter().zip(run.recording.row(step));
            pairs.filter(|(a, b)| a == b).count()
        })
        .sum();
    report.note(format!(
        "{arm}: identity: tokens {tokens}/{}; selections {}/{}; logits {equal}/{}",
        reference.recording.len(),
        rows.equal,
        rows.rows,
        reference.recording.len() * vocab
    ));
    report.compared("ids", logits.ids);
    report.compared("logits", logits.logits);
    report.compared("ledger rows", rows.equal);
    logits.differences.into_iter().for_each(|line| report.fail(format!("{arm}: {line}")));
    rows.differences.into_iter().for_each(|line| report.fail(format!("{arm}: selections differ: {line}")));
}

fn bite(cx: &GateContext, report: &mut Report, policy: SeatPolicy, fault: Fault) -> Result<()> {
    let case = Case {
        folder: glm5::checkpoint(glm5::CHECKPOINTS[0])?,
        // As little as shows the fault: positions 9 to 16 leave an incomplete pool now and then.
        arguments: Arguments { steps: 8, prompt_len: 9, ..Arguments::parse_words(&[])? },
        activations: Activations::Exact,
    };
    let reference = arms::eager(cx, report, &case.load(cx, ExpertArm::HostOracle)?, &case.arguments)?;
    let graph = arms::load_faulty(cx, &case.folder, &case.arguments, fault)?;
    let fault_of_graph = match fault {
        Fault::Graph(fault) => Some(fault),
        _ => None,
    };
    // Verification would find most of these before the comparison does.
    let options = GraphOptions { policy, verify: false, fault: fault_of_graph, ..GraphOptions::default() };
    let run = arms::graph(cx, report, &graph, &case.arguments, options, Some(fault))?;
    let arm = "faulty arm";
    report.check(!run.ledger.rows().is_empty(), || format!("{arm}: no ledger rows"));
    report.check(run.replays_before == u64::from(reseat_step(case.arguments.steps)), || {
        format!("{arm}: {} replays before the re-seat: it ran eagerly", run.replays_before)
    });
    identity(report, arm, &reference, &run);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_follows_its_formula() {
        assert_eq!(prompt(3, 154_880), [101, 108, 115]);
        assert_eq!(prompt(130, 154_880)[129], 101 + 129 * 7 - 900);
        assert_eq!(prompt(2, 105), [101, 3]);
    }

    #[test]
    fn the_state_is_reseated_half_way() {
        assert_eq!([4, 5, 64].map(reseat_step), [2, 2, 32]);
        assert_eq!(reseat_step(2), 2);
    }
}
