//! A session: a model, a cache and the walks over them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{DecodeError, GraphDecodeState, Sampler, Sampling};
use crate::cache::Cache;
use crate::device::{Buffer, HostBuffer};
use crate::engine::Engine;
use crate::models::{CHUNK, HybridModel, Walk};
use crate::options::BucketPolicy;
use crate::plan::Arena;

/// Index of the largest element, the lowest of equals; NaN is never the largest. The host's counterpart of the argmax on
/// the device.
pub fn argmax(logits: &[f32]) -> u32 {
    let mut best = (f32::NEG_INFINITY, 0);
    for (index, &value) in logits.iter().enumerate() {
        if value > best.0 {
            best = (value, index as u32);
        }
    }
    best.1
}

/// One conversation's device state, with the plans that advance it.
#[derive(Debug)]
pub struct Session {
    engine: Arc<Engine>,
    model: Arc<HybridModel>,
    cache: Cache,
    arena: Arena,
    logits: Buffer<f32>,
    produced: HostBuffer<u32>,
    walks: BTreeMap<(u32, bool), Walk>,
    sampler: Option<Sampler>,
    sampled: bool,
    buckets: BucketPolicy,
}

impl Session {
    /// A session with room for `capacity` positions.
    ///
    /// # Errors
    /// A bad capacity; out of memory.
    pub fn new(
        engine: &Arc<Engine>,
        model: &Arc<HybridModel>,
        capacity: u32,
    ) -> Result<Session, DecodeError> {
        let cache = Cache::new(engine, model.config(), capacity)?;
        let logits = engine.uninit(model.config().vocab as usize, "logits")?;
        let produced = HostBuffer::new(engine.device(), 1, "produced token")?;
        Ok(Session {
            engine: engine.clone(),
            model: model.clone(),
            cache,
            arena: Arena::new(engine.device()),
            logits,
            produced,
            walks: BTreeMap::new(),
            sampler: None,
            sampled: false,
            buckets: engine.options().buckets,
        })
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The model.
    pub fn model(&self) -> &Arc<HybridModel> {
        &self.model
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Chunks that attention must be sized for to process the token at the next position, under the session's policy.
    pub fn bucket(&self) -> u32 {
        let needed = (self.cache.held() + 1).div_ceil(CHUNK);
        let most = self.cache.capacity().div_ceil(CHUNK);
        match self.buckets {
            BucketPolicy::PerBoundary => needed,
            BucketPolicy::Doubling => needed.next_power_of_two().min(most),
        }
    }

    /// The walk for the token at the next position; built once a bucket.
    ///
    /// # Errors
    /// Those of [`HybridModel::walk`].
    pub fn walk(&mut self) -> Result<&Walk, DecodeError> {
        let n_splits = self.bucket();
        let key = (n_splits, self.sampled);
        if !self.walks.contains_key(&key) {
            let sampler = self.sampler.as_ref().filter(|_| self.sampled);
            let walk =
                self.model.walk(&self.engine, &self.arena, &self.cache, n_splits, &self.logits, sampler)?;
            self.walks.insert(key, walk);
        }
        Ok(&self.walks[&key])
    }

    /// From here on, draws the next token as `sampling` says, or takes the likeliest. Parameters live on the device, so
    /// graphs captured before stay as they are.
    ///
    /// # Errors
    /// What the device says.
    pub fn set_sampling(&mut self, sampling: Option<&Sampling>) -> Result<(), DecodeError> {
        if let Some(sampling) = sampling {
            let sampler = match self.sampler.take() {
                Some(sampler) => sampler,
                None => Sampler::new(&self.engine)?,
            };
            self.sampler.insert(sampler).set(&self.engine, sampling)?;
        }
        self.sampled = sampling.is_some();
        Ok(())
    }

    /// Runs `prompt` into the cache, token by token; the last one's logits are then in [`Session::logits`] and its argmax
    /// is the next token. `each` is called after every token with the number done; `all_logits` asks for the head at
    /// every position, and then `each` may read [`Session::logits`].
    ///
    /// # Errors
    /// An empty prompt, an id outside the vocabulary, more tokens than room.
    pub fn prime_with(
        &mut self,
        prompt: &[u32],
        all_logits: bool,
        mut each: impl FnMut(&mut Session, usize) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if prompt.is_empty() {
            return Err(DecodeError::EmptyPrompt);
        }
        self.cache.feed(&self.engine, prompt)?;
        for done in 1..=prompt.len() {
            if done == prompt.len() || all_logits {
                self.step()?;
                if done < prompt.len() {
                    // The head has overwritten the prompt's next token with its own.
                    self.set_next_token(prompt[done])?;
                }
            } else {
                let engine = self.engine.clone();
                let walk = self.walk()?;
                walk.body.run(engine.stream())?;
                walk.skip.run(engine.stream())?;
                self.cache.advance();
            }
            each(self, done)?;
        }
        Ok(())
    }

    /// [`Session::prime_with`] without a callback.
    ///
    /// # Errors
    /// The same.
    pub fn prime(&mut self, prompt: &[u32]) -> Result<(), DecodeError> {
        self.prime_with(prompt, false, |_, _| Ok(()))
    }

    fn step(&mut self) -> Result<(), DecodeError> {
        self.cache.room_for(1)?;
        let engine = self.engine.clone();
        let walk = self.walk()?;
        walk.body.run(engine.stream())?;
        walk.head.run(engine.stream())?;
        self.cache.advance();
        Ok(())
    }

    /// One eager walk: processes the token at the next position and produces the one after it.
    ///
    /// # Errors
    /// A full cache; a launch that failed.
    pub fn decode_step(&mut self) -> Result<(), DecodeError> {
        self.step()
    }

    /// One walk through `graphs`: replayed where the bucket is captured, captured first where it is not.
    ///
    /// # Errors
    /// A full cache; a refused capture; a launch that failed.
    pub fn decode_step_graph(&mut self, graphs: &mut GraphDecodeState) -> Result<(), DecodeError> {
        self.cache.room_for(1)?;
        let engine = self.engine.clone();
        let walk = self.walk()?;
        graphs.step(&engine, walk)?;
        self.cache.advance();
        Ok(())
    }

    /// The token at the next position: the last one produced. Four bytes are read back.
    ///
    /// # Errors
    /// What the device says.
    pub fn next_token(&mut self) -> Result<u32, DecodeError> {
        let at = self.cache.held() as usize;
        let slot = self.cache.tokens().slice(at..=at)?;
        self.engine.stream().read_pinned(&slot, &self.produced)?;
        self.engine.synchronize()?;
        Ok(self.produced.get(0))
    }

    /// The last `count` tokens, up to the one at the next position.
    ///
    /// # Errors
    /// What the device says.
    ///
    /// # Panics
    /// If there are fewer.
    pub(super) fn last_tokens(&mut self, count: usize) -> Result<Vec<u32>, DecodeError> {
        if count == 1 {
            return Ok(vec![self.next_token()?]);
        }
        let end = self.cache.held() as usize + 1;
        let mut tokens = vec![0; count];
        self.engine.stream().read(&self.cache.tokens().slice(end - count..end)?, &mut tokens)?;
        Ok(tokens)
    }

    /// Forgets the positions from `held` on; the token there is the next.
    ///
    /// # Errors
    /// When fewer are held; what the device says.
    pub fn rewind(&mut self, held: u32) -> Result<(), DecodeError> {
        Ok(self.cache.rewind(&self.engine, held)?)
    }

    /// Replaces the token at the next position.
    ///
    /// # Errors
    /// An id outside the vocabulary; a full cache.
    pub fn set_next_token(&mut self, id: u32) -> Result<(), DecodeError> {
        Ok(self.cache.feed(&self.engine, &[id])?)
    }

    /// The logits that the last head computed, `[vocab]`.
    ///
    /// # Errors
    /// What the device says.
    pub fn logits(&self) -> Result<Vec<f32>, DecodeError> {
        let mut logits = vec![0.0; self.logits.len()];
        self.engine.stream().read(&self.logits, &mut logits)?;
        Ok(logits)
    }

    /// Forgets everything but the plans.
    ///
    /// # Errors
    /// What the device says.
    pub fn clear(&mut self) -> Result<(), DecodeError> {
        Ok(self.cache.clear(&self.engine)?)
    }

    /// Primes with `prompt`, then produces `tokens` tokens by replay: the first is the argmax of the prompt's last logits,
    /// so `tokens - 1` walks follow; 0 only primes. Stops early when `each` returns false for a token.
    ///
    /// # Errors
    /// Those of priming and of a step.
    pub fn generate_graph(
        &mut self,
        graphs: &mut GraphDecodeState,
        prompt: &[u32],
        tokens: usize,
        mut each: impl FnMut(&mut Session, u32) -> Result<bool, DecodeError>,
    ) -> Result<Vec<u32>, DecodeError> {
        self.prime(prompt)?;
        let mut out = Vec::new();
        while out.len() < tokens {
            if !out.is_empty() {
                self.decode_step_graph(graphs)?;
            }
            let token = self.next_token()?;
            out.push(token);
            if !each(self, token)? {
                break;
            }
        }
        Ok(out)
    }
}
