//! The router of a layer of experts: which experts a token goes to, and with what weights.

use crate::kernel::{Case, kernel};

fn reference(
    logits: &[f32],
    bias: &[f32],
    ids: &mut [u32],
    weights: &mut [f64],
    experts: u32,
    k: u32,
    scaling: f32,
    normalise: u32,
    _tokens: u32,
) {
    let (experts, k) = (experts as usize, k as usize);
    for (t, logits) in logits.chunks(experts).enumerate() {
        let s: Vec<f64> = logits.iter().map(|&l| 1.0 / (1.0 + (-f64::from(l)).exp())).collect();
        // Descending, NaN last; the sort is stable, so that the lower id is first among equals.
        let score = |e: usize| if s[e].is_nan() { f64::NEG_INFINITY } else { s[e] + f64::from(bias[e]) };
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
        let mut chosen = order[..k.min(experts)].to_vec();
        chosen.sort_unstable();
        let sum: f64 = chosen.iter().map(|&e| s[e]).sum::<f64>() + 1e-20;
        for place in 0..k {
            let expert = chosen.get(place);
            ids[t * k + place] = expert.map_or(u32::MAX, |&e| e as u32);
            let divisor = if normalise != 0 { sum } else { 1.0 };
            weights[t * k + place] = expert.map_or(f64::NAN, |&e| s[e] / divisor * f64::from(scaling));
        }
    }
}

fn cases() -> Vec<Case> {
    let case = |what: &str, experts: u32, k: u32, tokens: u32, normalise: u32| {
        Case::new(format!("{tokens} of {experts} experts, {k} chosen{what}"))
            .u32("experts", experts)
            .u32("k", k)
            .u32("tokens", tokens)
            .f32("scaling", if normalise != 0 { 2.5 } else { 1.0 })
            .u32("normalise", normalise)
    };
    let nan = |at: &[usize]| -> Vec<f32> {
        (0..12).map(|i| if at.contains(&i) { f32::NAN } else { 0.25 * (i * 5 % 12) as f32 - 1.0 }).collect()
    };
    // Three values of s + bias, and equal ones on both sides of the limit; those of expert 5 are the largest by its bias alone.
    let equal: Vec<f32> = (0..40).map(|i| [0.5, -0.5, 0.5, -2.0][i % 4]).collect();
    let bias: Vec<f32> = (0..40).map(|i| if i == 5 { 1.0 } else { 0.0 }).collect();
    vec![
        case("", 16, 4, 1, 1),
        case("", 12, 3, 2, 1),
        case("", 288, 8, 5, 1),
        case("", 288, 8, 1, 0),
        case("", 1024, 17, 2, 1),
        case("", 1, 1, 2, 1),
        case("", 33, 33, 1, 1),
        case(", more than there are", 5, 8, 2, 1),
        case(", equal scores", 40, 9, 1, 1).values("logits", &equal).values("bias", &bias),
        case(", far from 0", 3, 2, 1, 0)
            .values("logits", &[-80.0f32, 90.0, -90.0])
            .values("bias", &[0.0f32; 3]),
        case(", NaN left out", 12, 5, 1, 1).values("logits", &nan(&[0, 3, 11])).values("bias", &[0.0f32; 12]),
        case(", NaN chosen last", 12, 10, 1, 0)
            .values("logits", &nan(&[2, 7, 9]))
            .values("bias", &[0.0f32; 12]),
        case("", 288, 8, 64, 1).representative(),
    ]
}

/// `s = sigmoid(logits[t])`; the `k` experts of largest `s + bias` (ties: the lowest id; NaN below all), ascending in `ids[t]`, with
/// `weights[t] = s · scaling` or, if `normalise` is not 0, `s / (Σ s + 1e-20) · scaling`, the sum over the chosen in that order. The
/// bias chooses and does not weigh. One block a token, one thread an expert: at most 1024. Where `k` is larger than `experts`, places
/// left over have id `u32::MAX` and weight NaN.
///
/// The tolerance: s is within 1.5 units in the last place, the sum of k such, a quotient and a product round in turn.
#[kernel(module = "router", entry = "router_topk", reference = reference, cases = cases, tol = 4e-7)]
#[launch(grid = (tokens, 1, 1), block = (32 * experts.div_ceil(32), 1, 1), dependent)]
#[cost(
    read = logits.bytes() + bias.bytes(),
    write = ids.bytes() + weights.bytes(),
    flops = tokens * experts * experts
)]
pub fn router_topk(
    #[len(tokens * experts)] logits: &[f32],
    #[len(experts)] bias: &[f32],
    #[out]
    #[len(tokens * k)]
    ids: &mut [u32],
    #[out]
    #[len(tokens * k)]
    weights: &mut [f32],
    experts: u32,
    k: u32,
    scaling: f32,
    normalise: u32,
    tokens: u32,
);
