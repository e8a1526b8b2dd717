//! Producing tokens: several walks queued back to back, one synchronisation with the host for all of them.

use std::num::NonZeroUsize;

use super::{DecodeError, GraphDecodeState, Session};

/// What to produce, and how.
#[derive(Debug)]
pub struct Production<'a> {
    /// Walks are replayed from these graphs; without, they are launched.
    pub graphs: Option<&'a mut GraphDecodeState>,
    /// Tokens at most.
    pub tokens: usize,
    /// Tokens a synchronisation. Nothing on the host feeds a walk, so this changes when tokens are seen, never which.
    pub queue: NonZeroUsize,
    /// Tokens that end the production. They are not part of it.
    pub stop: &'a [u32],
}

/// Why a production ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// This stop token came.
    Stop(u32),
    /// As many as were asked for.
    Length,
    /// The cache has no position left.
    Full,
    /// The callback said so.
    Asked,
}

/// What was produced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Produced {
    /// The tokens, without the stop token.
    pub ids: Vec<u32>,
    /// Why there are no more.
    pub finish: Finish,
    /// Walks run.
    pub walks: usize,
    /// Times that the host waited for the device.
    pub synchronisations: usize,
}

impl Session {
    /// Produces tokens, beginning with the one at the next position (which priming chose): `n` tokens take `n − 1` walks.
    /// `each` is called with every token that is not a stop token and may end the production.
    ///
    /// Afterwards the last token seen, be it a stop token, is the one at the next position, whatever was queued: walks
    /// past it are undone. [`Session::prime`] overwrites it.
    ///
    /// # Errors
    /// A refused capture; a launch that failed; what `each` says.
    pub fn produce(
        &mut self,
        mut ask: Production<'_>,
        mut each: impl FnMut(u32) -> Result<bool, DecodeError>,
    ) -> Result<Produced, DecodeError> {
        let mut out = Produced { ids: Vec::new(), finish: Finish::Length, walks: 0, synchronisations: 0 };
        let mut unread = 1;
        while out.ids.len() < ask.tokens {
            let wanted = ask.queue.get().min(ask.tokens - out.ids.len());
            while unread < wanted && self.cache().held() < self.cache().capacity() {
                match &mut ask.graphs {
                    Some(graphs) => self.decode_step_graph(graphs)?,
                    None => self.decode_step()?,
                }
                unread += 1;
                out.walks += 1;
            }
            if unread == 0 {
                out.finish = Finish::Full;
                break;
            }
            let ids = self.last_tokens(unread)?;
            out.synchronisations += 1;
            for (index, &id) in ids.iter().enumerate() {
                let finish = if ask.stop.contains(&id) {
                    Some(Finish::Stop(id))
                } else {
                    out.ids.push(id);
                    (!each(id)?).then_some(Finish::Asked)
                };
                if let Some(finish) = finish {
                    self.rewind(self.cache().held() - (ids.len() - 1 - index) as u32)?;
                    return Ok(Produced { finish, ..out });
                }
            }
            unread = 0;
        }
        Ok(out)
    }
}
