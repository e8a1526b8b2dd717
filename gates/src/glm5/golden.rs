//! Golden data of a glm5_next checkpoint: `golden.safetensors` and `golden.json` beside its weights.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

/// What an independent implementation made of a checkpoint: a prompt and its greedy continuation.
#[derive(Debug, Clone)]
pub struct Golden {
    /// The checkpoint's folder.
    pub folder: PathBuf,
    /// Layers with routed experts.
    pub sparse_layers: Vec<u32>,
    /// Layers with an indexer's selection.
    pub mla_layers: Vec<u32>,
    /// The prompt.
    pub prompt: Vec<u32>,
    /// The id that each row of logits is the likeliest of; one more than steps.
    pub ids: Vec<u32>,
    /// `[prompt, vocab]`.
    pub prefill_logits: Floats,
    /// `[steps, 5]`.
    pub top_ids: Indices,
    /// `[steps, 5]`.
    pub top_logits: Floats,
    /// Steps of which all logits are there.
    pub full_steps: Vec<u32>,
    /// `[full steps, vocab]`.
    pub full_logits: Floats,
    /// `[prompt, sparse layers, selected]` and `[steps, …]`: experts, ascending.
    pub experts: [Indices; 2],
    /// The same for their weights.
    pub weights: [Floats; 2],
    /// `[prompt, mla layers, width]` (empty where it was not recorded) and `[steps, …]`: selected positions, −1 where there is
    /// none.
    pub selections: [Indices; 2],
    /// `[layers + 1, streams, hidden]` of the first step; the first row is the embedding. Empty where it was not recorded.
    pub streams: Floats,
    /// `[layers, streams, streams]` of the first step: attention's, then the network's. Empty where they were not recorded.
    pub comb: [Floats; 2],
}

/// Numbers with their extents.
#[derive(Debug, Clone, Default)]
pub struct Array<T> {
    /// Outermost first.
    pub shape: Vec<usize>,
    /// Row-major.
    pub values: Vec<T>,
}

/// float32.
pub type Floats = Array<f32>;
/// int32; negative where unused.
pub type Indices = Array<i32>;

impl<T> Array<T> {
    /// The elements at the outer indices `at`.
    pub fn at(&self, at: &[usize]) -> &[T] {
        let inner: usize = self.shape[at.len()..].iter().product();
        let index = at.iter().zip(&self.shape).fold(0, |index, (&i, &extent)| index * extent + i);
        &self.values[index * inner..(index + 1) * inner]
    }

    /// The outermost extent.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(0)
    }
}

#[derive(Deserialize)]
struct Meta {
    sparse_layers: Vec<u32>,
    mla_layers: Vec<u32>,
}

impl Golden {
    /// Reads the golden data in `folder`.
    ///
    /// # Errors
    /// A file that is missing or not what it should be; arrays whose extents do not fit each other.
    pub fn read(folder: &Path) -> Result<Golden> {
        let path = folder.join("golden.safetensors");
        let bytes = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let file = SafeTensors::deserialize(&bytes).with_context(|| format!("reading {}", path.display()))?;
        let meta = folder.join("golden.json");
        let meta = std::fs::read(&meta).with_context(|| format!("reading {}", meta.display()))?;
        let meta: Meta = serde_json::from_slice(&meta).context("golden.json")?;
        let floats = |name: &str| -> Result<Floats> {
            read(&file, name, Dtype::F32, |bytes| f32::from_le_bytes(*bytes))
        };
        let indices = |name: &str| -> Result<Indices> {
            read(&file, name, Dtype::I32, |bytes| i32::from_le_bytes(*bytes))
        };
        let recorded = |name: &str| file.names().contains(&name);
        let ids = |name: &str| -> Result<Vec<u32>> {
            let values = indices(name)?.values;
            values.into_iter().map(|id| u32::try_from(id).with_context(|| format!("{name}: {id}"))).collect()
        };
        let golden = Golden {
            folder: folder.to_owned(),
            sparse_layers: meta.sparse_layers,
            mla_layers: meta.mla_layers,
            prompt: ids("prompt_ids")?,
            ids: ids("generated_ids")?,
            prefill_logits: floats("prefill_logits")?,
            top_ids: indices("decode_top5_ids")?,
            top_logits: floats("decode_top5_logits")?,
            full_steps: ids("decode_full_logits_steps")?,
            full_logits: floats("decode_full_logits")?,
            experts: [indices("prefill_router_idx")?, indices("decode_router_idx")?],
            weights: [floats("prefill_router_weight")?, floats("decode_router_weight")?],
            selections: [optional(recorded("prefill_indexer_idx"), || indices("prefill_indexer_idx"))?, {
                indices("decode_indexer_idx")?
            }],
            streams: optional(recorded("step0_streams"), || floats("step0_streams"))?,
            comb: [
                optional(recorded("step0_attn_comb"), || floats("step0_attn_comb"))?,
                optional(recorded("step0_ffn_comb"), || floats("step0_ffn_comb"))?,
            ],
        };
        golden.check().with_context(|| format!("{}", path.display()))?;
        Ok(golden)
    }

    /// Decode steps.
    pub fn steps(&self) -> usize {
        self.ids.len() - 1
    }

    fn check(&self) -> Result<()> {
        ensure!(self.ids.len() > 1, "generated_ids holds no step");
        let (prompt, steps) = (self.prompt.len(), self.steps());
        let extents = [
            ("prefill_logits", self.prefill_logits.rows(), prompt),
            ("decode_top5_ids", self.top_ids.rows(), steps),
            ("decode_top5_logits", self.top_logits.rows(), steps),
            ("decode_full_logits", self.full_logits.rows(), self.full_steps.len()),
            ("prefill_router_idx", self.experts[0].rows(), prompt),
            ("decode_router_idx", self.experts[1].rows(), steps),
            ("prefill_router_weight", self.weights[0].rows(), prompt),
            ("decode_router_weight", self.weights[1].rows(), steps),
            ("decode_indexer_idx", self.selections[1].rows(), steps),
        ];
        for (name, found, wanted) in extents {
            ensure!(found == wanted, "{name} has {found} rows, not {wanted}");
        }
        Ok(())
    }
}

/// An array that a recording may lack: empty then.
fn optional<T: Default>(recorded: bool, read: impl FnOnce() -> Result<Array<T>>) -> Result<Array<T>> {
    if recorded { read() } else { Ok(Array::default()) }
}

fn read<T>(file: &SafeTensors<'_>, name: &str, dtype: Dtype, of: fn(&[u8; 4]) -> T) -> Result<Array<T>> {
    let tensor = file.tensor(name).with_context(|| format!("array {name}"))?;
    if tensor.dtype() != dtype {
        bail!("array {name} is {:?}, not {dtype:?}", tensor.dtype());
    }
    let values = tensor.data().as_chunks::<4>().0.iter().map(of).collect();
    Ok(Array { shape: tensor.shape().to_vec(), values })
}
