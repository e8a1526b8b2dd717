//! A llama forward pass in float64 on the CPU, straight from a GGUF file.
//!
//! It shares nothing with the kernels, their references, plans or devices: weights are dequantised (exactly, to
//! float32), every sum and function is taken in float64, and the loops are the plain ones of the definition. So it can
//! tell whether the fixture's golden data, and a walk, are right.

use std::path::Path;

use anyhow::Context;
use bitwalk::config::{ModelConfig, RopePairing, check_tensors};
use bitwalk::format::TensorSource;
use bitwalk::format::gguf::GgufFile;
use bitwalk::quant;
use rayon::prelude::*;

/// A dequantised matrix, row-major.
struct Matrix {
    cols: usize,
    values: Vec<f32>,
}

impl Matrix {
    fn load(file: &GgufFile, name: &str) -> anyhow::Result<Matrix> {
        let info = file.find(name).with_context(|| format!("tensor {name} is missing"))?;
        let mut values = vec![0.0; info.elements() as usize];
        quant::dequantise(info.dtype, file.bytes(name)?, &mut values)
            .with_context(|| format!("tensor {name}"))?;
        Ok(Matrix { cols: info.cols() as usize, values })
    }

    fn row(&self, r: usize) -> &[f32] {
        &self.values[r * self.cols..][..self.cols]
    }

    /// The product with each of `xs`.
    fn apply(&self, xs: &[Vec<f64>]) -> Vec<Vec<f64>> {
        // A row is used for all vectors while it is in the cache, so the products come out row by row.
        let by_row: Vec<Vec<f64>> =
            self.values.par_chunks(self.cols).map(|row| xs.iter().map(|x| dot(row, x)).collect()).collect();
        (0..xs.len()).map(|i| by_row.iter().map(|products| products[i]).collect()).collect()
    }
}

fn dot(row: &[f32], x: &[f64]) -> f64 {
    row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum()
}

struct Layer {
    attn_norm: Matrix,
    q: Matrix,
    k: Matrix,
    v: Matrix,
    attn_output: Matrix,
    ffn_norm: Matrix,
    gate: Matrix,
    up: Matrix,
    down: Matrix,
    /// Rotated keys and values of all positions so far, `[positions, kv_heads · head_dim]`.
    keys: Vec<Vec<f64>>,
    values: Vec<Vec<f64>>,
}

/// A model with the keys and values of the tokens it has been fed.
pub struct Oracle {
    config: ModelConfig,
    embedding: Matrix,
    layers: Vec<Layer>,
    output_norm: Matrix,
    /// The output head, where it is not the embedding.
    head: Option<Matrix>,
}

impl Oracle {
    /// Loads a GGUF file.
    ///
    /// # Errors
    /// If it cannot be read or is no model that bitwalk runs.
    pub fn load(path: &Path) -> anyhow::Result<Oracle> {
        Oracle::new(&GgufFile::open(path)?)
    }

    /// Dequantises an open file.
    ///
    /// # Errors
    /// If it is no model that bitwalk runs.
    pub fn new(file: &GgufFile) -> anyhow::Result<Oracle> {
        let config = file.config()?;
        check_tensors(file, &config)?;
        let layer = |i: u32| -> anyhow::Result<Layer> {
            let load = |name: &str| Matrix::load(file, &format!("blk.{i}.{name}.weight"));
            Ok(Layer {
                attn_norm: load("attn_norm")?,
                q: load("attn_q")?,
                k: load("attn_k")?,
                v: load("attn_v")?,
                attn_output: load("attn_output")?,
                ffn_norm: load("ffn_norm")?,
                gate: load("ffn_gate")?,
                up: load("ffn_up")?,
                down: load("ffn_down")?,
                keys: Vec::new(),
                values: Vec::new(),
            })
        };
        Ok(Oracle {
            embedding: Matrix::load(file, "token_embd.weight")?,
            layers: (0..config.layers).map(layer).collect::<anyhow::Result<_>>()?,
            output_norm: Matrix::load(file, "output_norm.weight")?,
            head: if config.tied_head { None } else { Some(Matrix::load(file, "output.weight")?) },
            config,
        })
    }

