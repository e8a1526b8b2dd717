//! Operand patterns: the special values of each type, and random ones drawn where the edges are.

use super::form::Type;
use super::soft::{self, Format};

/// A generator with 64 bits of state (splitmix64, Steele, Lea and Flood 2014): the same cases on every run.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// Starts from `seed`.
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1))
    }

    /// Starts from a text.
    pub(super) fn from_text(text: &str) -> Random {
        // FNV-1a.
        Random::new(
            text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3)),
        )
    }

    /// 64 random bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number below `n`.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    /// One of `choices`.
    pub(super) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// Bits of a float: any pattern, or an exponent near that of 1 so that operations meet, or a fraction that
    /// lies on or beside a tie of some narrower format.
    pub(super) fn float(&mut self, format: Format) -> u64 {
        let raw = self.bits() >> (64 - format.bits());
        let fraction_mask = (1u64 << format.fraction) - 1;
        let mut fraction = raw & fraction_mask;
        let mut head = raw & !fraction_mask;
        if self.below(4) != 0 {
            let bias = (1u64 << (format.exponent - 1)) - 1;
            let spread = bias.min(40);
            let exponent = bias - spread + self.below(2 * spread + 1);
            head = raw >> (format.bits() - 1) << (format.bits() - 1) | exponent << format.fraction;
        }
        if self.below(3) == 0 {
            let bit = self.below(u64::from(format.fraction));
            let low = (1u64 << (bit + 1)) - 1;
            let tie = 1u64 << bit;
            fraction = fraction & !low | self.pick(&[0, tie, tie - 1, (tie + 1) & low, low]);
        }
        head | fraction & fraction_mask
    }

    /// Bits of an integer of `width` bits: any, or few significant bits, or beside a power of two.
    pub(super) fn integer(&mut self, width: u32) -> u64 {
        let mask = u64::MAX >> (64 - width);
        let raw = self.bits();
        let value = match self.below(4) {
            0 => raw >> self.below(64),
            1 => (1u64 << self.below(u64::from(width))).wrapping_add(self.below(3)).wrapping_sub(1),
            2 => !(raw >> self.below(64)),
            _ => raw,
        };
        value & mask
    }

    /// Bits of a value of `ty`.
    pub(super) fn value(&mut self, ty: Type) -> u64 {
        match ty {
            Type::Pred => self.below(2),
            Type::F16 => self.float(soft::F16),
            Type::Bf16 => self.float(soft::BF16),
            Type::F32 | Type::Tf32 => self.float(soft::F32),
            Type::F64 => self.float(soft::F64),
            Type::F16x2 => self.float(soft::F16) | self.float(soft::F16) << 16,
            Type::Bf16x2 => self.float(soft::BF16) | self.float(soft::BF16) << 16,
            Type::Amount if self.below(2) == 0 => self.below(72),
            Type::Field => {
                if self.below(2) == 0 {
                    self.below(72)
                } else {
                    self.below(256)
                }
            }
            // An 8-bit operand lives in a 16-bit register, whose upper half must not matter.
            _ => self.integer(ty.register_bits()),
        }
    }
}

fn float_specials(format: Format) -> Vec<u64> {
    let sign = 1u64 << (format.bits() - 1);
    let fraction = format.fraction;
    let bias = (1u64 << (format.exponent - 1)) - 1;
    let power = |n: i64| ((bias as i64 + n).max(0) as u64) << fraction;
    let infinity = format.infinity(false);
    let quiet = 1u64 << (fraction - 1);
    let mut out = vec![
        0,
        1,
        2,
        (1 << fraction) - 1, // largest subnormal
        1 << fraction,       // least normal
        (1 << fraction) + 1,
        format.max(false),
        format.max(false) - 1,
        infinity,
        infinity | quiet,
        infinity | quiet | 5, // quiet NaN with a payload
        infinity | 1,         // signalling NaNs
        infinity | (quiet - 1),
        format.nan(),
        power(0),
        power(0) - 1,
        power(0) + 1,
        power(-1),
        power(-1) - 1,
        power(0) | quiet,      // 1.5
        power(1) | quiet >> 1, // 2.5
        power(1),
        power(fraction as i64),         // where the last bit weighs 1
        power(fraction as i64) + 1,     // an odd integer
        power(fraction as i64 - 1) + 1, // a half
    ];
    let mut and_negative = out.clone();
    and_negative.iter_mut().for_each(|x| *x |= sign);
    out.append(&mut and_negative);
    out
}

fn f32_specials() -> Vec<u64> {
    let mut out = float_specials(soft::F32);
    // Around the bounds of the integer types, of half and of fp8, and around their subnormals.
    let bounds = [
        127.5f32,
        128.0,
        255.5,
        256.0,
        32767.5,
        32768.0,
        65535.5,
        65536.0,
        2_147_483_648.0,
        4_294_967_296.0,
        9.223_372e18,
        1.844_674_4e19,
        65504.0,
        65520.0,
        448.0,
        464.0,
        57344.0,
        61440.0,
        0.5,
        2.5,
        3.5,
    ];
    let powers = [-9, -10, -6, -14, -16, -17, -24, -25, -126, -133, -134];
    for x in bounds.into_iter().chain(powers.map(|n| 2f32.powi(n))) {
        for y in [x, x.next_down(), x.next_up()] {
            out.extend([u64::from(y.to_bits()), u64::from((-y).to_bits())]);
        }
    }
    out
}

