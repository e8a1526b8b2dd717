//! Inputs that are the same everywhere: numbers are a function of a seed and a position.

/// A counter-based generator: number `i` of a seed does not depend on which others were drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Random {
    seed: u64,
}

impl Random {
    /// A generator for the thing that `names` name.
    pub fn new(names: &[&str]) -> Random {
        // FNV-1a over the names, each ended by a byte that is in no name.
        let bytes = names.iter().flat_map(|name| name.bytes().chain([0xff]));
        let seed = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Random { seed }
    }

    /// 64 random bits: SplitMix64's output function of the seed and the position.
    pub fn bits(self, i: u64) -> u64 {
        let mut z = self.seed.wrapping_add((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub fn uniform(self, i: u64) -> f64 {
        (self.bits(i) >> 11) as f64 * 2f64.powi(-53)
    }

    /// Standard normal, by Box and Muller.
    pub fn normal(self, i: u64) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform(2 * i)).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform(2 * i + 1)).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    #[test]
    fn names_give_different_numbers() {
        let first = Random::new(&["ab", "c"]).bits(0);
        assert_ne!(first, Random::new(&["a", "bc"]).bits(0));
        assert_ne!(first, Random::new(&["ab", "c"]).bits(1));
        assert_eq!(first, Random::new(&["ab", "c"]).bits(0));
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        let random = Random::new(&["moments"]);
        let n = 100_000;
        let mean = |f: &dyn Fn(u64) -> f64| (0..n).map(f).sum::<f64>() / n as f64;
        // Five standard errors of each estimate.
        assert!((mean(&|i| random.uniform(i)) - 0.5).abs() < 5.0 * (1.0 / 12.0 / n as f64).sqrt());
        assert!(mean(&|i| random.normal(i)).abs() < 5.0 / (n as f64).sqrt());
        assert!((mean(&|i| random.normal(i).powi(2)) - 1.0).abs() < 5.0 * (2.0 / n as f64).sqrt());
    }
}
