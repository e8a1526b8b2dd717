use bitwalk::kernel::kernel;

#[path = "../support.rs"]
mod support;
use support::{cases, reference};

#[kernel(module = "ui", entry = "copy", reference = reference, cases = cases, tol = tight, speed = 3)]
#[launch(grid = (rows, 1, 1), block = (128, 9, 1))]
#[cost(read = z.bytes(), write = y.bytes())]
pub fn copy(#[out] #[len(n)] x: &[f32], #[node] #[len(count)] y: &mut [f32], n: usize);

// The signature still exists: using it is not another mistake.
pub fn user(x: &bitwalk::device::Buffer<f32>) {
    let _ = copy(x, x, 1);
}

fn main() {}
