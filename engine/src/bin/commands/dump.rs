//! What `bitwalk logits --dump` adds to its file: the names and layouts of the golden data in `gates/fixtures`.

use anyhow::{Result, bail};
use bitwalk::models::{Ffn, Flow, Layer, Mixer};
use bitwalk::observe::Observed;
use bitwalk::pipeline::Pipeline;
use safetensors::tensor::{Dtype, TensorView};

/// What can be dumped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Dump {
    /// Routed experts and their weights, of every position and step
    Routes,
    /// Positions selected by the indexers, of every position and step
    Indexer,
    /// Streams after every layer, of the first step
    Streams,
    /// Hyper-connections' maps, the blocks' inputs and outputs, of the first step
    Hc,
}

/// An array of the file.
pub struct Array {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Array {
    fn floats(name: &str, shape: Vec<usize>, values: &[f32]) -> Array {
        Array {
            name: name.to_owned(),
            dtype: Dtype::F32,
            shape,
            bytes: bytemuck::cast_slice(values).to_vec(),
        }
    }

    fn indices(name: &str, shape: Vec<usize>, values: &[i32]) -> Array {
        Array {
            name: name.to_owned(),
            dtype: Dtype::I32,
            shape,
            bytes: bytemuck::cast_slice(values).to_vec(),
        }
    }

    /// As the file holds it.
    pub fn view(&self) -> Result<(&str, TensorView<'_>)> {
        Ok((&self.name, TensorView::new(self.dtype, self.shape.clone(), &self.bytes)?))
    }
}

/// The arrays asked for, of a run of `prompt` tokens and `steps` steps.
pub fn arrays(
    what: &[Dump],
    pipeline: &Pipeline,
    seen: &Observed,
    prompt: usize,
    steps: usize,
) -> Result<Vec<Array>> {
    let all: Vec<&Layer> = pipeline.stages.iter().flat_map(|(_, model)| model.layers()).collect();
    let Some(Flow::Streams(shapes)) = pipeline.stages.first().map(|(_, model)| model.flow()) else {
        bail!("--dump: only glm5_next models have experts, indexers and streams");
    };
    let mut arrays = Vec::new();
    let phases = [("prefill", 0, prompt), ("decode", prompt, steps)];
    let layers = |wanted: fn(&Layer) -> bool| -> Vec<u32> {
        (0..).zip(&all).filter(|(_, layer)| wanted(layer)).map(|(index, _)| index).collect()
    };
    if what.contains(&Dump::Routes) {
        let sparse = layers(|layer| matches!(layer.ffn, Ffn::Routed(_)));
        let selected = shapes.routed.selected as usize;
        for (phase, first, rows) in phases {
            let places =
                (first..first + rows).flat_map(|token| sparse.iter().map(move |&layer| (token, layer)));
            let (mut ids, mut weights) = (Vec::new(), Vec::new());
            for (token, layer) in places {
                ids.extend(seen.indices("router_idx", Some(layer), token).iter().map(|&id| id as i32));
                weights.extend_from_slice(seen.floats("router_weight", Some(layer), token));
            }
            let shape = vec![rows, sparse.len(), selected];
            arrays.push(Array::indices(&format!("{phase}_router_idx"), shape.clone(), &ids));
            arrays.push(Array::floats(&format!("{phase}_router_weight"), shape, &weights));
        }
    }
    if what.contains(&Dump::Indexer) {
        let latent = layers(|layer| matches!(&layer.mixer, Mixer::Latent(mixer) if mixer.indexer.is_some()));
        let pool = shapes.latent.pool as usize;
        let width = (shapes.latent.topk + shapes.latent.pool - 1) as usize;
        for (phase, first, rows) in phases {
            let mut positions: Vec<i32> = Vec::new();
            for token in first..first + rows {
                for &layer in &latent {
                    let selection = seen.selection(layer, token, token, pool);
                    positions.extend(selection.iter().copied().chain(std::iter::repeat(-1)).take(width));
                }
            }
            arrays.push(Array::indices(
                &format!("{phase}_indexer_idx"),
                vec![rows, latent.len(), width],
                &positions,
            ));
        }
    }
    let (count, streams, hidden) = (all.len(), shapes.hyper.streams as usize, shapes.hyper.hidden as usize);
    if steps == 0 && (what.contains(&Dump::Streams) || what.contains(&Dump::Hc)) {
        bail!("--dump streams and hc are of the first step: ask for --steps 1 or more");
    }
    if what.contains(&Dump::Streams) {
        let mut rows = seen.floats("streams", None, prompt).to_vec();
        (0..count as u32)
            .for_each(|layer| rows.extend_from_slice(seen.floats("streams", Some(layer), prompt)));
        arrays.push(Array::floats("step0_streams", vec![count + 1, streams, hidden], &rows));
        arrays.push(Array::floats("step0_final_norm", vec![hidden], seen.floats("final_norm", None, prompt)));
    }
    if what.contains(&Dump::Hc) {
        let parts: [(&str, Vec<usize>); 8] = [
            ("attn_post", vec![streams]),
            ("attn_comb", vec![streams, streams]),
            ("attn_collapsed", vec![hidden]),
            ("attn_out", vec![hidden]),
            ("ffn_post", vec![streams]),
            ("ffn_comb", vec![streams, streams]),
            ("ffn_collapsed", vec![hidden]),
            ("mlp_out", vec![hidden]),
        ];
        for (name, shape) in parts {
            let mut rows = Vec::new();
            (0..count as u32)
                .for_each(|layer| rows.extend_from_slice(seen.floats(name, Some(layer), prompt)));
            let shape = std::iter::once(count).chain(shape).collect();
            arrays.push(Array::floats(&format!("step0_{name}"), shape, &rows));
        }
    }
    Ok(arrays)
}
