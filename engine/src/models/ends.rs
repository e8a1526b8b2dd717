//! The launches at both ends of a walk: a chunk's embedding rows, and the likeliest next token.

use crate::cache::Cache;
use crate::device::Buffer;
use crate::kernel::{
    BF16, F16, F32, Launch, LaunchError, Q4_0, Q4_1, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, RawTensor, TensorFormat,
};
use crate::kernels::{embed, sample};
use crate::plan::{Arena, PlanBuilder, PlanError};

/// Appends the likeliest token's choice from `logits`, `[vocab]`, and the step to it.
pub(super) fn push_argmax(
    b: &mut PlanBuilder<'_>,
    arena: &Arena,
    cache: &Cache,
    logits: &Buffer<f32>,
    vocab: u32,
) -> Result<(), PlanError> {
    let parts = sample::argmax_parts(vocab);
    let value = arena.take(parts as usize, "argmax values")?;
    let best = arena.take(parts as usize, "argmax indices")?;
    b.push("argmax", sample::argmax_partial(logits, &value, &best, vocab))?;
    b.push("next token", sample::argmax_advance(&value, &best, cache.tokens(), cache.position(), parts))?;
    Ok(())
}

/// The embedding rows of the chunk's tokens, each `copies` times.
pub(super) fn embed_rows(
    weight: &RawTensor,
    cache: &Cache,
    x: &Buffer<f32>,
    copies: u32,
    count: u32,
) -> Result<Launch, LaunchError> {
    let (vocab, cols) = (weight.rows() as u32, weight.cols() as u32);
    let (tokens, position) = (cache.tokens(), cache.position());
    macro_rules! call {
        ($($format:ident => $kernel:ident),*) => {
            match weight.format() {
                $(TensorFormat::$format => match weight.typed::<$format>() {
                    Some(w) => embed::$kernel(&w, tokens, position, x, cols, vocab, count, copies),
                    None => unreachable!("the format has just been matched"),
                },)*
                format => Err(LaunchError {
                    kernel: "embed",
                    argument: "w",
                    reason: format!("no kernel for embeddings of {format}"),
                }),
            }
        };
    }
    call!(F32 => embed_f32, F16 => embed_f16, BF16 => embed_bf16, Q8_0 => embed_q8_0, Q4_0 => embed_q4_0,
        Q4_1 => embed_q4_1, Q5_0 => embed_q5_0, Q4_K => embed_q4_k, Q5_K => embed_q5_k, Q6_K => embed_q6_k)
}
