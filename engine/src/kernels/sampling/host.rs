//! What sampling is, on the CPU: by sorting, where the device selects by radix. Integers and the few float32 steps that
//! the program names, so that both give the same token.

/// Bins of the histogram over the distance from the largest logit: 64 a unit.
pub const BINS: usize = 2048;

/// The parameters as the kernels read them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameters {
    /// Divides distances before the draw; above 0.
    pub temperature: f32,
    /// Divides (or, below 0, multiplies) the logits of tokens that have occurred; 1: off.
    pub repeat: f32,
    /// How many of the likeliest are kept; 0: all.
    pub top_k: u32,
    /// The fewest of the likeliest that hold this share of what top-k kept, in units of 2⁻³²; 0: off.
    pub top_p: u32,
    /// The least probability kept, as a part of the likeliest's; 0: off.
    pub min_p: f32,
    /// The generator's key.
    pub seed: u64,
}

impl Parameters {
    /// Words of the device's buffer.
    pub const WORDS: usize = 8;

    /// The device's form.
    pub fn encode(&self) -> [u32; Self::WORDS] {
        let bin = if self.min_p > 0.0 {
            // One bin more than the logarithm says: the device compares a rounded exponential.
            (-f64::from(self.min_p).ln() * 64.0).max(0.0) as u32 + 1
        } else {
            u32::MAX
        };
        [
            self.temperature.to_bits(),
            self.repeat.to_bits(),
            self.top_k,
            self.top_p,
            self.min_p.to_bits(),
            bin.min(BINS as u32 - 1),
            self.seed as u32,
            (self.seed >> 32) as u32,
        ]
    }

    /// The inverse of [`Parameters::encode`].
    ///
    /// # Panics
    /// On fewer than [`Parameters::WORDS`] words.
    pub fn decode(words: &[u32]) -> Parameters {
        Parameters {
            temperature: f32::from_bits(words[0]),
            repeat: f32::from_bits(words[1]),
            top_k: words[2],
            top_p: words[3],
            min_p: f32::from_bits(words[4]),
            seed: u64::from(words[7]) << 32 | u64::from(words[6]),
        }
    }
}

/// `exp` as `bw_math.cuh` computes it, bit for bit.
fn exp(x: f32) -> f32 {
    if x.is_nan() {
        return x;
    }
    let x = x.clamp(-104.0, 89.0);
    let shifted = x.mul_add(std::f32::consts::LOG2_E, 12_582_912.0);
    let e = shifted.to_bits() as i32 - 0x4b40_0000;
    let n = shifted - 12_582_912.0;
    let r = n.mul_add(-1.428_606_8e-6, n.mul_add(-0.693_145_75, x));
    let p = [8.373_124_5e-3, 4.166_953_6e-2, 1.666_647_2e-1, 4.999_998_5e-1, 1.0, 1.0]
        .into_iter()
        .fold(1.378_059_4e-3f32, |p, c| p.mul_add(r, c));
    let power = |e: i32| f32::from_bits(((e + 127) as u32) << 23);
    let half = e >> 1;
    p * power(half) * power(e - half)
}

/// How far `v` lies below the largest.
pub fn distance(largest: f32, v: f32) -> f32 {
    if v == largest { 0.0 } else { largest - v }
}

/// The histogram's bin of a distance.
pub fn bin(d: f32) -> usize {
    (d * 64.0).min(BINS as f32 - 1.0) as usize
}

/// exp(−d) in units of 2⁻⁴⁰, truncated.
pub fn mass(d: f32) -> u64 {
    // A float32 below 2 times a power of two: exact, and truncated by the conversion.
    (f64::from(exp(-d)) * (1u64 << 40) as f64) as u64
}

/// The share `p` (in units of 2⁻³²) of a total, rounded up.
pub fn share(total: u64, p: u32) -> u64 {
    (u128::from(total) * u128::from(p)).div_ceil(1 << 32) as u64
}

