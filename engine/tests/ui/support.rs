// Shared by the cases: a reference and cases for a kernel of one input and one output.
use bitwalk::kernel::Case;

#[allow(dead_code)]
pub fn reference(x: &[f32], y: &mut [f64], _n: u32) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = f64::from(*x);
    }
}

#[allow(dead_code)]
pub fn cases() -> Vec<Case> {
    vec![Case::new("one").u32("n", 1)]
}
