//! One run of a checkpoint along its golden ids, measured against the golden data.

use std::fmt;
use std::num::NonZeroU32;

use anyhow::Result;
use bitwalk::decode::DecodeError;
use bitwalk::device::Device;
use bitwalk::engine::Engine;
use bitwalk::ledger::Ledger;
use bitwalk::models::Probe;
use bitwalk::observe::Observed;
use bitwalk::options::EngineOptions;

use super::Golden;
use crate::context::GateContext;
use crate::outcome::Report;
use crate::runs::{Recording, Subject};

/// What a run may be off by.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// A logit.
    logit: f64,
    /// An expert's weight.
    weight: f64,
    /// An element of a hyper-connection's map.
    comb: f64,
    /// An element of a stream, over the layer's largest.
    stream: f64,
}

impl Bounds {
    /// Of float32 activations: the golden data is float32 arithmetic in another order, which differs from float64 by 1.7e-5
    /// in a logit; one Sinkhorn round less would move a map by 4.8e-5, a sum in place of the streams' mean is only seen in the
    /// streams.
    pub const EXACT: Bounds = Bounds { logit: 2e-4, weight: 1e-6, comb: 2e-6, stream: 5e-6 };
}

/// What a run made of the golden ids.
#[derive(Debug)]
pub struct Measured {
    /// Logits of every position, and the ids chosen.
    pub recording: Recording,
    /// Every selection.
    pub ledger: Ledger,
    worst: Worst,
}

/// The worst errors of a run.
#[derive(Debug, Default, Clone, Copy)]
struct Worst {
    logit: f64,
    weight: f64,
    comb: f64,
    stream: f64,
    ids: u32,
    experts: u32,
    selections: u32,
}

impl fmt::Display for Worst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "logits off by {:.1e}, expert weights {:.1e}, maps {:.1e}, streams {:.1e} of the largest; other ids {}, \
             expert sets {}, selections {}",
            self.logit, self.weight, self.comb, self.stream, self.ids, self.experts, self.selections
        )
    }
}

/// Runs the prompt and the golden ids, and compares with the golden data what `bounds` hold; without them, only reports.
///
/// # Errors
/// What keeps the run from being made.
pub fn measure(
    cx: &GateContext,
    report: &mut Report,
    device: Device,
    options: EngineOptions,
    golden: &Golden,
    bounds: Option<Bounds>,
) -> Result<Measured> {
    let arm = options.experts;
    let subject = Subject::with_engine(cx, Engine::new(device, options)?, &golden.folder)?;
    let (prompt, steps) = (golden.prompt.len(), golden.steps());
    let mut session = subject.session(prompt + steps)?;
    // One walk: then all of the prompt's selections are still there when it has been run.
    session.set_prompt_chunk(NonZeroU32::try_from(prompt as u32)?);
    let engine = session.engine().clone();
    let ordinal = engine.ordinal();
    let bar = cx.bar(prompt + steps, &format!("{}, {arm} arm", subject.name()));
    let (mut seen, mut ledger) = (Observed::default(), Ledger::new());
    let mut recording = Recording::new(subject.vocab());
    Ledger::arm(engine.stream(), session.cache())?;
    session.prime_observed(
        &golden.prompt,
        true,
        Some(&mut |probe: &Probe| seen.take(engine.stream(), probe)),
        &mut |session, done| {
            recording.push(bitwalk::decode::argmax(&session.logits()?), &session.logits()?);
            bar.set_position(done as u64);
            Ok(())
        },
    )?;
    ledger.drain(engine.stream(), session.cache(), ordinal, prompt as u32)?;
    for step in 0..steps {
        let wanted = golden.ids[step];
        if session.next_token()? != wanted {
            // Counted below, by the recording's own argmax; from here on the golden ids are followed.
            session.set_next_token(wanted)?;
        }
        session.decode_observed(Some(&mut |probe: &Probe| seen.take(engine.stream(), probe)))?;
        ledger.drain(engine.stream(), session.cache(), ordinal, 1)?;
        let logits = session.logits()?;
        recording.push(session.next_token()?, &logits);
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(why) = recording.degenerate() {
        report.fail(format!("{}: {why}", subject.label()));
    }
    let mut run = Run { golden, seen: &seen, recording: &recording, pool: pool(&subject)?, report, bounds };
    let worst = run.compare();
    report.note(format!("{}, {arm} arm: {worst}", subject.label()));
    report.check(ledger.missing() == 0, || {
        format!("{} rows of the selection ledger are missing", ledger.missing())
    });
    Ok(Measured { recording, ledger, worst })
}

fn pool(subject: &Subject) -> Result<usize, DecodeError> {
    Ok(match subject.model.flow() {
        bitwalk::models::Flow::Streams(shapes) => shapes.latent.pool as usize,
        bitwalk::models::Flow::Residual { .. } => 1,
    })
}

struct Run<'a> {
    golden: &'a Golden,
    seen: &'a Observed,
    recording: &'a Recording,
    pool: usize,
    report: &'a mut Report,
    bounds: Option<Bounds>,
}

