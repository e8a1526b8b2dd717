//! GLM-5.3-Flash (`glm5_next`): what `config.json` says of the model, checked before anything is built on it.
//!
//! Layers mix tokens by Kimi Delta Attention or by latent attention over positions that an indexer selects, are followed by
//! a dense or a routed feed-forward network, and are joined by several residual streams (hyper-connections).

mod fields;
mod parse;
mod tensors;

pub use tensors::{Glm5Tensor, Skipped, TensorKind, check_tensors, tensors};

/// Prefix of all tensors of the language model but the head.
pub const PREFIX: &str = "model.language_model.";
/// The embedding, `[vocab, hidden]`.
pub const EMBEDDING: &str = "model.language_model.embed_tokens.weight";
/// The norm before the head, `[hidden]`.
pub const FINAL_NORM: &str = "model.language_model.norm.weight";
/// The head, `[vocab, hidden]`; absent where the embedding serves.
pub const HEAD: &str = "lm_head.weight";

/// What mixes tokens in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MixerKind {
    /// Kimi Delta Attention: a recurrent state a head.
    Kda,
    /// Latent attention.
    Mla {
        /// Where the selected positions come from.
        indexer: IndexerKind,
    },
}

/// Where a latent-attention layer takes its selection of positions from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexerKind {
    /// Its own indexer.
    Full,
    /// The nearest layer before it that has one.
    Shared,
}

/// What follows the mixer in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FfnKind {
    /// One SwiGLU network.
    Dense,
    /// Routed experts, and shared ones that serve every token.
    Routed,
}

/// The kinds of a layer's two blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LayerKind {
    /// The mixer.
    pub mixer: MixerKind,
    /// The feed-forward network.
    pub ffn: FfnKind,
}

/// Sizes and constants of a `glm5_next` model.
#[derive(Debug, Clone, PartialEq)]
pub struct Glm5Config {
    /// Number of token ids.
    pub vocab: u32,
    /// Width of a residual stream.
    pub hidden: u32,
    /// The layers, first to last.
    pub layers: Vec<LayerKind>,
    /// Width of a dense network between its projections.
    pub intermediate: u32,
    /// Width of a routed expert between its projections.
    pub moe_intermediate: u32,
    /// Routed experts of a layer.
    pub experts: u32,
    /// Experts that a token is routed to.
    pub experts_per_token: u32,
    /// Shared experts: one network of this many times [`moe_intermediate`](Self::moe_intermediate).
    pub shared_experts: u32,
    /// Factor on the normalised routing weights.
    pub routed_scaling: f32,
    /// Heads of a delta-attention layer.
    pub kda_heads: u32,
    /// Width of such a head: of its keys and of its values.
    pub kda_head_dim: u32,
    /// Taps of the depthwise convolution over time.
    pub conv_kernel: u32,
    /// The decay's bound: `g = bound · σ(exp(A_log) · r)`; without one `g = −exp(A_log) · softplus(r)`.
    pub gate_lower_bound: Option<f32>,
    /// Heads of a latent-attention layer.
    pub heads: u32,
    /// Rank of the query's latent.
    pub q_lora: u32,
    /// Rank of the latent of keys and values, which is what the cache holds.
    pub kv_lora: u32,
    /// Width of a head's query and key.
    pub nope: u32,
    /// Width of a head's value.
    pub v_head: u32,
    /// Heads of the indexer.
    pub index_heads: u32,
    /// Width of an indexer head.
    pub index_dim: u32,
    /// Positions that an indexer selects, a multiple of [`index_kpool`](Self::index_kpool).
    pub index_topk: u32,
    /// Positions that are pooled into one indexer key.
    pub index_kpool: u32,
    /// Residual streams.
    pub hc_mult: u32,
    /// Rounds by which the streams' mixing matrix is made doubly stochastic.
    pub hc_iters: u32,
    /// Added to the streams' weights, and to sums before they divide.
    pub hc_eps: f32,
    /// Added to the mean square in RMSNorm.
    pub eps: f32,
    /// The clamp of gate and up projections.
    pub swiglu_limit: Option<f32>,
    /// Whether the head is the embedding.
    pub tied_head: bool,
    /// Longest context that the model was made for, in tokens.
    pub context: u32,
    /// The tokens that end a text or a turn.
    pub eos: Vec<u32>,
}

impl Glm5Config {
    /// Prefix of the tensors of layer `index`, with a dot at its end.
    pub fn layer_prefix(index: usize) -> String {
        format!("{PREFIX}layers.{index}.")
    }

    /// Width of all heads of a delta-attention layer.
    pub fn kda_width(&self) -> u32 {
        self.kda_heads * self.kda_head_dim
    }

    /// Width of all queries of a latent-attention layer.
    pub fn q_width(&self) -> u32 {
        self.heads * self.nope
    }

    /// Width of all values of a latent-attention layer.
    pub fn v_width(&self) -> u32 {
        self.heads * self.v_head
    }

    /// Rows of a hyper-connection's map: a weight for each stream before and after a block, and one for each pair.
    pub fn hc_rows(&self) -> u32 {
        self.hc_mult * (2 + self.hc_mult)
    }

    /// Width of the shared network between its projections.
    pub fn shared_intermediate(&self) -> u32 {
        self.shared_experts * self.moe_intermediate
    }

    /// Pools that an indexer selects at most.
    pub fn pools_selected(&self) -> u32 {
        self.index_topk / self.index_kpool
    }

    /// Indices of the layers whose mixer is of this kind.
    pub fn mixers(&self, kind: impl Fn(MixerKind) -> bool) -> impl Iterator<Item = usize> {
        self.layers.iter().enumerate().filter(move |(_, layer)| kind(layer.mixer)).map(|(index, _)| index)
    }
}
