//! Running a prompt into a cache, several tokens a launch.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use super::DecodeError;
use crate::cache::{Cache, MAX_CHUNK_TOKENS};
use crate::device::Buffer;
use crate::engine::Engine;
use crate::models::{CHUNK, HybridModel, Probe, StageLinks, WalkOptions};
use crate::plan::Arena;

/// How a prompt is run.
#[derive(Debug, Clone, Copy)]
pub struct PrimeOptions<'a> {
    /// Tokens that a walk processes, at most [`MAX_CHUNK_TOKENS`]: changes no bit.
    pub chunk: NonZeroU32,
    /// Layers after which the hidden state is wanted.
    pub layers: &'a [u32],
}

impl Default for PrimeOptions<'_> {
    fn default() -> Self {
        PrimeOptions { chunk: DEFAULT_CHUNK, layers: &[] }
    }
}

/// Tokens of a prompt that a walk processes unless something else is asked for.
pub const DEFAULT_CHUNK: NonZeroU32 = NonZeroU32::new(64).unwrap();

/// What a prompt leaves beside the cache.
#[derive(Debug, Clone, PartialEq)]
pub struct Primed {
    /// The logits after the last token, `[vocab]`.
    pub logits: Vec<f32>,
    /// What the head read for the last token, `[hidden]`.
    pub hidden: Vec<f32>,
    /// The residual, or the streams, after each layer asked for: `[prompt, streams, hidden]`.
    pub layers: BTreeMap<u32, Vec<f32>>,
}

impl HybridModel {
    /// Runs `prompt` into `cache` from position `from` on, what the cache holds past it being forgotten; the token after the
    /// prompt is then the next one of the cache. The plans are built for this call; a [`Session`](super::Session) keeps them.
    ///
    /// Program `rows`: every token's rows are reduced as in decode, so no chunk size changes a bit.
    ///
    /// # Errors
    /// An empty prompt, an id outside the vocabulary, more tokens than room, a position that the cache cannot be taken back to.
    pub fn prime_cache(
        &self,
        engine: &Engine,
        prompt: &[u32],
        cache: &mut Cache,
        from: u32,
        options: PrimeOptions<'_>,
    ) -> Result<Primed, DecodeError> {
        if prompt.is_empty() {
            return Err(DecodeError::EmptyPrompt);
        }
        cache.rewind(engine, from)?;
        cache.feed(engine, prompt)?;
        let arena = Arena::new(engine.device());
        let logits: Buffer<f32> = engine.uninit(self.config().vocab as usize, "logits")?;
        let probing = !options.layers.is_empty();
        let chunk = options.chunk.get().min(MAX_CHUNK_TOKENS) as usize;
        let mut layers: BTreeMap<u32, Vec<f32>> = BTreeMap::new();
        let mut hidden = Vec::new();
        let mut rest = prompt;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(chunk));
            let tokens = now.len() as u32;
            let n_splits = if self.has_buckets() { (cache.held() + tokens).div_ceil(CHUNK) } else { 1 };
            let walk_options =
                WalkOptions { tokens, n_splits, sampler: None, probing, links: StageLinks::default() };
            let walk = self.walk(engine, &arena, cache, &logits, walk_options)?;
            walk.body.observed(engine, &mut |probe: &Probe| {
                if let Some(layer) = probe.layer
                    && options.layers.contains(&layer)
                    && matches!(probe.name, "streams" | "residual")
                {
                    layers.entry(layer).or_default().extend(probe.floats(engine.stream())?);
                }
                Ok(())
            })?;
            if later.is_empty() {
                walk.head.run(engine.stream())?;
                let width = self.config().hidden as usize;
                hidden = vec![0.0; width];
                engine.stream().read(&walk.hidden.slice((now.len() - 1) * width..)?, &mut hidden)?;
            } else {
                walk.skip.run(engine.stream())?;
            }
            cache.advance(tokens);
            rest = later;
        }
        let mut row = vec![0.0; logits.len()];
        engine.stream().read(&logits, &mut row)?;
        Ok(Primed { logits: row, hidden, layers })
    }
}
