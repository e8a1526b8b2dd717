//! Grouped-query attention with rotary embedding over a key/value cache.

use super::linear::{LinearInput, Stacked, by_format, matvec, share, wants_i16};
use crate::cache::{KvBuffer, LayerCache};
use crate::config::{ModelConfig, RopePairing};
use crate::device::Buffer;
use crate::kernel::{
    BF16, Counter, F16, F32, Launch, LaunchError, Q4_0, Q4_1, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, RawTensor,
    TensorFormat,
};
use crate::kernels::matvec::Share;
use crate::kernels::{attention, matvec as kernels};
use crate::plan::{Arena, PlanBuilder, PlanError};

/// Keys a chunk of split attention.
pub const CHUNK: u32 = 64;
/// The most chunks that attention folds itself, in the last block to arrive; more are folded by a launch that has a block for every head.
const FOLDED_CHUNKS: u32 = 16;

/// The weights of one attention layer.
#[derive(Debug)]
pub struct Attention {
    /// RMSNorm before the projections, `[hidden]`.
    pub norm: Buffer<f32>,
    /// q, k and v, stacked by rows: `[(heads + 2·kv_heads)·head_dim, hidden]`.
    pub qkv: Stacked,
    /// `[hidden, heads·head_dim]`.
    pub output: RawTensor,
}

/// What attention needs beside its weights.
#[derive(Debug, Clone, Copy)]
pub struct AttentionContext<'a> {
    /// The model's configuration.
    pub config: &'a ModelConfig,
    /// Inverse rotary frequencies, `[head_dim / 2]`.
    pub inv_freq: &'a Buffer<f32>,
    /// The position being processed.
    pub position: &'a Counter,
    /// Chunks that the launch is sized for.
    pub n_splits: u32,
    /// Chunks that the partial results have room for.
    pub max_chunks: u32,
    /// Counts of the blocks of attention that have arrived, one a kv head, at zero.
    pub arrived: &'a Buffer<u32>,
    /// Tokens of the walk.
    pub tokens: u32,
}

impl Attention {
    /// Appends `out = x + attention(norm(x))`.
    pub fn push(
        &self,
        b: &mut PlanBuilder<'_>,
        arena: &Arena,
        cx: &AttentionContext<'_>,
        cache: &LayerCache,
        x: &Buffer<f32>,
        out: &Buffer<f32>,
    ) -> Result<(), PlanError> {
        let c = cx.config;
        let LayerCache::Kv { k, v } = cache else {
            let reason = format!("the cache holds {} for this layer: make it for this model", cache.kind());
            let refused: Result<Launch, _> =
                Err(LaunchError { kernel: "qkv_rope", argument: "k_cache", reason });
            b.push("q, k, v, rope, cache", refused)?;
            return Ok(());
        };
        let t = cx.tokens as usize;
        let (heads, head_dim) = (c.heads, c.head_dim);
        let q_len = t * heads as usize * head_dim as usize;
        let q = arena.take(q_len, "queries")?;
        self.push_projections(b, cx, x, &q, (k, v))?;
        let partial = arena.take(q_len * cx.max_chunks as usize, "attention partials")?;
        let max_sum = arena.take(2 * t * heads as usize * cx.max_chunks as usize, "attention max and sum")?;
        let y = arena.take(q_len, "attention output")?;
        let scale = 1.0 / (head_dim as f32).sqrt();
        let folds = cx.tokens == 1 && cx.n_splits <= FOLDED_CHUNKS;
        let split = SplitArgs { q: &q, partial: &partial, max_sum: &max_sum, out: &y, scale, folds };
        b.push("attention", attn_split(cx, k, v, split))?;
        drop(q);
        if !folds {
            let (chunks, tokens) = (cx.max_chunks, cx.tokens);
            let launch =
                attention::attn_fold(&partial, &max_sum, cx.position, &y, heads, head_dim, chunks, tokens);
            b.push("attention fold", launch)?;
        }
        drop((partial, max_sum));
        let input = LinearInput::plain(y, cx.tokens);
        let launch = matvec(b, &self.output, &input, Some(x), out);
        b.push("output", launch)?;
        Ok(())
    }

    /// Appends the norm, the projections, the rotary embedding and the cache write: one launch, or one for each format of the stack.
    fn push_projections(
        &self,
        b: &mut PlanBuilder<'_>,
        cx: &AttentionContext<'_>,
        x: &Buffer<f32>,
        q: &Buffer<f32>,
        (k, v): (&KvBuffer, &KvBuffer),
    ) -> Result<(), PlanError> {
        let c = cx.config;
        let ((k, format), (v, other)) = (k.bytes_as_f32()?, v.bytes_as_f32()?);
        let mut left = [c.heads, c.kv_heads, c.kv_heads];
        for weight in self.qkv.parts() {
            // The rows of a part are heads of the three projections, in order.
            let mut heads = weight.rows() as u32 / c.head_dim;
            let [q_heads, k_heads, v_heads] = left.each_mut().map(|left| {
                let taken = heads.min(*left);
                *left -= taken;
                heads -= taken;
                taken
            });
            let launch = if format == other {
                qkv_rope(b, weight, cx, x, self, q, (&k, &v, format), [q_heads, k_heads, v_heads])
            } else {
                Err(mixed_kv())
            };
            b.push("q, k, v, rope, cache", launch)?;
        }
        Ok(())
    }

