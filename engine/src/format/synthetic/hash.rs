//! Weights from a counter: element `i` of a tensor is a function of the tensor's key and of `i`, in 32-bit integer operations
//! and IEEE arithmetic alone, so that a device computes the same bits as this module.
//!
//! The key is the 64-bit FNV-1a hash of the seed's 8 bytes, little-endian, and of the tensor's name; its low word is `k0`, its
//! high word `k1`. The hash of counter `i`, all modulo 2³²:
//!
//! ```text
//! x  = i · 0x9e3779b1 + k0
//! x ^= x >> 16;  x *= 0x85ebca6b;  x ^= x >> 13;  x *= 0xc2b2ae35;  x ^= x >> 16     (MurmurHash3's finaliser)
//! x += k1
//! x ^= x >> 16;  x *= 0x7feb352d;  x ^= x >> 15;  x *= 0x846ca68b;  x ^= x >> 16     (lowbias32)
//! ```
//!
//! (Austin Appleby, MurmurHash3, public domain; Chris Wellons, "Prospecting for Hash Functions", 2018.)

use half::{bf16, f16};
use rayon::prelude::*;

use crate::format::DType;

/// What tells a tensor's numbers from another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// Added to the scrambled counter.
    pub k0: u32,
    /// Added between the two rounds.
    pub k1: u32,
}

impl Key {
    /// The key of the tensor `name` under `seed`.
    pub fn new(seed: u64, name: &str) -> Key {
        let bytes = seed.to_le_bytes().into_iter().chain(name.bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Key { k0: hash as u32, k1: (hash >> 32) as u32 }
    }

    /// The hash of counter `i`.
    pub fn hash(self, i: u32) -> u32 {
        let mut x = i.wrapping_mul(0x9e37_79b1).wrapping_add(self.k0);
        x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
        x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
        x = (x ^ (x >> 16)).wrapping_add(self.k1);
        x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
        x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
        x ^ (x >> 16)
    }
}

/// The element type of a plane of floats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FloatKind {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    BF16,
}

impl FloatKind {
    /// The type on disk.
    pub fn dtype(self) -> DType {
        match self {
            FloatKind::F32 => DType::F32,
            FloatKind::F16 => DType::F16,
            FloatKind::BF16 => DType::Bf16,
        }
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        self.dtype().block_bytes()
    }
}

/// How one plane of a tensor is filled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlaneFill {
    /// 32-bit words, little-endian: word `i` is `base + (hash(i) & mask)`, modulo 2³². A plane whose bytes are no multiple of
    /// four ends inside the last word.
    Words {
        /// The key.
        key: Key,
        /// Bits taken from the hash.
        mask: u32,
        /// What they are added to.
        base: u32,
    },
    /// Floats: element `i` is `v · scale + offset` in f32, the product and the sum each rounded to nearest even, then rounded
    /// to nearest even to `kind`. `v = 2·(hash(i) >> 8) + 1 − 2²⁴` is an odd integer of at most 24 bits, exact in f32.
    Floats {
        /// The key.
        key: Key,
        /// The elements' type.
        kind: FloatKind,
        /// The values spread evenly over `offset ± scale · 2²⁴`; 0 makes all of them `offset`.
        scale: f32,
        /// The middle.
        offset: f32,
    },
}

/// Bytes that one task of a parallel loop fills: a multiple of all element sizes.
const TASK: usize = 1 << 16;

impl PlaneFill {
    /// Fills a plane on the CPU: what a device must fill it with, bit for bit.
    pub fn write(&self, plane: &mut [u8]) {
        plane.par_chunks_mut(TASK).enumerate().for_each(|(task, bytes)| {
            let at = |size: usize| (task * (TASK / size)) as u32;
            match *self {
                PlaneFill::Words { key, mask, base } => {
                    for (i, bytes) in (at(4)..).zip(bytes.chunks_mut(4)) {
                        let word = base.wrapping_add(key.hash(i) & mask).to_le_bytes();
                        bytes.copy_from_slice(&word[..bytes.len()]);
                    }
                }
                PlaneFill::Floats { key, kind, scale, offset } => {
                    for (i, bytes) in (at(kind.bytes())..).zip(bytes.chunks_mut(kind.bytes())) {
                        let value = float(key, i, scale, offset);
                        match kind {
                            FloatKind::F32 => bytes.copy_from_slice(&value.to_le_bytes()),
                            FloatKind::F16 => bytes.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
                            FloatKind::BF16 => bytes.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
                        }
                    }
                }
            }
        });
    }
}

