//! The instruction sets that the lane loops are compiled for.

use super::{Handler, Op};
use crate::exec::warp::Warp;
use std::sync::OnceLock;

/// Which of the compiled variants the CPU can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    /// What the target guarantees: one lane after the other.
    Base,
    /// AVX2, FMA, F16C and BMI: eight lanes at a time.
    Avx2,
}

impl Level {
    /// The best level of this CPU. `PTX_SIM_ISA=base` lowers it, for comparing the variants.
    pub(crate) fn detect() -> Level {
        static LEVEL: OnceLock<Level> = OnceLock::new();
        *LEVEL.get_or_init(|| match std::env::var("PTX_SIM_ISA").as_deref() {
            Ok("base") => Level::Base,
            _ => available(),
        })
    }
}

#[cfg(target_arch = "x86_64")]
fn available() -> Level {
    let all = is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("fma")
        && is_x86_feature_detected!("f16c")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt");
    if all { Level::Avx2 } else { Level::Base }
}

#[cfg(not(target_arch = "x86_64"))]
fn available() -> Level {
    Level::Base
}

/// Something that executes an op, generic over the instruction set.
pub(crate) trait Handle {
    /// Whether a variant for wide vectors is worth its compilation.
    const HOT: bool = true;

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
unsafe fn avx2<H: Handle>(warp: &mut Warp, op: &Op) -> *const Op {
    // SAFETY: the caller's promise.
    unsafe { H::run::<Avx2>(warp, op) }
}

/// The AVX2 variant, which is only compiled for hot ops.
#[cfg(target_arch = "x86_64")]
fn wide<H: Handle>() -> Handler {
    if const { H::HOT } { avx2::<H> } else { base::<H> }
}

/// The variant of `H` for `level`.
pub(crate) fn select<H: Handle>(level: Level) -> Handler {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 if const { H::HOT } => wide::<H>(),
        _ => base::<H>,
    }
}

/// The few operations that need other code for each instruction set.
///
/// # Safety
/// Each method needs the CPU to have the instruction set.
pub(crate) trait Isa {
    /// Whether loops over lanes should go by chunks that become vectors.
    const WIDE: bool;
    /// Bit `i` of the result is the sign bit of lane `i`.
    unsafe fn sign_mask(lanes: &[u32; 16]) -> u32;
    /// `table[index[i] % 32]` for each lane.
    unsafe fn permute(table: &[u32; 32], index: &[u32; 32]) -> [u32; 32];
    /// `table[i ^ distance]` for each lane; `distance` below 32.
    unsafe fn butterfly(table: &[u32; 32], distance: u32) -> [u32; 32];
    /// Half to single precision, exact; NaNs as the CPU makes them.
    unsafe fn from_half(lanes: &[u32; 16]) -> [f32; 16];
    /// Single to half precision, to nearest even, overflow to infinity; NaNs as the CPU makes them.
    unsafe fn to_half(lanes: &[f32; 16]) -> [u32; 16];
    /// Byte `i` of each result is byte `selector >> 4 i & 7` of the eight bytes `b:a`.
    unsafe fn pick_bytes(a: &[u32; 16], b: &[u32; 16], selector: u32) -> [u32; 16];
    /// `mma` of 16 × 8 × 32 signed bytes: registers of A, B and C to those of D, sums wrapping. `None` where there is no faster way than
    /// the plain one.
    unsafe fn multiply_bytes(
        a: [*const u32; 4],
        b: [*const u32; 2],
        c: [*const u32; 4],
    ) -> Option<[[u32; 32]; 4]>;
    /// Reads four words at `place(lane)` for each lane into four registers.
    unsafe fn gather4(place: impl Fn(usize) -> *const u8, to: [*mut u32; 4]);
    /// Writes four words at `place(lane)` for each lane from four registers.
    unsafe fn scatter4(place: impl Fn(usize) -> *mut u8, from: [*const u32; 4]);
}

/// What the target guarantees.
pub(crate) struct Base;

impl Isa for Base {
    const WIDE: bool = false;

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
    unsafe fn butterfly(table: &[u32; 32], distance: u32) -> [u32; 32] {
        std::array::from_fn(|i| table[(i ^ distance as usize) % 32])
    }

    #[inline(always)]
    unsafe fn from_half(lanes: &[u32; 16]) -> [f32; 16] {
        lanes.map(|half| crate::num::f16_to_f32(half as u16))
    }

