//! IEEE 754 arithmetic from its definition: an operation's exact result as an integer times a power of two, then
//! one rounding. Nothing here uses the processor's floating point, so it can judge a simulator that does.

/// A binary interchange format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Format {
    /// Bits of the exponent field.
    pub(super) exponent: u32,
    /// Bits of the fraction field.
    pub(super) fraction: u32,
}

pub(super) const F16: Format = Format { exponent: 5, fraction: 10 };
pub(super) const BF16: Format = Format { exponent: 8, fraction: 7 };
pub(super) const F32: Format = Format { exponent: 8, fraction: 23 };
pub(super) const F64: Format = Format { exponent: 11, fraction: 52 };

impl Format {
    /// Bits of the whole.
    pub(super) fn bits(self) -> u32 {
        1 + self.exponent + self.fraction
    }

    fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    fn exponent_mask(self) -> u64 {
        (1 << self.exponent) - 1
    }

    fn fraction_mask(self) -> u64 {
        (1 << self.fraction) - 1
    }

    /// The NaN that arithmetic gives: all bits set but the sign (0x7fffffff, 0x7fff).
    pub(super) fn nan(self) -> u64 {
        (1 << (self.bits() - 1)) - 1
    }

    /// ±infinity.
    pub(super) fn infinity(self, negative: bool) -> u64 {
        self.signed(negative, self.exponent_mask() << self.fraction)
    }

    /// The finite value of the largest magnitude.
    pub(super) fn max(self, negative: bool) -> u64 {
        self.signed(negative, (self.exponent_mask() << self.fraction) - 1)
    }

    fn signed(self, negative: bool, magnitude: u64) -> u64 {
        u64::from(negative) << (self.bits() - 1) | magnitude
    }

    /// What the bits stand for.
    pub(super) fn decode(self, bits: u64) -> Value {
        let negative = bits >> (self.bits() - 1) & 1 == 1;
        let exponent = bits >> self.fraction & self.exponent_mask();
        let fraction = bits & self.fraction_mask();
        if exponent == self.exponent_mask() {
            return if fraction == 0 { Value::Infinite(negative) } else { Value::Nan };
        }
        let hidden = u64::from(exponent != 0) << self.fraction;
        Value::Finite(Exact {
            negative,
            magnitude: u128::from(fraction | hidden),
            exponent: exponent.max(1) as i32 - self.bias() - self.fraction as i32,
            inexact: false,
        })
    }

    /// Whether the bits are a NaN.
    pub(super) fn is_nan(self, bits: u64) -> bool {
        matches!(self.decode(bits), Value::Nan)
    }

    /// The value of this format that `value` rounds to.
    pub(super) fn encode(self, value: Value, rounding: Rounding) -> u64 {
        let exact = match value {
            Value::Nan => return self.nan(),
            Value::Infinite(negative) => return self.infinity(negative),
            Value::Finite(exact) => exact,
        };
        let negative = exact.negative;
        if exact.magnitude == 0 {
            return self.signed(negative, 0);
        }
        let least = 1 - self.bias();
        // The weight of the result's last bit: that of a normal number of this size, or of the subnormals.
        let mut unit = exact.top().max(least) - self.fraction as i32;
        let mut significand = exact.rounded_to(unit, rounding);
        if significand >> (self.fraction + 1) != 0 {
            significand >>= 1;
            unit += 1;
        }
        if significand >> self.fraction == 0 {
            return self.signed(negative, significand as u64);
        }
        let biased = unit + self.fraction as i32 + self.bias();
        if biased >= self.exponent_mask() as i32 {
            let towards_zero = match rounding {
                Rounding::Even | Rounding::Away => false,
                Rounding::Zero => true,
                Rounding::Down => !negative,
                Rounding::Up => negative,
            };
            return if towards_zero { self.max(negative) } else { self.infinity(negative) };
        }
        self.signed(negative, (biased as u64) << self.fraction | significand as u64 & self.fraction_mask())
    }
}

/// Which neighbour an inexact result becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rounding {
    /// To the nearest, ties to even (`.rn`, `.rni`).
    Even,
    /// To the nearest, ties away from zero (`.rna`).
    Away,
    /// Towards zero (`.rz`, `.rzi`).
    Zero,
    /// Towards negative infinity (`.rm`, `.rmi`).
    Down,
    /// Towards positive infinity (`.rp`, `.rpi`).
    Up,
}

