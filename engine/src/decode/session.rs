//! A session: a model, a cache and the walks over them, on one device or split over several.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use super::stages::{Handover, StageState};
use super::{DEFAULT_CHUNK, DecodeError, GraphDecodeState, Sampler, Sampling};
use crate::cache::{Cache, MAX_CHUNK_TOKENS};
use crate::device::{Buffer, HostBuffer};
use crate::engine::Engine;
use crate::models::{CHUNK, HybridModel, Observer, Walk};
use crate::options::BucketPolicy;

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
    stages: Vec<StageState>,
    logits: Buffer<f32>,
    produced: HostBuffer<u32>,
    sampler: Option<Sampler>,
    sampled: bool,
    buckets: BucketPolicy,
    chunk: NonZeroU32,
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
        Session::pipeline(&[(engine.clone(), model.clone())], capacity)
    }

    /// A session over stages, each an engine with a model's contiguous layers, in order.
    ///
    /// # Errors
    /// Stages that are no model; a bad capacity; out of memory.
    pub fn pipeline(
        stages: &[(Arc<Engine>, Arc<HybridModel>)],
        capacity: u32,
    ) -> Result<Session, DecodeError> {
        let stages = StageState::chain(stages, capacity)?;
        let Some(last) = stages.last() else { return Err(DecodeError::Stages("there is none".to_owned())) };
        let logits = last.engine.uninit(last.model.config().vocab as usize, "logits")?;
        let produced = HostBuffer::new(last.engine.device(), 1, "produced token")?;
        let buckets = last.engine.options().buckets;
        Ok(Session { stages, logits, produced, sampler: None, sampled: false, buckets, chunk: DEFAULT_CHUNK })
    }

    fn first(&self) -> &StageState {
        &self.stages[0]
    }

    fn last(&self) -> &StageState {
        &self.stages[self.stages.len() - 1]
    }

    /// The engine of the last stage, which has the logits.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.last().engine
    }

    /// The model; of several stages the last one's part.
    pub fn model(&self) -> &Arc<HybridModel> {
        &self.last().model
    }

    /// The cache; of several stages the last one's.
    pub fn cache(&self) -> &Cache {
        &self.last().cache
    }

    /// The stages in order.
    pub fn stages(&self) -> &[StageState] {
        &self.stages
    }

    /// Chunks that attention must be sized for to process the token at the next position, under the session's policy.
    pub fn bucket(&self) -> u32 {
        self.bucket_of(1)
    }

    /// The same for `tokens` tokens. 1 where attention is of a fixed size.
    fn bucket_of(&self, tokens: u32) -> u32 {
        if !self.stages.iter().any(|stage| stage.model.has_buckets()) {
            return 1;
        }
        let needed = (self.cache().held() + tokens).div_ceil(CHUNK);
        let most = self.cache().capacity().div_ceil(CHUNK);
        match self.buckets {
            BucketPolicy::PerBoundary => needed,
            BucketPolicy::Doubling => needed.next_power_of_two().min(most),
        }
    }

    /// The walk for the token at the next position, of several stages the last one's part; built once a bucket.
    ///
    /// # Errors
    /// Those of [`HybridModel::walk`].
    pub fn walk(&mut self) -> Result<&Walk, DecodeError> {
        let kind = self.kind(1, false, false);
        self.prepare(kind)?;
        Ok(self.last().prepared(&kind))
    }

    /// The walks of every stage for the token at the next position, in order; built once a bucket.
    ///
    /// # Errors
    /// Those of [`HybridModel::walk`].
    pub fn walks(&mut self) -> Result<Vec<&Walk>, DecodeError> {
        let kind = self.kind(1, false, false);
        self.prepare(kind)?;
        Ok(self.stages.iter().map(|stage| stage.prepared(&kind)).collect())
    }

    fn kind(&self, tokens: u32, probing: bool, prompt: bool) -> WalkKind {
        let n_splits = self.bucket_of(tokens);
        WalkKind { tokens, n_splits, sampled: self.sampled, probing, prompt }
    }

    /// Builds every stage's walk of this kind, where it is not there yet.
    fn prepare(&mut self, kind: WalkKind) -> Result<(), DecodeError> {
        let sampler = self.sampler.as_ref().filter(|_| self.sampled);
        let count = self.stages.len();
        for (index, stage) in self.stages.iter_mut().enumerate() {
            let sampler = sampler.filter(|_| index + 1 == count);
            stage.prepare(kind, &self.logits, sampler)?;
        }
        Ok(())
    }

    /// From here on, draws the next token as `sampling` says, or takes the likeliest. Parameters live on the device, so
    /// graphs captured before stay as they are.
    ///
    /// # Errors
    /// What the device says.
    pub fn set_sampling(&mut self, sampling: Option<&Sampling>) -> Result<(), DecodeError> {
        if let Some(sampling) = sampling {
            let engine = self.engine().clone();
            let sampler = match self.sampler.take() {
                Some(sampler) => sampler,
                None => Sampler::new(&engine)?,
            };
            self.sampler.insert(sampler).set(&engine, sampling)?;
        }
        self.sampled = sampling.is_some();
        Ok(())
    }

    /// Tokens of the prompt that a walk processes at once, at most [`MAX_CHUNK_TOKENS`]: changes no bit.
    pub fn set_prompt_chunk(&mut self, tokens: NonZeroU32) {
        self.chunk = tokens;
    }

    /// Tokens of the next walk where `rest` of a prompt are left: a chunk, or of less than one the largest power of two. So
    /// prompts of all lengths make do with a handful of walks, and with the memory of those.
    pub fn next_chunk(&self, rest: usize) -> usize {
        let chunk = self.chunk.get().min(MAX_CHUNK_TOKENS) as usize;
        if rest >= chunk { chunk } else { 1 << rest.max(1).ilog2() }
    }

    /// Runs `prompt` into the cache, a chunk of tokens a walk; the last one's logits are then in [`Session::logits`] and its
    /// argmax is the next token. `each` is called with the number of tokens done: after every chunk, or with `all_logits`, which
    /// asks for the head at every position, after every token, and then `each` may read [`Session::logits`].
    ///
    /// # Errors
    /// An empty prompt, an id outside the vocabulary, more tokens than room.
    pub fn prime_with(
        &mut self,
        prompt: &[u32],
        all_logits: bool,
        mut each: impl FnMut(&mut Session, usize) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        self.prime_observed(prompt, all_logits, None, &mut each)
    }

    /// [`Session::prime_with`], with `observer` called at every probe of every walk.
    ///
    /// # Errors
    /// The same, and what `observer` says.
    pub fn prime_observed(
        &mut self,
        prompt: &[u32],
        all_logits: bool,
        mut observer: Option<Observer<'_>>,
        each: &mut dyn FnMut(&mut Session, usize) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        if prompt.is_empty() {
            return Err(DecodeError::EmptyPrompt);
        }
        self.feed(prompt)?;
        let mut done = 0;
        while done < prompt.len() {
            let tokens = self.next_chunk(prompt.len() - done);
            let last = done + tokens == prompt.len();
            let kind = self.kind(tokens as u32, observer.is_some(), true);
            self.prepare(kind)?;
            self.run_bodies(&kind, observer.as_mut().map(|observer| &mut **observer as Observer<'_>))?;
            if all_logits && tokens > 1 {
                for token in 0..tokens - usize::from(last) {
                    let stage = self.last();
                    stage.prepared(&kind).rows[token].run(stage.engine.stream())?;
                    each(self, done + token + 1)?;
                }
            }
            // A walk of one token has no plan for its row alone: the head's next token is overwritten below.
            let head = last || (all_logits && tokens == 1);
            self.run_ends(&kind, head)?;
            self.advance(tokens as u32);
            done += tokens;
            if !last && head {
                self.set_next_token(prompt[done])?;
            }
            if !all_logits || head {
                each(self, done)?;
            }
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

    /// Runs the stages' bodies in order.
    fn run_bodies(&mut self, kind: &WalkKind, mut observer: Option<Observer<'_>>) -> Result<(), DecodeError> {
        for index in 0..self.stages.len() {
            let stage = &self.stages[index];
            stage.begin()?;
            match &mut observer {
                Some(observer) => stage.prepared(kind).body.observed(&stage.engine, observer)?,
                None => stage.prepared(kind).body.run(&stage.engine)?,
            }
            self.hand_over(index, kind)?;
        }
        Ok(())
    }

    /// Gives a stage's rows to the next one, where its walk does not do so itself, and lets the next one begin.
    fn hand_over(&mut self, index: usize, kind: &WalkKind) -> Result<(), DecodeError> {
        let (before, after) = self.stages.split_at_mut(index + 1);
        if let Some(next) = after.first_mut() {
            before[index].hand_over(kind, next)?;
        }
        Ok(())
    }

    /// Runs what follows the bodies: the head with the next token, or only the step to the next position.
    fn run_ends(&mut self, kind: &WalkKind, head: bool) -> Result<(), DecodeError> {
        for stage in &self.stages {
            let walk = stage.prepared(kind);
            if head { walk.head.run(stage.engine.stream())? } else { walk.skip.run(stage.engine.stream())? }
        }
        self.finish(kind.tokens, head)
    }

    /// Ends a walk over several stages: the first one may begin the next, with the token that the last one produced.
    fn finish(&self, tokens: u32, produced: bool) -> Result<(), DecodeError> {
        match &self.stages[..] {
            [first, .., last] => last.finish(first, tokens, produced),
            _ => Ok(()),
        }
    }

    fn advance(&mut self, tokens: u32) {
        self.stages.iter_mut().for_each(|stage| stage.cache.advance(tokens));
    }

    /// One eager walk: processes the token at the next position and produces the one after it.
    ///
    /// # Errors
    /// A full cache; a launch that failed.
    pub fn decode_step(&mut self) -> Result<(), DecodeError> {
        self.decode_observed(None)
    }

    /// [`Session::decode_step`], with `observer` called at every probe.
    ///
    /// # Errors
    /// The same, and what `observer` says.
    pub fn decode_observed(&mut self, observer: Option<Observer<'_>>) -> Result<(), DecodeError> {
        self.cache().room_for(1)?;
        let kind = self.kind(1, observer.is_some(), false);
        self.prepare(kind)?;
        self.run_bodies(&kind, observer)?;
        self.run_ends(&kind, true)?;
        self.advance(1);
        Ok(())
    }

    /// One walk through `graphs`: replayed where the bucket is captured, captured first where it is not.
    ///
    /// # Errors
    /// A full cache; a refused capture; a launch that failed.
    pub fn decode_step_graph(&mut self, graphs: &mut GraphDecodeState) -> Result<(), DecodeError> {
        self.cache().room_for(1)?;
        let kind = self.kind(1, false, false);
        self.prepare(kind)?;
        for index in 0..self.stages.len() {
            let stage = &self.stages[index];
            stage.begin()?;
            graphs.step(&stage.engine, stage.prepared(&kind))?;
            self.hand_over(index, &kind)?;
        }
        self.finish(1, true)?;
        self.advance(1);
        Ok(())
    }

    /// The token at the next position: the last one produced. Four bytes are read back.
    ///
    /// # Errors
    /// What the device says.
    pub fn next_token(&mut self) -> Result<u32, DecodeError> {
        let stage = self.last();
        let at = stage.cache.held() as usize;
        let slot = stage.cache.tokens().slice(at..=at)?;
        stage.engine.stream().read_pinned(&slot, &self.produced)?;
        stage.engine.synchronize()?;
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
        let stage = self.last();
        let end = stage.cache.held() as usize + 1;
        let mut tokens = vec![0; count];
        stage.engine.stream().read(&stage.cache.tokens().slice(end - count..end)?, &mut tokens)?;
        Ok(tokens)
    }

    /// Forgets the positions from `held` on; the token there is the next.
    ///
    /// # Errors
    /// When fewer are held; when a recurrent state would have to go back; what the device says.
    pub fn rewind(&mut self, held: u32) -> Result<(), DecodeError> {
        for stage in &mut self.stages {
            stage.cache.rewind(&stage.engine, held)?;
        }
        if held > 0 && self.stages.len() > 1 {
            let token = self.next_token()?;
            self.set_next_token(token)?;
        }
        Ok(())
    }

    /// Replaces the token at the next position.
    ///
    /// # Errors
    /// An id outside the vocabulary; a full cache.
    pub fn set_next_token(&mut self, id: u32) -> Result<(), DecodeError> {
        self.feed(&[id])?;
        let first = self.first();
        if let Handover::Pipeline { incoming } = &first.handover {
            first.engine.copy_into(incoming, &[id])?;
        }
        Ok(())
    }

    /// Writes tokens at the next positions: for the first stage, which embeds them, and the last, which is asked for them.
    fn feed(&mut self, tokens: &[u32]) -> Result<(), DecodeError> {
        for stage in &mut self.stages {
            stage.cache.feed(&stage.engine, tokens)?;
        }
        Ok(())
    }

    /// The logits that the last head computed, `[vocab]`.
    ///
    /// # Errors
    /// What the device says.
    pub fn logits(&self) -> Result<Vec<f32>, DecodeError> {
        let mut logits = vec![0.0; self.logits.len()];
        self.engine().stream().read(&self.logits, &mut logits)?;
        Ok(logits)
    }

    /// Forgets everything but the plans.
    ///
    /// # Errors
    /// What the device says.
    pub fn clear(&mut self) -> Result<(), DecodeError> {
        for stage in &mut self.stages {
            stage.cache.clear(&stage.engine)?;
        }
        Ok(())
    }

    /// Goes to position `held` of a context of zeros, as [`Cache::pretend`] says: to time decoding there.
    ///
    /// # Errors
    /// More positions than there are; what the device says.
    pub fn pretend_context(&mut self, held: u32) -> Result<(), DecodeError> {
        for stage in &mut self.stages {
            stage.cache.pretend(&stage.engine, held)?;
        }
        self.set_next_token(0)
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

/// What tells the walks of one session apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WalkKind {
    pub tokens: u32,
    pub n_splits: u32,
    pub sampled: bool,
    pub probing: bool,
    /// Whether the tokens are the host's, not the last walk's.
    pub prompt: bool,
}

/// The walks of one stage.
pub(super) type Walks = BTreeMap<WalkKind, Walk>;
