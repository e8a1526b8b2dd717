//! `cargo xtask fixture`: small llama models that are checked in, so that every gate runs on a fresh clone.
//!
//! The first is made to be awkward: a width that is no multiple of 128, heads whose total width is not that of the residual
//! stream, three query heads a KV head, projections of one layer in different formats. Weights come
//! from a counter-based hash, so that the file is the same wherever it is made. The golden data beside it is written by
//! the float64 oracle. The second has the formats whose rows are whole blocks of 256, which no awkward width is.

mod tokenizer;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use bitwalk::format::DType;
use bitwalk::format::gguf::{GgufFile, GgufWriter};
use bitwalk::quant;
use bitwalk_gates::oracle::{Oracle, argmax, top};
use serde_json::json;

/// Arguments of `cargo xtask fixture`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Write nothing; fail if the files checked in are not what would be written.
    #[arg(long)]
    check: bool,
}

const VOCAB: u64 = tokenizer::VOCAB as u64;
const CONTEXT: u32 = 2048;

/// A model.
struct Fixture {
    file: &'static str,
    name: &'static str,
    hidden: u64,
    heads: u64,
    kv_heads: u64,
    head_dim: u64,
    ff: u64,
    /// Seed of the weights.
    seed: u64,
    embedding: DType,
    layers: &'static [Formats],
}

/// Its seed was chosen so that greedy continuations of the golden prompts neither repeat one token nor come near a tie.
const TINY: Fixture = Fixture {
    file: "tiny-llama.gguf",
    name: "bitwalk tiny llama",
    hidden: 96,
    heads: 6,
    kv_heads: 2,
    head_dim: 64,
    ff: 352,
    seed: 233,
    embedding: DType::Q8_0,
    layers: &TINY_LAYERS,
};

const TINY_K: Fixture = Fixture {
    file: "tiny-llama-k.gguf",
    name: "bitwalk tiny llama, k-quants",
    hidden: 256,
    heads: 4,
    kv_heads: 2,
    head_dim: 64,
    ff: 512,
    seed: 7,
    embedding: DType::Q6_K,
    layers: &TINY_K_LAYERS,
};

/// Formats of a layer's matrices.
struct Formats {
    q: DType,
    k: DType,
    v: DType,
    output: DType,
    gate_up: DType,
    down: DType,
}

const TINY_LAYERS: [Formats; 3] = [
    Formats {
        q: DType::Q4_1,
        k: DType::Q4_1,
        v: DType::Q4_1,
        output: DType::Q8_0,
        gate_up: DType::Q4_1,
        down: DType::Q8_0,
    },
    // As "medium" quantisation mixes have it, the values' projection has more bits.
    Formats {
        q: DType::Q4_0,
        k: DType::Q4_0,
        v: DType::Q8_0,
        output: DType::Q4_0,
        gate_up: DType::Q8_0,
        down: DType::Q4_1,
    },
    Formats {
        q: DType::F16,
        k: DType::F16,
        v: DType::F16,
        output: DType::Bf16,
        gate_up: DType::Bf16,
        down: DType::F32,
    },
];

const TINY_K_LAYERS: [Formats; 2] = [
    // A layer of Q4_K_M that has more bits where it matters.
    Formats {
        q: DType::Q4_K,
        k: DType::Q4_K,
        v: DType::Q6_K,
        output: DType::Q4_K,
        gate_up: DType::Q4_K,
        down: DType::Q6_K,
    },
    Formats {
        q: DType::Q5_0,
        k: DType::Q5_0,
        v: DType::Q5_0,
        output: DType::Q5_K,
        gate_up: DType::Q5_K,
        down: DType::Q4_K,
    },
];

/// Makes or checks the files.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let folder = crate::test::workspace_root()?.join("gates/fixtures");
    let tiny = model(&TINY);
    let golden = golden(&tiny)?;
    let files = [(TINY.file, tiny), ("tiny-llama.json", golden.into_bytes()), (TINY_K.file, model(&TINY_K))];
    for (file, bytes) in &files {
        let path = folder.join(file);
        if args.check { check(&path, bytes)? } else { write(&path, bytes)? }
    }
    if args.check {
        println!("{} and its golden data, and {} are up to date", TINY.file, TINY_K.file);
    }
    Ok(ExitCode::SUCCESS)
}

fn check(path: &Path, wanted: &[u8]) -> anyhow::Result<()> {
    let found = fs::read(path).with_context(|| format!("{} cannot be read", path.display()))?;
    if found != wanted {
        bail!("{} is not what `cargo xtask fixture` makes; run it and commit the result", path.display());
    }
    Ok(())
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    fs::write(path, bytes).with_context(|| format!("{} cannot be written", path.display()))?;
    println!("{}: {} bytes", path.display(), bytes.len());
    Ok(())
}