impl Rounding {
    /// The rounding of a modifier, and whether it rounds to an integral value.
    pub(super) fn parse(modifier: &str) -> Option<(Rounding, bool)> {
        let (base, integral) = match modifier.strip_suffix('i') {
            Some(base) => (base, true),
            None => (modifier, false),
        };
        let rounding = match base {
            "rn" => Rounding::Even,
            "rna" => Rounding::Away,
            "rz" => Rounding::Zero,
            "rm" => Rounding::Down,
            "rp" => Rounding::Up,
            _ => return None,
        };
        Some((rounding, integral))
    }
}

/// A real number with infinities and NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Nan,
    /// Infinite; `true` for −∞.
    Infinite(bool),
    Finite(Exact),
}

/// `± magnitude · 2^exponent`, plus something below one unit of the magnitude when `inexact`. Zero keeps its sign.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Exact {
    pub(super) negative: bool,
    pub(super) magnitude: u128,
    pub(super) exponent: i32,
    pub(super) inexact: bool,
}

impl Exact {
    /// An integer.
    pub(super) fn integer(n: i128) -> Exact {
        Exact { negative: n < 0, magnitude: n.unsigned_abs(), exponent: 0, inexact: false }
    }

    /// Power of two of the leading bit.
    fn top(&self) -> i32 {
        127 - self.magnitude.leading_zeros() as i32 + self.exponent
    }

    /// The same number with the leading bit at `bit`; no bit is lost.
    fn at_bit(self, bit: u32) -> Exact {
        let shift = bit as i32 - (127 - self.magnitude.leading_zeros() as i32);
        assert!(shift >= 0 && !self.inexact, "normalising loses bits");
        Exact { magnitude: self.magnitude << shift, exponent: self.exponent - shift, ..self }
    }

    /// The magnitude in units of `2^unit`, rounded.
    fn rounded_to(&self, unit: i32, rounding: Rounding) -> u128 {
        let shift = unit - self.exponent;
        if shift <= 0 {
            assert!(!self.inexact, "an inexact value needs bits below its last place");
            return self.magnitude << -shift;
        }
        let (kept, rest, half) = match shift {
            1..=127 => {
                let kept = self.magnitude >> shift;
                (kept, self.magnitude - (kept << shift), 1u128 << (shift - 1))
            }
            128 => (0, self.magnitude, 1 << 127),
            // Less than half of a unit, however large the magnitude.
            _ => (0, self.magnitude.min(1), u128::MAX),
        };
        let exact = rest == 0 && !self.inexact;
        let up = match rounding {
            Rounding::Even => rest > half || rest == half && (self.inexact || kept & 1 == 1),
            Rounding::Away => rest >= half,
            Rounding::Zero => false,
            Rounding::Down => self.negative && !exact,
            Rounding::Up => !self.negative && !exact,
        };
        kept + u128::from(up)
    }

    /// The integer it rounds to; what lies past ±2^100 stops there.
    pub(super) fn to_integer(self, rounding: Rounding) -> i128 {
        if self.magnitude == 0 {
            return 0;
        }
        let magnitude = if self.top() >= 100 { 1 << 100 } else { self.rounded_to(0, rounding) as i128 };
        if self.negative { -magnitude } else { magnitude }
    }
}

/// `a + b`, before rounding. `rounding` decides the sign of an exact cancellation.
pub(super) fn add(a: Value, b: Value, rounding: Rounding) -> Value {
    let (a, b) = match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) => return Value::Nan,
        (Value::Infinite(x), Value::Infinite(y)) => {
            return if x == y { Value::Infinite(x) } else { Value::Nan };
        }
        (Value::Infinite(x), _) | (_, Value::Infinite(x)) => return Value::Infinite(x),
        (Value::Finite(a), Value::Finite(b)) => (a, b),
    };
    let cancelled = Exact { negative: rounding == Rounding::Down, magnitude: 0, exponent: 0, inexact: false };
    match (a.magnitude, b.magnitude) {
        (0, 0) => return Value::Finite(if a.negative == b.negative { a } else { cancelled }),
        (0, _) => return Value::Finite(b),
        (_, 0) => return Value::Finite(a),
        _ => {}
    }
    // Both with the leading bit at 125, so that a sum fits; `large` has the larger exponent.
    let (a, b) = (a.at_bit(125), b.at_bit(125));
    let (large, small) = if a.exponent >= b.exponent { (a, b) } else { (b, a) };
    let distance = large.exponent.abs_diff(small.exponent);
    let shifted = small.magnitude.checked_shr(distance).unwrap_or(0);
    let inexact = shifted.checked_shl(distance).unwrap_or(0) != small.magnitude;
    let (negative, magnitude) = if large.negative == small.negative {
        (large.negative, large.magnitude + shifted)
    } else if large.magnitude >= shifted {
        // What was shifted out of the subtrahend makes the difference smaller by less than a unit.
        (large.negative, large.magnitude - shifted - u128::from(inexact))
    } else {
        (small.negative, shifted - large.magnitude)
    };
    if magnitude == 0 && !inexact {
        return Value::Finite(cancelled);
    }
    Value::Finite(Exact { negative, magnitude, exponent: large.exponent, inexact })
}

