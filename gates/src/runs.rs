//! Runs of a model, recorded bit by bit, and their comparison.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use bitwalk::decode::{GraphDecodeState, Session, argmax};
use bitwalk::device::Device;
use bitwalk::engine::Engine;
use bitwalk::models::{Checkpoint, HybridModel};
use bitwalk::options::EngineOptions;
use indicatif::ProgressBar;
use sha2::{Digest, Sha256};

use crate::context::GateContext;

/// A model on a device.
#[derive(Debug, Clone)]
pub struct Subject {
    /// The engine.
    pub engine: Arc<Engine>,
    /// The model.
    pub model: Arc<HybridModel>,
    name: String,
}

impl Subject {
    /// Loads the checkpoint `path` onto `device`.
    ///
    /// # Errors
    /// Those of the engine and of the file.
    pub fn load(cx: &GateContext, device: Device, options: EngineOptions, path: &Path) -> Result<Subject> {
        Subject::with_engine(cx, Engine::new(device, options)?, path)
    }

    /// Loads the checkpoint `path` into `engine`.
    ///
    /// # Errors
    /// Those of the file.
    pub fn with_engine(cx: &GateContext, engine: Engine, path: &Path) -> Result<Subject> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = Checkpoint::open(path)?;
        let bar = cx.bar(0, &format!("loading {name}"));
        let model = HybridModel::load_from_source(&engine, file.source(), &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        let model = model.with_context(|| format!("loading {}", path.display()))?;
        Ok(Subject { engine: Arc::new(engine), model: Arc::new(model), name })
    }

    /// A session with room for `capacity` positions.
    ///
    /// # Errors
    /// A capacity that the model does not have.
    pub fn session(&self, capacity: usize) -> Result<Session> {
        Ok(Session::new(&self.engine, &self.model, u32::try_from(capacity)?)?)
    }

    /// The model's file name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tokens of the vocabulary.
    pub fn vocab(&self) -> u32 {
        self.model.config().vocab
    }

    /// The model's file name, the device, the PTX target and the numeric program: what a line about a comparison says.
    pub fn label(&self) -> String {
        let device = self.engine.device();
        format!(
            "{} on {device} ({}), {}",
            self.name,
            self.engine.arch().name(),
            self.engine.options().program()
        )
    }
}

/// The prompt of the bit gates: `(100 + (i·7 mod 900)) mod vocab`.
pub fn prompt(len: usize, vocab: u32) -> Vec<u32> {
    (0..len as u64).map(|i| ((100 + (i * 7) % 900) % u64::from(vocab)) as u32).collect()
}

/// The tokens that a run produced, and all logits that they were chosen from, as bits.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recording {
    /// One id for each row of logits.
    pub ids: Vec<u32>,
    /// `[ids, vocab]`.
    bits: Vec<u32>,
    vocab: usize,
}

impl Recording {
    /// An empty recording.
    pub fn new(vocab: u32) -> Self {
        Recording { vocab: vocab as usize, ..Recording::default() }
    }

