//! The stages of a session: a device with some of the layers each, and what passes between them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::session::{WalkKind, Walks};
use super::{DecodeError, Sampler};
use crate::cache::{Cache, MAX_CHUNK_TOKENS};
use crate::device::{Buffer, Event, HostBuffer};
use crate::engine::Engine;
use crate::models::{HybridModel, StageLinks, Walk, WalkOptions};
use crate::plan::Arena;

/// One device's part of a session.
#[derive(Debug)]
pub struct StageState {
    pub(super) engine: Arc<Engine>,
    pub(super) model: Arc<HybridModel>,
    pub(super) cache: Cache,
    pub(super) handover: Handover,
    arena: Arena,
    walks: Walks,
    /// Recorded when the stage's part of a walk is queued; the stage after it waits for it, the first one for the last.
    done: Option<Event>,
    /// The one to wait for.
    after: Option<Event>,
    /// `[tokens, streams, hidden]`, written by the stage before.
    inbox: Option<Buffer<f32>>,
    /// The next stage's, and whether this device's kernels can write there.
    outbox: Option<Outbox>,
    /// In the last stage: where the first one takes its token from.
    outgoing: Option<Outgoing>,
}

/// Walks that are kept.
const MOST_WALKS: usize = 64;

/// How the first stage gets its token.
#[derive(Debug)]
pub(super) enum Handover {
    /// From its own head.
    Own,
    /// From the last stage, which writes it here.
    Pipeline { incoming: Buffer<u32> },
    /// It embeds nothing.
    None,
}

#[derive(Debug)]
struct Outbox {
    buffer: Buffer<f32>,
    /// Where there is no peer access: the rows pass through here, by the number of tokens.
    staging: Option<BTreeMap<u32, HostBuffer<f32>>>,
}

#[derive(Debug)]
struct Outgoing {
    buffer: Buffer<u32>,
    staging: Option<HostBuffer<u32>>,
}

