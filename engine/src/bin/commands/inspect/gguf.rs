//! What is in a GGUF file: sizes, formats, tensors and metadata.

use std::collections::BTreeMap;
use std::io::{self, Write};

use bitwalk::config::{ModelConfig, RopePairing, check_tensors};
use bitwalk::format::gguf::{GgufFile, Metadata, Value};
use bitwalk::format::{DType, TensorSource};
use serde_json::json;

use super::words::{bytes, grouped, shape};

/// Prints the tables or the JSON object.
pub fn print(file: &GgufFile, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let summary = Summary::new(file);
    if json { summary.json(out) } else { Ok(summary.tables(out)?) }
}

/// Tensors, elements and bytes of one format.
#[derive(Default)]
struct Share {
    tensors: u64,
    elements: u64,
    bytes: u64,
}

struct Summary<'a> {
    file: &'a GgufFile,
    /// The configuration, or why there is none that bitwalk can run.
    config: Result<ModelConfig, String>,
    formats: BTreeMap<DType, Share>,
    total: Share,
}

impl<'a> Summary<'a> {
    fn new(file: &'a GgufFile) -> Summary<'a> {
        let config = file.config().and_then(|config| check_tensors(file, &config).map(|()| config));
        let mut formats: BTreeMap<DType, Share> = BTreeMap::new();
        let mut total = Share::default();
        for tensor in file.tensors() {
            for share in [formats.entry(tensor.dtype).or_default(), &mut total] {
                share.tensors += 1;
                share.elements += tensor.elements();
                share.bytes += tensor.bytes();
            }
        }
        Summary { file, config: config.map_err(|error| error.to_string()), formats, total }
    }

    /// Bytes of weights that a token's walk reads: every tensor once, but of an embedding that is not also the head
    /// only the token's row.
    fn weight_bytes_a_token(&self, config: &ModelConfig) -> u64 {
        let embedding = self.file.find("token_embd.weight").filter(|_| !config.tied_head);
        self.total.bytes - embedding.map_or(0, |info| info.bytes() - info.bytes() / info.rows())
    }

    fn tables(&self, out: &mut impl Write) -> io::Result<()> {
        let file = self.file;
        writeln!(out, "{}", file.path().display())?;
        let parts = if file.parts() > 1 { format!(" in {} files", file.parts()) } else { String::new() };
        let (tensors, pairs) = (file.tensors().len(), file.metadata().len());
        let size = bytes(file.file_bytes());
        writeln!(
            out,
            "GGUF version {}, {size}{parts}, {tensors} tensors, {pairs} metadata pairs",
            file.version()
        )?;

        writeln!(out)?;
        match &self.config {
            Ok(config) => self.model(config, out)?,
            Err(reason) => writeln!(out, "bitwalk cannot run this model: {reason}")?,
        }

        writeln!(
            out,
            "\n{:<10} {:>8} {:>15} {:>12} {:>7}",
            "format", "tensors", "parameters", "bytes", "share"
        )?;
        for (dtype, share) in &self.formats {
            self.share(dtype.name(), share, out)?;
        }
        self.share("all", &self.total, out)?;

        let width = file.tensors().iter().map(|tensor| tensor.name.chars().count()).max().unwrap_or(0);
        writeln!(out, "\n{:<width$}  {:<8} {:>18} {:>12}", "tensor", "format", "shape", "bytes")?;
        for tensor in file.tensors() {
            let (name, shape) = (&tensor.name, shape(tensor));
            writeln!(out, "{name:<width$}  {:<8} {shape:>18} {:>12}", tensor.dtype, bytes(tensor.bytes()))?;
        }

        let width = file.metadata().iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0);
        writeln!(out, "\n{:<width$}  value", "metadata key")?;
        for (key, value) in file.metadata().iter() {
            writeln!(out, "{key:<width$}  {value}")?;
        }
        Ok(())
    }

