//! The elementary functions of `bw_math.cuh`, against float64 in units in the last place.

use bitwalk::device::Buffer;
use bitwalk::kernel::{Launch, LaunchError};
use bitwalk::kernels::math;

use crate::rig::{Rig, bits, unit};

type Function<'a> = &'a dyn Fn(f64) -> f64;
type Kernel = fn(&Buffer<f32>, &Buffer<f32>, u32) -> Result<Launch, LaunchError>;

/// Distance from `got` to `wanted` in units of float32's last place at `wanted`, denormals included.
fn ulps(got: f32, wanted: f64) -> f64 {
    if wanted.is_nan() || got.is_nan() {
        return if wanted.is_nan() && got.is_nan() { 0.0 } else { f64::INFINITY };
    }
    if (wanted as f32).is_infinite() || got.is_infinite() {
        return if f64::from(got) == f64::from(wanted as f32) { 0.0 } else { f64::INFINITY };
    }
    let exponent = if wanted == 0.0 { -149 } else { (wanted.abs().log2().floor() as i32 - 23).max(-149) };
    (f64::from(got) - wanted).abs() / f64::from(exponent).exp2()
}

/// Random bit patterns (so every exponent, NaN and infinities), numbers of ordinary size, and the edges.
fn inputs(limit: f32) -> Vec<f32> {
    let mut x: Vec<f32> = (0..60_000).map(|i| f32::from_bits(bits(11, i) as u32)).collect();
    x.extend((0..60_000).map(|i| unit(12, i) * 120.0));
    x.extend((0..20_000).map(|i| unit(13, i) * 1_048_576.0));
    let edges = [
        0.0,
        f32::MIN_POSITIVE,
        f32::from_bits(1),
        1.0,
        88.722_83,
        88.722_84,
        103.97,
        104.0,
        110.0,
        f32::MAX,
    ];
    x.extend(edges.iter().flat_map(|&v| [v, -v]));
    x.retain(|v| v.is_nan() || v.abs() <= limit);
    if limit.is_infinite() {
        x.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    }
    x
}

#[test]
fn elementary_functions_err_by_no_more_than_they_say() {
    let sigmoid = |x: f64| if x < 0.0 { x.exp() / (1.0 + x.exp()) } else { 1.0 / (1.0 + (-x).exp()) };
    let everywhere = f32::INFINITY;
    let functions: [(&str, Kernel, Function<'_>, f32, f64); 6] = [
        ("exp", math::math_exp, &f64::exp, everywhere, 0.86),
        ("sigmoid", math::math_sigmoid, &sigmoid, everywhere, 1.47),
        (
            "silu",
            math::math_silu,
            &|x| if x == f64::NEG_INFINITY { 0.0 } else { x * sigmoid(x) },
            everywhere,
            1.63,
        ),
        ("softplus", math::math_softplus, &|x| x.max(0.0) + (-x.abs()).exp().ln_1p() + (x - x), 3e38, 1.55),
        ("sin", math::math_sin, &f64::sin, 1_048_576.0, 1.56),
        ("cos", math::math_cos, &f64::cos, 1_048_576.0, 1.52),
    ];
    let rig = Rig::new();
    for (name, kernel, function, limit, bound) in functions {
        let x = inputs(limit);
        let y = rig.zeros(x.len());
        rig.run(kernel(&rig.buffer(&x), &y, x.len() as u32));
        let worst = x
            .iter()
            .zip(y.to_vec().unwrap())
            .map(|(&x, y)| (ulps(y, function(f64::from(x))), x))
            .fold((0.0, 0.0), |a, b| if b.0 > a.0 { b } else { a });
        assert!(worst.0 <= bound && worst.0 > 0.3, "{name}: {} ulp at {:e}", worst.0, worst.1);
    }
}

#[test]
fn functions_at_infinity_and_nan_give_their_limits() {
    let rig = Rig::new();
    let x = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN];
    let run = |kernel: Kernel| {
        let y = rig.zeros(3);
        rig.run(kernel(&rig.buffer(&x), &y, 3));
        y.to_vec().unwrap()
    };
    for (kernel, limits) in [
        (math::math_exp as Kernel, [f32::INFINITY, 0.0]),
        (math::math_sigmoid, [1.0, 0.0]),
        (math::math_silu, [f32::INFINITY, 0.0]),
        (math::math_softplus, [f32::INFINITY, 0.0]),
    ] {
        let y = run(kernel);
        assert_eq!(y[..2], limits);
        assert!(y[2].is_nan());
    }
    // No angle is better than a wrong one.
    assert!(run(math::math_sin).iter().chain(&run(math::math_cos)).all(|y| y.is_nan()));
}
