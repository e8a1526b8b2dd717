//! The tensors that a model of a given configuration consists of.

use super::ModelConfig;
use crate::format::{DType, FormatError, TensorSource};

/// What a tensor is for, which decides the types it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TensorRole {
    /// A matrix of a linear layer, or the embedding.
    Matrix,
    /// Weights of a norm: F32.
    Norm,
}

/// Names, shapes (rows first) and roles of all tensors of the model.
pub fn tensors(config: &ModelConfig) -> impl Iterator<Item = (String, Vec<u64>, TensorRole)> {
    use TensorRole::{Matrix, Norm};
    let c = config;
    let [hidden, ff, vocab] = [c.hidden, c.ff, c.vocab].map(u64::from);
    let [q, kv] = [c.q_width(), c.kv_width()].map(u64::from);
    let layer = [
        ("attn_norm", vec![hidden], Norm),
        ("attn_q", vec![q, hidden], Matrix),
        ("attn_k", vec![kv, hidden], Matrix),
        ("attn_v", vec![kv, hidden], Matrix),
        ("attn_output", vec![hidden, q], Matrix),
        ("ffn_norm", vec![hidden], Norm),
        ("ffn_gate", vec![ff, hidden], Matrix),
        ("ffn_up", vec![ff, hidden], Matrix),
        ("ffn_down", vec![hidden, ff], Matrix),
    ];
    let layers = (0..c.layers).flat_map(move |i| {
        layer.clone().map(|(name, shape, role)| (format!("blk.{i}.{name}.weight"), shape, role))
    });
    let embedding = [("token_embd.weight".to_string(), vec![vocab, hidden], Matrix)];
    let head = (!c.tied_head).then(|| ("output.weight".to_string(), vec![vocab, hidden], Matrix));
    embedding
        .into_iter()
        .chain(layers)
        .chain([("output_norm.weight".to_string(), vec![hidden], Norm)])
        .chain(head)
}

/// Checks that the source has every tensor of the model, of the right shape and a type that can run, and none that the
/// model would ignore.
///
/// # Errors
/// [`FormatError::Tensor`] naming the first tensor at fault.
pub fn check_tensors(source: &dyn TensorSource, config: &ModelConfig) -> Result<(), FormatError> {
    let error =
        |name: &str, reason| FormatError::Tensor { path: source.path().into(), tensor: name.into(), reason };
    let mut known = std::collections::HashSet::from(["rope_freqs.weight".to_string()]);
    for (name, shape, role) in tensors(config) {
        let info = source.require(&name, &shape)?;
        match role {
            TensorRole::Norm if info.dtype != DType::F32 => {
                return Err(error(&name, format!("is {}, but norms must be F32", info.dtype)));
            }
            TensorRole::Matrix if crate::quant::plane_block_bytes(info.dtype).is_none() => {
                let types = crate::quant::DEVICE_TYPES;
                let reason = format!("is {}; weights that run are {types}", info.dtype);
                return Err(error(&name, reason));
            }
            TensorRole::Matrix if !info.cols().is_multiple_of(8) => {
                let reason = format!("has rows of {} elements; a multiple of 8 is needed", info.cols());
                return Err(error(&name, reason));
            }
            _ => {}
        }
        known.insert(name);
    }
    match source.tensors().iter().find(|info| !known.contains(&info.name)) {
        None => Ok(()),
        Some(info) => Err(error(
            &info.name,
            format!(
                "is no part of a {} model as bitwalk runs it; leaving it out would change what the model says",
                config.architecture.name()
            ),
        )),
    }
}
