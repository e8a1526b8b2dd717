//! The gate of a feed-forward network, for layers whose gate and up projections could not be one matrix.

use crate::kernel::{Case, kernel};

/// `silu(gate) · up` in float64.
pub(super) fn swiglu_value(gate: f64, up: f64) -> f64 {
    gate / (1.0 + (-gate).exp()) * up
}

fn reference(gate: &[f32], up: &[f32], y: &mut [f64], n: u32) {
    for (y, (&gate, &up)) in y.iter_mut().zip(gate.iter().zip(up)).take(n as usize) {
        *y = swiglu_value(f64::from(gate), f64::from(up));
    }
}

fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> =
        [1, 31, 257, 1536].iter().map(|&n| Case::new(format!("{n}")).u32("n", n)).collect();
    cases.push(Case::new("14336").u32("n", 14336).representative());
    cases
}

/// `y[i] = silu(gate[i]) · up[i]`: the bits of `matvec_swiglu`'s activation.
///
/// The tolerance: silu is within 1.7 units in the last place, and the product rounds once.
#[kernel(module = "activation", entry = "swiglu", reference = reference, cases = cases, tol = 2e-7)]
#[launch(grid = (n.div_ceil(256), 1, 1), block = (256, 1, 1))]
#[cost(read = gate.bytes() + up.bytes(), write = y.bytes(), flops = 2 * n)]
pub fn swiglu(
    #[len(n)] gate: &[f32],
    #[len(n)] up: &[f32],
    #[out]
    #[len(n)]
    y: &mut [f32],
    n: u32,
);