fn float(key: Key, i: u32, scale: f32, offset: f32) -> f32 {
    let v = 2 * (key.hash(i) >> 8) as i32 + 1 - (1 << 24);
    v as f32 * scale + offset
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_that_is_written_down() {
        // Worked out by hand (Python's integers) from the definition above.
        let key = Key { k0: 0x0123_4567, k1: 0x89ab_cdef };
        let words = [0, 1, 2, 0xffff_ffff].map(|i| key.hash(i));
        assert_eq!(words, HASHES);
        assert_eq!(Key::new(7, "model.weight"), KEY);
    }

    const HASHES: [u32; 4] = [0x9e64_b7ba, 0x4ca2_87f0, 0x15ff_fff5, 0x2ecc_9816];
    const KEY: Key = Key { k0: 0x5235_82bf, k1: 0x4208_e957 };

    #[test]
    fn values_are_spread_evenly_and_differ_by_tensor() {
        let n = 1u32 << 16;
        let mean = |f: &dyn Fn(u32) -> f64| (0..n).map(f).sum::<f64>() / f64::from(n);
        let (a, b) = (Key::new(1, "a"), Key::new(1, "b"));
        let value = |key: Key, i| f64::from(float(key, i, 2f32.powi(-24), 0.0));
        // Five standard errors of each estimate of the moments of a uniform number in (−1, 1).
        let error = |variance: f64| 5.0 * (variance / f64::from(n)).sqrt();
        assert!(mean(&|i| value(a, i)).abs() < error(1.0 / 3.0));
        assert!((mean(&|i| value(a, i).powi(2)) - 1.0 / 3.0).abs() < error(4.0 / 45.0));
        assert!(mean(&|i| value(a, i) * value(a, i + 1)).abs() < error(1.0 / 9.0));
        assert!(mean(&|i| value(a, i) * value(b, i)).abs() < error(1.0 / 9.0));
        assert_ne!(Key::new(1, "a"), Key::new(2, "a"));
        // Every bit of the hash is set half of the time.
        for bit in 0..32 {
            let share = mean(&|i| f64::from(a.hash(i) >> bit & 1));
            assert!((share - 0.5).abs() < error(0.25), "bit {bit}: {share}");
        }
    }

    #[test]
    fn planes_do_not_depend_on_how_they_are_cut() {
        let key = Key::new(3, "plane");
        let mut whole = vec![0; 3 * TASK + 6];
        PlaneFill::Words { key, mask: 0x0f0f_0f0f, base: 0x3838_3838 }.write(&mut whole);
        for i in [0, 1, TASK / 4 - 1, TASK / 4, 3 * TASK / 4] {
            let word = u32::from_le_bytes(whole[4 * i..][..4].try_into().unwrap());
            assert_eq!(word, 0x3838_3838 + (key.hash(i as u32) & 0x0f0f_0f0f), "word {i}");
        }
        let last = 0x3838_3838 + (key.hash(3 * TASK as u32 / 4 + 1) & 0x0f0f_0f0f);
        assert_eq!(whole[3 * TASK + 4..], last.to_le_bytes()[..2]);
        for kind in [FloatKind::F32, FloatKind::F16, FloatKind::BF16] {
            let n = TASK / kind.bytes() + 3;
            let mut plane = vec![0; n * kind.bytes()];
            PlaneFill::Floats { key, kind, scale: 1e-8, offset: 1.0 }.write(&mut plane);
            let mut values = vec![0f32; n];
            crate::quant::dequantise(kind.dtype(), &plane, &mut values).unwrap();
            for (i, value) in (0..).zip(values) {
                // 2²⁴ · 10⁻⁸ = 0.168 to either side.
                assert!((value - float(key, i, 1e-8, 1.0)).abs() <= 0.005, "{i}: {value}");
                assert!((0.83..=1.17).contains(&value));
            }
        }
        let mut constant = vec![0; 8];
        PlaneFill::Floats { key, kind: FloatKind::F32, scale: 0.0, offset: 2.5 }.write(&mut constant);
        assert_eq!(constant, [2.5f32, 2.5].map(f32::to_le_bytes).concat());
    }
}
