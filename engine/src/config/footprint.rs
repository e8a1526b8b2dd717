//! What a model takes on a device, and what a token's walk reads, before anything is loaded.

use super::glm5::{self, FfnKind, Glm5Config, MixerKind, TensorKind};
use super::{Family, ModelConfig, TensorRole};
use crate::format::{FormatError, LinearWeight, TensorSource, device_format};
use crate::kernel::TensorFormat;
use crate::options::KvType;

/// The parts that a model's weights are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// The embedding matrix; of one that is also the head, see [`Part::Head`].
    Embedding,
    /// Mixers, norms, hyper-connections, routers, dense and shared networks.
    Backbone,
    /// Routed experts.
    Experts,
    /// The output head; where it is the embedding, that matrix is counted here.
    Head,
}

impl Part {
    /// Every part, in the order of the walk.
    pub const ALL: [Part; 4] = [Part::Embedding, Part::Backbone, Part::Experts, Part::Head];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Part::Embedding => "embedding",
            Part::Backbone => "backbone",
            Part::Experts => "routed experts",
            Part::Head => "head",
        }
    }
}

/// The weights of one part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PartSize {
    /// Elements, packed ones counted one by one.
    pub parameters: u64,
    /// Bytes on the device.
    pub bytes: u64,
    /// Bytes that the walk of one token reads.
    pub read: u64,
    /// Parameters that the walk of one token uses.
    pub active: u64,
}

/// What one layer keeps for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayerState {
    /// Keys and values: elements of a position.
    Kv {
        /// Of both together.
        width: u64,
    },
    /// A recurrent state: f32 elements, and those of the convolution's ring.
    Recurrent {
        /// Elements of both.
        elements: u64,
    },
    /// Latents.
    Latent {
        /// Elements of a position.
        width: u64,
        /// Positions that attention reads at most.
        selected: u64,
        /// Tokens a pool and width of an indexer's key, if the layer has one.
        index: Option<(u64, u64)>,
    },
}

/// Bytes of an element of a key/value cache.
fn kv_bytes(kv: KvType) -> u64 {
    match kv {
        KvType::F32 => 4,
        KvType::F16 => 2,
        KvType::F8 => 1,
    }
}

impl LayerState {
    /// Bytes for `capacity` positions.
    pub fn bytes(self, kv: KvType, capacity: u64) -> u64 {
        match self {
            LayerState::Kv { width } => capacity * width * kv_bytes(kv),
            LayerState::Recurrent { elements } => 4 * elements,
            LayerState::Latent { width, index, .. } => {
                let pools = index.map_or(0, |(pool, dim)| 4 * dim * (capacity.div_ceil(pool) + 2 * pool));
                capacity * width * kv_bytes(kv) + pools
            }
        }
    }

    /// Bytes that the walk of the token at `position` reads of it.
    pub fn read(self, kv: KvType, position: u64) -> u64 {
        match self {
            LayerState::Kv { width } => (position + 1) * width * kv_bytes(kv),
            LayerState::Recurrent { elements } => 4 * elements,
            LayerState::Latent { width, selected, index } => {
                let pools = index.map_or(0, |(pool, dim)| 4 * dim * ((position + 1) / pool));
                (position + 1).min(selected) * width * kv_bytes(kv) + pools
            }
        }
    }
}

/// A model's sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footprint {
    parts: [PartSize; 4],
    /// Bytes on the device of each layer's weights.
    pub layers: Vec<u64>,
    /// What each layer keeps.
    pub states: Vec<LayerState>,
}

impl Footprint {
    /// The sizes of a source's model. What the device holds follows from how each tensor is encoded: vectors as f32, matrices
    /// in the format that [`LinearWeight::format`] says.
    ///
    /// # Errors
    /// [`FormatError`] for a tensor that is missing or cannot run; check the tensors first for better messages.
    pub fn new(source: &dyn TensorSource, family: &Family) -> Result<Footprint, FormatError> {
        match family {
            Family::Llama(config) => llama(source, config),
            Family::Glm5(config) => glm5(source, config),
        }
    }

    fn empty(states: Vec<LayerState>) -> Footprint {
        Footprint { parts: [PartSize::default(); 4], layers: vec![0; states.len()], states }
    }

    /// Adds a tensor: `share` of it is read for a token, as a fraction.
    fn add(&mut self, part: Part, layer: Option<usize>, parameters: u64, bytes: u64, share: (u64, u64)) {
        let size = &mut self.parts[part as usize];
        size.parameters += parameters;
        size.bytes += bytes;
        // 128 bits, since a share of an embedding is a row of a vocabulary.
        let of = |n: u64| (u128::from(n) * u128::from(share.0) / u128::from(share.1.max(1))) as u64;
        size.read += of(bytes);
        size.active += of(parameters);
        if let Some(layer) = layer {
            self.layers[layer] += bytes;
        }
    }

    /// The weights of a part.
    pub fn part(&self, part: Part) -> PartSize {
        self.parts[part as usize]
    }

    /// The weights of all parts.
    pub fn total(&self) -> PartSize {
        self.parts.iter().fold(PartSize::default(), |sum, part| PartSize {
            parameters: sum.parameters + part.parameters,
            bytes: sum.bytes + part.bytes,
            read: sum.read + part.read,
            active: sum.active + part.active,
        })
    }