    /// Bytes of the weights.
    pub fn bytes(&self) -> u64 {
        self.norm.bytes() as u64 + self.qkv.bytes() + self.output.bytes()
    }
}

fn mixed_kv() -> LaunchError {
    let reason = "keys and values have different element types".to_owned();
    LaunchError { kernel: "attention", argument: "v_cache", reason }
}

#[allow(clippy::too_many_arguments)] // the layer's surroundings, each of another kind
fn qkv_rope(
    b: &PlanBuilder<'_>,
    weight: &RawTensor,
    cx: &AttentionContext<'_>,
    x: &Buffer<f32>,
    layer: &Attention,
    q: &Buffer<f32>,
    (k, v, format): (&Buffer<f32>, &Buffer<f32>, u32),
    [q_heads, k_heads, v_heads]: [u32; 3],
) -> Result<Launch, LaunchError> {
    let c = cx.config;
    let interleaved = u32::from(c.rope.pairing == RopePairing::Interleaved);
    let (cols, tokens, norm, eps) = (weight.cols() as u32, cx.tokens, Some(&layer.norm), c.eps);
    let (position, inv_freq, cache_heads, dim) = (cx.position, cx.inv_freq, c.kv_heads, c.head_dim);
    let Share { blocks, threads, room } =
        share(b, weight, (q_heads + k_heads + v_heads) * dim / 2, (tokens, 1));
    if wants_i16(b, weight) {
        return by_format!(weight, (x, norm, eps, position, inv_freq, q, k, v, format, q_heads, k_heads, v_heads, cache_heads, dim,
            interleaved, cols, tokens, cols, blocks, threads, room), Q8_0 => kernels::qkv_rope_i16_q8_0,
            Q4_0 => kernels::qkv_rope_i16_q4_0, Q4_1 => kernels::qkv_rope_i16_q4_1, Q5_0 => kernels::qkv_rope_i16_q5_0,
            Q4_K => kernels::qkv_rope_i16_q4_k, Q5_K => kernels::qkv_rope_i16_q5_k, Q6_K => kernels::qkv_rope_i16_q6_k);
    }
    by_format!(weight, (x, norm, eps, position, inv_freq, q, k, v, format, q_heads, k_heads, v_heads, cache_heads, dim, interleaved,
        cols, tokens, cols, blocks, threads, room), F32 => kernels::qkv_rope_f32, F16 => kernels::qkv_rope_f16,
        BF16 => kernels::qkv_rope_bf16, Q8_0 => kernels::qkv_rope_q8_0, Q4_0 => kernels::qkv_rope_q4_0,
        Q4_1 => kernels::qkv_rope_q4_1, Q5_0 => kernels::qkv_rope_q5_0, Q4_K => kernels::qkv_rope_q4_k, Q5_K => kernels::qkv_rope_q5_k,
        Q6_K => kernels::qkv_rope_q6_k)
}

struct SplitArgs<'a> {
    q: &'a Buffer<f32>,
    partial: &'a Buffer<f32>,
    max_sum: &'a Buffer<f32>,
    out: &'a Buffer<f32>,
    scale: f32,
    folds: bool,
}

fn attn_split(
    cx: &AttentionContext<'_>,
    k: &KvBuffer,
    v: &KvBuffer,
    a: SplitArgs<'_>,
) -> Result<Launch, LaunchError> {
    let (heads, kv_heads) = (cx.config.heads, cx.config.kv_heads);
    macro_rules! call {
        ($kernel:ident, $k:expr, $v:expr) => {
            attention::$kernel(
                a.q,
                $k,
                $v,
                cx.position,
                a.partial,
                a.max_sum,
                cx.arrived,
                a.out,
                heads,
                kv_heads,
                a.scale,
                cx.max_chunks,
                cx.n_splits,
                cx.tokens,
                heads * cx.config.head_dim,
                u32::from(a.folds),
            )
        };
    }
    match (k, v, cx.config.head_dim) {
        (KvBuffer::F32(k), KvBuffer::F32(v), 64) => call!(attn_split_f32_64, k, v),
        (KvBuffer::F32(k), KvBuffer::F32(v), 128) => call!(attn_split_f32_128, k, v),
        (KvBuffer::F32(k), KvBuffer::F32(v), 256) => call!(attn_split_f32_256, k, v),
        (KvBuffer::F16(k), KvBuffer::F16(v), 64) => call!(attn_split_f16_64, k, v),
        (KvBuffer::F16(k), KvBuffer::F16(v), 128) => call!(attn_split_f16_128, k, v),
        (KvBuffer::F16(k), KvBuffer::F16(v), 256) => call!(attn_split_f16_256, k, v),
        (KvBuffer::F8(k), KvBuffer::F8(v), 64) => call!(attn_split_fp8_64, k, v),
        (KvBuffer::F8(k), KvBuffer::F8(v), 128) => call!(attn_split_fp8_128, k, v),
        (KvBuffer::F8(k), KvBuffer::F8(v), 256) => call!(attn_split_fp8_256, k, v),
        (_, _, 64 | 128 | 256) => Err(mixed_kv()),
        (_, _, dim) => Err(LaunchError {
            kernel: "attn_split",
            argument: "head_dim",
            reason: format!("heads of {dim}: kernels exist for 64, 128 and 256"),
        }),
    }
}
