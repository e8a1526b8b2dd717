//! What observed walks show at their probes, token by token.

use std::collections::BTreeMap;

use crate::device::{DeviceError, Stream};
use crate::models::{Probe, ProbeValues};

/// The probes of the tokens seen so far.
#[derive(Debug, Default)]
pub struct Observed {
    /// By name and layer (none for those that belong to no layer): one row a token.
    floats: BTreeMap<&'static str, BTreeMap<Option<u32>, Vec<Vec<f32>>>>,
    indices: BTreeMap<&'static str, BTreeMap<Option<u32>, Vec<Vec<u32>>>>,
}

impl Observed {
    /// Takes a probe.
    ///
    /// # Errors
    /// What the device says.
    pub fn take(&mut self, stream: &Stream, probe: &Probe) -> Result<(), DeviceError> {
        let tokens = probe.shape[0];
        match probe.values {
            ProbeValues::F32(_) => {
                let values = probe.floats(stream)?;
                let rows = values.chunks(values.len() / tokens).map(<[f32]>::to_vec);
                self.floats.entry(probe.name).or_default().entry(probe.layer).or_default().extend(rows);
            }
            ProbeValues::U32(_) => {
                let values = probe.indices(stream)?;
                let rows = values.chunks(values.len() / tokens).map(<[u32]>::to_vec);
                self.indices.entry(probe.name).or_default().entry(probe.layer).or_default().extend(rows);
            }
        }
        Ok(())
    }

    /// A probe of one token; nothing where it was not seen.
    pub fn floats(&self, name: &str, layer: Option<u32>, token: usize) -> &[f32] {
        self.floats.get(name).and_then(|layers| layers.get(&layer)?.get(token)).map_or(&[], Vec::as_slice)
    }

    /// The same of indices.
    pub fn indices(&self, name: &str, layer: Option<u32>, token: usize) -> &[u32] {
        self.indices.get(name).and_then(|layers| layers.get(&layer)?.get(token)).map_or(&[], Vec::as_slice)
    }

    /// The positions that the indexer of `layer` selected for the token at `position`, ascending: those of its pools, then
    /// those of the incomplete pool.
    pub fn selection(&self, layer: u32, token: usize, position: usize, pool: usize) -> Vec<i32> {
        let count =
            self.indices("indexer_count", Some(layer), token).first().map_or(0, |&count| count as usize);
        let pools = self.indices("indexer_pools", Some(layer), token);
        let chosen = pools
            .iter()
            .take(count)
            .flat_map(|&p| (p as usize * pool..(p as usize + 1) * pool).map(|at| at as i32));
        let tail = (position + 1) / pool * pool..position + 1;
        chosen.chain(tail.map(|at| at as i32)).collect()
    }
}
