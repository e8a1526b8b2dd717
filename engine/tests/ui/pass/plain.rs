use bitwalk::kernel::kernel;

#[path = "../support.rs"]
mod support;
use support::{cases, reference};

#[kernel(module = "ui", entry = "copy", reference = reference, cases = cases, tol = 0.0)]
#[launch(grid = (n.div_ceil(128), 1, 1), block = (128, 1, 1))]
#[cost(read = x.bytes(), write = y.bytes(), flops = 0)]
pub fn copy(#[len(n)] x: &[f32], #[out] #[len(n)] y: &mut [f32], n: u32);

fn main() {
    let decl = bitwalk::kernel::by_name("copy").unwrap();
    assert_eq!(decl.entry, "copy");
    assert_eq!((decl.cases)().len(), 1);
    // The library's own kernels are in the list of a program that names none of them.
    assert!(bitwalk::kernel::by_name("rms_norm").is_some());
}
