//! The element types that device buffers and kernel pointers may have.

/// A plain-old-data type that a device buffer can hold and a kernel can point at.
///
/// `NAME` is how bitwalk's messages name the type; `C_TYPE` is how the CUDA C++ prototype of a kernel
/// spells it. Size and alignment are those of the Rust type, and equal the C type's.
pub trait Element: bytemuck::Pod + Send + Sync + std::fmt::Debug + 'static {
    /// The type's name in messages: `f32`, `u8`, `f8e4m3` …
    const NAME: &'static str;
    /// The type's spelling in CUDA C++: `float`, `uint8_t` …; 16-bit and 8-bit floats are passed as their bits.
    const C_TYPE: &'static str;
}

/// An 8-bit float with 4 exponent and 3 mantissa bits (OCP E4M3, finite only, largest 448), as its bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(transparent)]
pub struct F8E4M3(pub u8);

impl F8E4M3 {
    /// The largest finite value.
    pub const MAX: f32 = 448.0;

    /// The value, exactly; bits 0x7f and 0xff are NaN.
    pub fn to_f32(self) -> f32 {
        let (exponent, mantissa) = (i32::from(self.0 >> 3 & 15), f32::from(self.0 & 7));
        let magnitude = match (exponent, self.0 & 7) {
            (15, 7) => f32::NAN,
            (0, _) => mantissa * (-9f32).exp2(),
            _ => (8.0 + mantissa) * ((exponent - 10) as f32).exp2(),
        };
        if self.0 & 0x80 == 0 { magnitude } else { -magnitude }
    }

    /// The value, exactly.
    pub fn to_f64(self) -> f64 {
        f64::from(self.to_f32())
    }

    /// The nearest value, ties to even; magnitudes past the largest saturate at ±448, NaN stays NaN.
    pub fn from_f32(value: f32) -> Self {
        let bits = value.to_bits();
        let (sign, magnitude) = ((bits >> 24) as u8 & 0x80, bits & 0x7fff_ffff);
        let code = if value.is_nan() {
            0x7f
        } else if value.abs() >= Self::MAX {
            0x7e
        } else if magnitude < 0x3c80_0000 {
            // Below 2^-6 the spacing is 2^-9: adding 2^14 leaves the rounded multiple in the low bits of the sum.
            ((value.abs() + 16384.0).to_bits() - 16384f32.to_bits()) as u8
        } else {
            // Round to 3 mantissa bits, ties to even, then move the exponent's bias from 127 to 7.
            let rounded = magnitude + 0x7_ffff + (magnitude >> 20 & 1);
            ((rounded >> 20) - (120 << 3)) as u8
        };
        Self(sign | code)
    }
}

macro_rules! elements {
    ($($rust:ty, $name:literal, $c:literal;)*) => { $(
        impl Element for $rust {
            const NAME: &'static str = $name;
            const C_TYPE: &'static str = $c;
        }
    )* };
}

elements! {
    f32, "f32", "float";
    f64, "f64", "double";
    u8, "u8", "uint8_t";
    i8, "i8", "int8_t";
    u16, "u16", "uint16_t";
    i16, "i16", "int16_t";
    u32, "u32", "uint32_t";
    i32, "i32", "int32_t";
    u64, "u64", "uint64_t";
    i64, "i64", "int64_t";
    half::f16, "f16", "uint16_t";
    half::bf16, "bf16", "uint16_t";
    F8E4M3, "f8e4m3", "uint8_t";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_the_c_types() {
        fn check<T: Element>(size: usize) {
            assert_eq!(size_of::<T>(), size, "{}", T::NAME);
            assert_eq!(align_of::<T>(), size, "{}", T::NAME);
        }
        check::<f32>(4);
        check::<half::f16>(2);
        check::<half::bf16>(2);
        check::<F8E4M3>(1);
        check::<i64>(8);
    }

    #[test]
    fn f8_codes_have_the_values_of_the_format() {
        // OCP OFP8: bias 7, 2^-9 the least, 2^-6 the least normal, 448 the largest.
        for (code, value) in
            [(0x00, 0.0), (0x01, 0.001953125), (0x08, 0.015625), (0x38, 1.0), (0x39, 1.125), (0x7e, 448.0)]
        {
            assert_eq!(F8E4M3(code).to_f32(), value);
            assert_eq!(F8E4M3(code | 0x80).to_f32(), -value);
        }
        assert!(F8E4M3(0x7f).to_f32().is_nan() && F8E4M3(0xff).to_f32().is_nan());
    }

    #[test]
    fn f8_rounds_to_the_nearest_of_all_codes_ties_to_even() {
        let nearest = |x: f32| {
            (0..0x7fu8)
                .min_by(|&a, &b| {
                    let distance = |code| (F8E4M3(code).to_f64() - f64::from(x.abs())).abs();
                    distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1)))
                })
                .map(|code| code | if x.is_sign_negative() { 0x80 } else { 0 })
        };
        for code in 0..0x7eu8 {
            let (low, high) = (F8E4M3(code).to_f32(), F8E4M3(code + 1).to_f32());
            let middle = (low + high) / 2.0;
            for x in [low, middle, middle.next_down(), middle.next_up(), low.next_up(), high.next_down()] {
                for x in [x, -x] {
                    assert_eq!(Some(F8E4M3::from_f32(x).0), nearest(x), "{x}");
                }
            }
        }
        assert_eq!(F8E4M3::from_f32(f32::INFINITY).0, 0x7e);
        assert_eq!(F8E4M3::from_f32(-1e9).0, 0xfe);
        assert_eq!(F8E4M3::from_f32(f32::NAN).0 & 0x7f, 0x7f);
    }
}
