//! The llama family from GGUF: which tensor goes where.

use super::attention::Attention;
use super::ffn::{DenseFfn, SwiGlu};
use super::hybrid::{Ffn, Flow, Head, HybridModel, Layer, Mixer, ModelSummary, StageRange};
use super::load::{LoadError, LoadTimings, Loader};
use crate::config::{ModelConfig, check_tensors};
use crate::device::Buffer;

impl HybridModel {
    /// Loads a llama-family model onto the engine's device, weights kept in their own formats.
    ///
    /// # Errors
    /// A missing or misshapen tensor, a type that no kernel reads, out of memory: each by name.
    pub(super) fn load_llama(
        loader: &mut Loader<'_>,
        config: ModelConfig,
        range: StageRange,
    ) -> Result<HybridModel, LoadError> {
        // Every tensor is looked for before the first one is uploaded.
        check_tensors(loader.source(), &config)?;
        let (hidden, ff, heads, kv_heads, head_dim) =
            (config.hidden, config.ff, config.heads, config.kv_heads, config.head_dim);
        let whole_embedding = range.is_first() || (range.is_last() && config.tied_head);
        let embedding = match whole_embedding {
            true => Some(loader.matrix("token_embd.weight", config.vocab, hidden)?),
            false => None,
        };
        let mut layers = Vec::new();
        for index in range.layers() {
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
                net: SwiGlu {
                    gate_up: loader.stacked(&[(name("ffn_gate"), ff), (name("ffn_up"), ff)], hidden)?,
                    down: loader.matrix(&name("ffn_down"), hidden, ff)?,
                    limit: f32::INFINITY,
                },
            };
            layers.push(Layer {
                mixer: Mixer::Attention(attention),
                ffn: Ffn::Dense(Box::new(ffn)),
                hyper: None,
            });
        }
        let head = if range.is_last() {
            let project = match &embedding {
                Some(embedding) if config.tied_head => embedding.clone(),
                _ => loader.matrix("output.weight", config.vocab, hidden)?,
            };
            let norm = loader.vector("output_norm.weight", hidden)?;
            Some(Head { norm, project, shared: config.tied_head && range.is_first() })
        } else {
            None
        };
        let embedding = embedding.filter(|_| range.is_first());
        let inv_freq =
            Buffer::from_slice(loader.engine().device(), &config.rope.inv_freq, "inverse rotary frequencies")
                .map_err(|source| LoadError::Device {
                    tensor: "inverse rotary frequencies".to_owned(),
                    source,
                })?;
        let summary = ModelSummary {
            architecture: config.architecture.name().to_owned(),
            vocab: config.vocab,
            hidden,
            streams: 1,
            context: config.context,
            eps: config.eps,
            tied_head: config.tied_head,
        };
        let flow = Flow::Residual { config: Box::new(config), inv_freq };
        Ok(HybridModel { summary, flow, range, embedding, layers, head, loading: LoadTimings::default() })
    }
}