/// The larger of two errors; NaN is larger than any number.
fn worse(a: f64, b: f64) -> f64 {
    if b.is_nan() { f64::INFINITY } else { a.max(b) }
}

fn off(a: f32, b: f32) -> f64 {
    (f64::from(a) - f64::from(b)).abs()
}

impl Run<'_> {
    fn fail(&mut self, reason: impl FnOnce() -> String) {
        if self.bounds.is_some() {
            self.report.fail(reason());
        }
    }

    fn count(&mut self, what: &str, count: usize) {
        if self.bounds.is_some() {
            self.report.compared(what, count as u64);
        }
    }

    fn compare(&mut self) -> Worst {
        let mut worst = Worst::default();
        self.logits(&mut worst);
        self.ids(&mut worst);
        self.routes(&mut worst);
        self.selections(&mut worst);
        self.first_step(&mut worst);
        worst
    }

    fn logits(&mut self, worst: &mut Worst) {
        let golden = self.golden;
        let prompt = golden.prompt.len();
        let mut worst_of =
            |run: &mut Self, what: &str, row: usize, wanted: &mut dyn Iterator<Item = (usize, f32)>| {
                let logits = run.recording.logits(row);
                let (mut count, mut most) = (0, 0.0);
                for (id, value) in wanted {
                    most = worse(most, logits.get(id).map_or(f64::NAN, |&logit| off(logit, value)));
                    count += 1;
                }
                run.count("logits", count);
                worst.logit = worse(worst.logit, most);
                if let Some(bounds) = run.bounds
                    && most > bounds.logit
                {
                    run.fail(|| format!("{what}: off by {most:.2e}, the bound is {:.0e}", bounds.logit));
                }
            };
        for position in 0..prompt {
            let mut row = golden.prefill_logits.at(&[position]).iter().copied().enumerate();
            worst_of(self, &format!("prompt logit at position {position}"), position, &mut row);
        }
        for step in 0..golden.steps() {
            let ids = golden.top_ids.at(&[step]).iter().map(|&id| id as usize);
            let mut row = ids.zip(golden.top_logits.at(&[step]).iter().copied());
            worst_of(self, &format!("top logit of step {step}"), prompt + step, &mut row);
        }
        for (index, &step) in golden.full_steps.iter().enumerate() {
            let mut row = golden.full_logits.at(&[index]).iter().copied().enumerate();
            worst_of(self, &format!("logit of step {step}"), prompt + step as usize, &mut row);
        }
    }

    fn ids(&mut self, worst: &mut Worst) {
        let (golden, prompt) = (self.golden, self.golden.prompt.len());
        for (index, &wanted) in golden.ids.iter().enumerate() {
            let got = self.recording.ids[prompt - 1 + index];
            if got != wanted {
                worst.ids += 1;
                self.fail(|| format!("id {index}: {got}, the golden one is {wanted}"));
            }
        }
        self.count("ids", golden.ids.len());
    }

    fn routes(&mut self, worst: &mut Worst) {
        let golden = self.golden;
        let prompt = golden.prompt.len();
        for (phase, first, rows) in [(0, 0, prompt), (1, prompt, golden.steps())] {
            for row in 0..rows {
                for (index, &layer) in golden.sparse_layers.iter().enumerate() {
                    let ids = self.seen.indices("router_idx", Some(layer), first + row).to_vec();
                    let weights = self.seen.floats("router_weight", Some(layer), first + row);
                    let wanted = golden.experts[phase].at(&[row, index]);
                    if !ids.iter().map(|&id| id as i32).eq(wanted.iter().copied()) {
                        worst.experts += 1;
                        self.fail(|| {
                            format!(
                                "token {}, layer {layer}: experts {ids:?}, golden {wanted:?}",
                                first + row
                            )
                        });
                        continue;
                    }
                    let golden_weights = golden.weights[phase].at(&[row, index]);
                    let most = weights.iter().zip(golden_weights).map(|(&a, &b)| off(a, b)).fold(0.0, worse);
                    worst.weight = worse(worst.weight, most);
                    if let Some(bounds) = self.bounds
                        && most > bounds.weight
                    {
                        let bound = bounds.weight;
                        self.fail(|| {
                            format!("token {}, layer {layer}: expert weight off by {most:.2e}, the bound is {bound:.0e}", first + row)
                        });
                    }
                    self.count("experts", ids.len());
                }
            }
        }
    }

    fn selections(&mut self, worst: &mut Worst) {
        let golden = self.golden;
        let prompt = golden.prompt.len();
        let recorded = golden.selections[0].rows().min(prompt);
        for (phase, first, rows) in [(0, 0, recorded), (1, prompt, golden.steps())] {
            for row in 0..rows {
                for (index, &layer) in golden.mla_layers.iter().enumerate() {
                    let token = first + row;
                    let got = self.seen.selection(layer, token, token, self.pool);
                    let mut wanted: Vec<i32> = golden.selections[phase]
                        .at(&[row, index])
                        .iter()
                        .copied()
                        .filter(|&at| at >= 0)
                        .collect();
                    wanted.sort_unstable();
                    self.count("selected positions", wanted.len());
                    if got != wanted {
                        worst.selections += 1;
                        self.fail(|| {
                            format!("token {token}, layer {layer}: selected {got:?}, golden {wanted:?}")
                        });
                    }
                }
            }
        }
    }

    /// Streams and maps of the first decode step.
    fn first_step(&mut self, worst: &mut Worst) {
        let golden = self.golden;
        let token = golden.prompt.len();
        for row in 0..golden.streams.rows() {
            // The probe before the first layer belongs to none.
            let layer = row.checked_sub(1).map(|layer| layer as u32);
            let (got, wanted) = (self.seen.floats("streams", layer, token), golden.streams.at(&[row]));
            let largest = wanted.iter().fold(0.0_f64, |most, &value| most.max(f64::from(value).abs()));
            let most = compare_rows(got, wanted) / largest;
            worst.stream = worse(worst.stream, most);
            self.hold("streams", layer, most, |bounds| bounds.stream);
            self.count("stream elements", wanted.len());
        }
        for (name, golden) in ["attn_comb", "ffn_comb"].into_iter().zip(&golden.comb) {
            for layer in 0..golden.rows() {
                let got = self.seen.floats(name, Some(layer as u32), token);
                let most = compare_rows(got, golden.at(&[layer]));
                worst.comb = worse(worst.comb, most);
                self.hold(name, Some(layer as u32), most, |bounds| bounds.comb);
                self.count("map elements", golden.at(&[layer]).len());
            }
        }
    }

    fn hold(&mut self, what: &str, layer: Option<u32>, most: f64, bound: fn(&Bounds) -> f64) {
        if let Some(bounds) = self.bounds
            && most > bound(&bounds)
        {
            let place = layer.map_or("embedding".to_owned(), |layer| format!("layer {layer}"));
            self.fail(|| {
                format!("first step, {place}: {what} off by {most:.2e}, the bound is {:.0e}", bound(&bounds))
            });
        }
    }
}

