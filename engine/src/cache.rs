//! What a session keeps on the device from token to token: the tokens, the position and a slot a layer.

use thiserror::Error;

use crate::device::{Buffer, DeviceError, F8E4M3};
use crate::engine::Engine;
use crate::kernel::Counter;
use crate::options::KvType;

/// Why a cache could not be made or used.
#[derive(Debug, Error)]
pub enum CacheError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// No room for what is asked.
    #[error("{tokens} tokens do not fit a cache of {capacity} positions that holds {held}: make it larger")]
    Full {
        /// Tokens asked for.
        tokens: usize,
        /// Positions in all.
        capacity: u32,
        /// Positions taken.
        held: u32,
    },
    /// A capacity that the model cannot have.
    #[error("a cache of {capacity} positions: the model's context is {context}, and at least 1 is needed")]
    Capacity {
        /// Positions asked for.
        capacity: u32,
        /// The model's context length.
        context: u32,
    },
    /// A position that has not been reached.
    #[error("a cache that holds {held} positions cannot be rewound to {to}")]
    Rewind {
        /// Positions to be left.
        to: u32,
        /// Positions held.
        held: u32,
    },
    /// A position that a recurrent state has left behind.
    #[error(
        "a recurrent state that has seen {held} positions cannot be rewound to {to}: clear the session and prime it again"
    )]
    Recurrent {
        /// Positions to be left.
        to: u32,
        /// Positions held.
        held: u32,
    },
    /// A token that the model does not have.
    #[error("token id {id} at prompt position {position}: the vocabulary has {vocab}")]
    Token {
        /// The id.
        id: u32,
        /// Its place in the prompt.
        position: usize,
        /// The vocabulary's size.
        vocab: u32,
    },
}

/// Keys or values of one layer, `[capacity, kv_heads, head_dim]`.
#[derive(Debug, Clone)]
pub enum KvBuffer {
    /// float32.
    F32(Buffer<f32>),
    /// IEEE half.
    F16(Buffer<half::f16>),
    /// E4M3.
    F8(Buffer<F8E4M3>),
}

impl KvBuffer {
    fn new(engine: &Engine, kv: KvType, len: usize, name: &str) -> Result<Self, DeviceError> {
        Ok(match kv {
            KvType::F32 => KvBuffer::F32(engine.uninit(len, name)?),
            KvType::F16 => KvBuffer::F16(engine.uninit(len, name)?),
            KvType::F8 => KvBuffer::F8(engine.uninit(len, name)?),
        })
    }

    fn zero(&self, engine: &Engine) -> Result<(), DeviceError> {
        match self {
            KvBuffer::F32(b) => engine.stream().fill(b, 0),
            KvBuffer::F16(b) => engine.stream().fill(b, 0),
            KvBuffer::F8(b) => engine.stream().fill(b, 0),
        }
    }

    /// Its bytes as words, and the number by which kernels that take any element type know its own: 0 float32, 1 float16, 2 e4m3.
    ///
    /// # Errors
    /// A cache whose bytes are no whole number of words.
    pub fn bytes_as_f32(&self) -> Result<(Buffer<f32>, u32), DeviceError> {
        Ok(match self {
            KvBuffer::F32(b) => (b.clone(), 0),
            KvBuffer::F16(b) => (b.cast()?, 1),
            KvBuffer::F8(b) => (b.cast()?, 2),
        })
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            KvBuffer::F32(b) => b.bytes(),
            KvBuffer::F16(b) => b.bytes(),
            KvBuffer::F8(b) => b.bytes(),
        }
    }
}

/// What one layer keeps.
#[derive(Debug, Clone)]
pub enum LayerCache {
    /// Keys and values of grouped-query attention.
    Kv {
        /// Keys, rotated.
        k: KvBuffer,
        /// Values.
        v: KvBuffer,
    },
    /// The state of a recurrent layer, of fixed size: it counts as zero at position 0, whatever it holds.
    Recurrent {
        /// The last inputs of the convolution, a ring by position: `[taps, channels]`.
        conv: Buffer<f32>,
        /// `[heads, dim of keys, dim of values]`.
        state: Buffer<f32>,
    },
    /// What latent attention keeps.
    Latent {
        /// `[capacity, kv_lora]`.
        latents: KvBuffer,
        /// What the layer's indexer keeps, if it has one.
        index: Option<IndexSlot>,
    },
}

/// What an indexer keeps.
#[derive(Debug, Clone)]
pub struct IndexSlot {
    /// The normed keys of the incomplete pool, a ring by position: `[pool, dim]`.
    pub keys: Buffer<f32>,
    /// Their gates.
    pub gates: Buffer<f32>,
    /// The keys of complete pools, `[⌈capacity / pool⌉, dim]`.
    pub pools: Buffer<f32>,
}

/// Where a routed layer leaves the selection of a chunk's tokens.
#[derive(Debug, Clone)]
pub struct RouteSlot {
    /// Ids of the selected experts, ascending: `[tokens of a chunk, selected]`.
    pub ids: Buffer<u32>,
    /// What their outputs are weighed by.
    pub weights: Buffer<f32>,
    /// Experts selected for a token.
    pub selected: u32,
}

