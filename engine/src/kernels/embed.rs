//! The embedding rows of the tokens being processed.

use crate::kernel::{
    BF16, Case, Counter, F16, F32, HostTensor, Q4_0, Q4_1, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, QTensor, kernel,
};

fn reference(
    w: &HostTensor,
    tokens: &[u32],
    position: u32,
    x: &mut [f64],
    cols: u32,
    vocab: u32,
    count: u32,
    copies: u32,
) {
    for (t, x) in x.chunks_mut(copies as usize * cols as usize).enumerate().take(count as usize) {
        let token = tokens[position as usize + t];
        for (i, x) in x.iter_mut().enumerate() {
            *x = if token < vocab { f64::from(w.row(token as usize)[i % cols as usize]) } else { f64::NAN };
        }
    }
}

fn cases() -> Vec<Case> {
    rows([32, 96, 576, 1056, 4128])
}

/// For formats of blocks of 256.
fn super_block_cases() -> Vec<Case> {
    rows([256, 768, 512, 1280, 4352])
}

/// Rows of these lengths: of one block or three, of blocks of threads that are full and not.
fn rows([one, three, five, more, most]: [u32; 5]) -> Vec<Case> {
    let case = |vocab: u32, cols: u32, position: u32, count: u32, copies: u32| {
        Case::new(format!("[{vocab}, {cols}], {count} from {position}, {copies} times"))
            .u32("vocab", vocab)
            .u32("cols", cols)
            .counter("position", position)
            .u32("count", count)
            .u32("copies", copies)
    };
    // 9 is past the vocabulary.
    let tokens = [6u32, 0, 3, 1, 5, 9, 2];
    let small = [
        case(7, one, 0, 1, 1),
        case(7, three, 1, 1, 1),
        case(7, five, 2, 1, 1),
        case(7, more, 4, 1, 1),
        case(7, most, 3, 1, 1),
        case(7, 4 * one, 5, 1, 4),
        case(7, three, 0, 2, 4),
        case(7, more, 2, 5, 1),
        case(7, one, 1, 5, 3),
    ];
    let mut cases: Vec<Case> = small.into_iter().map(|case| case.values("tokens", &tokens)).collect();
    cases.push(case(4096, 4096, 0, 1, 1).values("tokens", &[4000u32]).representative());
    cases.push(case(4096, 4096, 0, 64, 4).values("tokens", &[4000u32; 64]).representative());
    cases
}

macro_rules! declare {
    ($($name:ident $entry:tt $format:ident $cases:ident;)*) => {$(
        /// `x[t, c] = w[tokens[*position + t]]` for `count` tokens t and `copies` copies c, widened to float32 exactly; an id ≥ `vocab`
        /// gives NaN. A thread eight columns.
        #[kernel(module = "embed", entry = $entry, reference = reference, cases = $cases, tol = 0)]
        #[launch(grid = (cols.div_ceil(1024), count, 1), block = (128, 1, 1), dependent)]
        #[cost(read = count * (w.row_bytes() + 4) + 4, write = x.bytes(), flops = count * copies * cols)]
        pub fn $name(
            #[shape(vocab, cols)] w: &QTensor<$format>,
            #[len(count)] tokens: &[u32],
            position: &Counter,
            #[out]
            #[len(count * copies * cols)]
            x: &mut [f32],
            cols: u32,
            vocab: u32,
            count: u32,
            copies: u32,
        );
    )*};
}

declare! {
    embed_f32 "embed_f32" F32 cases;
    embed_f16 "embed_f16" F16 cases;
    embed_bf16 "embed_bf16" BF16 cases;
    embed_q8_0 "embed_q8_0" Q8_0 cases;
    embed_q4_0 "embed_q4_0" Q4_0 cases;
    embed_q4_1 "embed_q4_1" Q4_1 cases;
    embed_q5_0 "embed_q5_0" Q5_0 cases;
    embed_q4_k "embed_q4_k" Q4_K super_block_cases;
    embed_q5_k "embed_q5_k" Q5_K super_block_cases;
    embed_q6_k "embed_q6_k" Q6_K super_block_cases;
}
