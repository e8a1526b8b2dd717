//! Which bytes of an allocation hold a value.

use std::sync::atomic::{AtomicU64, Ordering};

/// One bit a byte. Marking may come from several threads.
pub(crate) struct Known {
    bits: Box<[AtomicU64]>,
    size: u64,
    count: AtomicU64,
}

impl Known {
    /// For `size` bytes, none of which holds a value.
    pub(crate) fn new(size: u64) -> Known {
        let words = size.div_ceil(64) as usize;
        Known { bits: (0..words).map(|_| AtomicU64::new(0)).collect(), size, count: AtomicU64::new(0) }
    }

    /// Whether every byte holds a value.
    pub(crate) fn all(&self) -> bool {
        self.count.load(Ordering::Relaxed) == self.size
    }

    /// The words that a range touches, with the mask of its bits in each.
    fn words(&self, offset: u64, bytes: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        let end = offset.saturating_add(bytes).min(self.size);
        let first = offset / 64;
        let last = end.div_ceil(64).max(first);
        (first..last).map(move |word| {
            let low = u64::MAX << offset.saturating_sub(64 * word).min(63);
            let above = 64 * (word + 1) - end.min(64 * (word + 1));
            (word as usize, low & (u64::MAX >> above.min(63)))
        })
    }

    /// The bytes of a range hold values now.
    pub(crate) fn mark(&self, offset: u64, bytes: u64) {
        if bytes == 0 || self.all() {
            return;
        }
        for (word, mask) in self.words(offset, bytes) {
            let old = self.bits[word].fetch_or(mask, Ordering::Relaxed);
            self.count.fetch_add((mask & !old).count_ones().into(), Ordering::Relaxed);
        }
    }

    /// Whether every byte of a range holds a value.
    pub(crate) fn covers(&self, offset: u64, bytes: u64) -> bool {
        let missing = |(word, mask): (usize, u64)| self.bits[word].load(Ordering::Relaxed) & mask != mask;
        bytes == 0 || self.all() || !self.words(offset, bytes).any(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_every_alignment() {
        for start in 0..70u64 {
            for length in 1..80u64 {
                let known = Known::new(150);
                known.mark(start, length);
                for i in 0..150 {
                    assert_eq!(
                        known.covers(i, 1),
                        (start..start + length).contains(&i),
                        "{start} {length} {i}"
                    );
                }
                assert!(known.covers(start, length) && !known.all());
                known.mark(0, 150);
                assert!(known.all());
            }
        }
    }
}
