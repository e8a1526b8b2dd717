//! Sampling on the device: repetition penalty, top-k, top-p, min-p, temperature, in that order, and a draw.
//!
//! Four launches. Probabilities are integers, exp(logit − largest) in units of 2⁻⁴⁰, so their sums do not depend on any
//! order; equal logits rank by index, the lowest first. [`host`] says the same by sorting, and the two agree to the bit.

pub mod host;

use crate::kernel::{Counter, kernel};
use host::{BINS, Parameters};

/// Logits that a part may have.
const RUN: u32 = 8192;
/// Parts there may be.
const PARTS: u32 = 256;
/// The largest vocabulary.
pub const MAX_VOCAB: u32 = RUN * PARTS;

/// Parts that the vocabulary is searched in, a block each.
pub fn sampling_parts(vocab: u32) -> u32 {
    vocab.div_ceil(1024).clamp(1, PARTS)
}

const WORDS: u64 = Parameters::WORDS as u64;
const BIN_COUNT: u64 = BINS as u64;

/// The part's range of indices.
fn run(part: u32, vocab: u32) -> std::ops::Range<usize> {
    let length = vocab.div_ceil(sampling_parts(vocab));
    let first = (part * length).min(vocab);
    first as usize..first.saturating_add(length).min(vocab) as usize
}

fn adjust_reference(
    logits: &[f32],
    tokens: &[u32],
    position: u32,
    parameters: &[u32],
    adjusted: &mut [f64],
    best: &mut [f64],
    count: &mut [u32],
    mass: &mut [u64],
    vocab: u32,
    parts: u32,
) {
    let penalty = Parameters::decode(parameters).repeat;
    let values = host::adjust(&logits[..vocab as usize], &tokens[..=position as usize], penalty);
    for (out, v) in adjusted.iter_mut().zip(&values) {
        *out = f64::from(*v);
    }
    for part in 0..parts {
        best[part as usize] = f64::from(host::largest(values[run(part, vocab)].iter().copied()));
    }
    count.fill(0);
    mass.fill(0);
}

fn histogram_reference(
    adjusted: &[f32],
    best: &[f32],
    count: &mut [u32],
    mass: &mut [u64],
    vocab: u32,
    _parts: u32,
) {
    let top = host::largest(best.iter().copied());
    for &v in &adjusted[..vocab as usize] {
        let d = host::distance(top, v);
        count[host::bin(d)] += 1;
        mass[host::bin(d)] += host::mass(d);
    }
}

/// The last bin that [`sample_gather`] takes.
fn last_bin(parameters: &[u32], count: &[u32], mass: &[u64]) -> usize {
    let p = Parameters::decode(parameters);
    let reach = |weights: Vec<u64>, target: u64| {
        let mut sum = 0;
        let reached = weights.into_iter().position(|weight| {
            sum += weight;
            sum >= target
        });
        reached.unwrap_or(BINS - 1)
    };
    if p.top_k != 0 {
        return reach(count.iter().map(|&n| u64::from(n)).collect(), u64::from(p.top_k));
    }
    let min_p_bin = parameters[5] as usize;
    match p.top_p {
        0 => min_p_bin,
        share => {
            let target = host::share(mass.iter().sum(), share);
            reach(mass.to_vec(), target).min(min_p_bin)
        }
    }
}

fn gather_reference(
    adjusted: &[f32],
    best: &[f32],
    parameters: &[u32],
    count: &[u32],
    mass: &[u64],
    value: &mut [f64],
    index: &mut [u32],
    taken: &mut [u32],
    vocab: u32,
    parts: u32,
) {
    let (top, last) = (host::largest(best.iter().copied()), last_bin(parameters, count, mass));
    for part in 0..parts {
        let range = run(part, vocab);
        let mut to = range.start;
        for i in range.clone().filter(|&i| host::bin(host::distance(top, adjusted[i])) <= last) {
            (value[to], index[to]) = (f64::from(adjusted[i]), i as u32);
            to += 1;
        }
        taken[part as usize] = (to - range.start) as u32;
    }
}

