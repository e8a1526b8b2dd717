//! The instruction sets that the lane loops are compiled for.

use super::{Handler, Op};
use crate::exec::warp::Warp;
use std::sync::OnceLock;

/// Which of the compiled variants the CPU can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// What the target guarantees.
    Base,
    /// AVX2, FMA, F16C, BMI.
    V3,
    /// The AVX-512 of Skylake-X and Zen 4.
    V4,
}

impl Level {
    /// The best level of this CPU. `PTX_SIM_ISA=base|avx2|avx512` lowers it, for comparing the variants.
    pub(crate) fn detect() -> Level {
        static LEVEL: OnceLock<Level> = OnceLock::new();
        *LEVEL.get_or_init(|| {
            let cap = match std::env::var("PTX_SIM_ISA").as_deref() {
                Ok("base") => Level::Base,
                Ok("avx2") => Level::V3,
                _ => Level::V4,
            };
            available().min(cap)
        })
    }
}

#[cfg(target_arch = "x86_64")]
fn available() -> Level {
    let v3 = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt");
    let v4 = is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512cd");
    match (v3, v4) {
        (true, true) => Level::V4,
        (true, false) => Level::V3,
        _ => Level::Base,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn available() -> Level {
    Level::Base
}

/// Something that executes an op, generic over the instruction set.
pub(crate) trait Handle {
    /// Executes `op`.
    ///
    /// # Safety
    /// As [`Handler`], and the CPU must have `I`.
    unsafe fn run<I: Isa>(warp: &mut Warp, op: &Op) -> *const Op;
}

unsafe fn base<H: Handle>(warp: &mut Warp, op: &Op) -> *const Op {
    // SAFETY: the caller's promise.
    unsafe { H::run::<Base>(warp, op) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn v3<H: Handle>(warp: &mut Warp, op: &Op) -> *const Op {
    // SAFETY: the caller's promise.
    unsafe { H::run::<V3>(warp, op) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl,avx512cd")]
unsafe fn v4<H: Handle>(warp: &mut Warp, op: &Op) -> *const Op {
    // SAFETY: the caller's promise.
    unsafe { H::run::<V4>(warp, op) }
}

/// The variant of `H` for `level`.
#[cfg(target_arch = "x86_64")]
pub(crate) fn select<H: Handle>(level: Level) -> Handler {
    match level {
        Level::Base => base::<H>,
        Level::V3 => v3::<H>,
        Level::V4 => v4::<H>,
    }
}

/// The variant of `H` for `level`.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn select<H: Handle>(_level: Level) -> Handler {
    base::<H>
}

/// The few operations that need other code for each instruction set.
///
/// # Safety
/// Each method needs the CPU to have the instruction set.
pub(crate) trait Isa {
    /// Bit `i` of the result is the sign bit of lane `i`.
    unsafe fn sign_mask(lanes: &[u32; 16]) -> u32;
    /// `table[index[i] % 32]` for each lane.
    unsafe fn permute(table: &[u32; 32], index: &[u32; 32]) -> [u32; 32];
    /// Half to single precision, exact; NaNs as the CPU makes them.
    unsafe fn from_half(lanes: &[u32; 16]) -> [f32; 16];
    /// Single to half precision, to nearest even, overflow to infinity; NaNs as the CPU makes them.
    unsafe fn to_half(lanes: &[f32; 16]) -> [u32; 16];
}

/// What the target guarantees.
pub(crate) struct Base;

impl Isa for Base {
    #[inline(always)]
    unsafe fn sign_mask(lanes: &[u32; 16]) -> u32 {
        let mut mask = 0;
        for (i, lane) in lanes.iter().enumerate() {
            mask |= (lane >> 31) << i;
        }
        mask
    }

    #[inline(always)]
    unsafe fn permute(table: &[u32; 32], index: &[u32; 32]) -> [u32; 32] {
        std::array::from_fn(|i| table[index[i] as usize % 32])
    }

    #[inline(always)]
    unsafe fn from_half(lanes: &[u32; 16]) -> [f32; 16] {
        std::array::from_fn(|i| crate::num::f16_to_f32(lanes[i] as u16))
    }

    #[inline(always)]
    unsafe fn to_half(lanes: &[f32; 16]) -> [u32; 16] {
        std::array::from_fn(|i| crate::num::f32_to_f16(lanes[i]).into())
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Isa;
    use std::arch::x86_64::*;
    use std::mem::transmute;

    /// AVX2 and its contemporaries.
    pub(crate) struct V3;

    /// AVX-512.
    pub(crate) struct V4;

    // The intrinsics below sit in functions without the feature, and end up, inlined, in functions that have it.
    impl Isa for V3 {
        #[inline(always)]
        unsafe fn sign_mask(lanes: &[u32; 16]) -> u32 {
            // SAFETY: the caller has AVX2; both types are 64 bytes of plain data.
            unsafe {
                let [a, b]: [__m256; 2] = transmute(*lanes);
                _mm256_movemask_ps(a) as u32 | (_mm256_movemask_ps(b) as u32) << 8
            }
        }

        #[inline(always)]
        unsafe fn permute(table: &[u32; 32], index: &[u32; 32]) -> [u32; 32] {
            // SAFETY: the caller has AVX2; the types are 128 bytes of plain data.
            unsafe {
                let table: [__m256i; 4] = transmute(*table);
                let index: [__m256i; 4] = transmute(*index);
                let mut out = [_mm256_setzero_si256(); 4];
                for (out, index) in out.iter_mut().zip(index) {
                    let part = _mm256_and_si256(_mm256_srli_epi32::<3>(index), _mm256_set1_epi32(3));
                    for (k, table) in table.iter().enumerate() {
                        let here = _mm256_cmpeq_epi32(part, _mm256_set1_epi32(k as i32));
                        let value = _mm256_permutevar8x32_epi32(*table, index);
                        *out = _mm256_blendv_epi8(*out, value, here);
                    }
                }
                transmute(out)
            }
        }

        #[inline(always)]
        unsafe fn from_half(lanes: &[u32; 16]) -> [f32; 16] {
            // SAFETY: the caller has F16C; the types are plain data of equal size.
            unsafe {
                let bits: [u16; 16] = std::array::from_fn(|i| lanes[i] as u16);
                let [a, b]: [__m128i; 2] = transmute(bits);
                transmute([_mm256_cvtph_ps(a), _mm256_cvtph_ps(b)])
            }
        }

        #[inline(always)]
        unsafe fn to_half(lanes: &[f32; 16]) -> [u32; 16] {
            // SAFETY: the caller has F16C; the types are plain data of equal size.
            unsafe {
                let [a, b]: [__m256; 2] = transmute(*lanes);
                let bits: [u16; 16] = transmute([
                    _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(a),
                    _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(b),
                ]);
                std::array::from_fn(|i| bits[i].into())
            }
        }
    }

    impl Isa for V4 {
        #[inline(always)]
        unsafe fn sign_mask(lanes: &[u32; 16]) -> u32 {
            // SAFETY: the caller has AVX512DQ; both types are 64 bytes of plain data.
            unsafe { _mm512_movepi32_mask(transmute::<[u32; 16], __m512i>(*lanes)).into() }
        }

        #[inline(always)]
        unsafe fn permute(table: &[u32; 32], index: &[u32; 32]) -> [u32; 32] {
            // SAFETY: the caller has AVX512F; the types are 128 bytes of plain data.
            unsafe {
                let [low, high]: [__m512i; 2] = transmute(*table);
                let [first, second]: [__m512i; 2] = transmute(*index);
                transmute([
                    _mm512_permutex2var_epi32(low, first, high),
                    _mm512_permutex2var_epi32(low, second, high),
                ])
            }
        }

        #[inline(always)]
        unsafe fn from_half(lanes: &[u32; 16]) -> [f32; 16] {
            // SAFETY: the caller has AVX512F; the types are plain data of equal size.
            unsafe {
                let packed = _mm512_cvtepi32_epi16(transmute::<[u32; 16], __m512i>(*lanes));
                transmute(_mm512_cvtph_ps(packed))
            }
        }

        #[inline(always)]
        unsafe fn to_half(lanes: &[f32; 16]) -> [u32; 16] {
            // SAFETY: the caller has AVX512F; the types are plain data of equal size.
            unsafe {
                let lanes: __m512 = transmute(*lanes);
                let packed = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(lanes);
                transmute(_mm512_cvtepu16_epi32(packed))
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::{V3, V4};
