use bitwalk::kernel::kernel;

#[path = "../support.rs"]
mod support;
use support::{cases, reference};
use bitwalk::{device::GraphExec, kernel::Node};

fn with_limit(x: &[f32], y: &mut [f64], n: u32, _limit: u32) {
    reference(x, y, n);
}

#[kernel(module = "ui", entry = "copy", reference = with_limit, cases = cases, tol = 0.0)]
#[launch(grid = (n, 1, 1), block = (128, 1, 1))]
#[cost(read = x.bytes(), write = y.bytes(), flops = 0)]
pub fn copy(#[len(n)] x: &[f32], #[out] #[len(n)] y: &mut [f32], n: u32, #[node] limit: u32);

#[kernel(module = "ui", entry = "scale", reference = with_limit, cases = cases, tol = 0.0)]
#[launch(grid = (n, 1, 1), block = (128, 1, 1))]
#[cost(read = x.bytes(), write = y.bytes(), flops = 0)]
pub fn scale(#[len(n)] x: &[f32], #[out] #[len(n)] y: &mut [f32], n: u32, #[node] factor: u32);

pub fn set(exec: &mut GraphExec, node: &mut Node<Copy>) {
    let _ = node.set_limit(exec, 3);
    let _ = node.set_factor(exec, 3);
}

pub fn pass_on(exec: &mut GraphExec, node: &mut Node<Copy>) {
    set(exec, node);
    take_scale(node);
}

pub fn take_scale(_: &mut Node<Scale>) {}

fn main() {}
