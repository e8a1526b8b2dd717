//! The embedding row of the token being processed.

use crate::kernel::{BF16, Case, Counter, F16, F32, HostTensor, Q4_0, Q4_1, Q8_0, QTensor, kernel};

fn reference(w: &HostTensor, tokens: &[u32], position: u32, x: &mut [f64], cols: u32, vocab: u32) {
    let token = tokens[position as usize];
    for (c, x) in x.iter_mut().enumerate().take(cols as usize) {
        *x = if token < vocab { f64::from(w.row(token as usize)[c]) } else { f64::NAN };
    }
}

fn cases() -> Vec<Case> {
    let tokens = [6u32, 0, 3, 1, 5];
    let mut cases: Vec<Case> = [(7, 32, 0), (7, 96, 1), (7, 576, 2), (7, 1056, 4), (7, 4128, 3)]
        .iter()
        .map(|&(vocab, cols, position)| {
            Case::new(format!("[{vocab}, {cols}], position {position}"))
                .u32("vocab", vocab)
                .u32("cols", cols)
                .counter("position", position)
                .values("tokens", &tokens)
        })
        .collect();
    cases.push(
        Case::new("[4096, 4096]")
            .u32("vocab", 4096)
            .u32("cols", 4096)
            .counter("position", 0)
            .values("tokens", &[4000u32])
            .representative(),
    );
    cases
}

macro_rules! declare {
    ($($name:ident $entry:tt $format:ident;)*) => {$(
        /// `x = w[tokens[*position]]`, widened to float32 exactly; an id ≥ `vocab` gives NaN. A thread eight columns.
        #[kernel(module = "embed", entry = $entry, reference = reference, cases = cases, tol = 0)]
        #[launch(grid = (cols.div_ceil(1024), 1, 1), block = (128, 1, 1))]
        #[cost(read = w.row_bytes() + 8, write = x.bytes(), flops = cols)]
        pub fn $name(
            #[shape(vocab, cols)] w: &QTensor<$format>,
            #[len(1)] tokens: &[u32],
            position: &Counter,
            #[out]
            #[len(cols)]
            x: &mut [f32],
            cols: u32,
            vocab: u32,
        );
    )*};
}

declare! {
    embed_f32 "embed_f32" F32;
    embed_f16 "embed_f16" F16;
    embed_bf16 "embed_bf16" BF16;
    embed_q8_0 "embed_q8_0" Q8_0;
    embed_q4_0 "embed_q4_0" Q4_0;
    embed_q4_1 "embed_q4_1" Q4_1;
}
