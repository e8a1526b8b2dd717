//! The elementary functions of `bw_math.cuh`, one entry each, so that gates can sweep them on every device.

use crate::device::F8E4M3;
use crate::kernel::{Case, kernel};

/// `1 / (1 + exp(−x))`, for references.
pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// `log(1 + exp(x))`, for references.
pub(super) fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Numbers of every magnitude and sign within ±`limit`, zeros and denormals included.
fn sweep(limit: f32) -> Vec<f32> {
    let mut values = vec![0.0f32, -0.0];
    values.extend(
        (0..2040u32).map(|i| f32::from_bits((i % 255) << 23 | i.wrapping_mul(0x9e37_79b9) & 0x807f_ffff)),
    );
    values.extend((0..1000).map(|i| (i as f32 - 500.0) * 0.1));
    values.retain(|v| v.abs() <= limit);
    values
}

fn case(x: &[f32]) -> Vec<Case> {
    vec![Case::new(format!("{} numbers", x.len())).u32("n", x.len() as u32).values("x", x)]
}

macro_rules! function {
    ($($name:ident $entry:tt $reference:ident $cases:ident $limit:literal $tolerance:tt $doc:literal |$x:ident| $value:expr;)*) => {$(
        fn $reference(x: &[f32], y: &mut [f64], n: u32) {
            for (y, &$x) in y.iter_mut().zip(x).take(n as usize) {
                let $x = f64::from($x);
                *y = $value;
            }
        }

        fn $cases() -> Vec<Case> {
            case(&sweep($limit))
        }

        #[doc = $doc]
        #[kernel(module = "math_probe", entry = $entry, reference = $reference, cases = $cases, tol = $tolerance)]
        #[launch(grid = (n.div_ceil(256), 1, 1), block = (256, 1, 1))]
        #[cost(read = x.bytes(), write = y.bytes(), flops = n)]
        pub fn $name(
            #[len(n)] x: &[f32],
            #[out]
            #[len(n)]
            y: &mut [f32],
            n: u32,
        );
    )*};
}

function! {
    math_exp "math_exp" exp_reference exp_cases 88.0 1.2e-7 "`exp(x)`, within 0.86 ulp." |x| x.exp();
    math_sigmoid "math_sigmoid" sigmoid_reference sigmoid_cases 3e38 1.2e-7
        "`1 / (1 + exp(−x))`, within 1.47 ulp." |x| 1.0 / (1.0 + (-x).exp());
    math_silu "math_silu" silu_reference silu_cases 100.0 6e-8
        "`x / (1 + exp(−x))`, within 1.63 ulp." |x| x / (1.0 + (-x).exp());
    math_softplus "math_softplus" softplus_reference softplus_cases 100.0 4e-8
        "`log(1 + exp(x))`, within 1.55 ulp." |x| x.max(0.0) + (-x.abs()).exp().ln_1p();
    math_sin "math_sin" sin_reference sin_cases 1e6 1.2e-7 "`sin(x)` for |x| ≤ 2²⁰, within 1.56 ulp." |x| x.sin();
    math_cos "math_cos" cos_reference cos_cases 1e6 1.2e-7 "`cos(x)` for |x| ≤ 2²⁰, within 1.52 ulp." |x| x.cos();
}

/// Every number halfway between two neighbours of fp8, its neighbours in float32, and numbers past both ends.
fn e4m3_inputs() -> Vec<f32> {
    let mut values = sweep(3e38);
    for code in 0..0x7e {
        let middle = (F8E4M3(code).to_f32() + F8E4M3(code + 1).to_f32()) / 2.0;
        values.extend([middle, middle.next_up(), middle.next_down(), -middle]);
    }
    values.extend([448.0, 464.0, 464.0f32.next_up(), 480.0, f32::MAX]);
    values
}

/// The nearest of all codes, the even one of two.
fn e4m3_from_f32_reference(x: &[f32], y: &mut [f64], n: u32) {
    for (y, &x) in y.iter_mut().zip(x).take(n as usize) {
        let distance = |code: u8| (F8E4M3(code).to_f64() - f64::from(x.abs()).min(448.0)).abs();
        let nearest =
            (0..0x7f).min_by(|&a, &b| distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1))));
        *y = nearest.map_or(f64::NAN, |code| F8E4M3(code).to_f64().copysign(f64::from(x)));
    }
}

