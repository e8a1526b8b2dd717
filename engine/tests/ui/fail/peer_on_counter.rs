use bitwalk::kernel::kernel;

#[path = "../support.rs"]
mod support;
use bitwalk::kernel::Counter;
use support::cases;

#[kernel(module = "ui", entry = "count", reference = count_reference, cases = cases, tol = 0.0)]
#[launch(grid = (1, 1, 1), block = (32, 1, 1))]
#[cost(read = 4, write = 4, flops = 0)]
pub fn count(#[peer] position: &mut Counter, n: u32);

fn count_reference(position: &mut u32, n: u32) {
    *position += n;
}

fn main() {}
