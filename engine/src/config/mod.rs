//! What a model is: its sizes and constants, read from a file's metadata and checked before anything is built on them.

mod footprint;
pub mod glm5;
mod rope;
mod tensors;

use crate::format::gguf::Metadata;
use crate::format::{FormatError, TensorSource};

pub use footprint::{Footprint, LayerState, Part, PartSize};
pub use rope::{Rope, RopePairing};
pub use tensors::{TensorRole, check_tensors, tensors};

/// Most layers accepted; the deepest real models have a few hundred.
const MAX_LAYERS: u32 = 1024;
/// Largest value accepted for a width, a head count times a head size, or a context length.
const MAX_EXTENT: u32 = 1 << 26;

/// The architectures that bitwalk runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// Llama 1 to 3 and what is built like it (SmolLM2, Mistral …): RMSNorm, grouped-query attention with rotary
    /// position embedding, SwiGLU.
    Llama,
}

impl Architecture {
    const ALL: [Architecture; 1] = [Architecture::Llama];

    /// The name in `general.architecture`, which also prefixes the architecture's own keys.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Llama => "llama",
        }
    }
}

/// A model's configuration, by the family that its layers are of.
#[derive(Debug, Clone, PartialEq)]
pub enum Family {
    /// Grouped-query attention and dense networks over one residual stream.
    Llama(ModelConfig),
    /// Delta attention, latent attention and routed experts over several.
    Glm5(glm5::Glm5Config),
}

/// The sizes and constants of a model of the llama family.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelConfig {
    /// The architecture.
    pub architecture: Architecture,
    /// Number of layers.
    pub layers: u32,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Width of the feed-forward block between its projections.
    pub ff: u32,
    /// Query heads.
    pub heads: u32,
    /// Key and value heads; divides `heads`.
    pub kv_heads: u32,
    /// Width of a head. `heads · head_dim` need not equal `hidden`.
    pub head_dim: u32,
    /// Added to the mean square in RMSNorm.
    pub eps: f32,
    /// Rotary position embedding.
    pub rope: Rope,
    /// Number of token ids.
    pub vocab: u32,
    /// Longest context that the model was made for, in tokens.
    pub context: u32,
    /// Whether the output head is the embedding matrix.
    pub tied_head: bool,
    /// The token that begins a text, if the model has one.
    pub bos: Option<u32>,
    /// The tokens that end a text or a turn.
    pub eos: Vec<u32>,
}

impl ModelConfig {
    /// Reads and checks the configuration of a source with GGUF metadata.
    ///
    /// # Errors
    /// [`FormatError::Metadata`] naming the key that is missing, inconsistent or unsupported;
    /// [`FormatError::Tensor`] if the embedding matrix is missing or has another shape than the keys say.
    pub fn from_gguf(source: &dyn TensorSource, metadata: &Metadata) -> Result<ModelConfig, FormatError> {
        let architecture = architecture(metadata)?;
        let keys = Keys { metadata, prefix: architecture.name() };

        let layers = keys.extent("block_count", MAX_LAYERS)?;
        let hidden = keys.extent("embedding_length", MAX_EXTENT)?;
        let ff = keys.extent("feed_forward_length", MAX_EXTENT)?;
        let heads = keys.extent("attention.head_count", MAX_EXTENT)?;
        let kv_heads = keys.optional_extent("attention.head_count_kv", MAX_EXTENT)?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let reason = format!("is {kv_heads}, which does not divide the {heads} query heads");
            return Err(keys.error("attention.head_count_kv", reason));
        }
        let head_dim = keys.head_dim(hidden, heads)?;
        let eps = keys.eps()?;
        keys.refuse_experts()?;
        let context = keys.extent("context_length", MAX_EXTENT)?;
        let vocab = vocab(source, &keys, hidden)?;
        let rope = Rope::from_gguf(source, &keys, head_dim)?;
        let (bos, eos) = end_tokens(metadata, vocab)?;
        let tied_head = source.find("output.weight").is_none();
        Ok(ModelConfig {
            architecture,
            layers,
            hidden,
            ff,
            heads,
            kv_heads,
            head_dim,
            eps,
            rope,
            vocab,
            context,
            tied_head,
            bos,
            eos,
        })
    }

    /// Width of all query heads together.
    pub fn q_width(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Width of all key heads, or of all value heads, together.
    pub fn kv_width(&self) -> u32 {
        self.kv_heads * self.head_dim
    }
}

fn architecture(metadata: &Metadata) -> Result<Architecture, FormatError> {
    const KEY: &str = "general.architecture";
    let name = metadata.require_str(KEY)?;
    Architecture::ALL.into_iter().find(|architecture| architecture.name() == name).ok_or_else(|| {
        let known: Vec<&str> = Architecture::ALL.iter().map(|architecture| architecture.name()).collect();
        metadata.error(KEY, format!("is {name:?}, which bitwalk does not run; it runs {}", known.join(", ")))
    })
}