fn e4m3_from_f32_cases() -> Vec<Case> {
    case(&e4m3_inputs())
}

/// float32 to fp8 e4m3: nearest, ties to even, saturating at ±448.
#[kernel(
    module = "math_probe",
    entry = "math_e4m3_from_f32",
    reference = e4m3_from_f32_reference,
    cases = e4m3_from_f32_cases,
    tol = 0
)]
#[launch(grid = (n.div_ceil(256), 1, 1), block = (256, 1, 1))]
#[cost(read = x.bytes(), write = y.bytes(), flops = n)]
pub fn math_e4m3_from_f32(
    #[len(n)] x: &[f32],
    #[out]
    #[len(n)]
    y: &mut [F8E4M3],
    n: u32,
);

fn f32_from_e4m3_reference(x: &[F8E4M3], y: &mut [f64], n: u32) {
    for (y, x) in y.iter_mut().zip(x).take(n as usize) {
        *y = x.to_f64();
    }
}

fn f32_from_e4m3_cases() -> Vec<Case> {
    let codes: Vec<F8E4M3> = (0..=255).filter(|code| code & 0x7f != 0x7f).map(F8E4M3).collect();
    vec![Case::new("every finite code").u32("n", codes.len() as u32).values("x", &codes)]
}

/// fp8 e4m3 to float32, exact.
#[kernel(
    module = "math_probe",
    entry = "math_f32_from_e4m3",
    reference = f32_from_e4m3_reference,
    cases = f32_from_e4m3_cases,
    tol = 0
)]
#[launch(grid = (n.div_ceil(256), 1, 1), block = (256, 1, 1))]
#[cost(read = x.bytes(), write = y.bytes(), flops = n)]
pub fn math_f32_from_e4m3(
    #[len(n)] x: &[F8E4M3],
    #[out]
    #[len(n)]
    y: &mut [f32],
    n: u32,
);

fn f16_from_f32_reference(x: &[f32], y: &mut [f64], n: u32) {
    for (y, &x) in y.iter_mut().zip(x).take(n as usize) {
        // Round to a multiple of the spacing at |x|: 2^(e − 10), 2^-24 below the normal range.
        let x = f64::from(x);
        let exponent = if x == 0.0 { -14 } else { (x.abs().log2().floor() as i32).max(-14) };
        let spacing = f64::from(exponent - 10).exp2();
        *y = (x / spacing).round_ties_even() * spacing;
    }
}

fn f16_from_f32_cases() -> Vec<Case> {
    case(&sweep(65_500.0))
}

/// float32 to float16: nearest, ties to even.
#[kernel(
    module = "math_probe",
    entry = "math_f16_from_f32",
    reference = f16_from_f32_reference,
    cases = f16_from_f32_cases,
    tol = 0
)]
#[launch(grid = (n.div_ceil(256), 1, 1), block = (256, 1, 1))]
#[cost(read = x.bytes(), write = y.bytes(), flops = n)]
pub fn math_f16_from_f32(
    #[len(n)] x: &[f32],
    #[out]
    #[len(n)]
    y: &mut [half::f16],
    n: u32,
);

fn f32_from_f16_reference(x: &[half::f16], y: &mut [f64], n: u32) {
    for (y, x) in y.iter_mut().zip(x).take(n as usize) {
        *y = x.to_f64();
    }
}

fn f32_from_f16_cases() -> Vec<Case> {
    let codes: Vec<half::f16> =
        (0..=u16::MAX).step_by(7).map(half::f16::from_bits).filter(|x| x.is_finite()).collect();
    vec![Case::new("every seventh finite code").u32("n", codes.len() as u32).values("x", &codes)]
}

/// float16 to float32, exact.
#[kernel(
    module = "math_probe",
    entry = "math_f32_from_f16",
    reference = f32_from_f16_reference,
    cases = f32_from_f16_cases,
    tol = 0
)]
#[launch(grid = (n.div_ceil(256), 1, 1), block = (256, 1, 1))]
#[cost(read = x.bytes(), write = y.bytes(), flops = n)]
pub fn math_f32_from_f16(
    #[len(n)] x: &[half::f16],
    #[out]
    #[len(n)]
    y: &mut [f32],
    n: u32,
);
