//! The selection ledger: which experts were selected for every token, and with which weights, bit for bit.

use std::collections::BTreeMap;
use std::fmt;

use crate::cache::Cache;
use crate::device::{Buffer, DeviceError, Stream};

/// What a slot holds that no launch has written since it was last drained: no id, and no weight.
const SENTINEL: u8 = 0xff;

/// The experts of one token in one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRow {
    /// The step: 0 for the first one drained.
    pub step: u32,
    /// The device's ordinal.
    pub device: u32,
    /// The layer.
    pub layer: u32,
    /// Ids of the selected experts, ascending.
    pub ids: Vec<u32>,
    /// The bits of their weights.
    pub weights: Vec<u32>,
}

impl fmt::Display for LedgerRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}, device {}, layer {}:", self.step, self.device, self.layer)?;
        for (id, &bits) in self.ids.iter().zip(&self.weights) {
            write!(f, " {id}·{:.6} ({bits:08x})", f32::from_bits(bits))?;
        }
        Ok(())
    }
}

/// Records a session's selections. The device's slots are overwritten by every walk, so it is drained after each; a row that
/// no launch wrote since then is missing, never equal to what was there before.
#[derive(Debug, Default)]
pub struct Ledger {
    rows: Vec<LedgerRow>,
    /// Slots, by step, that held the sentinel when they were drained.
    missing: BTreeMap<u32, u32>,
    steps: u32,
}

/// How two ledgers compare.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct LedgerComparison {
    /// Rows that are equal, index for index and bit for bit.
    pub equal: u64,
    /// Rows of the longer one.
    pub rows: u64,
    /// What differs, ready to print: the first five of each kind.
    pub differences: Vec<String>,
}

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fills the cache's slots with the sentinel: what the next walk does not write is seen to be missing.
    ///
    /// # Errors
    /// What the device says.
    pub fn arm(stream: &Stream, cache: &Cache) -> Result<(), DeviceError> {
        for slot in cache.routes().iter().flatten() {
            stream.fill(&slot.ids, SENTINEL)?;
            stream.fill(&slot.weights, SENTINEL)?;
        }
        Ok(())
    }

    /// Reads what the last walk, of `tokens` tokens, selected, and arms the slots for the next.
    ///
    /// # Errors
    /// What the device says.
    pub fn drain(
        &mut self,
        stream: &Stream,
        cache: &Cache,
        device: u32,
        tokens: u32,
    ) -> Result<(), DeviceError> {
        self.drain_stages(&[(stream, cache, device)], tokens)
    }

    /// [`Ledger::drain`] of a walk over several stages: each one's stream, cache and device's ordinal.
    ///
    /// # Errors
    /// What the devices say.
    pub fn drain_stages(
        &mut self,
        stages: &[(&Stream, &Cache, u32)],
        tokens: u32,
    ) -> Result<(), DeviceError> {
        for &(stream, cache, device) in stages {
            self.drain_stage(stream, cache, device, tokens)?;
            Ledger::arm(stream, cache)?;
        }
        self.steps += tokens;
        Ok(())
    }

    fn drain_stage(
        &mut self,
        stream: &Stream,
        cache: &Cache,
        device: u32,
        tokens: u32,
    ) -> Result<(), DeviceError> {
        let sentinel = u32::from_ne_bytes([SENTINEL; 4]);
        for (layer, slot) in cache.routes().iter().enumerate() {
            let Some(slot) = slot else { continue };
            let selected = slot.selected as usize;
            let ids = read(stream, &slot.ids, tokens as usize * selected)?;
            let weights = read(stream, &slot.weights, tokens as usize * selected)?;
            for (token, (ids, weights)) in ids.chunks(selected).zip(weights.chunks(selected)).enumerate() {
                let step = self.steps + token as u32;
                let bits: Vec<u32> = weights.iter().map(|weight: &f32| weight.to_bits()).collect();
                if ids.contains(&sentinel) || bits.contains(&sentinel) {
                    *self.missing.entry(step).or_default() += 1;
                    continue;
                }
                let layer = cache.first_layer() + layer as u32;
                self.rows.push(LedgerRow { step, device, layer, ids: ids.to_vec(), weights: bits });
            }
        }
        Ok(())
    }

    /// Forgets everything: after priming, say.
    pub fn reset(&mut self) {
        *self = Ledger::new();
    }

    /// The rows, in order.
    pub fn rows(&self) -> &[LedgerRow] {
        &self.rows
    }

    /// Slots that no launch had written when they were drained.
    pub fn missing(&self) -> u64 {
        self.missing.values().map(|&count| u64::from(count)).sum()
    }

    /// Rows of each step.
    fn counts(&self) -> BTreeMap<u32, u32> {
        let mut counts = BTreeMap::new();
        for row in &self.rows {
            *counts.entry(row.step).or_default() += 1;
        }
        counts
    }

    /// Compares two ledgers row for row; `a` and `b` name them in messages. Different numbers of rows at a step are told by
    /// the step.
    pub fn compare(a: (&str, &Ledger), b: (&str, &Ledger)) -> LedgerComparison {
        const SHOWN: usize = 5;
        let ((a_name, a), (b_name, b)) = (a, b);
        let mut result =
            LedgerComparison { rows: a.rows.len().max(b.rows.len()) as u64, ..LedgerComparison::default() };
        let (a_counts, b_counts) = (a.counts(), b.counts());
        let steps: std::collections::BTreeSet<u32> =
            a_counts.keys().chain(b_counts.keys()).copied().collect();
        let count = |counts: &BTreeMap<u32, u32>, step| counts.get(&step).copied().unwrap_or(0);
        let uneven = steps.iter().filter(|&&step| count(&a_counts, step) != count(&b_counts, step));
        for &step in uneven.take(SHOWN) {
            result.differences.push(format!(
                "step {step}: {} rows ({a_name}), {} ({b_name})",
                count(&a_counts, step),
                count(&b_counts, step)
            ));
        }
        let key = |row: &LedgerRow| (row.step, row.device, row.layer);
        let theirs: BTreeMap<_, _> = b.rows.iter().map(|row| (key(row), row)).collect();
        let mut shown = 0;
        for row in &a.rows {
            match theirs.get(&key(row)) {
                Some(other) if *other == row => result.equal += 1,
                Some(other) if shown < SHOWN => {
                    shown += 1;
                    result.differences.push(format!("{row} ({a_name}), {other} ({b_name})"));
                }
                _ => {}
            }
        }
        if result.equal < result.rows && result.differences.is_empty() {
            result.differences.push(format!("{} of {} rows differ", result.rows - result.equal, result.rows));
        }
        result
    }
}