/// The bytes of the GGUF file.
fn model(fixture: &Fixture) -> Vec<u8> {
    let &Fixture { hidden, heads, kv_heads, head_dim, ff, layers, .. } = fixture;
    let mut writer = GgufWriter::new();
    writer.str("general.architecture", "llama");
    writer.str("general.name", fixture.name);
    writer.u32("llama.block_count", layers.len() as u32);
    writer.u32("llama.context_length", CONTEXT);
    writer.u32("llama.embedding_length", hidden as u32);
    writer.u32("llama.feed_forward_length", ff as u32);
    writer.u32("llama.attention.head_count", heads as u32);
    writer.u32("llama.attention.head_count_kv", kv_heads as u32);
    writer.u32("llama.attention.key_length", head_dim as u32);
    writer.u32("llama.attention.value_length", head_dim as u32);
    writer.u32("llama.rope.dimension_count", head_dim as u32);
    writer.f32("llama.rope.freq_base", 10_000.0);
    writer.f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
    writer.u32("llama.vocab_size", VOCAB as u32);
    tokenizer::write(&mut writer);

    let mut weights = Weights { writer, seed: fixture.seed, tensor: 0 };
    // Small beside what the layers add, so that the tied head does not simply repeat the token that was read.
    weights.matrix("token_embd.weight", VOCAB, hidden, fixture.embedding, 0.25);
    for (i, formats) in layers.iter().enumerate() {
        let name = |part: &str| format!("blk.{i}.{part}.weight");
        let (q_width, kv_width) = (heads * head_dim, kv_heads * head_dim);
        // Inputs of these have unit variance: they come from norms. Queries are sharpened, so that attention selects.
        let unit = 1.0 / (hidden as f32).sqrt();
        weights.norm(&name("attn_norm"), hidden);
        weights.matrix(&name("attn_q"), q_width, hidden, formats.q, 2.0 * unit);
        weights.matrix(&name("attn_k"), kv_width, hidden, formats.k, unit);
        weights.matrix(&name("attn_v"), kv_width, hidden, formats.v, unit);
        weights.matrix(&name("attn_output"), hidden, q_width, formats.output, 2.0 / (q_width as f32).sqrt());
        weights.norm(&name("ffn_norm"), hidden);
        weights.matrix(&name("ffn_gate"), ff, hidden, formats.gate_up, 2.0 * unit);
        weights.matrix(&name("ffn_up"), ff, hidden, formats.gate_up, unit);
        weights.matrix(&name("ffn_down"), hidden, ff, formats.down, 1.0 / (ff as f32).sqrt());
    }
    weights.norm("output_norm.weight", hidden);
    weights.writer.finish()
}

/// Writes tensors of pseudo-random weights.
struct Weights {
    writer: GgufWriter,
    seed: u64,
    tensor: u64,
}

impl Weights {
    /// Values of mean 0 and the given standard deviation.
    fn matrix(&mut self, name: &str, rows: u64, cols: u64, dtype: DType, deviation: f32) {
        let values = self.values(rows * cols, |x| x * deviation);
        let data =
            quant::quantise(dtype, &values).expect("fixture formats can be written, rows are whole blocks");
        self.writer.tensor(name, &[rows, cols], dtype, &data);
    }

    /// Values around 1.
    fn norm(&mut self, name: &str, width: u64) {
        let values = self.values(width, |x| 1.0 + 0.1 * x);
        let data = quant::quantise(DType::F32, &values).expect("F32 can be written");
        self.writer.tensor(name, &[width], DType::F32, &data);
    }

    fn values(&mut self, count: u64, scale: impl Fn(f32) -> f32) -> Vec<f32> {
        self.tensor += 1;
        (0..count).map(|i| scale(normal(self.seed << 48 | self.tensor << 32 | i))).collect()
    }
}

/// Nearly normal, of mean 0 and variance 1: the sum of four uniform 16-bit numbers out of one hash. Integers, a
/// subtraction and a product of floats only, so that every machine gets the same bits.
fn normal(counter: u64) -> f32 {
    let hash = mix(counter);
    let sum: u64 = (0..4).map(|i| hash >> (16 * i) & 0xffff).sum();
    // Each has mean 32767.5 and variance (2³² − 1) / 12, so that four have a standard deviation of 37837.23.
    (sum as f32 - 131_070.0) * (1.0 / 37_837.23)
}

/// The output function of SplitMix64 (Steele, Lea, Flood 2014).
fn mix(counter: u64) -> u64 {
    let z = counter.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Prompts of the golden data, by name, with the number of greedy tokens.
fn prompts() -> Vec<(&'static str, Vec<u32>, usize)> {
    vec![
        // The pattern that `graph-decode` primes with; 96 tokens take it past two chunks of 64 keys.
        ("seed-pattern", (0..64).map(|i| (100 + i * 7 % 900) % VOCAB as u32).collect(), 96),
        ("one-token", vec![0], 32),
        // Ends one short of a chunk boundary, so that the first step writes the chunk's last key.
        ("chunk-boundary", (0..63).map(|i| (i * 37 + 11) % VOCAB as u32).collect(), 32),
    ]
}

/// The golden data, in the layout of the reference data of other models.
fn golden(model: &[u8]) -> anyhow::Result<String> {
    let file = GgufFile::from_bytes("tiny-llama.gguf", model.to_vec())?;
    let mut cases = Vec::new();
    for (name, prompt, tokens) in prompts() {
        let steps = Oracle::new(&file)?.greedy(&prompt, tokens - 1);
        // Rounded to float32: more digits than anything that is compared with them has.
        let top5 = steps
            .iter()
            .map(|logits| top(logits, 5).into_iter().map(|(id, x)| json!([id, x as f32])).collect());
        let top5: Vec<Vec<_>> = top5.collect();
        let ids: Vec<u32> = steps.iter().map(|logits| argmax(logits)).collect();
        let margins = steps.iter().map(|logits| top(logits, 2)).map(|two| two[0].1 - two[1].1);
        let margin = margins.fold(f64::INFINITY, f64::min);
        cases.push(json!({
            "name": name,
            "prompt_ids": prompt,
            "greedy_ids": ids,
            "top5": top5,
            "least_margin": margin as f32,
        }));
    }
    let golden = json!({
        "source": "float64 forward of gates/src/oracle.rs (`cargo xtask fixture`)",
        "file": "tiny-llama.gguf",
        "cases": cases,
    });
    Ok(serde_json::to_string(&golden)? + "\n")
}
