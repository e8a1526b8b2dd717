//! What the code that `#[kernel]` generates calls besides the public types.

pub use linkme;

/// `a + b`, saturating.
pub const fn saturating_add(a: u64, b: u64) -> u64 {
    a.saturating_add(b)
}

/// `a − b`, not below zero.
pub const fn saturating_sub(a: u64, b: u64) -> u64 {
    a.saturating_sub(b)
}

/// `a · b`, saturating.
pub const fn saturating_mul(a: u64, b: u64) -> u64 {
    a.saturating_mul(b)
}

/// `⌊a / b⌋`, and 0 for `b` = 0.
pub const fn div(a: u64, b: u64) -> u64 {
    match a.checked_div(b) {
        Some(quotient) => quotient,
        None => 0,
    }
}

/// `a mod b`, and 0 for `b` = 0.
pub const fn rem(a: u64, b: u64) -> u64 {
    match a.checked_rem(b) {
        Some(remainder) => remainder,
        None => 0,
    }
}

/// `⌈a / b⌉`, and 0 for `b` = 0.
pub const fn div_ceil(a: u64, b: u64) -> u64 {
    if b == 0 { 0 } else { a.div_ceil(b) }
}

/// The least multiple of `b` that is not below `a`, saturating, and 0 for `b` = 0.
pub const fn next_multiple_of(a: u64, b: u64) -> u64 {
    saturating_mul(div_ceil(a, b), b)
}

/// Whether a device can launch such a block.
pub const fn block_fits(block: [u64; 3]) -> bool {
    let [x, y, z] = block;
    let within = x > 0 && y > 0 && z > 0 && x <= 1024 && y <= 1024 && z <= 64;
    within && x * y * z <= 1024
}

/// A block that is the same for every launch, and fits.
pub const fn constant_block(block: [u64; 3]) -> [u32; 3] {
    [block[0] as u32, block[1] as u32, block[2] as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_arguments_panic() {
        assert_eq!(saturating_add(u64::MAX, 1), u64::MAX);
        assert_eq!(saturating_sub(1, 2), 0);
        assert_eq!(saturating_mul(u64::MAX, 2), u64::MAX);
        assert_eq!((div(7, 2), div(7, 0), rem(7, 4), rem(7, 0)), (3, 0, 3, 0));
        assert_eq!((div_ceil(7, 2), div_ceil(7, 0), div_ceil(u64::MAX, 1)), (4, 0, u64::MAX));
        assert_eq!(
            (next_multiple_of(7, 4), next_multiple_of(8, 4), next_multiple_of(u64::MAX, 2)),
            (8, 8, u64::MAX)
        );
    }

    #[test]
    fn a_block_of_1024_threads_is_the_largest() {
        assert!(block_fits([32, 32, 1]));
        assert!(!block_fits([32, 33, 1]));
        assert!(!block_fits([1, 1, 65]));
        assert!(!block_fits([32, 0, 1]));
        assert!(!block_fits([u64::MAX, 2, 2]));
    }
}