/// What the slot of one layer is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotShape {
    /// Keys and values.
    Kv {
        /// Elements of a position's keys, and of its values.
        width: u32,
    },
    /// A recurrent state.
    Recurrent {
        /// Channels of the convolution.
        channels: u32,
        /// Its taps.
        taps: u32,
        /// Elements of the state.
        state: u32,
    },
    /// Latents.
    Latent {
        /// Elements of a latent.
        width: u32,
        /// Tokens a pool and width of an indexer's key, if the layer has one.
        index: Option<(u32, u32)>,
    },
}

/// What a model's cache consists of.
#[derive(Debug, Clone)]
pub struct CacheShape {
    /// Longest context that the model was made for.
    pub context: u32,
    /// Token ids.
    pub vocab: u32,
    /// The layer of the first slot.
    pub first_layer: u32,
    /// One slot a layer.
    pub slots: Vec<SlotShape>,
    /// Experts selected for a token, by layer; 0 where the layer has none.
    pub routes: Vec<u32>,
}

/// Most tokens that a walk processes at once.
pub const MAX_CHUNK_TOKENS: u32 = 512;

impl LayerCache {
    fn new(engine: &Engine, layer: usize, shape: SlotShape, capacity: u32) -> Result<Self, DeviceError> {
        let kv = engine.options().kv;
        let positions = |width: u32| capacity as usize * width as usize;
        let zeros = |len: usize, what: &str| -> Result<Buffer<f32>, DeviceError> {
            let buffer = engine.uninit(len, &format!("layer {layer} {what}"))?;
            engine.stream().fill(&buffer, 0)?;
            Ok(buffer)
        };
        Ok(match shape {
            SlotShape::Kv { width } => LayerCache::Kv {
                k: KvBuffer::new(engine, kv, positions(width), &format!("layer {layer} keys"))?,
                v: KvBuffer::new(engine, kv, positions(width), &format!("layer {layer} values"))?,
            },
            SlotShape::Recurrent { channels, taps, state } => LayerCache::Recurrent {
                conv: zeros(channels as usize * taps as usize, "convolution ring")?,
                state: zeros(state as usize, "state")?,
            },
            SlotShape::Latent { width, index } => LayerCache::Latent {
                latents: KvBuffer::new(engine, kv, positions(width), &format!("layer {layer} latents"))?,
                index: match index {
                    None => None,
                    Some((pool, dim)) => Some(IndexSlot {
                        keys: zeros((pool * dim) as usize, "index keys")?,
                        gates: zeros((pool * dim) as usize, "index gates")?,
                        pools: engine.uninit(
                            capacity.div_ceil(pool) as usize * dim as usize,
                            &format!("layer {layer} pool keys"),
                        )?,
                    }),
                },
            },
        })
    }

    fn zero(&self, engine: &Engine) -> Result<(), DeviceError> {
        let fill = |buffer: &Buffer<f32>| engine.stream().fill(buffer, 0);
        match self {
            LayerCache::Kv { k, v } => k.zero(engine).and_then(|()| v.zero(engine)),
            LayerCache::Recurrent { conv, state } => fill(conv).and_then(|()| fill(state)),
            LayerCache::Latent { latents, index } => {
                latents.zero(engine)?;
                index.iter().try_for_each(|i| [&i.keys, &i.gates, &i.pools].into_iter().try_for_each(fill))
            }
        }
    }

    /// What it is, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            LayerCache::Kv { .. } => "keys and values",
            LayerCache::Recurrent { .. } => "a recurrent state",
            LayerCache::Latent { index: Some(_), .. } => "latents with an index",
            LayerCache::Latent { index: None, .. } => "latents without an index",
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            LayerCache::Kv { k, v } => k.bytes() + v.bytes(),
            LayerCache::Recurrent { conv, state } => conv.bytes() + state.bytes(),
            LayerCache::Latent { latents, index } => {
                let index = index.as_ref().map_or(0, |i| i.keys.bytes() + i.gates.bytes() + i.pools.bytes());
                latents.bytes() + index
            }
        }
    }
}

/// The device-resident state of one session.
#[derive(Debug)]
pub struct Cache {
    capacity: u32,
    vocab: u32,
    held: u32,
    tokens: Buffer<u32>,
    position: Counter,
    layers: Vec<LayerCache>,
    routes: Vec<Option<RouteSlot>>,
    first_layer: u32,
}