    /// Adds one row of logits and the id chosen.
    pub fn push(&mut self, id: u32, logits: &[f32]) {
        self.ids.push(id);
        self.bits.extend(logits.iter().map(|value| value.to_bits()));
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The bits of row `step`.
    pub fn row(&self, step: usize) -> &[u32] {
        &self.bits[step * self.vocab..][..self.vocab]
    }

    /// Row `step` as numbers.
    pub fn logits(&self, step: usize) -> Vec<f32> {
        self.row(step).iter().map(|&bits| f32::from_bits(bits)).collect()
    }

    /// Inverts one bit: a planted fault.
    pub fn flip(&mut self, step: usize, index: usize, bit: u32) {
        self.bits[step * self.vocab + index] ^= 1 << bit;
    }

    /// Drops the rows from `len` on: a planted fault.
    pub fn truncate(&mut self, len: usize) {
        self.ids.truncate(len);
        self.bits.truncate(len * self.vocab);
    }

    /// SHA-256 over all bits of all logits, and the ids.
    pub fn hash(&self) -> String {
        let mut hash = Sha256::new();
        hash.update(bytemuck::cast_slice::<u32, u8>(&self.ids));
        hash.update(bytemuck::cast_slice::<u32, u8>(&self.bits));
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What makes the recording worthless as evidence: rows that are all zero, or hold something not finite.
    pub fn degenerate(&self) -> Option<String> {
        for step in 0..self.len() {
            let row = self.row(step);
            let finite = |bits: &u32| f32::from_bits(*bits).is_finite();
            if let Some(index) = row.iter().position(|bits| !finite(bits)) {
                let (bad, value) =
                    (row.iter().filter(|bits| !finite(bits)).count(), f32::from_bits(row[index]));
                return Some(format!(
                    "step {step}: {bad} logits are not finite, the first is [{index}] = {value}"
                ));
            }
            // Both zeros count: shifting the sign out leaves nothing.
            if row.iter().all(|bits| bits << 1 == 0) {
                return Some(format!("step {step}: all {} logits are zero", row.len()));
            }
        }
        None
    }
}

/// Runs `prompt`, then produces `tokens` tokens launch by launch. Each id is the argmax of the downloaded logits, taken
/// *on the host* and fed back, so that the device's own argmax and feedback are compared and not trusted.
///
/// # Errors
/// What the session says.
pub fn eager(session: &mut Session, prompt: &[u32], tokens: usize, bar: &ProgressBar) -> Result<Recording> {
    let mut recording = Recording::new(session.model().config().vocab);
    session.prime_with(prompt, false, |_, _| {
        bar.inc(1);
        Ok(())
    })?;
    for step in 0..tokens {
        if step > 0 {
            session.decode_step()?;
        }
        let logits = session.logits()?;
        let id = argmax(&logits);
        recording.push(id, &logits);
        if step + 1 < tokens {
            session.set_next_token(id)?;
        }
        bar.inc(1);
    }
    Ok(recording)
}

/// Runs `prompt`, then produces `tokens` tokens by replay; the device chooses and feeds back.
///
/// # Errors
/// What the session says.
pub fn replayed(
    session: &mut Session,
    graphs: &mut GraphDecodeState,
    prompt: &[u32],
    tokens: usize,
    bar: &ProgressBar,
) -> Result<Recording> {
    let mut recording = Recording::new(session.model().config().vocab);
    session.generate_graph(graphs, prompt, tokens, |session, id| {
        recording.push(id, &session.logits()?);
        bar.set_position((prompt.len() + recording.len()) as u64);
        Ok(true)
    })?;
    Ok(recording)
}

/// Teacher-forced logits: those after each of `ids`, `[ids, vocab]`, launch by launch.
///
/// # Errors
/// What the session says.
pub fn forced(session: &mut Session, ids: &[u32], bar: &ProgressBar) -> Result<Vec<Vec<f32>>> {
    let mut rows = Vec::new();
    session.prime_with(ids, true, |session, _| {
        rows.push(session.logits()?);
        bar.inc(1);
        Ok(())
    })?;
    Ok(rows)
}

/// How many mismatches are shown.
const SHOWN: usize = 5;

/// How two recordings compare.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Logits that were compared.
    pub logits: u64,
    /// Ids that were compared.
    pub ids: u64,
    /// What differs, ready to print; empty when nothing does.
    pub differences: Vec<String>,
}

/// Compares every bit of every logit, and the ids; `a` and `b` name the two runs in messages.
pub fn compare(a: (&str, &Recording), b: (&str, &Recording)) -> Comparison {
    let ((a_name, a), (b_name, b)) = (a, b);
    let steps = a.len().min(b.len());
    let mut comparison = Comparison::default();
    let (mut wrong_logits, mut wrong_ids) = (0_u64, 0_u64);
    let mut shown = Vec::new();
    for step in 0..steps {
        comparison.ids += 1;
        if a.ids[step] != b.ids[step] {
            wrong_ids += 1;
            if shown.len() < SHOWN {
                shown.push(format!("step {step}: id {} ({a_name}), {} ({b_name})", a.ids[step], b.ids[step]));
            }
        }
        for (index, (&x, &y)) in a.row(step).iter().zip(b.row(step)).enumerate() {
            comparison.logits += 1;
            if x != y {
                wrong_logits += 1;
                if shown.len() < SHOWN {
                    let (v, w) = (f32::from_bits(x), f32::from_bits(y));
                    shown.push(format!(
                        "step {step}, logit {index}: {x:08x} = {v} ({a_name}), {y:08x} = {w} ({b_name})"
                    ));
                }
            }
        }
    }
    if a.vocab != b.vocab {
        comparison.differences.push(format!("{} logits a step ({a_name}), {} ({b_name})", a.vocab, b.vocab));
    }
    if a.len() != b.len() {
        comparison.differences.push(format!(
            "length mismatch: {} steps ({a_name}), {} ({b_name})",
            a.len(),
            b.len()
        ));
    }
    if wrong_logits + wrong_ids > 0 {
        comparison.differences.push(format!(
            "{wrong_logits} of {} logits and {wrong_ids} of {} ids differ between {a_name} and {b_name}",
            comparison.logits, comparison.ids
        ));
        comparison.differences.extend(shown);
    }
    if wrong_ids > 0 {
        comparison.differences.push(shift_probe(&a.ids, &b.ids));
    }
    comparison
}

/// How many of `a[1..]` equal `b[..]` and of `a[..]` equal `b[1..]`: an emission that is shifted by one shows as nearly
/// all of one of them, a numeric fault as few of both.
pub fn shift_probe(a: &[u32], b: &[u32]) -> String {
    let matches = |x: &[u32], y: &[u32]| {
        let equal = x.iter().zip(y).filter(|(x, y)| x == y).count();
        format!("{equal} of {}", x.len().min(y.len()))
    };
    let (a_rest, b_rest) = (a.get(1..).unwrap_or_default(), b.get(1..).unwrap_or_default());
    format!("shift probe: a[1..] = b[..] in {}, a[..] = b[1..] in {}", matches(a_rest, b), matches(a, b_rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(ids: &[u32]) -> Recording {
        let mut recording = Recording::new(3);
        for &id in ids {
            recording.push(id, &[id as f32, 0.5, -0.0]);
        }
        recording
    }

    #[test]
    fn the_prompt_follows_its_formula() {
        assert_eq!(prompt(4, 49152), [100, 107, 114, 121]);
        // 7 · 129 = 903 wraps at 900; a small vocabulary wraps again.
        assert_eq!(prompt(130, 49152)[129], 103);
        assert_eq!(prompt(2, 101), [100, 6]);
    }

    #[test]
    fn equal_recordings_compare_equal_and_count() {
        let a = recording(&[1, 2, 3]);
        let comparison = compare(("a", &a), ("b", &a.clone()));
        assert_eq!((comparison.logits, comparison.ids), (9, 3));
        assert_eq!(comparison.differences, Vec::<String>::new());
    }

    #[test]
    fn one_bit_is_seen_even_where_the_numbers_are_equal() {
        let a = recording(&[1, 2, 3]);
        let mut b = a.clone();
        b.flip(1, 2, 31); // −0 becomes +0
        let comparison = compare(("a", &a), ("b", &b));
        assert!(
            comparison.differences[0].starts_with("1 of 9 logits and 0 of 3 ids differ"),
            "{comparison:?}"
        );
        assert!(comparison.differences[1].starts_with("step 1, logit 2: 80000000 = -0"), "{comparison:?}");
    }

    #[test]
    fn lengths_and_shifts_are_told() {
        let (a, b) = (recording(&[7, 8, 9, 10]), recording(&[8, 9, 10]));
        let comparison = compare(("a", &a), ("b", &b));
        assert_eq!(comparison.differences[0], "length mismatch: 4 steps (a), 3 (b)");
        let shown = comparison.differences.iter().filter(|line| line.starts_with("step")).count();
        assert_eq!(shown, SHOWN);
        let probe = comparison.differences.last().map(String::as_str);
        assert_eq!(probe, Some("shift probe: a[1..] = b[..] in 3 of 3, a[..] = b[1..] in 0 of 2"));
    }

    #[test]
    fn degenerate_rows_are_named() {
        let mut zero = Recording::new(2);
        zero.push(0, &[0.0, -0.0]);
        assert_eq!(zero.degenerate().as_deref(), Some("step 0: all 2 logits are zero"));
        let mut nan = recording(&[1]);
        nan.flip(0, 1, 30); // 0.5 with its exponent's top bit set is 2^127 · …, finite
        assert_eq!(nan.degenerate(), None);
        nan.push(0, &[1.0, f32::INFINITY, f32::NAN]);
        let words = nan.degenerate();
        assert_eq!(words.as_deref(), Some("step 1: 2 logits are not finite, the first is [1] = inf"));
    }
}