fn draw_reference(
    best: &[f32],
    parameters: &[u32],
    mass: &[u64],
    value: &[f32],
    index: &[u32],
    taken: &[u32],
    tokens: &mut [u32],
    position: &mut u32,
    vocab: u32,
    parts: u32,
) {
    let (parameters, top) = (Parameters::decode(parameters), host::largest(best.iter().copied()));
    let gathered = (0..parts).flat_map(|part| run(part, vocab).take(taken[part as usize] as usize));
    let candidates = gathered.map(|at| (value[at], index[at])).collect();
    *position += 1;
    tokens[*position as usize] = if top == f32::NEG_INFINITY {
        0
    } else {
        host::draw(&parameters, &host::keep(&parameters, candidates, top, mass.iter().sum()), *position)
    };
}

mod cases;
use cases::{adjust_cases, draw_cases, gather_cases, histogram_cases};

/// `adjusted` = `logits` with the repetition penalty on every token of `tokens[..= *position]`; `best` the largest of each
/// part; the histogram is cleared. NaN becomes −∞, −0 becomes 0.
#[kernel(module = "sampling", entry = "sample_adjust", reference = adjust_reference, cases = adjust_cases, tol = 0)]
#[launch(grid = (parts, 1, 1), block = (256, 1, 1), dependent)]
#[cost(read = logits.bytes() + parameters.bytes() + 4, write = adjusted.bytes() + best.bytes() + count.bytes() + mass.bytes(), flops = 2 * vocab)]
pub fn sample_adjust(
    #[len(vocab)] logits: &[f32],
    #[len(1)] tokens: &[u32],
    position: &Counter,
    #[len(WORDS)] parameters: &[u32],
    #[out]
    #[len(vocab)]
    adjusted: &mut [f32],
    #[out]
    #[len(parts)]
    best: &mut [f32],
    #[out]
    #[len(BIN_COUNT)]
    count: &mut [u32],
    #[out]
    #[len(BIN_COUNT)]
    mass: &mut [u64],
    vocab: u32,
    parts: u32,
);

/// Adds to `count` and `mass` how many logits lie in each bin of distance from the largest, and their mass.
#[kernel(module = "sampling", entry = "sample_histogram", reference = histogram_reference, cases = histogram_cases, tol = 0)]
#[launch(grid = (parts, 1, 1), block = (256, 1, 1), dependent)]
#[cost(read = adjusted.bytes() + best.bytes(), write = count.bytes() + mass.bytes(), flops = 16 * vocab)]
pub fn sample_histogram(
    #[len(vocab)] adjusted: &[f32],
    #[len(parts)] best: &[f32],
    #[len(BIN_COUNT)] count: &mut [u32],
    #[len(BIN_COUNT)] mass: &mut [u64],
    vocab: u32,
    parts: u32,
);

/// The logits that the filters may keep, with their indices, in order, from the start of each part's run on; how many to
/// `taken`.
#[kernel(module = "sampling", entry = "sample_gather", reference = gather_reference, cases = gather_cases, tol = 0)]
#[launch(grid = (parts, 1, 1), block = (256, 1, 1), dependent)]
#[cost(read = adjusted.bytes() + best.bytes() + parts * (count.bytes() + mass.bytes()), write = taken.bytes(), flops = 3 * vocab)]
pub fn sample_gather(
    #[len(vocab)] adjusted: &[f32],
    #[len(parts)] best: &[f32],
    #[len(WORDS)] parameters: &[u32],
    #[len(BIN_COUNT)] count: &[u32],
    #[len(BIN_COUNT)] mass: &[u64],
    #[out]
    #[len(vocab)]
    value: &mut [f32],
    #[out]
    #[len(vocab)]
    index: &mut [u32],
    #[out]
    #[len(parts)]
    taken: &mut [u32],
    vocab: u32,
    parts: u32,
);

/// `tokens[*position + 1]` = a token drawn from those that the filters keep; `*position += 1`.
#[kernel(module = "sampling", entry = "sample_draw", reference = draw_reference, cases = draw_cases, tol = 0)]
#[launch(grid = (1, 1, 1), block = (1024, 1, 1), dependent)]
#[cost(read = best.bytes() + taken.bytes() + mass.bytes(), write = 8, flops = vocab)]
pub fn sample_draw(
    #[len(parts)] best: &[f32],
    #[len(WORDS)] parameters: &[u32],
    #[len(BIN_COUNT)] mass: &[u64],
    #[len(vocab)] value: &[f32],
    #[len(vocab)] index: &[u32],
    #[len(parts)] taken: &[u32],
    #[len(2)] tokens: &mut [u32],
    position: &mut Counter,
    vocab: u32,
    parts: u32,
);