impl Cache {
    /// Room for `capacity` positions, none taken.
    ///
    /// # Errors
    /// A capacity of 0 or past the model's context; out of memory.
    pub fn new(engine: &Engine, shape: &CacheShape, capacity: u32) -> Result<Cache, CacheError> {
        if capacity == 0 || capacity > shape.context {
            return Err(CacheError::Capacity { capacity, context: shape.context });
        }
        let slots = shape.slots.iter().enumerate();
        let layers = slots
            .map(|(layer, &slot)| LayerCache::new(engine, shape.first_layer as usize + layer, slot, capacity))
            .collect::<Result<_, DeviceError>>()?;
        let routes = shape.routes.iter().enumerate();
        let routes = routes
            .map(|(layer, &selected)| {
                if selected == 0 {
                    return Ok(None);
                }
                let len = (MAX_CHUNK_TOKENS.min(capacity) * selected) as usize;
                let ids = engine.uninit(len, &format!("layer {layer} selected experts"))?;
                let weights = engine.uninit(len, &format!("layer {layer} expert weights"))?;
                Ok(Some(RouteSlot { ids, weights, selected }))
            })
            .collect::<Result<_, DeviceError>>()?;
        // One more than the positions: the last token produced is written but never read.
        let tokens = engine.uninit(capacity as usize + 1, "tokens")?;
        let position = engine.uninit(1, "position")?;
        engine.copy_into(&position, &[0])?;
        Ok(Cache {
            capacity,
            vocab: shape.vocab,
            held: 0,
            tokens,
            position,
            layers,
            routes,
            first_layer: shape.first_layer,
        })
    }

    /// Positions in all.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Positions whose keys and values are in the cache.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// `tokens[p]` is the token at position `p`: the prompt's, then those produced.
    pub fn tokens(&self) -> &Buffer<u32> {
        &self.tokens
    }

    /// The position of the token that the next walk processes.
    pub fn position(&self) -> &Counter {
        &self.position
    }

    /// One slot a layer.
    pub fn layers(&self) -> &[LayerCache] {
        &self.layers
    }

    /// The layer of the first slot.
    pub fn first_layer(&self) -> u32 {
        self.first_layer
    }

    /// Where each routed layer leaves its selection; nothing for the others.
    pub fn routes(&self) -> &[Option<RouteSlot>] {
        &self.routes
    }

    /// Bytes of all slots.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(LayerCache::bytes).sum()
    }

    fn recurrent(&self) -> bool {
        self.layers.iter().any(|slot| !matches!(slot, LayerCache::Kv { .. }))
    }

    /// Writes `tokens` at the next positions, to be processed by as many walks.
    ///
    /// # Errors
    /// Ids outside the vocabulary; more tokens than positions are free.
    pub fn feed(&mut self, engine: &Engine, tokens: &[u32]) -> Result<(), CacheError> {
        if let Some(position) = tokens.iter().position(|&id| id >= self.vocab) {
            return Err(CacheError::Token { id: tokens[position], position, vocab: self.vocab });
        }
        self.room_for(tokens.len())?;
        let at = self.held as usize;
        let slots = self.tokens.slice(at..at + tokens.len())?;
        engine.copy_into(&slots, tokens)?;
        Ok(())
    }

    /// Checks that `tokens` more positions are free.
    ///
    /// # Errors
    /// If they are not.
    pub fn room_for(&self, tokens: usize) -> Result<(), CacheError> {
        if tokens > (self.capacity - self.held) as usize {
            return Err(CacheError::Full { tokens, capacity: self.capacity, held: self.held });
        }
        Ok(())
    }

    /// A walk has processed the `tokens` tokens from position `held` on.
    pub(crate) fn advance(&mut self, tokens: u32) {
        self.held += tokens;
    }

    /// Forgets the positions from `held` on: the next token is the one at position `held`.
    ///
    /// # Errors
    /// [`CacheError::Rewind`] when fewer are held; [`CacheError::Recurrent`] for a model whose state cannot go back; what the
    /// device says.
    pub fn rewind(&mut self, engine: &Engine, held: u32) -> Result<(), CacheError> {
        if held > self.held {
            return Err(CacheError::Rewind { to: held, held: self.held });
        }
        if held < self.held {
            if held > 0 && self.recurrent() {
                return Err(CacheError::Recurrent { to: held, held: self.held });
            }
            engine.copy_into(&self.position, &[held])?;
            self.held = held;
        }
        Ok(())
    }

    /// Goes to position `held` as if so many tokens 0 had been processed whose keys, values and states are all zero: a context to
    /// time decoding at, without the time of its prompt. What is computed from it means nothing.
    ///
    /// # Errors
    /// More positions than there are; what the device says.
    pub fn pretend(&mut self, engine: &Engine, held: u32) -> Result<(), CacheError> {
        self.clear(engine)?;
        self.room_for(held as usize)?;
        self.layers.iter().try_for_each(|slot| slot.zero(engine))?;
        engine.stream().fill(&self.tokens, 0)?;
        engine.copy_into(&self.position, &[held])?;
        self.held = held;
        Ok(())
    }

    /// Forgets everything: the next token is at position 0.
    ///
    /// # Errors
    /// What the device says.
    pub fn clear(&mut self, engine: &Engine) -> Result<(), CacheError> {
        engine.copy_into(&self.position, &[0])?;
        self.held = 0;
        Ok(())
    }
}
