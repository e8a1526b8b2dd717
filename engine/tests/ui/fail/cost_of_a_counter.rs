use bitwalk::kernel::kernel;

#[path = "../support.rs"]
mod support;
use support::{cases, reference};
use bitwalk::kernel::Counter;

#[allow(dead_code)]
fn with_position(x: &[f32], y: &mut [f64], _position: u32, n: u32) {
    reference(x, y, n);
}

#[kernel(module = "ui", entry = "copy", reference = with_position, cases = cases, tol = 0.0)]
#[launch(grid = (n.div_ceil(128), 1, 1), block = (128, 1, 1))]
#[cost(read = x.bytes(), write = y.bytes(), flops = position)]
pub fn copy(#[len(n)] x: &[f32], #[out] #[len(n)] y: &mut [f32], position: &Counter, n: u32);

fn main() {}
