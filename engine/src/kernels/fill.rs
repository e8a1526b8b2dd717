//! Planes of synthetic weights, filled in place: the bits that [`PlaneFill::write`] gives on the CPU.

use crate::device::{Buffer, DeviceError};
use crate::engine::Engine;
use crate::format::synthetic::{FloatKind, Key, PlaneFill};
use crate::kernel::{Case, Launch, LaunchError, kernel};

fn words_reference(out: &mut [u32], k0: u32, k1: u32, mask: u32, base: u32, n: u32) {
    let mut bytes = vec![0; n as usize * 4];
    PlaneFill::Words { key: Key { k0, k1 }, mask, base }.write(&mut bytes);
    for (out, word) in out.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *out = u32::from_le_bytes(*word);
    }
}

fn floats_reference<const BYTES: usize>(
    out: &mut [f64],
    k0: u32,
    k1: u32,
    scale: f32,
    offset: f32,
    n: u32,
    kind: FloatKind,
    widen: fn([u8; BYTES]) -> f64,
) {
    let mut bytes = vec![0; n as usize * BYTES];
    PlaneFill::Floats { key: Key { k0, k1 }, kind, scale, offset }.write(&mut bytes);
    for (out, element) in out.iter_mut().zip(bytes.as_chunks::<BYTES>().0) {
        *out = widen(*element);
    }
}

fn f32_reference(out: &mut [f64], k0: u32, k1: u32, scale: f32, offset: f32, n: u32) {
    let widen = |bytes| f64::from(f32::from_le_bytes(bytes));
    floats_reference::<4>(out, k0, k1, scale, offset, n, FloatKind::F32, widen);
}

fn f16_reference(out: &mut [f64], k0: u32, k1: u32, scale: f32, offset: f32, n: u32) {
    let widen = |bytes| half::f16::from_le_bytes(bytes).to_f64();
    floats_reference::<2>(out, k0, k1, scale, offset, n, FloatKind::F16, widen);
}

fn bf16_reference(out: &mut [f64], k0: u32, k1: u32, scale: f32, offset: f32, n: u32) {
    let widen = |bytes| half::bf16::from_le_bytes(bytes).to_f64();
    floats_reference::<2>(out, k0, k1, scale, offset, n, FloatKind::BF16, widen);
}

/// One element, past a block, many; keys of two tensors.
const COUNTS: [u32; 4] = [1, 255, 257, 5000];

fn case(n: u32) -> Case {
    let key = Key::new(u64::from(n), "case");
    Case::new(format!("{n} elements")).u32("n", n).u32("k0", key.k0).u32("k1", key.k1)
}

fn word_cases() -> Vec<Case> {
    let masks = [(u32::MAX, 0), (0x0f0f_0f0f, 0x3838_3838), (0x803f_803f, 0x2000_2000), (0, 7)];
    let mut cases: Vec<Case> = COUNTS
        .iter()
        .zip(masks)
        .map(|(&n, (mask, base))| case(n).u32("mask", mask).u32("base", base))
        .collect();
    cases.push(case(1 << 22).u32("mask", u32::MAX).u32("base", 0).representative());
    cases
}

fn float_cases() -> Vec<Case> {
    let spreads = [(1e-8, 1.0), (3.3e-9, 0.0), (0.0, 2.5), (6e-8, -3.0)];
    let mut cases: Vec<Case> = COUNTS
        .iter()
        .zip(spreads)
        .map(|(&n, (scale, offset))| case(n).f32("scale", scale).f32("offset", offset))
        .collect();
    cases.push(case(1 << 22).f32("scale", 1e-9).f32("offset", 0.0).representative());
    cases
}

/// `out[i] = base + (hash(i) & mask)`, modulo 2³².
#[kernel(module = "fill", entry = "fill_words", reference = words_reference, cases = word_cases, tol = 0)]
#[launch(grid = (n.div_ceil(256), 1, 1), block = (256, 1, 1))]
#[cost(read = 0, write = 4 * n, flops = 0)]
pub fn fill_words(
    #[out]
    #[len(n)]
    out: &mut [u32],
    k0: u32,
    k1: u32,
    mask: u32,
    base: u32,
    n: u32,
);

type Half = half::f16;
type Brain = half::bf16;

macro_rules! declare {
    ($($name:ident $entry:tt $element:ident $reference:ident;)*) => {$(
        /// `out[i] = v·scale + offset`, `v = 2·(hash(i) >> 8) + 1 − 2²⁴`, product and sum rounded in float32, the result to the
        /// element's type, to nearest even. Exact.
        #[kernel(module = "fill", entry = $entry, reference = $reference, cases = float_cases, tol = 0)]
        #[launch(grid = (n.div_ceil(256), 1, 1), block = (256, 1, 1))]
        #[cost(read = 0, write = n * size_of::<$element>() as u64, flops = 2 * n)]
        pub fn $name(
            #[out]
            #[len(n)]
            out: &mut [$element],
            k0: u32,
            k1: u32,
            scale: f32,
            offset: f32,
            n: u32,
        );
    )*};
}

declare! {
    fill_f32 "fill_f32" f32 f32_reference;
    fill_f16 "fill_f16" Half f16_reference;
    fill_bf16 "fill_bf16" Brain bf16_reference;
}

/// Whether a plane can be filled in place: its elements are whole and it begins on one.
pub fn fits(fill: &PlaneFill, plane: &Buffer<u8>) -> bool {
    let size = match fill {
        PlaneFill::Words { .. } => 4,
        PlaneFill::Floats { kind, .. } => kind.bytes(),
    };
    plane.len().is_multiple_of(size) && plane.byte_offset().is_multiple_of(size)
}

/// The launch that fills `plane`.
///
/// # Errors
/// A plane that does not [fit](fits), or is longer than a counter.
pub fn launch(fill: &PlaneFill, plane: &Buffer<u8>) -> Result<Launch, LaunchError> {
    let misfit =
        |error: DeviceError| LaunchError { kernel: "fill", argument: "out", reason: error.to_string() };
    let count = |n: usize| {
        let reason = || format!("{n} elements: the counter has 32 bits");
        u32::try_from(n).map_err(|_| LaunchError { kernel: "fill", argument: "n", reason: reason() })
    };
    macro_rules! floats {
        ($kernel:ident, $element:ty, $key:expr, $scale:expr, $offset:expr) => {{
            let out: Buffer<$element> = plane.cast().map_err(misfit)?;
            $kernel(&out, $key.k0, $key.k1, $scale, $offset, count(out.len())?)
        }};
    }
    match *fill {
        PlaneFill::Words { key, mask, base } => {
            let out: Buffer<u32> = plane.cast().map_err(misfit)?;
            fill_words(&out, key.k0, key.k1, mask, base, count(out.len())?)
        }
        PlaneFill::Floats { key, kind, scale, offset } => match kind {
            FloatKind::F32 => floats!(fill_f32, f32, key, scale, offset),
            FloatKind::F16 => floats!(fill_f16, Half, key, scale, offset),
            FloatKind::BF16 => floats!(fill_bf16, Brain, key, scale, offset),
        },
    }
}

/// Fills `plane` on the engine's device.
///
/// # Errors
/// Those of [`launch`]; what the device says.
pub fn run(engine: &Engine, fill: &PlaneFill, plane: &Buffer<u8>) -> Result<(), crate::plan::PlanError> {
    let arena = crate::plan::Arena::new(engine.device());
    let mut plan = crate::plan::PlanBuilder::new(engine, &arena, "synthetic weights");
    plan.push("fill", launch(fill, plane))?;
    plan.finish().run(engine.stream())
}
