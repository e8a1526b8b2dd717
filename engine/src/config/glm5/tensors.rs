//! The tensors that a `glm5_next` model consists of, and the check that a source has them.

use std::collections::HashSet;
use std::fmt;

use super::{EMBEDDING, FINAL_NORM, FfnKind, Glm5Config, HEAD, IndexerKind, MixerKind, PREFIX};
use crate::format::{FormatError, LinearWeight, TensorInfo, TensorSource, WeightEncoding};

/// What a tensor is for, which decides how it may be stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorKind {
    /// The matrix of a linear layer, in any encoding. Its name ends in `.weight`, and what stands before is the stem by
    /// which [`LinearWeight::find`] resolves it.
    Linear,
    /// A matrix in plain floats that a kernel reads as one.
    Matrix,
    /// A vector or a small table in plain floats.
    Vector,
}

/// A tensor that a model has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glm5Tensor {
    /// Its name in the checkpoint.
    pub name: String,
    /// Its extents, rows first; of a linear layer `[out, in]`, whatever its encoding.
    pub shape: Vec<u64>,
    /// What it is for.
    pub kind: TensorKind,
}

/// (name behind the layer's prefix, shape, kind)
type Part = (&'static str, Vec<u64>, TensorKind);

/// All tensors of the model: the embedding, the layers in order, the final norm, the head. They are made one at a time.
pub fn tensors(config: &Glm5Config) -> impl Iterator<Item = Glm5Tensor> {
    use TensorKind::{Matrix, Vector};
    let [vocab, hidden] = [config.vocab, config.hidden].map(u64::from);
    let whole = |name: &str, shape: Vec<u64>, kind| Glm5Tensor { name: name.into(), shape, kind };
    let head = (!config.tied_head).then(|| whole(HEAD, vec![vocab, hidden], TensorKind::Linear));
    [whole(EMBEDDING, vec![vocab, hidden], Matrix)]
        .into_iter()
        .chain((0..config.layers.len()).flat_map(|index| layer(config, index)))
        .chain([whole(FINAL_NORM, vec![hidden], Vector)])
        .chain(head)
}

fn layer(config: &Glm5Config, index: usize) -> impl Iterator<Item = Glm5Tensor> {
    let kinds = config.layers[index];
    let mut parts = streams(config);
    match kinds.mixer {
        MixerKind::Kda => parts.extend(kda(config)),
        MixerKind::Mla { indexer } => {
            parts.extend(mla(config));
            if indexer == IndexerKind::Full {
                parts.extend(self::indexer(config));
            }
        }
    }
    parts.extend(ffn(config, kinds.ffn));
    let prefix = Glm5Config::layer_prefix(index);
    let experts = if kinds.ffn == FfnKind::Routed { config.experts } else { 0 };
    let expert_prefix = prefix.clone();
    let width = u64::from(config.moe_intermediate);
    let hidden = u64::from(config.hidden);
    let experts = (0..experts).flat_map(move |expert| {
        swiglu(["gate_proj.weight", "up_proj.weight", "down_proj.weight"], hidden, width).map(
            |(name, shape, kind)| Glm5Tensor {
                name: format!("{expert_prefix}mlp.experts.{expert}.{name}"),
                shape,
                kind,
            },
        )
    });
    let parts = parts.into_iter();
    parts
        .map(move |(name, shape, kind)| Glm5Tensor { name: format!("{prefix}{name}"), shape, kind })
        .chain(experts)
}

/// Norms and hyper-connections, which every layer has.
fn streams(c: &Glm5Config) -> Vec<Part> {
    use TensorKind::{Matrix, Vector};
    let [hidden, streams, rows] = [c.hidden, c.hc_mult, c.hc_rows()].map(u64::from);
    vec![
        ("input_layernorm.weight", vec![hidden], Vector),
        ("post_attention_layernorm.weight", vec![hidden], Vector),
        ("hc_attn_fn", vec![rows, streams * hidden], Matrix),
        ("hc_attn_base", vec![rows], Vector),
        ("hc_attn_scale", vec![3], Vector),
        ("hc_ffn_fn", vec![rows, streams * hidden], Matrix),
        ("hc_ffn_base", vec![rows], Vector),
        ("hc_ffn_scale", vec![3], Vector),
    ]
}

fn kda(c: &Glm5Config) -> Vec<Part> {
    use TensorKind::{Linear, Vector};
    let [hidden, heads, dim, width, taps] =
        [c.hidden, c.kda_heads, c.kda_head_dim, c.kda_width(), c.conv_kernel].map(u64::from);
    vec![
        ("self_attn.q_proj.weight", vec![width, hidden], Linear),
        ("self_attn.k_proj.weight", vec![width, hidden], Linear),
        ("self_attn.v_proj.weight", vec![width, hidden], Linear),
        ("self_attn.q_conv1d.weight", vec![width, 1, taps], Vector),
        ("self_attn.k_conv1d.weight", vec![width, 1, taps], Vector),
        ("self_attn.v_conv1d.weight", vec![width, 1, taps], Vector),
        ("self_attn.f_a_proj.weight", vec![dim, hidden], Linear),
        ("self_attn.f_b_proj.weight", vec![width, dim], Linear),
        ("self_attn.g_a_proj.weight", vec![dim, hidden], Linear),
        ("self_attn.g_b_proj.weight", vec![width, dim], Linear),
        ("self_attn.b_proj.weight", vec![heads, hidden], Linear),
        ("self_attn.dt_bias", vec![width], Vector),
        ("self_attn.A_log", vec![heads], Vector),
        ("self_attn.o_norm.weight", vec![dim], Vector),
        ("self_attn.o_proj.weight", vec![hidden, width], Linear),
    ]
}

fn mla(c: &Glm5Config) -> Vec<Part> {
    use TensorKind::{Linear, Vector};
    let [hidden, q_lora, kv_lora, q, v] =
        [c.hidden, c.q_lora, c.kv_lora, c.q_width(), c.v_width()].map(u64::from);
    vec![
        ("self_attn.q_a_proj.weight", vec![q_lora, hidden], Linear),
        ("self_attn.q_a_layernorm.weight", vec![q_lora], Vector),
        ("self_attn.q_b_proj.weight", vec![q, q_lora], Linear),
        ("self_attn.kv_a_proj_with_mqa.weight", vec![kv_lora, hidden], Linear),
        ("self_attn.kv_a_layernorm.weight", vec![kv_lora], Vector),
        ("self_attn.kv_b_proj.weight", vec![q + v, kv_lora], Linear),
        ("self_attn.o_proj.weight", vec![hidden, v], Linear),
    ]
}

fn indexer(c: &Glm5Config) -> Vec<Part> {
    use TensorKind::{Linear, Matrix, Vector};
    let [hidden, q_lora, heads, dim, pool] =
        [c.hidden, c.q_lora, c.index_heads, c.index_dim, c.index_kpool].map(u64::from);
    vec![
        ("self_attn.indexer.wq_b.weight", vec![heads * dim, q_lora], Linear),
        ("self_attn.indexer.wk.weight", vec![dim, hidden], Linear),
        ("self_attn.indexer.k_norm.weight", vec![dim], Vector),
        ("self_attn.indexer.k_norm.bias", vec![dim], Vector),
        ("self_attn.indexer.weights_proj.weight", vec![heads, hidden], Linear),
        ("self_attn.indexer.index_kpool_compress_gate", vec![dim, hidden], Matrix),
        ("self_attn.indexer.index_kpool_compress_ape", vec![pool, dim], Vector),
    ]
}

/// What a network has beside its routed experts.
fn ffn(c: &Glm5Config, kind: FfnKind) -> Vec<Part> {
    use TensorKind::{Matrix, Vector};
    let [hidden, experts] = [c.hidden, c.experts].map(u64::from);
    match kind {
        FfnKind::Dense => {
            let names = ["mlp.gate_proj.weight", "mlp.up_proj.weight", "mlp.down_proj.weight"];
            swiglu(names, hidden, c.intermediate.into()).to_vec()
        }
        FfnKind::Routed => {
            let names = [
                "mlp.shared_experts.gate_proj.weight",
                "mlp.shared_experts.up_proj.weight",
                "mlp.shared_experts.down_proj.weight",
            ];
            let router = [
                ("mlp.gate.weight", vec![experts, hidden], Matrix),
                ("mlp.gate.e_score_correction_bias", vec![experts], Vector),
            ];
            let shared = swiglu(names, hidden, c.shared_intermediate().into());
            router.into_iter().chain(shared).collect()
        }
    }
}

fn swiglu(names: [&'static str; 3], hidden: u64, width: u64) -> [Part; 3] {
    let [gate, up, down] = names;
    [
        (gate, vec![width, hidden], TensorKind::Linear),
        (up, vec![width, hidden], TensorKind::Linear),
        (down, vec![hidden, width], TensorKind::Linear),
    ]
}

/// What of a checkpoint is not loaded, by design. Displays as one line, empty where nothing is skipped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Tensors and bytes of `model.visual.*`, the encoder of images.
    pub visual: (u64, u64),
    /// Tensors and bytes of the blocks behind the last layer, which predict further tokens.
    pub prediction: (u64, u64),
    /// Number of the first such block.
    pub first_block: u64,
}

impl Skipped {
    /// Whether all of the checkpoint is loaded.
    pub fn is_empty(&self) -> bool {
        self.visual.0 == 0 && self.prediction.0 == 0
    }
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gb = |bytes: u64| bytes as f64 / 1e9;
        let mut parts = Vec::new();
        if self.visual.0 > 0 {
            let (tensors, bytes) = self.visual;
            parts.push(format!("model.visual.*, the image encoder ({tensors} tensors, {:.3} GB)", gb(bytes)));
        }
        if self.prediction.0 > 0 {
            let ((tensors, bytes), block) = (self.prediction, self.first_block);
            parts.push(format!(
                "{PREFIX}layers.{block}.* and on, the extra prediction block ({tensors} tensors, {:.3} GB)",
                gb(bytes)
            ));
        }
        if parts.is_empty() { Ok(()) } else { write!(f, "skipped, not run: {}", parts.join("; ")) }
    }
}