/// The first 64 bits of Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011) for the counter
/// (`counter`, 0, 0, 0) under the key `seed`.
pub fn philox(counter: u32, seed: u64) -> u64 {
    let mut x = [counter, 0, 0, 0];
    let mut key = [seed as u32, (seed >> 32) as u32];
    for _ in 0..10 {
        let (a, b) = (0xD251_1F53 * u64::from(x[0]), 0xCD9E_8D57 * u64::from(x[2]));
        x = [(b >> 32) as u32 ^ x[1] ^ key[0], b as u32, (a >> 32) as u32 ^ x[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    u64::from(x[1]) << 32 | u64::from(x[0])
}

/// The logits after the penalty on the tokens that have occurred. NaN becomes −∞ and −0 becomes 0.
pub fn adjust(logits: &[f32], occurred: &[u32], penalty: f32) -> Vec<f32> {
    let mut adjusted = logits.to_vec();
    if penalty != 1.0 {
        let occurred: std::collections::BTreeSet<u32> = occurred.iter().copied().collect();
        for token in occurred {
            if let Some(v) = adjusted.get_mut(token as usize) {
                *v = if *v > 0.0 { *v / penalty } else { *v * penalty };
            }
        }
    }
    for v in &mut adjusted {
        *v = if v.is_nan() { f32::NEG_INFINITY } else { *v + 0.0 };
    }
    adjusted
}

/// The largest of adjusted logits.
pub fn largest(values: impl IntoIterator<Item = f32>) -> f32 {
    values.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

/// Which of `candidates` (adjusted logit, index) the filters keep, with their weights in the draw, by index. `total` is the
/// mass of the whole vocabulary.
pub fn keep(
    parameters: &Parameters,
    mut candidates: Vec<(f32, u32)>,
    largest: f32,
    total: u64,
) -> Vec<(u32, u64)> {
    candidates.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mass_of = |v: f32| mass(distance(largest, v));
    let mut total = total;
    if parameters.top_k != 0 {
        candidates.truncate(parameters.top_k as usize);
        total = candidates.iter().map(|c| mass_of(c.0)).sum();
    }
    if parameters.top_p != 0 {
        let target = share(total, parameters.top_p);
        let mut sum = 0;
        let reached = candidates.iter().position(|c| {
            sum += mass_of(c.0);
            sum >= target
        });
        candidates.truncate(reached.map_or(candidates.len(), |last| last + 1));
    }
    candidates.retain(|c| exp(-distance(largest, c.0)) >= parameters.min_p);
    candidates.sort_by_key(|c| c.1);
    candidates.iter().map(|&(v, i)| (i, mass(distance(largest, v) / parameters.temperature))).collect()
}

/// Draws one of `kept` for the token at `position`; 0 where nothing has weight.
pub fn draw(parameters: &Parameters, kept: &[(u32, u64)], position: u32) -> u32 {
    let total: u64 = kept.iter().map(|(_, weight)| weight).sum();
    let r = ((u128::from(philox(position, parameters.seed)) * u128::from(total)) >> 64) as u64;
    let mut sum = 0;
    kept.iter()
        .find(|(_, weight)| {
            sum += weight;
            sum > r
        })
        .map_or(0, |(index, _)| *index)
}

/// The token that follows `occurred`, whose last is the one that gave `logits`.
pub fn next_token(parameters: &Parameters, logits: &[f32], occurred: &[u32]) -> u32 {
    let adjusted = adjust(logits, occurred, parameters.repeat);
    let top = largest(adjusted.iter().copied());
    if top == f32::NEG_INFINITY {
        return 0;
    }
    let total = adjusted.iter().map(|&v| mass(distance(top, v))).sum();
    let candidates = adjusted.into_iter().zip(0..).collect();
    draw(parameters, &keep(parameters, candidates, top, total), occurred.len() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_bits() {
        // Random123's known answers for philox4x32-10: counter and key 0 give 6627e8d5 e169c58d …
        assert_eq!(philox(0, 0), 0xe169_c58d_6627_e8d5);
    }

    #[test]
    fn masses_are_exponentials() {
        assert_eq!(mass(0.0), 1 << 40);
        for d in [0.25f32, 1.0, 5.5, 17.0, 27.0] {
            let exact = (-f64::from(d)).exp() * (1u64 << 40) as f64;
            // 0.86 ulp of float32 and the truncation.
            assert!((mass(d) as f64 - exact).abs() <= exact * 1.1e-7 + 1.0, "{d}");
        }
        assert_eq!((mass(28.0), mass(f32::INFINITY)), (0, 0));
    }

    #[test]
    fn shares_are_rounded_up_to_at_least_one() {
        assert_eq!(share(1 << 40, 1 << 31), 1 << 39);
        assert_eq!(share(3, 1 << 31), 2);
        assert_eq!(share(1, 1), 1);
        assert_eq!(share(u64::MAX >> 6, u32::MAX), (u64::MAX >> 6) - ((u64::MAX >> 6) >> 32));
    }

    #[test]
    fn parameters_survive_the_trip() {
        let parameters = Parameters {
            temperature: 0.7,
            repeat: 1.1,
            top_k: 40,
            top_p: 1 << 31,
            min_p: 0.05,
            seed: u64::MAX - 5,
        };
        assert_eq!(Parameters::decode(&parameters.encode()), parameters);
    }

    #[test]
    fn filters_keep_what_they_say() {
        // Probabilities ½, ¼, ⅛, ⅛.
        let logits = [-2.0f32, -3.0, -1.0, -3.0].map(|v| v * std::f32::consts::LN_2);
        let kept = |top_k, top_p: f64, min_p| {
            let top_p = (top_p * 4_294_967_296.0) as u32;
            let parameters = Parameters { temperature: 1.0, repeat: 1.0, top_k, top_p, min_p, seed: 0 };
            let top = largest(logits);
            let total = logits.iter().map(|&v| mass(distance(top, v))).sum();
            let candidates = logits.into_iter().zip(0..).collect();
            keep(&parameters, candidates, top, total).into_iter().map(|(i, _)| i).collect::<Vec<_>>()
        };
        assert_eq!(kept(0, 0.0, 0.0), [0, 1, 2, 3]);
        assert_eq!(kept(1, 0.0, 0.0), [2]);
        // Of the two equal ones the lower index.
        assert_eq!(kept(3, 0.0, 0.0), [0, 1, 2]);
        assert_eq!(kept(0, 0.4, 0.0), [2]);
        assert_eq!(kept(0, 0.7, 0.0), [0, 2]);
        assert_eq!(kept(0, 0.8, 0.0), [0, 1, 2]);
        // ½ of ¾ is two thirds.
        assert_eq!((kept(2, 0.6, 0.0), kept(2, 0.7, 0.0)), (vec![2], vec![0, 2]));
        assert_eq!((kept(0, 0.0, 0.3), kept(0, 0.0, 0.2)), (vec![0, 2], vec![0, 1, 2, 3]));
    }

    #[test]
    fn penalties_lower_either_sign_once() {
        let adjusted = adjust(&[2.0, -2.0, 3.0, f32::NAN, -0.0], &[0, 1, 0, 0, 9], 2.0);
        assert_eq!(adjusted[..4], [1.0, -4.0, 3.0, f32::NEG_INFINITY]);
        assert_eq!(adjusted[4].to_bits(), 0);
    }
}
