//! A model split into stages: contiguous layers of about the same bytes.

use super::StageRange;
use super::load::LoadError;
use crate::config::Family;
use crate::config::glm5::{IndexerKind, MixerKind};
use crate::format::TensorSource;

/// The bytes of a source's tensors, by where they belong.
struct PartBytes {
    layers: Vec<u64>,
    embedding: u64,
    /// The head and the rest, without the embedding where it is the head too.
    head: u64,
    tied: bool,
}

impl PartBytes {
    fn of(source: &dyn TensorSource, family: &Family) -> PartBytes {
        let (total, marker, tied) = match family {
            Family::Llama(config) => (config.layers as usize, "blk.", config.tied_head),
            Family::Glm5(config) => (config.layers.len(), "layers.", config.tied_head),
        };
        let mut parts = PartBytes { layers: vec![0; total], embedding: 0, head: 0, tied };
        for info in source.tensors() {
            let part = match layer_of(&info.name, marker) {
                Some(layer) => match parts.layers.get_mut(layer) {
                    Some(sum) => sum,
                    None => continue,
                },
                None if info.name.contains("embd") || info.name.contains("embed_tokens") => {
                    &mut parts.embedding
                }
                None => &mut parts.head,
            };
            *part += info.bytes();
        }
        parts
    }
}

/// About how many bytes of the source a stage consists of: tensors that are no part of the model count to the head.
pub(super) fn stage_bytes(source: &dyn TensorSource, family: &Family, range: StageRange) -> u64 {
    let parts = PartBytes::of(source, family);
    let layers: u64 = range.layers().filter_map(|layer| parts.layers.get(layer as usize)).sum();
    let embedding = range.is_first() || (range.is_last() && parts.tied);
    layers + if embedding { parts.embedding } else { 0 } + if range.is_last() { parts.head } else { 0 }
}

/// Splits a source's model into `stages` of contiguous layers, so that the largest has as few bytes as can be. The embedding
/// counts to the first, the head to the last; a layer that shares the selection of the one before stays with it.
///
/// # Errors
/// A configuration that cannot be read; more stages than there are places to split at.
pub fn split_by_bytes(source: &dyn TensorSource, stages: u32) -> Result<Vec<StageRange>, LoadError> {
    let family = source.family()?;
    let PartBytes { mut layers, embedding, head, tied } = PartBytes::of(source, &family);
    let total = layers.len() as u32;
    if let Some(layer) = layers.first_mut() {
        *layer += embedding;
    }
    if let Some(layer) = layers.last_mut() {
        *layer += head + if tied { embedding } else { 0 };
    }
    let splittable: Vec<bool> = match &family {
        Family::Llama(_) => vec![true; layers.len()],
        Family::Glm5(config) => {
            let shares = |kind| matches!(kind, MixerKind::Mla { indexer: IndexerKind::Shared });
            // A boundary before layer i is bad when the next layer with latent attention from i on shares a selection.
            let next = |from: usize| config.layers[from..].iter().find(|kind| kind.mixer != MixerKind::Kda);
            (0..layers.len()).map(|i| next(i).is_none_or(|kind| !shares(kind.mixer))).collect()
        }
    };
    partition(&layers, &splittable, stages).ok_or_else(|| LoadError::Split {
        file: source.path().display().to_string(),
        stages,
        total,
    })
}

/// The number that follows `marker`, where it stands at the start of the name or after a dot.
fn layer_of(name: &str, marker: &str) -> Option<usize> {
    let at = name.find(marker)?;
    if at > 0 && !name[..at].ends_with('.') {
        return None;
    }
    name[at + marker.len()..].split('.').next()?.parse().ok()
}

/// The boundaries with the smallest largest part, by dynamic programming over (parts, layers).
fn partition(layers: &[u64], splittable: &[bool], stages: u32) -> Option<Vec<StageRange>> {
    let (count, parts) = (layers.len(), stages as usize);
    if parts == 0 || parts > count {
        return None;
    }
    let mut sums = vec![0_u64];
    layers.iter().for_each(|bytes| sums.push(sums[sums.len() - 1] + bytes));
    // best[p][i]: the smallest largest part of the first i layers in p parts, and where the last part begins.
    let mut best = vec![vec![None::<(u64, usize)>; count + 1]; parts + 1];
    best[0][0] = Some((0, 0));
    for part in 1..=parts {
        for end in 1..=count {
            let begins = (0..end).filter(|&begin| begin == 0 || splittable[begin]);
            let ends = begins.filter_map(|begin| {
                best[part - 1][begin].map(|(largest, _)| (largest.max(sums[end] - sums[begin]), begin))
            });
            best[part][end] = ends.min();
        }
    }
    let mut ranges = Vec::new();
    let mut end = count;
    for part in (1..=parts).rev() {
        let (_, begin) = best[part][end]?;
        ranges.push(StageRange { first: begin as u32, end: end as u32, total: count as u32 });
        end = begin;
    }
    ranges.reverse();
    Some(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(layers: &[u64], splittable: &[bool], stages: u32) -> Option<Vec<u32>> {
        Some(partition(layers, splittable, stages)?.iter().map(|range| range.end).collect())
    }

    #[test]
    fn the_largest_stage_is_as_small_as_can_be() {
        assert_eq!(ends(&[1, 1, 1, 1], &[true; 4], 2), Some(vec![2, 4]));
        assert_eq!(ends(&[9, 1, 1, 1], &[true; 4], 2), Some(vec![1, 4]));
        assert_eq!(ends(&[3, 1, 4, 1, 5], &[true; 5], 3), Some(vec![2, 4, 5]));
        assert_eq!(ends(&[5], &[true], 1), Some(vec![1]));
    }

    #[test]
    fn boundaries_are_only_where_they_may_be() {
        assert_eq!(ends(&[1, 1, 1, 1], &[true, true, false, true], 2), Some(vec![1, 4]));
        assert_eq!(ends(&[1, 1], &[true, false], 2), None);
        assert_eq!(ends(&[1, 1], &[true; 2], 3), None);
        assert_eq!(ends(&[1, 1], &[true; 2], 0), None);
    }

    #[test]
    fn layers_are_read_off_names() {
        assert_eq!(layer_of("blk.12.attn_q.weight", "blk."), Some(12));
        assert_eq!(layer_of("model.language_model.layers.3.hc_attn_fn", "layers."), Some(3));
        assert_eq!(layer_of("token_embd.weight", "blk."), None);
        assert_eq!(layer_of("model.players.3.x", "layers."), None);
    }
}
