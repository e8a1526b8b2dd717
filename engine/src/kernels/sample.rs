//! Greedy sampling on the device.

use crate::kernel::{Case, Counter, kernel};

/// Parts that the vocabulary is searched in: enough blocks for a large device, few enough for the last step.
pub fn argmax_parts(vocab: u32) -> u32 {
    vocab.div_ceil(1024).clamp(1, 128)
}

fn parts(vocab: u64) -> u64 {
    u64::from(argmax_parts(u32::try_from(vocab).unwrap_or(u32::MAX)))
}

/// The first of the largest; NaN never wins.
fn best(logits: impl Iterator<Item = (u32, f64)>) -> (u32, f64) {
    logits.fold(
        (u32::MAX, f64::NEG_INFINITY),
        |a, b| {
            if b.1 > a.1 || (b.1 == a.1 && b.0 < a.0) { b } else { a }
        },
    )
}

fn partial_reference(logits: &[f32], value: &mut [f64], index: &mut [u32], vocab: u32) {
    let parts = argmax_parts(vocab);
    let run = vocab.div_ceil(parts);
    for part in 0..parts {
        let (first, end) = ((part * run).min(vocab), (part * run).saturating_add(run).min(vocab));
        (index[part as usize], value[part as usize]) =
            best((first..end).map(|i| (i, f64::from(logits[i as usize]))));
    }
}

fn advance_reference(value: &[f32], index: &[u32], tokens: &mut [u32], position: &mut u32, parts: u32) {
    let parts = parts as usize;
    let (token, _) = best(index[..parts].iter().copied().zip(value[..parts].iter().map(|&v| f64::from(v))));
    *position += 1;
    tokens[*position as usize] = if token == u32::MAX { 0 } else { token };
}

fn partial_cases() -> Vec<Case> {
    let case = |vocab: u32| Case::new(format!("{vocab} logits")).u32("vocab", vocab);
    let mut ties = vec![-1.5f32; 2000];
    for i in [700, 701, 1300, 1999] {
        ties[i] = 2.0;
    }
    let mut nan = vec![f32::NAN; 1100];
    nan[599] = -3.0e38;
    vec![
        case(1),
        case(1000),
        case(1031),
        case(4097),
        case(2000).values("logits", &ties),
        case(1100).values("logits", &nan),
        case(128_256).representative(),
    ]
}

fn advance_cases() -> Vec<Case> {
    let case = |parts: u32, position: u32| {
        Case::new(format!("{parts} parts, position {position}"))
            .u32("parts", parts)
            .counter("position", position)
            .values("tokens", &[7u32; 12])
    };
    vec![
        case(1, 0).values("index", &[5u32]),
        case(132, 10),
        case(300, 3),
        case(4, 4).values("value", &[1.0f32, 3.0, 3.0, -2.0]).values("index", &[1u32, 90, 40, 2]),
        case(2, 0).values("value", &[f32::NAN, f32::NAN]).values("index", &[3u32, 9]),
    ]
}

fn advance_only_cases() -> Vec<Case> {
    [(0, 1), (1, 1), (4095, 1), (7, 64), (3, 0)]
        .map(|(position, count)| {
            Case::new(format!("{count} from {position}")).counter("position", position).u32("count", count)
        })
        .into()
}

fn advance_only_reference(position: &mut u32, count: u32) {
    *position += count;
}

/// The best of each of [`argmax_parts`] equal runs of the vocabulary, the lowest index among equals; one block a part. A part
/// without a number has value −∞; a part of no logits has index `u32::MAX` too.
#[kernel(module = "sample", entry = "argmax_partial", reference = partial_reference, cases = partial_cases, tol = 0)]
#[launch(grid = (parts(vocab), 1, 1), block = (256, 1, 1), dependent)]
#[cost(read = logits.bytes(), write = value.bytes() + index.bytes(), flops = vocab)]
pub fn argmax_partial(
    #[len(vocab)] logits: &[f32],
    #[out]
    #[len(parts(vocab))]
    value: &mut [f32],
    #[out]
    #[len(parts(vocab))]
    index: &mut [u32],
    vocab: u32,
);

/// `tokens[*position + 1]` = the best of the parts, then `*position += 1`.
#[kernel(module = "sample", entry = "argmax_advance", reference = advance_reference, cases = advance_cases, tol = 0)]
#[launch(grid = (1, 1, 1), block = (256, 1, 1), dependent)]
#[cost(read = value.bytes() + index.bytes() + 4, write = 8, flops = parts)]
pub fn argmax_advance(
    #[len(parts)] value: &[f32],
    #[len(parts)] index: &[u32],
    #[len(2)] tokens: &mut [u32],
    position: &mut Counter,
    parts: u32,
);

/// `*position += count`, for walks whose next tokens are known.
#[kernel(module = "sample", entry = "advance", reference = advance_only_reference, cases = advance_only_cases, tol = 0)]
#[launch(grid = (1, 1, 1), block = (32, 1, 1), dependent)]
#[cost(read = 4, write = 4, flops = 1)]
pub fn advance(position: &mut Counter, count: u32);