/// `a · b`, exactly.
pub(super) fn mul(a: Value, b: Value) -> Value {
    let zero = |value| matches!(value, Value::Finite(Exact { magnitude: 0, .. }));
    match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) => Value::Nan,
        (Value::Infinite(_), other) | (other, Value::Infinite(_)) if zero(other) => Value::Nan,
        (Value::Finite(a), Value::Finite(b)) => Value::Finite(Exact {
            negative: a.negative != b.negative,
            magnitude: a.magnitude * b.magnitude,
            exponent: a.exponent + b.exponent,
            inexact: false,
        }),
        _ => Value::Infinite(negative(a) != negative(b)),
    }
}

/// `a / b`, before rounding.
pub(super) fn div(a: Value, b: Value) -> Value {
    let sign = || negative(a) != negative(b);
    match (a, b) {
        (Value::Nan, _) | (_, Value::Nan) | (Value::Infinite(_), Value::Infinite(_)) => Value::Nan,
        (Value::Infinite(_), _) => Value::Infinite(sign()),
        (_, Value::Infinite(_)) => {
            Value::Finite(Exact { negative: sign(), magnitude: 0, exponent: 0, inexact: false })
        }
        (Value::Finite(x), Value::Finite(y)) => match (x.magnitude, y.magnitude) {
            (0, 0) => Value::Nan,
            (_, 0) => Value::Infinite(sign()),
            (0, _) => Value::Finite(Exact { negative: sign(), ..x }),
            _ => {
                let x = x.at_bit(127);
                Value::Finite(Exact {
                    negative: sign(),
                    magnitude: x.magnitude / y.magnitude,
                    exponent: x.exponent - y.exponent,
                    inexact: !x.magnitude.is_multiple_of(y.magnitude),
                })
            }
        },
    }
}

/// The square root, before rounding.
pub(super) fn sqrt(a: Value) -> Value {
    match a {
        Value::Finite(x) if x.magnitude == 0 => a,
        Value::Infinite(false) => a,
        Value::Finite(x) if !x.negative => {
            let high = x.at_bit(127);
            let even = if high.exponent % 2 == 0 { high } else { x.at_bit(126) };
            let root = even.magnitude.isqrt();
            let inexact = root * root != even.magnitude;
            Value::Finite(Exact { negative: false, magnitude: root, exponent: even.exponent / 2, inexact })
        }
        _ => Value::Nan,
    }
}

/// The sign of a value that is no NaN.
pub(super) fn negative(value: Value) -> bool {
    match value {
        Value::Nan => false,
        Value::Infinite(negative) => negative,
        Value::Finite(exact) => exact.negative,
    }
}

