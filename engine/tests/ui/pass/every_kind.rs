use bitwalk::kernel::kernel;

#[path = "../support.rs"]
mod support;
use support::{cases, reference};
use bitwalk::{
    device::{F8E4M3, GraphExec},
    kernel::{Counter, HostTensor, Kernel, Node, Q4_1, QTensor},
};

/// Every kind of parameter.
#[kernel(module = "ui", entry = "every_kind", reference = every_kind_reference, cases = cases, tol = 1e-6)]
#[launch(grid = (rows.div_ceil(4).max(1), 1, 1), block = (WARP, 4, 1), shared = 4 * (cols + 1), cooperative, dependent)]
#[cost(
    read = w.bytes() + x.bytes() + if bias.is_empty() { 0 } else { 4 * rows },
    write = y.bytes() + limit,
    flops = ops(rows, cols),
)]
pub(crate) fn every_kind(
    #[shape(rows, 2 * cols)] w: &QTensor<Q4_1>,
    #[len(cols)] x: &[half::f16],
    #[len(rows)] bias: Option<&[f32]>,
    #[len(rows * (cols - 1))] state: &mut [F8E4M3],
    #[out]
    #[peer]
    #[len(rows)]
    y: &mut [f32],
    position: &Counter,
    length: &mut Counter,
    rows: u32,
    cols: u32,
    shift: i32,
    eps: f32,
    seed: u64,
    #[node] limit: u32,
);

const WARP: u64 = 32;

fn ops(rows: u64, cols: u64) -> u64 {
    2 * rows * cols
}

#[allow(clippy::too_many_arguments)]
fn every_kind_reference(
    w: &HostTensor,
    x: &[half::f16],
    bias: Option<&[f32]>,
    _state: &mut [f64],
    y: &mut [f64],
    _position: u32,
    length: &mut u32,
    rows: u32,
    _cols: u32,
    _shift: i32,
    _eps: f32,
    _seed: u64,
    _limit: u32,
) {
    *length += 1;
    reference(&[x[0].to_f32() * w.row(0)[0] + bias.map_or(0.0, |bias| bias[0])], y, rows);
}

// The handle of this kernel sets its `#[node]` argument.
pub fn set(exec: &mut GraphExec, node: &mut Node<EveryKind>) {
    let _ = node.set_limit(exec, 7);
}

fn main() {
    let decl = EveryKind::DECL;
    assert!(decl.cooperative && decl.dependent && !decl.eager_only);
    assert_eq!(decl.slots().count(), 14);
    let peers: Vec<_> = decl.params.iter().filter(|param| param.peer).map(|param| param.name).collect();
    assert_eq!(peers, ["y"]);
}