impl StageState {
    /// The states of stages in order, linked.
    pub(super) fn chain(
        stages: &[(Arc<Engine>, Arc<HybridModel>)],
        capacity: u32,
    ) -> Result<Vec<StageState>, DecodeError> {
        let mut next = 0;
        for (index, (_, model)) in stages.iter().enumerate() {
            let range = model.range();
            if range.first != next || (index + 1 == stages.len()) != range.is_last() {
                return Err(DecodeError::Stages(format!(
                    "stage {index} has layers {}..{} of {}, after layer {next}: each layer must be in one stage, in order",
                    range.first, range.end, range.total
                )));
            }
            next = range.end;
        }
        let mut states = Vec::new();
        for (index, (engine, model)) in stages.iter().enumerate() {
            let cache = Cache::new(engine, &model.cache_shape(), capacity)?;
            let several = stages.len() > 1;
            let inbox = match index {
                0 => None,
                _ => Some(engine.uninit(MAX_CHUNK_TOKENS.min(capacity) as usize * model.row_len(), "inbox")?),
            };
            let handover = match (index, several) {
                (0, false) => Handover::Own,
                (0, true) => Handover::Pipeline { incoming: engine.uninit(1, "incoming token")? },
                _ => Handover::None,
            };
            states.push(StageState {
                engine: engine.clone(),
                model: model.clone(),
                cache,
                handover,
                arena: Arena::new(engine.device()),
                walks: Walks::new(),
                done: if several { Some(Event::new(engine.device())?) } else { None },
                after: None,
                inbox,
                outbox: None,
                outgoing: None,
            });
        }
        for index in 1..states.len() {
            let (before, after) = states.split_at_mut(index);
            let (from, to) = (&mut before[index - 1], &mut after[0]);
            let Some(inbox) = to.inbox.clone() else { continue };
            let staging = match from.engine.device().peer_access(to.engine.device())? {
                true => None,
                false => Some(BTreeMap::new()),
            };
            from.outbox = Some(Outbox { buffer: inbox, staging });
            to.after = from.done.clone();
        }
        if let [first, .., last] = &mut states[..]
            && let Handover::Pipeline { incoming } = &first.handover
        {
            let staging = match last.engine.device().peer_access(first.engine.device())? {
                true => None,
                false => Some(HostBuffer::new(last.engine.device(), 1, "token between stages")?),
            };
            last.outgoing = Some(Outgoing { buffer: incoming.clone(), staging });
            first.after = last.done.clone();
        }
        Ok(states)
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// Its layers.
    pub fn model(&self) -> &Arc<HybridModel> {
        &self.model
    }

    /// Their cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Builds the walk of a kind, where it is not there yet.
    pub(super) fn prepare(
        &mut self,
        kind: WalkKind,
        logits: &Buffer<f32>,
        sampler: Option<&Sampler>,
    ) -> Result<(), DecodeError> {
        if self.walks.contains_key(&kind) {
            return Ok(());
        }
        if self.walks.len() >= MOST_WALKS {
            // Those of prompts come in many lengths and are soon built again; their scratch stays in the arena.
            self.walks.retain(|kind, _| !kind.prompt);
        }
        let links = StageLinks {
            inbox: self.inbox.as_ref(),
            outbox: self
                .outbox
                .as_ref()
                .filter(|outbox| outbox.staging.is_none())
                .map(|outbox| &outbox.buffer),
            incoming: match &self.handover {
                Handover::Pipeline { incoming } if !kind.prompt => Some(incoming),
                _ => None,
            },
            outgoing: self.outgoing.as_ref().filter(|out| out.staging.is_none()).map(|out| &out.buffer),
        };
        let WalkKind { tokens, n_splits, probing, .. } = kind;
        let options = WalkOptions { tokens, n_splits, sampler, probing, links };
        let walk = self.model.walk(&self.engine, &self.arena, &self.cache, logits, options)?;
        let len = tokens as usize * self.model.row_len();
        if let Some(Outbox { staging: Some(staging), .. }) = &mut self.outbox {
            staging.insert(tokens, HostBuffer::new(self.engine.device(), len, "rows between stages")?);
        }
        self.walks.insert(kind, walk);
        Ok(())
    }

    /// A walk that was prepared.
    pub(super) fn prepared(&self, kind: &WalkKind) -> &Walk {
        &self.walks[kind]
    }

    /// Waits, on the device, for what this stage's part of a walk needs.
    pub(super) fn begin(&self) -> Result<(), DecodeError> {
        if let Some(event) = &self.after {
            self.engine.stream().wait(event)?;
        }
        Ok(())
    }

    /// Gives the chunk's rows to the next stage, where the walk has not done so itself, and lets it begin.
    pub(super) fn hand_over(&self, kind: &WalkKind, next: &StageState) -> Result<(), DecodeError> {
        let stream = self.engine.stream();
        if let Some(Outbox { buffer, staging: Some(staging) }) = &self.outbox {
            let walk = self.prepared(kind);
            let staged = &staging[&kind.tokens];
            stream.read_pinned(&walk.hidden, staged)?;
            // The host must not let the next stage read before the copy has landed: its stream is another device's.
            self.engine.synchronize()?;
            next.engine.stream().write_pinned(&buffer.slice(..staged.len())?, staged)?;
        }
        if let Some(event) = &self.done {
            stream.record(event)?;
        }
        Ok(())
    }

    /// Ends the last stage's part of a walk of `tokens`: gives the token that it produced, if it did, to the first stage,
    /// where the head has not done so itself, and lets that one begin.
    pub(super) fn finish(&self, first: &StageState, tokens: u32, produced: bool) -> Result<(), DecodeError> {
        let stream = self.engine.stream();
        if let Some(Outgoing { buffer, staging: Some(staging) }) = &self.outgoing
            && produced
        {
            let at = (self.cache.held() + tokens) as usize;
            stream.read_pinned(&self.cache.tokens().slice(at..=at)?, staging)?;
            self.engine.synchronize()?;
            first.engine.stream().write_pinned(buffer, staging)?;
        }
        if let Some(event) = &self.done {
            stream.record(event)?;
        }
        Ok(())
    }
}