/// IEEE comparison; none when either is a NaN.
pub(super) fn compare(a: Value, b: Value) -> Option<std::cmp::Ordering> {
    use std::cmp::Ordering;
    if a == Value::Nan || b == Value::Nan {
        return None;
    }
    if let (Value::Infinite(x), Value::Infinite(y)) = (a, b)
        && x == y
    {
        return Some(Ordering::Equal);
    }
    let minus_b = match b {
        Value::Infinite(x) => Value::Infinite(!x),
        Value::Finite(x) => Value::Finite(Exact { negative: !x.negative, ..x }),
        Value::Nan => Value::Nan,
    };
    Some(match add(a, minus_b, Rounding::Even) {
        Value::Finite(Exact { magnitude: 0, inexact: false, .. }) => Ordering::Equal,
        difference if negative(difference) => Ordering::Less,
        _ => Ordering::Greater,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opcodes::inputs::Random;

    fn same32(got: u64, want: f32) -> bool {
        if want.is_nan() { got == 0x7fff_ffff } else { got == u64::from(want.to_bits()) }
    }

    fn same64(got: u64, want: f64) -> bool {
        if want.is_nan() { F64.is_nan(got) } else { got == want.to_bits() }
    }

    // The processor's own IEEE arithmetic is the independent source here.
    #[test]
    fn agrees_with_the_processor() {
        let mut random = Random::new(1);
        for _ in 0..200_000 {
            let bits = [(); 3].map(|()| random.float(F32));
            let [x, y, z] = bits.map(|b| f32::from_bits(b as u32));
            let [a, b, c] = bits.map(|b| F32.decode(b));
            let round = |value| F32.encode(value, Rounding::Even);
            assert!(same32(round(add(a, b, Rounding::Even)), x + y), "{x:e} + {y:e}");
            assert!(same32(round(mul(a, b)), x * y), "{x:e} * {y:e}");
            assert!(same32(round(div(a, b)), x / y), "{x:e} / {y:e}");
            assert!(same32(round(sqrt(a)), x.sqrt()), "sqrt {x:e}");
            assert!(
                same32(round(add(mul(a, b), c, Rounding::Even)), x.mul_add(y, z)),
                "fma {x:e} {y:e} {z:e}"
            );
            assert_eq!(compare(a, b), x.partial_cmp(&y), "{x:e} {y:e}");

            let bits = [(); 3].map(|()| random.float(F64));
            let [x, y, z] = bits.map(f64::from_bits);
            let [a, b, c] = bits.map(|b| F64.decode(b));
            let round = |value| F64.encode(value, Rounding::Even);
            assert!(same64(round(add(a, b, Rounding::Even)), x + y), "{x:e} + {y:e}");
            assert!(same64(round(mul(a, b)), x * y), "{x:e} * {y:e}");
            assert!(same64(round(div(a, b)), x / y), "{x:e} / {y:e}");
            assert!(same64(round(sqrt(a)), x.sqrt()), "sqrt {x:e}");
            assert!(
                same64(round(add(mul(a, b), c, Rounding::Even)), x.mul_add(y, z)),
                "fma {x:e} {y:e} {z:e}"
            );
            assert!(same32(F32.encode(a, Rounding::Even), x as f32), "{x:e} as f32");
        }
    }

    #[test]
    fn directed_roundings_enclose() {
        let mut random = Random::new(2);
        for _ in 0..50_000 {
            let [x, y] = [random.float(F32), random.float(F32)];
            let exact = div(F32.decode(x), F32.decode(y));
            let Value::Finite(value) = exact else { continue };
            let as_f32 = |rounding| f32::from_bits(F32.encode(exact, rounding) as u32);
            let (down, up, zero) = (as_f32(Rounding::Down), as_f32(Rounding::Up), as_f32(Rounding::Zero));
            let near = as_f32(Rounding::Even);
            assert!(down == near || up == near);
            assert_eq!(zero.to_bits(), if value.negative { up } else { down }.to_bits());
            if value.inexact {
                assert_eq!(down.next_up(), up, "{down:e} {up:e}");
            }
        }
    }

    #[test]
    fn halves_by_hand() {
        let f32_bits = |x: f32| F32.decode(x.to_bits().into());
        let f16 = |x: f32, r| F16.encode(f32_bits(x), r);
        assert_eq!(f16(1.0, Rounding::Even), 0x3c00);
        assert_eq!(f16(65504.0, Rounding::Even), 0x7bff);
        assert_eq!(f16(65519.996, Rounding::Even), 0x7bff);
        assert_eq!(f16(65520.0, Rounding::Even), 0x7c00);
        assert_eq!(f16(65520.0, Rounding::Zero), 0x7bff);
        assert_eq!(f16(2f32.powi(-24), Rounding::Even), 1);
        assert_eq!(f16(2f32.powi(-25), Rounding::Even), 0);
        assert_eq!(f16(2f32.powi(-25).next_up(), Rounding::Even), 1);
        assert_eq!(f16(-2f32.powi(-60), Rounding::Down), 0x8001);
        assert_eq!(f16(-2f32.powi(-149), Rounding::Even), 0x8000);
        assert_eq!(F32.encode(F16.decode(0x3555), Rounding::Even), u64::from(0.333_251_95_f32.to_bits()));
        assert_eq!(BF16.encode(f32_bits(f32::MAX), Rounding::Even), 0x7f80);
        assert_eq!(BF16.encode(f32_bits(f32::from_bits(0x3f80_8000)), Rounding::Even), 0x3f80);
        assert_eq!(BF16.encode(f32_bits(f32::from_bits(0x3f81_8000)), Rounding::Even), 0x3f82);
    }
}
