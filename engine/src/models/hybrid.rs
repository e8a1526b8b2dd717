//! A model: layers of mixers and feed-forward networks of several kinds, and the walk over them.

use super::attention::{Attention, AttentionContext, CHUNK};
use super::ffn::DenseFfn;
use super::linear::{LinearInput, matvec};
use crate::cache::Cache;
use crate::config::ModelConfig;
use crate::decode::Sampler;
use crate::device::Buffer;
use crate::engine::Engine;
use crate::kernel::{BF16, F16, F32, Launch, LaunchError, Q4_0, Q4_1, Q8_0, RawTensor, TensorFormat};
use crate::kernels::{embed, sample};
use crate::plan::{Arena, Plan, PlanBuilder, PlanError};

/// What mixes tokens in a layer.
#[derive(Debug)]
pub enum Mixer {
    /// Grouped-query attention.
    Attention(Attention),
}

/// What follows the mixer.
#[derive(Debug)]
pub enum Ffn {
    /// A dense SwiGLU network.
    Dense(DenseFfn),
}

/// One layer.
#[derive(Debug)]
pub struct Layer {
    /// The mixer with its norm.
    pub mixer: Mixer,
    /// The network with its norm.
    pub ffn: Ffn,
}

/// A model's weights on a device.
#[derive(Debug)]
pub struct HybridModel {
    pub(super) config: ModelConfig,
    /// `[vocab, hidden]`.
    pub(super) embedding: RawTensor,
    pub(super) layers: Vec<Layer>,
    /// `[hidden]`.
    pub(super) norm: Buffer<f32>,
    /// `[vocab, hidden]`; the embedding again where the model ties them.
    pub(super) head: RawTensor,
    /// `[head_dim / 2]`.
    pub(super) inv_freq: Buffer<f32>,
}

/// The plans of one walk, for one bucket. `body` processes the token at the position; then either `head` yields its
/// logits and the next token, or `skip` moves on without them.
#[derive(Debug, Clone)]
pub struct Walk {
    /// Embedding and layers.
    pub body: Plan,
    /// Norm, head, argmax or a draw; writes the next token and advances the position.
    pub head: Plan,
    /// Advances the position.
    pub skip: Plan,
    /// Chunks of keys that attention is sized for.
    pub n_splits: u32,
    /// The attention kernel, which with `n_splits` names the bucket.
    pub attention_kernel: &'static str,
    /// Whether the head draws the next token; else it takes the likeliest.
    pub sampled: bool,
}

impl HybridModel {
    /// The configuration.
    pub fn config(&self) -> &ModelConfig {
        &self.config
    }

    /// The layers.
    pub fn layers(&self) -> &[Layer] {
        &self.layers
    }

    /// Bytes of all weights on the device (a tied head counts once).
    pub fn bytes(&self) -> u64 {
        let layers: u64 = self
            .layers
            .iter()
            .map(|layer| {
                let (Mixer::Attention(mixer), Ffn::Dense(ffn)) = (&layer.mixer, &layer.ffn);
                mixer.bytes() + ffn.bytes()
            })
            .sum();
        let head = if self.config.tied_head { 0 } else { self.head.bytes() };
        layers + self.embedding.bytes() + head + self.norm.bytes() as u64
    }

    /// The walk of one token, with attention sized for `n_splits` chunks of 64 keys. Scratch comes from `arena`, so plans
    /// that share an arena share it and must run on one stream. `logits` is `[vocab]`. The next token is drawn by `sampler`,
    /// or without one the likeliest.
    ///
    /// # Errors
    /// Shapes that no kernel serves; out of memory.
    pub fn walk(
        &self,
        engine: &Engine,
        arena: &Arena,
        cache: &Cache,
        n_splits: u32,
        logits: &Buffer<f32>,
        sampler: Option<&Sampler>,
    ) -> Result<Walk, PlanError> {
        let c = &self.config;
        let hidden = c.hidden as usize;
        let (x, y) = (arena.take(hidden, "residual")?, arena.take(hidden, "residual")?);
        let mut b = PlanBuilder::new(engine, arena, format!("walk({n_splits} chunks)"));
        b.push("embed", embed_row(&self.embedding, cache, &x))?;
        let max_chunks = cache.capacity().div_ceil(CHUNK);
        let (inv_freq, position) = (&self.inv_freq, cache.position());
        let cx = AttentionContext { config: c, inv_freq, position, n_splits, max_chunks };
        for (index, (layer, slot)) in self.layers.iter().zip(cache.layers()).enumerate() {
            b.layer(Some(index as u32));
            let Mixer::Attention(attention) = &layer.mixer;
            attention.push(&mut b, arena, &cx, slot, &x, &y)?;
            let Ffn::Dense(ffn) = &layer.ffn;
            ffn.push(&mut b, arena, &y, &x)?;
        }
        let body = b.split("head");
        let attention_kernel = body
            .steps()
            .iter()
            .find(|step| step.label.what == "attention")
            .map_or("none", |step| step.launch.decl.name);

        let input = LinearInput::normed(&mut b, arena, "final norm", (&x, &self.norm, c.eps), &[&self.head])?;
        let launch = matvec(&b, &self.head, &input, None, logits);
        b.push("head", launch)?;
        match sampler {
            Some(sampler) => sampler.push(&mut b, arena, cache, logits, c.vocab)?,
            None => push_argmax(&mut b, arena, cache, logits, c.vocab)?,
        }
        let head = b.finish();

        let mut b = PlanBuilder::new(engine, arena, "skip");
        b.push("advance", sample::advance(cache.position(), 1))?;
        Ok(Walk { body, head, skip: b.finish(), n_splits, attention_kernel, sampled: sampler.is_some() })
    }
}

fn push_argmax(
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

fn embed_row(weight: &RawTensor, cache: &Cache, x: &Buffer<f32>) -> Result<Launch, LaunchError> {
    let (vocab, cols) = (weight.rows() as u32, weight.cols() as u32);
    let (tokens, position) = (cache.tokens(), cache.position());
    macro_rules! call {
        ($($format:ident => $kernel:ident),*) => {
            match weight.format() {
                $(TensorFormat::$format => match weight.typed::<$format>() {
                    Some(w) => embed::$kernel(&w, tokens, position, x, cols, vocab, 1, 1),
                    None => unreachable!("the format has just been matched"),
                },)*
                format => {
                    let reason = format!("no kernel reads an embedding of {format}");
                    Err(LaunchError { kernel: "embed", argument: "w", reason })
                }
            }
        };
    }
    call!(F32 => embed_f32, F16 => embed_f16, BF16 => embed_bf16, Q8_0 => embed_q8_0, Q4_0 => embed_q4_0,
        Q4_1 => embed_q4_1)
}