/// Most missing tensors that an error names.
const NAMED: usize = 5;

/// Checks that the source has every tensor of the model, of the right shape and in an encoding that can run, and none that
/// the model would ignore but those that are skipped by design. Nothing is uploaded before this has passed.
///
/// # Errors
/// [`FormatError::Missing`] for all that are not there; [`FormatError::Tensor`] for the first that is wrong, or that is no
/// part of the model; [`FormatError::Config`] where the checkpoint has no hyper-connections at all.
pub fn check_tensors(source: &dyn TensorSource, config: &Glm5Config) -> Result<Skipped, FormatError> {
    // Said first, since it tells what is wrong better than some hundred missing names.
    let first = format!("{}hc_attn_fn", Glm5Config::layer_prefix(0));
    if source.find(&first).is_none() && !source.tensors().iter().any(|info| info.name.contains(".hc_")) {
        let reason = "is not there, nor is any other tensor of hyper-connections: a checkpoint without them is another \
                      model, which bitwalk does not run";
        return Err(FormatError::Tensor { path: source.path().into(), tensor: first, reason: reason.into() });
    }
    let mut known = HashSet::new();
    let (mut missing, mut first_missing) = (0u64, Vec::new());
    for tensor in tensors(config) {
        let names = match tensor.kind {
            TensorKind::Linear => linear(source, &tensor)?,
            TensorKind::Matrix | TensorKind::Vector => plain(source, &tensor)?,
        };
        match names {
            Some(names) => known.extend(names),
            None => {
                missing += 1;
                if first_missing.len() < NAMED {
                    first_missing.push(format!("`{}`", tensor.name));
                }
            }
        }
    }
    if missing > 0 {
        return Err(FormatError::Missing {
            path: source.path().into(),
            count: missing,
            first: first_missing,
        });
    }
    skipped(source, config, &known)
}

