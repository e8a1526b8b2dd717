//! What a session keeps on the device from token to token: the tokens, the position and a slot a layer.

use thiserror::Error;

use crate::config::ModelConfig;
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
}

impl Cache {
    /// Room for `capacity` positions, none taken.
    ///
    /// # Errors
    /// A capacity of 0 or past the model's context; out of memory.
    pub fn new(engine: &Engine, config: &ModelConfig, capacity: u32) -> Result<Cache, CacheError> {
        if capacity == 0 || capacity > config.context {
            return Err(CacheError::Capacity { capacity, context: config.context });
        }
        let len = capacity as usize * config.kv_heads as usize * config.head_dim as usize;
        let kv = engine.options().kv;
        let layers = (0..config.layers)
            .map(|layer| {
                let k = KvBuffer::new(engine, kv, len, &format!("layer {layer} keys"))?;
                let v = KvBuffer::new(engine, kv, len, &format!("layer {layer} values"))?;
                Ok(LayerCache::Kv { k, v })
            })
            .collect::<Result<_, DeviceError>>()?;
        // One more than the positions: the last token produced is written but never read.
        let tokens = engine.uninit(capacity as usize + 1, "tokens")?;
        let position = engine.uninit(1, "position")?;
        engine.copy_into(&position, &[0])?;
        Ok(Cache { capacity, vocab: config.vocab, held: 0, tokens, position, layers })
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

    /// Bytes of all slots.
    pub fn bytes(&self) -> usize {
        self.layers.iter().map(|LayerCache::Kv { k, v }| k.bytes() + v.bytes()).sum()
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

    /// A walk has processed the token at position `held`.
    pub(crate) fn advance(&mut self) {
        self.held += 1;
    }

    /// Forgets the positions from `held` on: the next token is the one at position `held`.
    ///
    /// # Errors
    /// [`CacheError::Rewind`] when fewer are held; what the device says.
    pub fn rewind(&mut self, engine: &Engine, held: u32) -> Result<(), CacheError> {
        if held > self.held {
            return Err(CacheError::Rewind { to: held, held: self.held });
        }
        if held < self.held {
            engine.copy_into(&self.position, &[held])?;
            self.held = held;
        }
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
