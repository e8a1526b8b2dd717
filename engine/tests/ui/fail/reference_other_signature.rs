use bitwalk::kernel::kernel;

#[path = "../support.rs"]
mod support;
use support::{cases, reference};

fn narrow(x: &[f32], y: &mut [f32], n: u32) {
    let mut wide = vec![0.0; y.len()];
    reference(x, &mut wide, n);
    y[0] = wide[0] as f32;
}

#[kernel(module = "ui", entry = "copy", reference = narrow, cases = cases, tol = 0.0)]
#[launch(grid = (n.div_ceil(128), 1, 1), block = (128, 1, 1))]
#[cost(read = x.bytes(), write = y.bytes(), flops = 0)]
pub fn copy(#[len(n)] x: &[f32], #[out] #[len(n)] y: &mut [f32], n: u32);

fn main() {}