/// The names under which a linear layer is stored; `None` if it is not there.
fn linear(source: &dyn TensorSource, tensor: &Glm5Tensor) -> Result<Option<Vec<String>>, FormatError> {
    let stem = tensor.name.strip_suffix(".weight").unwrap_or(&tensor.name);
    let Some(weight) = LinearWeight::find(source, stem)? else { return Ok(None) };
    let found = [weight.rows(), weight.cols()];
    if tensor.shape != found {
        return Err(shape_error(source, &tensor.name, &found, &tensor.shape));
    }
    runs(source, &tensor.name, weight.cols(), weight.format().column_multiple())?;
    Ok(Some(weight.tensor_names()))
}

fn plain(source: &dyn TensorSource, tensor: &Glm5Tensor) -> Result<Option<Vec<String>>, FormatError> {
    let Some(info) = source.find(&tensor.name) else { return Ok(None) };
    if info.shape != tensor.shape {
        return Err(shape_error(source, &tensor.name, &info.shape, &tensor.shape));
    }
    if !WeightEncoding::is_plain(info.dtype) {
        let reason = format!("is {}, but must be F32, F16 or BF16", info.dtype);
        return Err(tensor_error(source, &tensor.name, reason));
    }
    if tensor.kind == TensorKind::Matrix {
        runs(source, &tensor.name, info.cols(), 8)?;
    }
    Ok(Some(vec![tensor.name.clone()]))
}