fn integer_specials(width: u32) -> Vec<u64> {
    let mask = u64::MAX >> (64 - width);
    let top = 1u64 << (width - 1);
    let mut out: Vec<u64> = vec![
        0,
        1,
        2,
        3,
        5,
        7,
        8,
        9,
        15,
        16,
        17,
        24,
        31,
        32,
        33,
        63,
        64,
        65,
        127,
        128,
        129,
        255,
        256,
        257,
        top,
        top - 1,
        top + 1,
        top - 2,
        mask,
        mask - 1,
        mask - 2,
        mask / 3,
        mask / 3 * 2,
        mask / 255,
        mask / 255 * 0x7f,
        mask / 255 * 0x80,
        mask << 7,
        mask << (width / 2),
        mask >> (width / 2),
    ];
    for power in [15u32, 16, 23, 24, 25, 31, 32, 33, 53, 63] {
        if power < width {
            let n = 1u64 << power;
            out.extend([n, n - 1, n + 1, n + (n >> 23), n + (n >> 24), (!n).wrapping_add(1)]);
        }
    }
    out.iter_mut().for_each(|x| *x &= mask);
    out.sort_unstable();
    out.dedup();
    out
}

/// The special values of a type.
pub(super) fn specials(ty: Type) -> Vec<u64> {
    let both = |halves: Vec<u64>| {
        // Each with itself shifted by one place, so that the halves differ.
        let n = halves.len();
        (0..n).map(|i| halves[i] | halves[(i + 1) % n] << 16).collect()
    };
    match ty {
        Type::Pred => vec![0, 1],
        Type::F16 => float_specials(soft::F16),
        Type::Bf16 => float_specials(soft::BF16),
        Type::F32 | Type::Tf32 => f32_specials(),
        Type::F64 => float_specials(soft::F64),
        Type::Field => integer_specials(32).into_iter().filter(|&x| x < 256).collect(),
        Type::F16x2 => both(float_specials(soft::F16)),
        Type::Bf16x2 => both(float_specials(soft::BF16)),
        _ => integer_specials(ty.register_bits()),
    }
}

/// Operand tuples for an operation with these operand types.
pub(super) fn cases(types: &[Type], random: &mut Random) -> Vec<Vec<u64>> {
    let pools: Vec<Vec<u64>> = types.iter().map(|&ty| specials(ty)).collect();
    let mut out = Vec::new();
    match types {
        [ty] if ty.register_bits() == 16 => return (0..=0xffff).map(|x| vec![x]).collect(),
        [_] => out.extend(pools[0].iter().map(|&x| vec![x])),
        [_, _] => {
            for &a in &pools[0] {
                out.extend(pools[1].iter().map(|&b| vec![a, b]));
            }
        }
        _ => {
            for _ in 0..4096 {
                out.push(pools.iter().map(|pool| random.pick(pool)).collect());
            }
        }
    }
    for _ in 0..4096 {
        out.push(types.iter().map(|&ty| random.value(ty)).collect());
    }
    for _ in 0..1024 {
        // A special operand among random ones.
        let special = random.below(types.len() as u64) as usize;
        let mut operands: Vec<u64> = types.iter().map(|&ty| random.value(ty)).collect();
        operands[special] = random.pick(&pools[special]);
        out.push(operands);
    }
    for _ in 0..1024 {
        // Operands that are equal, opposite or neighbours.
        let mut operands: Vec<u64> = types.iter().map(|&ty| random.value(ty)).collect();
        let first = operands[0];
        for (x, &ty) in operands.iter_mut().zip(types).skip(1) {
            if ty == types[0] && ty != Type::Pred && random.below(3) != 0 {
                let sign = 1u64 << (ty.register_bits() - 1);
                let mask = sign | (sign - 1);
                *x = random.pick(&[first, first ^ sign, first.wrapping_add(1), first.wrapping_neg()]) & mask;
            }
        }
        out.push(operands);
    }
    if types == [Type::F32; 3] {
        cancelling(random, &mut out);
    }
    out
}

/// For `a·b + c`: an addend that cancels most of the product, where a second rounding would show.
fn cancelling(random: &mut Random, out: &mut Vec<Vec<u64>>) {
    for _ in 0..2048 {
        let (a, b) = (random.float(soft::F32), random.float(soft::F32));
        let product = soft::mul(soft::F32.decode(a), soft::F32.decode(b));
        let near = soft::F32.encode(product, soft::Rounding::Even);
        let c = (near ^ 1 << 31).wrapping_add(random.below(3)).wrapping_sub(1);
        out.push(vec![a, b, c & 0xffff_ffff]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specials_hold_what_matters() {
        let f32s = specials(Type::F32);
        for x in [0.0f32, -0.0, 1.0, -1.0, f32::MAX, f32::MIN, f32::MIN_POSITIVE, f32::INFINITY, 65520.0, 2.5]
        {
            assert!(f32s.contains(&u64::from(x.to_bits())), "{x:e}");
        }
        assert!(f32s.contains(&1) && f32s.contains(&0x7f80_0001), "a denormal and a signalling NaN");
        let ints = specials(Type::S32);
        for x in [0u64, 1, 31, 32, 33, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0x100_0001] {
            assert!(ints.contains(&x), "{x:#x}");
        }
        assert!(specials(Type::U16).iter().all(|&x| x <= 0xffff));
    }

    #[test]
    fn sixteen_bit_operands_are_exhaustive() {
        assert_eq!(cases(&[Type::F16], &mut Random::new(3)).len(), 65536);
    }
}
