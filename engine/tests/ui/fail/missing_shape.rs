use bitwalk::kernel::kernel;

#[path = "../support.rs"]
mod support;
use support::{cases, reference};
use bitwalk::kernel::{Q8_0, QTensor};

#[kernel(module = "ui", entry = "copy", reference = reference, cases = cases, tol = 0.0)]
#[launch(grid = (n, 1, 1), block = (128, 1, 1))]
#[cost(read = w.bytes(), write = y.bytes(), flops = 0)]
pub fn copy(w: &QTensor<Q8_0>, #[out] #[len(n)] y: &mut [f32], n: u32);

fn main() {}