fn read<T: crate::device::Element>(
    stream: &Stream,
    buffer: &Buffer<T>,
    len: usize,
) -> Result<Vec<T>, DeviceError> {
    let slice = buffer.slice(..len)?;
    let mut values = vec![T::zeroed(); len];
    stream.read(&slice, &mut values)?;
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(rows: &[(u32, u32, [u32; 2], [f32; 2])]) -> Ledger {
        let rows = rows.iter().map(|&(step, layer, ids, weights)| LedgerRow {
            step,
            device: 0,
            layer,
            ids: ids.to_vec(),
            weights: weights.map(f32::to_bits).to_vec(),
        });
        Ledger { rows: rows.collect(), ..Ledger::default() }
    }

    #[test]
    fn equal_ledgers_count_their_rows() {
        let a = ledger(&[(0, 3, [1, 4], [0.5, 0.25]), (1, 3, [2, 4], [0.5, 0.25])]);
        let same = Ledger::compare(("a", &a), ("b", &a));
        assert_eq!(same, LedgerComparison { equal: 2, rows: 2, differences: vec![] });
    }

    #[test]
    fn a_bit_of_a_weight_is_a_difference_and_is_shown_with_both_sides() {
        let a = ledger(&[(0, 3, [1, 4], [0.5, 0.0])]);
        let b = ledger(&[(0, 3, [1, 4], [0.5, -0.0])]);
        let result = Ledger::compare(("a", &a), ("b", &b));
        assert_eq!((result.equal, result.rows), (0, 1));
        assert_eq!(
            result.differences,
            ["step 0, device 0, layer 3: 1·0.500000 (3f000000) 4·0.000000 (00000000) (a), \
              step 0, device 0, layer 3: 1·0.500000 (3f000000) 4·-0.000000 (80000000) (b)"]
        );
    }

    #[test]
    fn a_row_that_is_absent_names_its_step() {
        let a = ledger(&[(0, 3, [1, 4], [0.5, 0.5]), (7, 3, [1, 4], [0.5, 0.5])]);
        let b = ledger(&[(0, 3, [1, 4], [0.5, 0.5])]);
        let result = Ledger::compare(("eager", &a), ("graph", &b));
        assert_eq!((result.equal, result.rows), (1, 2));
        assert_eq!(result.differences, ["step 7: 1 rows (eager), 0 (graph)"]);
    }
}
