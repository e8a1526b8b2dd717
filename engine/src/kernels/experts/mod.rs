//! Routed experts, the device arm: all experts that a router chose for the tokens of a launch as rows of one pair of kernels.
//!
//! The matrices of a layer's experts are stacked by rows, each expert's gate above its up: `[experts · 2 · inter, hidden]`, and
//! `[experts · hidden, inter]`. Ids come from the device (`router_topk`); an id past the experts gives NaN. Each result has the bits
//! of `matvec_swiglu` or `matvec` over that expert's rows alone, which the host-oracle arm launches.

mod i16;

pub use i16::*;

use super::activation::swiglu_value;
use super::matvec::{RowWalk, dot};
use crate::kernel::{BF16, Case, F16, F32, HostTensor, NVFP4, QTensor, kernel};

/// What a reference writes where the id is no expert's.
fn expert(id: u32, experts: u32) -> Option<usize> {
    (id < experts).then_some(id as usize)
}

fn wide(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

fn gate_up_reference(
    w: &HostTensor,
    ids: &[u32],
    x: &[f32],
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
        let x = wide(&x[place / k as usize * cols..][..cols]);
        for (r, act) in act.iter_mut().enumerate() {
            *act = expert(ids[place], experts).map_or(f64::NAN, |e| {
                let gate = e * 2 * rows + r;
                swiglu_value(dot(w.row(gate), &x), dot(w.row(gate + rows), &x), limit)
            });
        }
    }
}

fn down_reference(
    w: &HostTensor,
    ids: &[u32],
    act: &[f32],
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
        let act = wide(&act[place * cols..][..cols]);
        for (r, y) in y.iter_mut().enumerate() {
            *y = expert(ids[place], experts).map_or(f64::NAN, |e| dot(w.row(e * rows + r), &act));
        }
    }
}

fn combine_reference(
    y: &[f32],
    weights: &[f32],
    shared: Option<&[f32]>,
    out: &mut [f64],
    cols: u32,
    k: u32,
    _tokens: u32,
) {
    let (cols, k) = (cols as usize, k as usize);
    for (i, out) in out.iter_mut().enumerate() {
        let (t, c) = (i / cols, i % cols);
        let term =
            |place: usize| f64::from(weights[t * k + place]) * f64::from(y[(t * k + place) * cols + c]);
        *out = (0..k).map(term).sum::<f64>() + shared.map_or(0.0, |shared| f64::from(shared[i]));
    }
}

/// `k` different experts of `experts` for each of `tokens`, ascending; a token's first is another than that of the one before.
fn chosen(experts: u32, k: u32, tokens: u32) -> Vec<u32> {
    (0..tokens)
        .flat_map(|t| {
            let mut ids: Vec<u32> = (0..k).map(|place| (t * 5 + place * experts / k) % experts).collect();
            ids.sort_unstable();
            ids
        })
        .collect()
}

/// `(rows, cols, experts, k, tokens)`: tiny models, one row, ragged rows and columns, more columns than are staged at a time.
const SHAPES: [(u32, u32, u32, u32, u32); 7] = [
    (64, 128, 16, 4, 1),
    (64, 96, 12, 3, 2),
    (128, 64, 16, 4, 5),
    (1, 32, 3, 2, 5),
    (33, 288, 4, 4, 2),
    (7, 2080, 3, 2, 2),
    (9, 16416, 2, 2, 2),
];

fn case(rows: u32, cols: u32, experts: u32, ids: &[u32], k: u32, tokens: u32) -> Case {
    Case::new(format!("[{rows}, {cols}], {k} of {experts} experts, tokens: {tokens}"))
        .u32("rows", rows)
        .u32("cols", cols)
        .u32("experts", experts)
        .u32("k", k)
        .u32("tokens", tokens)
        .u32("blocks", if rows > 1000 { 16 } else { 1 + rows % 3 })
        .u32("threads", if rows > 1000 { 512 } else { 256 })
        .values("ids", ids)
}

/// The cases of a projection; those of real models are of `[rows, cols]` = `model` and as many experts as a token has.
fn cases(model: (u32, u32)) -> Vec<Case> {
    let sound = |&(rows, cols, experts, k, tokens): &(u32, u32, u32, u32, u32)| {
        case(rows, cols, experts, &chosen(experts, k, tokens), k, tokens)
    };
    let mut cases: Vec<Case> = SHAPES.iter().map(sound).collect();
    // No expert has these ids; one of them would be far outside of the tensor.
    cases.push(case(33, 64, 3, &[0, 3, 2, 1, 2, u32::MAX], 3, 2));
    for tokens in [1, 4] {
        cases.push(sound(&(model.0, model.1, 9, 8, tokens)).representative());
    }
    cases
}

