//! The kernels' declarations by family, each beside its CPU reference and its cases.
//!
//! References compute in float64 from the same inputs; a declaration's `tol` bounds the difference, relative to the
//! largest value of the output. Where a result is defined to the bit (copies, integers, float32 steps that the program
//! names), it is 0.
//!
//! A launch takes `tokens` consecutive tokens, of which token t is at `*position + t`. Each token's row is reduced as it would be
//! alone, so any chunking of a prompt gives the same bits. Rows of activations may be a stride apart, so that a part of a stacked
//! projection's output is read in place (`x_stride` elements, a multiple of 4); outputs are contiguous.

pub mod activation;
pub mod attention;
pub mod ceiling;
pub mod embed;
pub mod experts;
pub mod fill;
pub mod hyper;
pub mod indexer;
pub mod kda;
pub mod latent;
pub mod math;
pub mod matvec;
pub mod norm;
pub mod pipeline;
pub mod router;
pub mod sample;
pub mod sampling;

/// The `tokens` rows of `cols` elements in `x`, `stride` apart.
fn token_rows<T>(x: &[T], cols: u32, tokens: u32, stride: u32) -> impl Iterator<Item = &[T]> {
    (0..tokens as usize).map(move |t| &x[t * stride as usize..][..cols as usize])
}