    #[inline(always)]
    unsafe fn to_half(lanes: &[f32; 16]) -> [u32; 16] {
        lanes.map(|value| crate::num::f32_to_f16(value).into())
    }

    #[inline(always)]
    unsafe fn pick_bytes(a: &[u32; 16], b: &[u32; 16], selector: u32) -> [u32; 16] {
        std::array::from_fn(|i| {
            let bytes = u64::from(b[i]) << 32 | u64::from(a[i]);
            (0..4).fold(0, |out, k| {
                let from = selector >> (4 * k) & 7;
                out | ((bytes >> (8 * from)) as u32 & 0xff) << (8 * k)
            })
        })
    }

    #[inline(always)]
    unsafe fn multiply_bytes(
        _: [*const u32; 4],
        _: [*const u32; 2],
        _: [*const u32; 4],
    ) -> Option<[[u32; 32]; 4]> {
        None
    }

    #[inline(always)]
    unsafe fn gather4(place: impl Fn(usize) -> *const u8, to: [*mut u32; 4]) {
        for lane in 0..32 {
            // SAFETY: the caller's places hold 16 bytes, its registers 32 lanes.
            unsafe {
                let words = place(lane).cast::<[u32; 4]>().read_unaligned();
                for (word, to) in words.into_iter().zip(to) {
                    to.add(lane).write(word);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn scatter4(place: impl Fn(usize) -> *mut u8, from: [*const u32; 4]) {
        for lane in 0..32 {
            // SAFETY: as in `gather4`.
            unsafe { place(lane).cast::<[u32; 4]>().write_unaligned(from.map(|from| from.add(lane).read())) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Isa;
    use std::arch::x86_64::*;
    use std::mem::transmute;

    /// AVX2 and its contemporaries.
    pub(crate) struct Avx2;

    /// The rows of a 4 × 4 matrix of words in each half of four registers become its columns.
    ///
    /// # Safety
    /// The CPU must have AVX2.
    #[inline(always)]
    unsafe fn transpose(rows: [__m256; 4]) -> [__m256; 4] {
        // SAFETY: the caller's promise.
        unsafe {
            let (a, b) = (_mm256_unpacklo_ps(rows[0], rows[1]), _mm256_unpackhi_ps(rows[0], rows[1]));
            let (c, d) = (_mm256_unpacklo_ps(rows[2], rows[3]), _mm256_unpackhi_ps(rows[2], rows[3]));
            [
                _mm256_shuffle_ps::<0x44>(a, c),
                _mm256_shuffle_ps::<0xee>(a, c),
                _mm256_shuffle_ps::<0x44>(b, d),
                _mm256_shuffle_ps::<0xee>(b, d),
            ]
        }
    }

    /// Words `8 i` to `8 i + 7` of a register: of two rows g of A or columns of B, four places t along K of each.
    ///
    /// # Safety
    /// A register of 32 lanes, `i` below 4, and the CPU must have AVX2.
    #[target_feature(enable = "avx2")]
    unsafe fn words(register: *const u32, i: usize) -> __m256i {
        // SAFETY: the caller's promise.
        unsafe { _mm256_loadu_si256(register.cast::<__m256i>().add(i)) }
    }

    /// The even and the odd bytes of each word's halves, as signed halves.
    #[target_feature(enable = "avx2")]
    fn split(bytes: __m256i) -> [__m256i; 2] {
        [_mm256_srai_epi16::<8>(_mm256_slli_epi16::<8>(bytes)), _mm256_srai_epi16::<8>(bytes)]
    }

    /// `sum` and, of each word, the inner products of its four bytes in `a[0]` and `b[0]` and of those in `a[1]` and `b[1]`.
    #[target_feature(enable = "avx2")]
    fn inner(sum: __m256i, a: [[__m256i; 2]; 2], b: [[__m256i; 2]; 2]) -> __m256i {
        let near = _mm256_add_epi32(_mm256_madd_epi16(a[0][0], b[0][0]), _mm256_madd_epi16(a[0][1], b[0][1]));
        let far = _mm256_add_epi32(_mm256_madd_epi16(a[1][0], b[1][0]), _mm256_madd_epi16(a[1][1], b[1][1]));
        _mm256_add_epi32(sum, _mm256_add_epi32(near, far))
    }

    /// One column's words, of the two in each vector, beside both rows of a vector of A.
    #[target_feature(enable = "avx2")]
    fn column(b: [__m256i; 2], odd: bool) -> [[__m256i; 2]; 2] {
        if odd {
            [
                split(_mm256_permute2x128_si256::<0x11>(b[0], b[0])),
                split(_mm256_permute2x128_si256::<0x11>(b[1], b[1])),
            ]
        } else {
            [
                split(_mm256_permute2x128_si256::<0x00>(b[0], b[0])),
                split(_mm256_permute2x128_si256::<0x00>(b[1], b[1])),
            ]
        }
    }

    /// `mma` of 16 × 8 × 32 signed bytes. A function with the feature, of loops: closures that are passed on would be without it.
    ///
    /// # Safety
    /// Registers of 32 lanes, and the CPU must have AVX2.
    #[allow(clippy::needless_range_loop, reason = "an index that goes to several registers at once")]
    #[target_feature(enable = "avx2")]
    unsafe fn multiply_bytes(a: [*const u32; 4], b: [*const u32; 2], c: [*const u32; 4]) -> [[u32; 32]; 4] {
        // SAFETY: the caller's promise; the types are 512 bytes of plain data.
        unsafe {
            let zero = _mm256_setzero_si256();
            let (mut near, mut far, mut others) = (zero, zero, zero);
            let places = _mm256_setr_epi32(0, 1, 2, 3, 0, 1, 2, 3);
            let mut b_words = [[zero; 2]; 4];
            for i in 0..4 {
                b_words[i] = [words(b[0], i), words(b[1], i)];
                let here = _mm256_cmpeq_epi32(places, _mm256_set1_epi32(i as i32));
                let both = _mm256_or_si256(b_words[i][0], b_words[i][1]);
                others = _mm256_or_si256(others, _mm256_andnot_si256(here, both));
                near = _mm256_or_si256(near, b_words[i][0]);
                far = _mm256_or_si256(far, b_words[i][1]);
            }
            let mut sums = [[zero; 4]; 4];
            if _mm256_testz_si256(others, others) != 0 {
                // Columns 2 t and 2 t + 1 have words in the lanes t only: a lane's sums are of its own words of A.
                let (even, odd) = (column([near, far], false), column([near, far], true));
                for half in 0..2 {
                    for i in 0..4 {
                        let a = [split(words(a[half], i)), split(words(a[half + 2], i))];
                        sums[2 * half][i] = inner(words(c[2 * half], i), a, even);
                        sums[2 * half + 1][i] = inner(words(c[2 * half + 1], i), a, odd);
                    }
                }
            } else {
                // Each column beside all rows, then sums along t, which leave four columns in the places of the sums.
                for odd in 0..2 {
                    let b = [
                        column(b_words[0], odd == 1),
                        column(b_words[1], odd == 1),
                        column(b_words[2], odd == 1),
                        column(b_words[3], odd == 1),
                    ];
                    for half in 0..2 {
                        for i in 0..4 {
                            let a = [split(words(a[half], i)), split(words(a[half + 2], i))];
                            let low = _mm256_hadd_epi32(inner(zero, a, b[0]), inner(zero, a, b[1]));
                            let high = _mm256_hadd_epi32(inner(zero, a, b[2]), inner(zero, a, b[3]));
                            let sum = _mm256_hadd_epi32(low, high);
                            sums[2 * half + odd][i] = _mm256_add_epi32(words(c[2 * half + odd], i), sum);
                        }
                    }
                }
            }
            transmute::<[[__m256i; 4]; 4], [[u32; 32]; 4]>(sums)
        }
    }

    // The intrinsics below sit in functions without the feature, and end up, inlined, in functions that have it.
    impl Isa for Avx2 {
        const WIDE: bool = true;

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
        unsafe fn butterfly(table: &[u32; 32], distance: u32) -> [u32; 32] {
            // SAFETY: as in `permute`.
            unsafe {
                let table: [__m256i; 4] = transmute(*table);
                let near = _mm256_set1_epi32(distance as i32 & 7);
                let index = _mm256_xor_si256(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), near);
                let far = distance as usize >> 3;
                transmute::<[__m256i; 4], [u32; 32]>(std::array::from_fn(|i| {
                    _mm256_permutevar8x32_epi32(table[(i ^ far) & 3], index)
                }))
            }
        }

        #[inline(always)]
        unsafe fn from_half(lanes: &[u32; 16]) -> [f32; 16] {
            // SAFETY: the caller has F16C; the types are plain data of equal size.
            unsafe {
                let [a, b]: [__m256i; 2] = transmute(*lanes);
                // Halves sit zero-extended, so packing with unsigned saturation keeps them; it works by 128-bit parts.
                let packed = _mm256_permute4x64_epi64::<0xd8>(_mm256_packus_epi32(a, b));
                let (a, b) = (_mm256_castsi256_si128(packed), _mm256_extracti128_si256::<1>(packed));
                transmute([_mm256_cvtph_ps(a), _mm256_cvtph_ps(b)])
            }
        }

        #[inline(always)]
        unsafe fn to_half(lanes: &[f32; 16]) -> [u32; 16] {
            // SAFETY: the caller has F16C; the types are plain data of equal size.
            unsafe {
                let [a, b]: [__m256; 2] = transmute(*lanes);
                let half = |x| _mm256_cvtepu16_epi32(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x));
                transmute([half(a), half(b)])
            }
        }

        #[inline(always)]
        unsafe fn pick_bytes(a: &[u32; 16], b: &[u32; 16], selector: u32) -> [u32; 16] {
            // SAFETY: the caller has AVX2; the types are 64 bytes of plain data.
            unsafe {
                // For each source, where its bytes go within a word; 0x80 makes a zero.
                let control = |source: u32| {
                    let mut word = 0;
                    for k in 0..4 {
                        let from = selector >> (4 * k) & 7;
                        word |= if from >> 2 == source { from & 3 } else { 0x80 } << (8 * k);
                    }
                    let words = _mm256_setr_epi32(
                        0,
                        0x0404_0404,
                        0x0808_0808,
                        0x0c0c_0c0c,
                        0,
                        0x0404_0404,
                        0x0808_0808,
                        0x0c0c_0c0c,
                    );
                    _mm256_add_epi8(_mm256_set1_epi32(word as i32), words)
                };
                let (from_a, from_b) = (control(0), control(1));
                let a: [__m256i; 2] = transmute(*a);
                let b: [__m256i; 2] = transmute(*b);
                transmute::<[__m256i; 2], [u32; 16]>(std::array::from_fn(|i| {
                    _mm256_or_si256(_mm256_shuffle_epi8(a[i], from_a), _mm256_shuffle_epi8(b[i], from_b))
                }))
            }
        }

        #[inline(always)]
        unsafe fn multiply_bytes(
            a: [*const u32; 4],
            b: [*const u32; 2],
            c: [*const u32; 4],
        ) -> Option<[[u32; 32]; 4]> {
            // SAFETY: the caller has AVX2 and gives registers of 32 lanes.
            Some(unsafe { multiply_bytes(a, b, c) })
        }

        #[inline(always)]
        unsafe fn gather4(place: impl Fn(usize) -> *const u8, to: [*mut u32; 4]) {
            // SAFETY: the caller has AVX2; its places hold 16 bytes, its registers 32 lanes.
            unsafe {
                for group in 0..4 {
                    let row = |i: usize| {
                        let low = _mm_loadu_ps(place(8 * group + i).cast());
                        let high = _mm_loadu_ps(place(8 * group + i + 4).cast());
                        _mm256_insertf128_ps::<1>(_mm256_castps128_ps256(low), high)
                    };
                    let columns = transpose([row(0), row(1), row(2), row(3)]);
                    for (column, to) in columns.into_iter().zip(to) {
                        _mm256_storeu_ps(to.add(8 * group).cast(), column);
                    }
                }
            }
        }

        #[inline(always)]
        unsafe fn scatter4(place: impl Fn(usize) -> *mut u8, from: [*const u32; 4]) {
            // SAFETY: as in `gather4`.
            unsafe {
                for group in 0..4 {
                    let rows = transpose(from.map(|from| _mm256_loadu_ps(from.add(8 * group).cast())));
                    for (i, row) in rows.into_iter().enumerate() {
                        _mm_storeu_ps(place(8 * group + i).cast(), _mm256_castps256_ps128(row));
                    }
                    for (i, row) in rows.into_iter().enumerate() {
                        _mm_storeu_ps(place(8 * group + i + 4).cast(), _mm256_extractf128_ps::<1>(row));
                    }
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) use x86::Avx2;
