//! How fast memory can be read.

use crate::kernel::{Case, kernel};

fn reference(words: &[u32], folded: &mut [u32], quads: u32, blocks: u32) {
    folded.fill(0);
    for (quad, words) in words.chunks(4).take(quads as usize).enumerate() {
        folded[quad / 256 % blocks as usize] ^= words.iter().fold(0, |a, b| a ^ b);
    }
}

fn cases() -> Vec<Case> {
    let case = |quads: u32, blocks: u32| {
        Case::new(format!("{quads} quads, {blocks} blocks")).u32("quads", quads).u32("blocks", blocks)
    };
    vec![case(1, 1), case(257, 1), case(5000, 3), case(12_345, 7), case(1 << 26, 1056).representative()]
}

/// `folded[b]` = the exclusive-or of every word that block `b` reads; together the blocks read each word once.
#[kernel(module = "ceiling", entry = "read_only", reference = reference, cases = cases, tol = 0)]
#[launch(grid = (blocks, 1, 1), block = (256, 1, 1))]
#[cost(read = words.bytes(), write = folded.bytes(), flops = 4 * quads)]
pub fn read_only(
    #[len(4 * quads)] words: &[u32],
    #[out]
    #[len(blocks)]
    folded: &mut [u32],
    quads: u32,
    blocks: u32,
);
