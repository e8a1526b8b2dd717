//! Grouped-query attention with rotary embedding over a key/value cache.

use super::linear::{LinearInput, Stacked, matvec};
use crate::cache::{KvBuffer, LayerCache};
use crate::config::{ModelConfig, RopePairing};
use crate::device::Buffer;
use crate::kernel::{Counter, Launch, LaunchError, RawTensor};
use crate::kernels::attention;
use crate::plan::{Arena, PlanBuilder, PlanError};

/// Keys a chunk of split attention.
pub const CHUNK: u32 = 64;

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
                Err(LaunchError { kernel: "rope_kv", argument: "k_cache", reason });
            b.push("rope, kv", refused)?;
            return Ok(());
        };
        let t = cx.tokens as usize;
        let (heads, kv_heads, head_dim) = (c.heads, c.kv_heads, c.head_dim);
        let input =
            LinearInput::normed(b, arena, "attention norm", (x, &self.norm, c.eps), &self.qkv.parts())?;
        let qkv = arena.take(t * self.qkv.rows(), "qkv")?;
        self.qkv.matvec(b, "qkv", &input, &qkv)?;
        drop(input);
        b.push("rope, kv", rope_kv(&qkv, cx, k, v))?;
        let q_len = t * heads as usize * head_dim as usize;
        let partial = arena.take(q_len * cx.max_chunks as usize, "attention partials")?;
        let max_sum = arena.take(2 * t * heads as usize * cx.max_chunks as usize, "attention max and sum")?;
        let scale = 1.0 / (head_dim as f32).sqrt();
        let split = SplitArgs { q: &qkv, partial: &partial, max_sum: &max_sum, scale };
        b.push("attention", attn_split(cx, k, v, split, kv_heads))?;
        drop(qkv);
        let y = arena.take(q_len, "attention output")?;
        b.push(
            "attention fold",
            attention::attn_fold(
                &partial,
                &max_sum,
                cx.position,
                &y,
                heads,
                head_dim,
                cx.max_chunks,
                cx.tokens,
            ),
        )?;
        drop((partial, max_sum));
        let input = LinearInput::plain(b, arena, "quantise", y, &[&self.output])?;
        let launch = matvec(b, &self.output, &input, Some(x), out);
        b.push("output", launch)?;
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

fn rope_kv(
    qkv: &Buffer<f32>,
    cx: &AttentionContext<'_>,
    k: &KvBuffer,
    v: &KvBuffer,
) -> Result<Launch, LaunchError> {
    let c = cx.config;
    let (heads, kv_heads, dim, interleaved) =
        (c.heads, c.kv_heads, c.head_dim, u32::from(c.rope.pairing == RopePairing::Interleaved));
    macro_rules! call {
        ($kernel:ident, $k:expr, $v:expr) => {
            attention::$kernel(
                qkv,
                cx.position,
                cx.inv_freq,
                $k,
                $v,
                heads,
                kv_heads,
                dim,
                interleaved,
                cx.tokens,
            )
        };
    }
    match (k, v) {
        (KvBuffer::F32(k), KvBuffer::F32(v)) => call!(rope_kv_f32, k, v),
        (KvBuffer::F16(k), KvBuffer::F16(v)) => call!(rope_kv_f16, k, v),
        (KvBuffer::F8(k), KvBuffer::F8(v)) => call!(rope_kv_fp8, k, v),
        _ => Err(mixed_kv()),
    }
}

struct SplitArgs<'a> {
    q: &'a Buffer<f32>,
    partial: &'a Buffer<f32>,
    max_sum: &'a Buffer<f32>,
    scale: f32,
}

fn attn_split(
    cx: &AttentionContext<'_>,
    k: &KvBuffer,
    v: &KvBuffer,
    a: SplitArgs<'_>,
    kv_heads: u32,
) -> Result<Launch, LaunchError> {
    let heads = cx.config.heads;
    macro_rules! call {
        ($kernel:ident, $k:expr, $v:expr) => {
            attention::$kernel(
                a.q,
                $k,
                $v,
                cx.position,
                a.partial,
                a.max_sum,
                heads,
                kv_heads,
                a.scale,
                cx.max_chunks,
                cx.n_splits,
                cx.tokens,
                (heads + 2 * kv_heads) * cx.config.head_dim,
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
