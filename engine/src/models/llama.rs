//! The llama family from GGUF: which tensor goes where.

use super::attention::Attention;
use super::ffn::DenseFfn;
use super::hybrid::{Ffn, HybridModel, Layer, Mixer};
use super::load::{LoadError, LoadProgress, Loader};
use crate::config::{ModelConfig, check_tensors};
use crate::device::Buffer;
use crate::engine::Engine;
use crate::format::TensorSource;

impl HybridModel {
    /// Loads a llama-family model from a GGUF source onto the engine's device, weights kept in their own formats.
    ///
    /// # Errors
    /// A configuration that is incomplete or inconsistent, a missing or misshapen tensor, a type that no kernel reads,
    /// out of memory: each by name.
    pub fn load(
        engine: &Engine,
        source: &dyn TensorSource,
        progress: LoadProgress<'_>,
    ) -> Result<HybridModel, LoadError> {
        let metadata = source
            .metadata()
            .ok_or_else(|| LoadError::NoConfig { file: source.path().display().to_string() })?;
        let config = ModelConfig::from_gguf(source, metadata)?;
        // Every tensor is looked for before the first one is uploaded.
        check_tensors(source, &config)?;
        let (hidden, ff, heads, kv_heads, head_dim) =
            (config.hidden, config.ff, config.heads, config.kv_heads, config.head_dim);
        let mut loader = Loader::new(engine, source, progress);
        let embedding = loader.matrix("token_embd.weight", config.vocab, hidden)?;
        let mut layers = Vec::new();
        for index in 0..config.layers {
            let name = |part: &str| format!("blk.{index}.{part}.weight");
            let (q, kv) = (heads * head_dim, kv_heads * head_dim);
            let attention = Attention {
                norm: loader.vector(&name("attn_norm"), hidden)?,
                qkv: loader
                    .stacked(&[(name("attn_q"), q), (name("attn_k"), kv), (name("attn_v"), kv)], hidden)?,
                output: loader.matrix(&name("attn_output"), hidden, q)?,
            };
            let ffn = DenseFfn {
                norm: loader.vector(&name("ffn_norm"), hidden)?,
                eps: config.eps,
                gate_up: loader.stacked(&[(name("ffn_gate"), ff), (name("ffn_up"), ff)], hidden)?,
                down: loader.matrix(&name("ffn_down"), hidden, ff)?,
            };
            layers.push(Layer { mixer: Mixer::Attention(attention), ffn: Ffn::Dense(ffn) });
        }
        let norm = loader.vector("output_norm.weight", hidden)?;
        let head = if config.tied_head {
            embedding.clone()
        } else {
            loader.matrix("output.weight", config.vocab, hidden)?
        };
        let inv_freq =
            Buffer::from_slice(engine.device(), &config.rope.inv_freq, "inverse rotary frequencies")
                .map_err(|source| LoadError::Device {
                    tensor: "inverse rotary frequencies".to_owned(),
                    source,
                })?;
        Ok(HybridModel { config, embedding, layers, norm, head, inv_freq })
    }
}