    /// Feeds tokens at the next positions and returns the logits, `[vocab]`, after each.
    ///
    /// # Panics
    /// If an id is not below the vocabulary's size.
    pub fn feed(&mut self, ids: &[u32]) -> Vec<Vec<f64>> {
        let config = &self.config;
        let eps = f64::from(config.eps);
        let mut xs: Vec<Vec<f64>> = Vec::new();
        for &id in ids {
            assert!(id < config.vocab, "token id {id} of {} tokens", config.vocab);
            xs.push(self.embedding.row(id as usize).iter().map(|&w| w.into()).collect());
        }
        for layer in &mut self.layers {
            let normed = rms_norm(&xs, &layer.attn_norm, eps);
            let (mut q, mut k, v) = (layer.q.apply(&normed), layer.k.apply(&normed), layer.v.apply(&normed));
            let first = layer.keys.len();
            for (i, (q, k)) in q.iter_mut().zip(&mut k).enumerate() {
                rotate(q, config, first + i);
                rotate(k, config, first + i);
            }
            layer.keys.extend(k);
            layer.values.extend(v);
            let attended: Vec<Vec<f64>> =
                q.iter().enumerate().map(|(i, q)| attend(q, layer, config, first + i)).collect();
            add(&mut xs, layer.attn_output.apply(&attended));

            let normed = rms_norm(&xs, &layer.ffn_norm, eps);
            let (mut gate, up) = (layer.gate.apply(&normed), layer.up.apply(&normed));
            for (gate, up) in gate.iter_mut().flatten().zip(up.iter().flatten()) {
                *gate = *gate / (1.0 + (-*gate).exp()) * up;
            }
            add(&mut xs, layer.down.apply(&gate));
        }
        let normed = rms_norm(&xs, &self.output_norm, eps);
        self.head.as_ref().unwrap_or(&self.embedding).apply(&normed)
    }

    /// Feeds a prompt, then `steps` tokens of its own choice (the largest logit; of equal ones the lowest id).
    ///
    /// Returns the logits after the prompt and after each of these tokens, `steps + 1` vectors.
    ///
    /// # Panics
    /// If the prompt is empty or an id is not below the vocabulary's size.
    pub fn greedy(&mut self, prompt: &[u32], steps: usize) -> Vec<Vec<f64>> {
        let last = |mut logits: Vec<Vec<f64>>| logits.pop().expect("at least one token is fed");
        let mut out = vec![last(self.feed(prompt))];
        for _ in 0..steps {
            let next = argmax(&out[out.len() - 1]);
            out.push(last(self.feed(&[next])));
        }
        out
    }
}

/// Logits after each of `ids`, fed to the model in the file from position 0.
///
/// # Errors
/// If the file cannot be read or is no model that bitwalk runs.
///
/// # Panics
/// If an id is not below the vocabulary's size.
pub fn oracle_logits(path: &Path, ids: &[u32]) -> anyhow::Result<Vec<Vec<f64>>> {
    Ok(Oracle::load(path)?.feed(ids))
}

/// The index of the largest logit; of equal ones the lowest.
pub fn argmax(logits: &[f64]) -> u32 {
    top(logits, 1)[0].0
}

/// The `n` largest logits with their ids, largest first; of equal ones the lowest id first.
pub fn top(logits: &[f64], n: usize) -> Vec<(u32, f64)> {
    let mut ranked: Vec<(u32, f64)> = (0..).zip(logits.iter().copied()).collect();
    ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    ranked.truncate(n);
    ranked
}

/// y = w · x / √(mean x² + ε)
fn rms_norm(xs: &[Vec<f64>], weight: &Matrix, eps: f64) -> Vec<Vec<f64>> {
    let one = |x: &Vec<f64>| {
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + eps).sqrt();
        x.iter().zip(&weight.values).map(|(x, &w)| x * scale * f64::from(w)).collect()
    };
    xs.iter().map(one).collect()
}

/// Rotates each pair of each head by the position's angle.
fn rotate(x: &mut [f64], config: &ModelConfig, position: usize) {
    let half = config.head_dim as usize / 2;
    for head in x.chunks_exact_mut(2 * half) {
        for (i, &freq) in config.rope.inv_freq.iter().enumerate() {
            let (a, b) = match config.rope.pairing {
                RopePairing::Interleaved => (2 * i, 2 * i + 1),
                RopePairing::Halves => (i, i + half),
            };
            let (sin, cos) = (position as f64 * f64::from(freq)).sin_cos();
            (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
        }
    }
}

/// Causal softmax attention of the query at `position`; query head h uses KV head h / (heads / kv_heads).
fn attend(q: &[f64], layer: &Layer, config: &ModelConfig, position: usize) -> Vec<f64> {
    let dim = config.head_dim as usize;
    let group = (config.heads / config.kv_heads) as usize;
    let scale = 1.0 / (dim as f64).sqrt();
    let heads = q.chunks_exact(dim).enumerate().flat_map(|(h, q)| {
        let at = h / group * dim;
        let scores = layer.keys[..=position]
            .iter()
            .map(|k| q.iter().zip(&k[at..at + dim]).map(|(q, k)| q * k).sum::<f64>() * scale);
        let scores: Vec<f64> = scores.collect();
        let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mut out = vec![0.0; dim];
        for (weight, v) in weights.iter().zip(&layer.values) {
            for (out, v) in out.iter_mut().zip(&v[at..at + dim]) {
                *out += weight / sum * v;
            }
        }
        out
    });
    heads.collect()
}

fn add(xs: &mut [Vec<f64>], ys: Vec<Vec<f64>>) {
    for (x, y) in xs.iter_mut().flatten().zip(ys.into_iter().flatten()) {
        *x += y;
    }
}