/// GLM-5.3-Flash: inter 2048, hidden 4096, limit 10. Every other small case has a limit that many activations reach.
fn gate_up_cases() -> Vec<Case> {
    let limit = |i: usize| if i.is_multiple_of(2) { f32::INFINITY } else { 0.75 };
    let cases = cases((2048, 4096)).into_iter().enumerate();
    cases
        .map(|(i, case)| {
            let limit = if case.is_representative() { 10.0 } else { limit(i) };
            case.f32("limit", limit)
        })
        .collect()
}

fn down_cases() -> Vec<Case> {
    cases((4096, 2048))
}

fn combine_cases() -> Vec<Case> {
    let case = |cols: u32, k: u32, tokens: u32| {
        Case::new(format!("{tokens} of {k} times {cols}")).u32("cols", cols).u32("k", k).u32("tokens", tokens)
    };
    vec![
        case(128, 4, 1),
        case(96, 3, 2),
        case(8, 1, 1).absent("shared"),
        case(1032, 8, 5),
        case(96, 12, 1).absent("shared"),
        case(4096, 8, 1).representative(),
        case(4096, 8, 64).representative(),
    ]
}

macro_rules! declare {
    ($($gate_up:ident $gate_up_entry:tt $down:ident $down_entry:tt $format:ident $tolerance:literal;)*) => {$(
        /// `act[t, place, r] = silu(min(w[g + r] · x[t], limit)) · clamp(w[g + rows + r] · x[t], −limit, limit)` for the `k` places of
        /// each token, where `g = ids[t, place] · 2 · rows`: the bits of `matvec_swiglu` over that expert's rows.
        ///
        /// The tolerance is that of `matvec_swiglu`.
        #[kernel(module = "experts", entry = $gate_up_entry, reference = gate_up_reference, cases = gate_up_cases, tol = 1e-6)]
        #[launch(grid = (tokens * k, blocks, 1), block = (threads, 1, 1), shared = RowWalk::$format.shared(cols, 0, threads), dependent)]
        #[cost(
            read = tokens * k * 2 * rows * w.row_bytes() + x.bytes() + ids.bytes(),
            write = act.bytes(),
            flops = 4 * tokens * k * rows * cols
        )]
        pub fn $gate_up(
            #[shape(experts * 2 * rows, cols)] w: &QTensor<$format>,
            #[len(tokens * k)] ids: &[u32],
            #[len(tokens * cols)] x: &[f32],
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

        /// `y[t, place, r] = w[ids[t, place] · rows + r] · act[t, place]` for the `k` places of each token: the bits of `matvec` over
        /// that expert's rows.
        ///
        /// The tolerance is that of `matvec`.
        #[kernel(module = "experts", entry = $down_entry, reference = down_reference, cases = down_cases, tol = $tolerance)]
        #[launch(grid = (tokens * k, blocks, 1), block = (threads, 1, 1), shared = RowWalk::$format.shared(cols, 0, threads), dependent)]
        #[cost(
            read = tokens * k * rows * w.row_bytes() + act.bytes() + ids.bytes(),
            write = y.bytes(),
            flops = 2 * tokens * k * rows * cols
        )]
        pub fn $down(
            #[shape(experts * rows, cols)] w: &QTensor<$format>,
            #[len(tokens * k)] ids: &[u32],
            #[len(tokens * k * cols)] act: &[f32],
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
    )*};
}

declare! {
    experts_gate_up_f32 "experts_gate_up_f32" experts_down_f32 "experts_down_f32" F32 9e-7;
    experts_gate_up_f16 "experts_gate_up_f16" experts_down_f16 "experts_down_f16" F16 9e-7;
    experts_gate_up_bf16 "experts_gate_up_bf16" experts_down_bf16 "experts_down_bf16" BF16 9e-7;
    experts_gate_up_nvfp4 "experts_gate_up_nvfp4" experts_down_nvfp4 "experts_down_nvfp4" NVFP4 6e-7;
}

/// `out[t] = Σ weights[t, place] · y[t, place]` over the `k` places in order, a fused chain from 0; then `+ shared[t]`. Ids being
/// ascending, that order is that of the experts. A thread four columns.
///
/// The tolerance: a chain of k fused additions, 12 here, each off by half a unit in the last place of the sum so far.
#[kernel(module = "experts", entry = "experts_combine", reference = combine_reference, cases = combine_cases, tol = 4e-7)]
#[launch(grid = (cols.div_ceil(512), tokens, 1), block = (128, 1, 1), dependent)]
#[cost(
    read = y.bytes() + weights.bytes() + shared.bytes(),
    write = out.bytes(),
    flops = 2 * tokens * k * cols
)]
pub fn experts_combine(
    #[len(tokens * k * cols)] y: &[f32],
    #[len(tokens * k)] weights: &[f32],
    #[len(tokens * cols)] shared: Option<&[f32]>,
    #[out]
    #[len(tokens * cols)]
    out: &mut [f32],
    cols: u32,
    k: u32,
    tokens: u32,
);
