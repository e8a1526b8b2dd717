//! Routed experts in the `i16` program: NVFP4 weights, int16 activations with a scale for each block of 32.

use super::{down_cases, expert, gate_up_cases};
use crate::kernel::{Case, HostTensor, NVFP4, QTensor, kernel};
use crate::kernels::activation::swiglu_value;
use crate::kernels::matvec::{RowWalk, i16_dot, i16_scales};

fn gate_up_reference(
    w: &HostTensor,
    ids: &[u32],
    xq: &[i16],
    xs: &[f32],
    act: &mut [f64],
    rows: u32,
    cols: u32,
    experts: u32,
    k: u32,
    limit: f32,
    _tokens: u32,
    _blocks: u32,
    _threads: u32,
) {
    let (rows, cols) = (rows as usize, cols as usize);
    for (place, act) in act.chunks_mut(rows).enumerate() {
        let t = place / k as usize;
        let (xq, xs) = (&xq[t * cols..][..cols], &xs[t * (cols / 32)..][..cols / 32]);
        for (r, act) in act.iter_mut().enumerate() {
            *act = expert(ids[place], experts).map_or(f64::NAN, |e| {
                let gate = e * 2 * rows + r;
                swiglu_value(i16_dot(w.row(gate), xq, xs), i16_dot(w.row(gate + rows), xq, xs), limit)
            });
        }
    }
}

fn down_reference(
    w: &HostTensor,
    ids: &[u32],
    actq: &[i16],
    acts: &[f32],
    y: &mut [f64],
    rows: u32,
    cols: u32,
    experts: u32,
    _k: u32,
    _tokens: u32,
    _blocks: u32,
    _threads: u32,
) {
    let (rows, cols) = (rows as usize, cols as usize);
    for (place, y) in y.chunks_mut(rows).enumerate() {
        let (q, s) = (&actq[place * cols..][..cols], &acts[place * (cols / 32)..][..cols / 32]);
        for (r, y) in y.iter_mut().enumerate() {
            *y = expert(ids[place], experts).map_or(f64::NAN, |e| i16_dot(w.row(e * rows + r), q, s));
        }
    }
}

fn gate_up_scaled() -> Vec<Case> {
    i16_scales(gate_up_cases(), "xs")
}

fn down_scaled() -> Vec<Case> {
    i16_scales(down_cases(), "acts")
}

/// `experts_gate_up` for `x = xq · xs`: the bits of `matvec_swiglu_i16_nvfp4` over each expert's rows; the tolerance is for the same reasons.
#[kernel(
    module = "experts",
    entry = "experts_gate_up_i16_nvfp4",
    reference = gate_up_reference,
    cases = gate_up_scaled,
    tol = 1e-6
)]
#[launch(grid = (tokens * k, blocks, 1), block = (threads, 1, 1), shared = RowWalk::NVFP4.shared(cols, 0, threads), dependent)]
#[cost(
    read = tokens * k * 2 * rows * w.row_bytes() + xq.bytes() + xs.bytes() + ids.bytes(),
    write = act.bytes(),
    flops = 4 * tokens * k * rows * cols
)]
pub fn experts_gate_up_i16_nvfp4(
    #[shape(experts * 2 * rows, cols)] w: &QTensor<NVFP4>,
    #[len(tokens * k)] ids: &[u32],
    #[len(tokens * cols)] xq: &[i16],
    #[len(tokens * (cols / 32))] xs: &[f32],
    #[out]
    #[len(tokens * k * rows)]
    act: &mut [f32],
    rows: u32,
    cols: u32,
    experts: u32,
    k: u32,
    limit: f32,
    tokens: u32,
    blocks: u32,
    threads: u32,
);

/// `experts_down` for `act = actq · acts`: the bits of `matvec_i16_nvfp4` over each expert's rows; the tolerance is for the same reasons.
#[kernel(
    module = "experts",
    entry = "experts_down_i16_nvfp4",
    reference = down_reference,
    cases = down_scaled,
    tol = 7e-7
)]
#[launch(grid = (tokens * k, blocks, 1), block = (threads, 1, 1), shared = RowWalk::NVFP4.shared(cols, 0, threads), dependent)]
#[cost(
    read = tokens * k * rows * w.row_bytes() + actq.bytes() + acts.bytes() + ids.bytes(),
    write = y.bytes(),
    flops = 2 * tokens * k * rows * cols
)]
pub fn experts_down_i16_nvfp4(
    #[shape(experts * rows, cols)] w: &QTensor<NVFP4>,
    #[len(tokens * k)] ids: &[u32],
    #[len(tokens * k * cols)] actq: &[i16],
    #[len(tokens * k * (cols / 32))] acts: &[f32],
    #[out]
    #[len(tokens * k * rows)]
    y: &mut [f32],
    rows: u32,
    cols: u32,
    experts: u32,
    k: u32,
    tokens: u32,
    blocks: u32,
    threads: u32,
);