    /// Bytes of a session's caches for `capacity` positions.
    pub fn cache_bytes(&self, kv: KvType, capacity: u64) -> u64 {
        self.states.iter().map(|state| state.bytes(kv, capacity)).sum()
    }

    /// Bytes of caches that the walk of the token at `position` reads.
    pub fn cache_read(&self, kv: KvType, position: u64) -> u64 {
        self.states.iter().map(|state| state.read(kv, position)).sum()
    }

    /// How the model lies on devices of `room` bytes each, filled one after another with whole layers and their caches, the
    /// embedding on the first and the head on the last: layers a device; `None` if a layer, or what goes with it, fits none.
    pub fn stages(&self, room: u64, kv: KvType, capacity: u64) -> Option<Vec<usize>> {
        let cost = |layer: usize| self.layers[layer] + self.states[layer].bytes(kv, capacity);
        let head = self.part(Part::Head).bytes;
        let tied = self.part(Part::Embedding).bytes == 0;
        // A tied head is needed at both ends.
        let mut used = if tied { head } else { self.part(Part::Embedding).bytes };
        if used > room {
            return None;
        }
        let mut stages = vec![0];
        for layer in 0..self.layers.len() {
            if used + cost(layer) > room {
                stages.push(0);
                used = 0;
            }
            used += cost(layer);
            if used > room {
                return None;
            }
            *stages.last_mut()? += 1;
        }
        let more = if tied && stages.len() == 1 { 0 } else { head };
        if used + more > room {
            if head > room {
                return None;
            }
            // The last layer goes along with the head if it can; a stage of the head alone serves too.
            stages.push(0);
        }
        Some(stages)
    }
}

fn llama(source: &dyn TensorSource, config: &ModelConfig) -> Result<Footprint, FormatError> {
    let state = LayerState::Kv { width: 2 * u64::from(config.kv_width()) };
    let mut footprint = Footprint::empty(vec![state; config.layers as usize]);
    for (name, shape, role) in super::tensors(config) {
        let info = source.require(&name, &shape)?;
        let format = device_format(info.dtype).filter(|_| role == TensorRole::Matrix);
        let format = format.unwrap_or(TensorFormat::F32);
        let bytes = format.bytes(info.rows(), info.cols());
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse().ok());
        let (part, share) = match name.as_str() {
            "token_embd.weight" if config.tied_head => (Part::Head, (1, 1)),
            "token_embd.weight" => (Part::Embedding, (1, info.rows())),
            "output.weight" => (Part::Head, (1, 1)),
            _ => (Part::Backbone, (1, 1)),
        };
        footprint.add(part, layer, info.elements(), bytes, share);
    }
    Ok(footprint)
}

fn glm5(source: &dyn TensorSource, config: &Glm5Config) -> Result<Footprint, FormatError> {
    let state = |kind: MixerKind| match kind {
        MixerKind::Kda => {
            let (width, dim) = (u64::from(config.kda_width()), u64::from(config.kda_head_dim));
            LayerState::Recurrent { elements: width * dim + 3 * width * u64::from(config.conv_kernel) }
        }
        MixerKind::Mla { indexer } => LayerState::Latent {
            width: config.kv_lora.into(),
            selected: u64::from(config.index_topk) + u64::from(config.index_kpool) - 1,
            index: (indexer == glm5::IndexerKind::Full)
                .then_some((config.index_kpool.into(), config.index_dim.into())),
        },
    };
    let mut footprint = Footprint::empty(config.layers.iter().map(|layer| state(layer.mixer)).collect());
    let routed = (u64::from(config.experts_per_token), u64::from(config.experts));
    for tensor in glm5::tensors(config) {
        let parameters: u64 = tensor.shape.iter().product();
        let bytes = match tensor.kind {
            TensorKind::Linear => {
                let stem = tensor.name.strip_suffix(".weight").unwrap_or(&tensor.name);
                let &[rows, cols] = tensor.shape.as_slice() else { continue };
                LinearWeight::require(source, stem, [rows, cols])?.device_bytes()
            }
            TensorKind::Matrix => source.require(&tensor.name, &tensor.shape)?.bytes(),
            TensorKind::Vector => 4 * parameters,
        };
        let rest = tensor.name.strip_prefix(glm5::PREFIX).and_then(|rest| rest.strip_prefix("layers."));
        let layer: Option<usize> = rest.and_then(|rest| rest.split('.').next()?.parse().ok());
        let experts = layer.is_some_and(|layer| config.layers[layer].ffn == FfnKind::Routed)
            && tensor.name.contains(".mlp.experts.");
        let (part, share) = match tensor.name.as_str() {
            glm5::EMBEDDING if config.tied_head => (Part::Head, (1, 1)),
            glm5::EMBEDDING => (Part::Embedding, (1, config.vocab.into())),
            glm5::HEAD => (Part::Head, (1, 1)),
            // Summed over the experts, so that the rounding of a share does not add up: done below.
            _ if experts => (Part::Experts, (0, 1)),
            _ => (Part::Backbone, (1, 1)),
        };
        footprint.add(part, layer, parameters, bytes, share);
    }
    let experts = &mut footprint.parts[Part::Experts as usize];
    let of = |n: u64| (u128::from(n) * u128::from(routed.0) / u128::from(routed.1)) as u64;
    (experts.read, experts.active) = (of(experts.bytes), of(experts.parameters));
    Ok(footprint)
}
