//! Bit operations written from the definitions of the PTX ISA.

/// `prmt.b32` in the default mode: each nibble of `selector` picks a byte of `b:a`, or with its top bit set eight
/// copies of that byte's sign.
pub(super) fn prmt(a: u64, b: u64, selector: u64) -> u64 {
    let pool = (b & 0xffff_ffff) << 32 | a & 0xffff_ffff;
    (0..4).fold(0, |out, i| {
        let nibble = selector >> (4 * i) & 0xf;
        let byte = pool >> (8 * (nibble & 7)) & 0xff;
        let byte = if nibble & 8 != 0 { if byte & 0x80 != 0 { 0xff } else { 0 } } else { byte };
        out | byte << (8 * i)
    })
}

/// `prmt.b32.{f4e,b4e,rc8,ecl,ecr,rc16}`: bytes 3 to 0 of the result, by the low bits of the selector.
pub(super) fn prmt_mode(mode: &str, a: u64, b: u64, selector: u64) -> Option<u64> {
    let control = (selector & 3) as usize;
    let table: [[u64; 4]; 4] = match mode {
        "f4e" => [[3, 2, 1, 0], [4, 3, 2, 1], [5, 4, 3, 2], [6, 5, 4, 3]],
        "b4e" => [[5, 6, 7, 0], [6, 7, 0, 1], [7, 0, 1, 2], [0, 1, 2, 3]],
        "rc8" => [[0; 4], [1; 4], [2; 4], [3; 4]],
        "ecl" => [[3, 2, 1, 0], [3, 2, 1, 1], [3, 2, 2, 2], [3, 3, 3, 3]],
        "ecr" => [[0, 0, 0, 0], [1, 1, 1, 0], [2, 2, 1, 0], [3, 2, 1, 0]],
        "rc16" => [[1, 0, 1, 0], [3, 2, 3, 2], [1, 0, 1, 0], [3, 2, 3, 2]],
        _ => return None,
    };
    let picked = table[control].iter().fold(0, |selector, &byte| selector << 4 | byte);
    Some(prmt(a, b, picked))
}

/// `lop3.b32`: bit by bit, the table's bit at the index that the three inputs spell.
pub(super) fn lop3(a: u64, b: u64, c: u64, table: u64) -> u64 {
    (0..32).fold(0, |out, i| {
        let index = (a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1;
        out | (table >> index & 1) << i
    })
}

/// `bfi`: the low `length` bits of `a` over `b` from bit `position`; both are taken modulo 256.
pub(super) fn bfi(a: u64, b: u64, position: u64, length: u64, width: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    (0..length).fold(b, |out, i| match position + i {
        at if at < u64::from(width) => {
            let bit = if i < 64 { a >> i & 1 } else { 0 };
            out & !(1 << at) | bit << at
        }
        _ => out,
    })
}

/// `bfe`: `length` bits of `a` from bit `position`, zero- or sign-extended. What lies past the top counts as zero,
/// or as the sign.
pub(super) fn bfe(a: u64, position: u64, length: u64, width: u32, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let msb = u64::from(width) - 1;
    let sign = if !signed || length == 0 { 0 } else { a >> (position + length - 1).min(msb) & 1 };
    (0..u64::from(width)).fold(0, |out, i| {
        let bit = if i < length && position + i <= msb { a >> (position + i) & 1 } else { sign };
        out | bit << i
    })
}

/// `shf.l` and `shf.r`: 32 bits out of `b:a` shifted.
pub(super) fn shf(left: bool, wrap: bool, a: u64, b: u64, amount: u64) -> u64 {
    let n = if wrap { amount & 31 } else { amount.min(32) };
    let pair = u128::from(b) << 32 | u128::from(a);
    let shifted = if left { (pair << n) >> 32 } else { pair >> n };
    shifted as u64 & 0xffff_ffff
}

/// `bfind`: position of the most significant bit that is no sign; all ones when there is none.
pub(super) fn bfind(a: u64, width: u32, signed: bool, shift_amount: bool) -> u64 {
    let mask = u64::MAX >> (64 - width);
    let negative = signed && a >> (width - 1) & 1 == 1;
    let significant = if negative { !a & mask } else { a & mask };
    match (0..width).rev().find(|i| significant >> i & 1 == 1) {
        Some(at) if shift_amount => u64::from(width - 1 - at),
        Some(at) => at.into(),
        None => 0xffff_ffff,
    }
}

/// The bits of `a` in reverse order.
pub(super) fn brev(a: u64, width: u32) -> u64 {
    (0..width).fold(0, |out, i| out | (a >> i & 1) << (width - 1 - i))
}

/// Leading zeros.
pub(super) fn clz(a: u64, width: u32) -> u64 {
    (0..width).rev().take_while(|i| a >> i & 1 == 0).count() as u64
}

/// Bits that are set.
pub(super) fn popc(a: u64, width: u32) -> u64 {
    (0..width).map(|i| a >> i & 1).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::opcodes::inputs::Random;

    #[test]
    fn examples_by_hand() {
        assert_eq!(prmt(0x3322_1100, 0x7766_5544, 0x7410), 0x7744_1100);
        assert_eq!(prmt(0x0000_8000, 0, 0x0099), 0x0000_ffff);
        assert_eq!(lop3(0xf0f0, 0xff00, 0xaaaa, 0x80), 0xf0f0 & 0xff00 & 0xaaaa);
        assert_eq!(bfi(0xff, 0, 4, 4, 32), 0xf0);
        assert_eq!(bfi(0xff, 0x1234, 31, 8, 32), 0x8000_1234);
        assert_eq!(bfe(0x8000_0000, 24, 8, 32, true), 0xffff_ff80);
        assert_eq!(bfe(0x8000_0000, 28, 16, 32, true), 0xffff_fff8);
        assert_eq!(bfe(0xffff_ffff, 0, 0, 32, true), 0);
        assert_eq!(shf(true, false, 0x8000_0000, 1, 32), 0x8000_0000);
        assert_eq!(shf(true, true, 0x8000_0000, 1, 33), 3);
        assert_eq!(shf(false, false, 0x8000_0000, 1, 40), 1);
        assert_eq!(bfind(0, 32, false, false), 0xffff_ffff);
        assert_eq!(bfind(0xffff_ffff, 32, true, false), 0xffff_ffff);
        assert_eq!(bfind(0x10, 32, false, true), 27);
        assert_eq!(prmt_mode("b4e", 0x3322_1100, 0x7766_5544, 0), Some(0x5566_7700));
    }

    #[test]
    fn counts_agree_with_the_processor() {
        let mut random = Random::new(4);
        for _ in 0..10_000 {
            let x = random.integer(64);
            assert_eq!(brev(x, 64), x.reverse_bits());
            assert_eq!(clz(x, 64), u64::from(x.leading_zeros()));
            assert_eq!(popc(x, 64), u64::from(x.count_ones()));
            assert_eq!(clz(x & 0xffff_ffff, 32), u64::from((x as u32).leading_zeros()));
            let (a, b, c) = (random.bits(), random.bits(), random.bits());
            assert_eq!(lop3(a, b, c, 0x96), (a ^ b ^ c) & 0xffff_ffff);
            assert_eq!(lop3(a, b, c, 0xe8), (a & b | a & c | b & c) & 0xffff_ffff);
        }
    }
}
