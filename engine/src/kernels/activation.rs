//! The gate of a feed-forward network, for layers whose gate and up projections could not be one matrix.

use super::token_rows;
use crate::kernel::{Case, kernel};

/// `silu(min(gate, limit)) · clamp(up, −limit, limit)` in float64.
pub(super) fn swiglu_value(gate: f64, up: f64, limit: f32) -> f64 {
    let limit = f64::from(limit);
    let (gate, up) = (if gate > limit { limit } else { gate }, up.clamp(-limit, limit));
    gate / (1.0 + (-gate).exp()) * up
}

fn reference(gate: &[f32], up: &[f32], y: &mut [f64], n: u32, limit: f32, tokens: u32, x_stride: u32) {
    let rows = token_rows(gate, n, tokens, x_stride).zip(token_rows(up, n, tokens, x_stride));
    for (y, (gate, up)) in y.chunks_mut(n as usize).zip(rows) {
        for (y, (&gate, &up)) in y.iter_mut().zip(gate.iter().zip(up)) {
            *y = swiglu_value(f64::from(gate), f64::from(up), limit);
        }
    }
}

fn cases() -> Vec<Case> {
    let case = |n: u32, limit: f32, tokens: u32, x_stride: u32| {
        Case::new(format!("{tokens} of {n}, limit {limit}"))
            .u32("n", n)
            .f32("limit", limit)
            .u32("tokens", tokens)
            .u32("x_stride", x_stride)
    };
    let infinity = f32::INFINITY;
    // One in 16 gates and one in 8 ups, all of which are normal, is past a limit of 1.5.
    vec![
        case(1, infinity, 1, 1),
        case(31, infinity, 1, 31),
        case(257, 1.5, 1, 257),
        case(1536, infinity, 1, 1536),
        case(300, 1.5, 2, 600),
        case(33, 0.5, 5, 40),
        // NaN must reach the result from either side, whatever the limit; infinities are limited where they can be.
        case(6, 10.0, 1, 6)
            .values("gate", &[f32::NAN, 1.0, f32::INFINITY, f32::MIN, 1.0, 1.0])
            .values("up", &[1.0, f32::NAN, 2.0, 2.0, f32::INFINITY, f32::NEG_INFINITY]),
        case(14336, infinity, 1, 14336).representative(),
        case(2048, 10.0, 64, 2048).representative(),
    ]
}

/// `y[t, i] = silu(min(gate[t, i], limit)) · clamp(up[t, i], −limit, limit)`: the bits of `matvec_swiglu`'s activation. Rows of
/// `gate` and `up` are `x_stride` apart; those of `y` are contiguous. A limit of infinity bounds nothing.
///
/// The tolerance: silu is within 1.63 units in the last place, and the product rounds once.
#[kernel(module = "activation", entry = "swiglu", reference = reference, cases = cases, tol = 2e-7)]
#[launch(grid = (n.div_ceil(256), tokens, 1), block = (256, 1, 1), dependent)]
#[cost(read = 8 * tokens * n, write = y.bytes(), flops = 2 * tokens * n)]
pub fn swiglu(
    #[len((tokens - 1) * x_stride + n)] gate: &[f32],
    #[len((tokens - 1) * x_stride + n)] up: &[f32],
    #[out]
    #[len(tokens * n)]
    y: &mut [f32],
    n: u32,
    limit: f32,
    tokens: u32,
    x_stride: u32,
);
