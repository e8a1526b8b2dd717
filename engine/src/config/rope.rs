//! Rotary position embedding: which elements of a head are rotated together, and how fast.

use super::Keys;
use crate::format::{DType, FormatError, TensorSource};
use crate::quant;

/// Which elements of a head form the pairs that are rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RopePairing {
    /// Elements 2i and 2i + 1. GGUF files of the llama architecture: their query and key rows were permuted to suit.
    Interleaved,
    /// Elements i and i + head_dim / 2.
    Halves,
}

/// Rotary position embedding of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// The pairs.
    pub pairing: RopePairing,
    /// The base θ of the frequencies.
    pub base: f32,
    /// Angle per position of each of the `head_dim / 2` pairs, in radians. Pairs beyond the rotated part of a head have 0.
    pub inv_freq: Vec<f32>,
}

/// A tensor of divisors of the frequencies, one a pair, by which Llama 3.1 and later stretch their context.
const FACTORS: &str = "rope_freqs.weight";

impl Rope {
    /// Frequencies θ^(−2i / n) for the n rotated elements, divided by a linear scaling factor and by `rope_freqs`.
    ///
    /// They are computed in float64 and rounded once.
    pub(super) fn from_gguf(
        source: &dyn TensorSource,
        keys: &Keys<'_>,
        head_dim: u32,
    ) -> Result<Rope, FormatError> {
        let base = keys.metadata.f32(&keys.key("rope.freq_base"))?.unwrap_or(10_000.0);
        if base <= 0.0 {
            return Err(keys.error("rope.freq_base", format!("is {base}, but must be positive")));
        }
        let rotated = keys.optional_extent("rope.dimension_count", head_dim)?.unwrap_or(head_dim);
        if !rotated.is_multiple_of(2) {
            return Err(keys.error("rope.dimension_count", format!("is {rotated}, but must be even")));
        }
        let factor = linear_factor(keys)?;
        let divisors = divisors(source, rotated / 2)?;
        let inv_freq = (0..head_dim / 2).map(|i| {
            if i >= rotated / 2 {
                return 0.0;
            }
            let freq = f64::from(base).powf(-2.0 * f64::from(i) / f64::from(rotated));
            let divisor = divisors.as_ref().map_or(1.0, |divisors| f64::from(divisors[i as usize]));
            (freq / f64::from(factor) / divisor) as f32
        });
        Ok(Rope { pairing: RopePairing::Interleaved, base, inv_freq: inv_freq.collect() })
    }
}

fn linear_factor(keys: &Keys<'_>) -> Result<f32, FormatError> {
    let (kind, factor, old) = ("rope.scaling.type", "rope.scaling.factor", "rope.scale_linear");
    let scaling = keys.metadata.str(&keys.key(kind))?;
    let name = match scaling {
        Some("none") => return Ok(1.0),
        Some("linear") => factor,
        Some(other) => {
            let reason = format!("is {other:?}, which is not supported; none, linear and `{FACTORS}` are");
            return Err(keys.error(kind, reason));
        }
        None if keys.metadata.get(&keys.key(factor)).is_some() => factor,
        None => old,
    };
    let value = keys.metadata.f32(&keys.key(name))?.unwrap_or(1.0);
    // llama.cpp writes 0 for "no scaling".
    match value {
        0.0 => Ok(1.0),
        x if x > 0.0 => Ok(x),
        x => Err(keys.error(name, format!("is {x}, but must be positive"))),
    }
}

fn divisors(source: &dyn TensorSource, pairs: u32) -> Result<Option<Vec<f32>>, FormatError> {
    if source.find(FACTORS).is_none() {
        return Ok(None);
    }
    let error = |reason| FormatError::Tensor { path: source.path().into(), tensor: FACTORS.into(), reason };
    let info = source.require(FACTORS, &[pairs.into()])?;
    if info.dtype != DType::F32 {
        return Err(error(format!("is {}, but F32 is wanted", info.dtype)));
    }
    let mut divisors = vec![0.0; pairs as usize];
    quant::dequantise(DType::F32, &source.data(FACTORS)?, &mut divisors).map_err(|e| error(e.to_string()))?;
    match divisors.iter().position(|x| !(x.is_finite() && *x > 0.0)) {
        Some(i) => Err(error(format!("element {i} is {}, but must be positive and finite", divisors[i]))),
        None => Ok(Some(divisors)),
    }
}