/// Access to the keys of one architecture, `PREFIX.name`.
struct Keys<'a> {
    metadata: &'a Metadata,
    prefix: &'static str,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn error(&self, name: &str, reason: impl Into<String>) -> FormatError {
        self.metadata.error(&self.key(name), reason)
    }

    /// A number from 1 to `max` that must be there.
    fn extent(&self, name: &str, max: u32) -> Result<u32, FormatError> {
        let value = self.metadata.require_u32(&self.key(name))?;
        self.in_range(name, value, max)
    }

    fn optional_extent(&self, name: &str, max: u32) -> Result<Option<u32>, FormatError> {
        let value = self.metadata.u32(&self.key(name))?;
        value.map(|value| self.in_range(name, value, max)).transpose()
    }

    fn in_range(&self, name: &str, value: u32, max: u32) -> Result<u32, FormatError> {
        if (1..=max).contains(&value) {
            Ok(value)
        } else {
            Err(self.error(name, format!("is {value}, but a number from 1 to {max} is wanted")))
        }
    }

    fn head_dim(&self, hidden: u32, heads: u32) -> Result<u32, FormatError> {
        let (keys, values) = ("attention.key_length", "attention.value_length");
        let head_dim = match self.optional_extent(keys, MAX_EXTENT)? {
            Some(length) => length,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => {
                let reason =
                    format!("is missing, and the width {hidden} is no multiple of the {heads} heads");
                return Err(self.error(keys, reason));
            }
        };
        if let Some(length) = self.optional_extent(values, MAX_EXTENT)?
            && length != head_dim
        {
            let reason =
                format!("is {length}, but keys have {head_dim}; heads of two sizes are not supported");
            return Err(self.error(values, reason));
        }
        if !head_dim.is_multiple_of(2) {
            return Err(
                self.error(keys, format!("is {head_dim}, but rotary embedding needs an even head size"))
            );
        }
        if u64::from(head_dim) * u64::from(heads) > MAX_EXTENT.into() {
            return Err(
                self.error(keys, format!("is {head_dim}, which times {heads} heads exceeds {MAX_EXTENT}"))
            );
        }
        Ok(head_dim)
    }

    fn eps(&self) -> Result<f32, FormatError> {
        let name = "attention.layer_norm_rms_epsilon";
        let eps = self.metadata.require_f32(&self.key(name))?;
        if eps > 0.0 { Ok(eps) } else { Err(self.error(name, format!("is {eps}, but must be positive"))) }
    }

    fn refuse_experts(&self) -> Result<(), FormatError> {
        let name = "expert_count";
        match self.metadata.u32(&self.key(name))? {
            None | Some(0) => Ok(()),
            Some(count) => {
                let reason = format!("is {count}: routed experts are not supported for {}", self.prefix);
                Err(self.error(name, reason))
            }
        }
    }
}

/// The number of token ids: the rows of the embedding matrix, with which all that metadata says must agree.
fn vocab(source: &dyn TensorSource, keys: &Keys<'_>, hidden: u32) -> Result<u32, FormatError> {
    const EMBEDDING: &str = "token_embd.weight";
    const TOKENS: &str = "tokenizer.ggml.tokens";
    let rows = source.find(EMBEDDING).map_or(0, |info| info.rows());
    source.require(EMBEDDING, &[rows, hidden.into()])?;
    let vocab =
        u32::try_from(rows).ok().filter(|&rows| rows <= MAX_EXTENT).ok_or_else(|| FormatError::Tensor {
            path: source.path().into(),
            tensor: EMBEDDING.into(),
            reason: format!("has {rows} rows; at most {MAX_EXTENT} are supported"),
        })?;
    if let Some(size) = keys.optional_extent("vocab_size", MAX_EXTENT)?
        && size != vocab
    {
        return Err(keys.error("vocab_size", format!("is {size}, but `{EMBEDDING}` has {vocab} rows")));
    }
    if let Some(crate::format::gguf::Value::Array(tokens)) = keys.metadata.get(TOKENS)
        && tokens.len() as u64 != rows
    {
        let reason = format!("has {} entries, but `{EMBEDDING}` has {vocab} rows", tokens.len());
        return Err(keys.metadata.error(TOKENS, reason));
    }
    Ok(vocab)
}

fn end_tokens(metadata: &Metadata, vocab: u32) -> Result<(Option<u32>, Vec<u32>), FormatError> {
    let token = |key| match metadata.u32(key)? {
        Some(id) if id >= vocab => {
            Err(metadata.error(key, format!("is {id}, but there are only {vocab} tokens")))
        }
        id => Ok(id),
    };
    let bos = token("tokenizer.ggml.bos_token_id")?;
    let mut eos = Vec::new();
    for key in ["tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"] {
        if let Some(id) = token(key)?
            && !eos.contains(&id)
        {
            eos.push(id);
        }
    }
    Ok((bos, eos))
}