fn runs(source: &dyn TensorSource, name: &str, cols: u64, multiple: u64) -> Result<(), FormatError> {
    if cols.is_multiple_of(multiple) {
        return Ok(());
    }
    Err(tensor_error(
        source,
        name,
        format!("has rows of {cols} elements; a multiple of {multiple} is needed"),
    ))
}

fn tensor_error(source: &dyn TensorSource, tensor: &str, reason: String) -> FormatError {
    FormatError::Tensor { path: source.path().into(), tensor: tensor.into(), reason }
}

fn shape_error(source: &dyn TensorSource, tensor: &str, found: &[u64], wanted: &[u64]) -> FormatError {
    let reason =
        format!("has shape {found:?}, but the model's configuration asks for {wanted:?} (rows first)");
    tensor_error(source, tensor, reason)
}

/// Sorts what is no part of the model into what is skipped and what must not be ignored.
fn skipped(
    source: &dyn TensorSource,
    config: &Glm5Config,
    known: &HashSet<String>,
) -> Result<Skipped, FormatError> {
    let mut skipped = Skipped { first_block: config.layers.len() as u64, ..Skipped::default() };
    for info in source.tensors().iter().filter(|info| !known.contains(&info.name)) {
        let share = if info.name.starts_with("model.visual.") {
            &mut skipped.visual
        } else if is_behind(info, config.layers.len()) {
            &mut skipped.prediction
        } else {
            let reason = "is no part of a glm5_next model as bitwalk runs it; leaving it out would change what the model \
                          says";
            return Err(tensor_error(source, &info.name, reason.into()));
        };
        share.0 += 1;
        share.1 += info.bytes();
    }
    Ok(skipped)
}

/// Whether the tensor belongs to a block behind the last layer.
fn is_behind(info: &TensorInfo, layers: usize) -> bool {
    let number = info.name.strip_prefix(PREFIX).and_then(|rest| rest.strip_prefix("layers."));
    let number = number.and_then(|rest| rest.split_once('.')).map(|(number, _)| number);
    number.and_then(|number| number.parse::<u64>().ok()).is_some_and(|number| number >= layers as u64)
}