    fn model(&self, c: &ModelConfig, out: &mut impl Write) -> io::Result<()> {
        let mut line = |name: &str, value: String| writeln!(out, "{name:<16} {value}");
        line("architecture", c.architecture.name().into())?;
        if let Some(name) = name(self.file.metadata()) {
            line("name", name)?;
        }
        line("parameters", grouped(self.total.elements))?;
        line("layers", c.layers.to_string())?;
        line("width", format!("{}, feed-forward {}", c.hidden, c.ff))?;
        line("attention", format!("{} query heads, {} KV heads, {} wide", c.heads, c.kv_heads, c.head_dim))?;
        line("rotary", format!("base {}, {} pairs, {}", c.rope.base, rotated_pairs(c), pairing(c)))?;
        line("norm epsilon", format!("{:e}", c.eps))?;
        line("vocabulary", format!("{}, head {}", c.vocab, if c.tied_head { "tied" } else { "of its own" }))?;
        line("context", c.context.to_string())?;
        let kv = 2 * u64::from(c.layers) * u64::from(c.kv_width());
        let caches = [("float32", 4), ("f16", 2), ("fp8", 1)]
            .map(|(name, size)| format!("{} {name}", bytes(kv * size)));
        line("read a token", format!("{} of weights", bytes(self.weight_bytes_a_token(c))))?;
        line("and a position", format!("of cached keys and values: {}", caches.join(", ")))
    }

    fn share(&self, name: &str, share: &Share, out: &mut impl Write) -> io::Result<()> {
        let percent = 100.0 * share.bytes as f64 / self.total.bytes.max(1) as f64;
        let (elements, size) = (grouped(share.elements), bytes(share.bytes));
        writeln!(out, "{name:<10} {:>8} {elements:>15} {size:>12} {percent:>6.1}%", share.tensors)
    }

    fn json(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let file = self.file;
        let share = |share: &Share| json!({ "tensors": share.tensors, "parameters": share.elements, "bytes": share.bytes });
        let config = self.config.as_ref().map(|c| {
            json!({
                "architecture": c.architecture.name(),
                "layers": c.layers,
                "hidden": c.hidden,
                "ff": c.ff,
                "heads": c.heads,
                "kv_heads": c.kv_heads,
                "head_dim": c.head_dim,
                "eps": c.eps,
                "rope": { "base": c.rope.base, "pairs": rotated_pairs(c), "pairing": pairing(c) },
                "vocab": c.vocab,
                "context": c.context,
                "tied_head": c.tied_head,
                "bos": c.bos,
                "eos": c.eos,
                "weight_bytes_a_token": self.weight_bytes_a_token(c),
                "kv_elements_a_position": 2 * u64::from(c.layers) * u64::from(c.kv_width()),
            })
        });
        let formats: BTreeMap<&str, _> =
            self.formats.iter().map(|(dtype, s)| (dtype.name(), share(s))).collect();
        let tensors: Vec<_> = file
            .tensors()
            .iter()
            .map(
                |t| json!({ "name": t.name, "shape": t.shape, "format": t.dtype.name(), "bytes": t.bytes() }),
            )
            .collect();
        let metadata: serde_json::Map<_, _> =
            file.metadata().iter().map(|(key, value)| (key.to_string(), json_value(value))).collect();
        let summary = json!({
            "file": file.path().display().to_string(),
            "gguf_version": file.version(),
            "parts": file.parts(),
            "file_bytes": file.file_bytes(),
            "config": config.as_ref().ok(),
            "cannot_run": config.as_ref().err(),
            "total": share(&self.total),
            "formats": formats,
            "tensors": tensors,
            "metadata": metadata,
        });
        serde_json::to_writer_pretty(&mut *out, &summary).map_err(io::Error::from)?;
        writeln!(out)?;
        Ok(())
    }
}

fn rotated_pairs(config: &ModelConfig) -> usize {
    config.rope.inv_freq.iter().filter(|&&freq| freq != 0.0).count()
}

fn pairing(config: &ModelConfig) -> &'static str {
    match config.rope.pairing {
        RopePairing::Interleaved => "interleaved",
        RopePairing::Halves => "halves",
    }
}

fn name(metadata: &Metadata) -> Option<String> {
    match metadata.get("general.name")? {
        Value::Str(name) => Some(name.chars().filter(|c| !c.is_control()).collect()),
        _ => None,
    }
}

/// Scalars as themselves, arrays by a description: a vocabulary is no summary.
fn json_value(value: Value<'_>) -> serde_json::Value {
    match value {
        Value::Unsigned(n) => n.into(),
        Value::Signed(n) => n.into(),
        Value::Float(x) => x.into(),
        Value::Bool(b) => b.into(),
        Value::Str(s) => s.into(),
        Value::Array(_) => value.to_string().into(),
    }
}