/// The worst difference; infinite where the lengths differ.
fn compare_rows(got: &[f32], wanted: &[f32]) -> f64 {
    if got.len() != wanted.len() {
        return f64::INFINITY;
    }
    got.iter().zip(wanted).map(|(&a, &b)| off(a, b)).fold(0.0, worse)
}

/// Two runs must agree in every bit of every logit and of every selection.
pub fn same_bits(report: &mut Report, a: (&str, &Measured), b: (&str, &Measured)) {
    let ((a_name, a), (b_name, b)) = (a, b);
    let logits = crate::runs::compare((a_name, &a.recording), (b_name, &b.recording));
    report.compared("logit bits", logits.logits);
    logits.differences.into_iter().for_each(|line| report.fail(line));
    let rows = Ledger::compare((a_name, &a.ledger), (b_name, &b.ledger));
    report.compared("ledger rows", rows.equal);
    rows.differences.into_iter().for_each(|line| report.fail(line));
}

/// Ids of a program that states its error: they must be the golden ones where the golden margin is clear of it.
pub fn clear_ids(report: &mut Report, golden: &Golden, run: &Measured) {
    let prompt = golden.prompt.len();
    let mut clear = 0;
    for step in 0..golden.steps() {
        let top = golden.top_logits.at(&[step]);
        // Both of the two largest may be off by the error.
        if off(top[0], top[1]) <= 2.0 * run.worst.logit {
            continue;
        }
        clear += 1;
        let (got, wanted) = (run.recording.ids[prompt + step], golden.ids[step + 1]);
        report.check(got == wanted, || {
            format!(
                "i16, step {step}: id {got}, the golden one is {wanted} by a margin of {:.3}",
                off(top[0], top[1])
            )
        });
    }
    report.compared("i16 ids clear of the error", clear);
}
