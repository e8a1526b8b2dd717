//! Sizes of a checkpoint of safetensors or of a synthetic model: by part, by token, by device.

use std::collections::BTreeMap;
use std::io::{self, Write};

use bitwalk::config::glm5::{self, FfnKind, Glm5Config, MixerKind};
use bitwalk::config::{Family, Footprint, Part, PartSize, check_tensors};
use bitwalk::format::TensorSource;
use bitwalk::format::safetensors::SafetensorsSource;
use bitwalk::format::synthetic::SyntheticSource;
use bitwalk::options::KvType;
use serde_json::{Value, json};

use super::words::{bytes, grouped};
use super::{Args, name_of};

/// Devices whose memory is compared: name and bytes. A twentieth is left for the driver, plans and scratch.
const DEVICES: [(&str, u64); 6] = [
    ("24 GB", 24 << 30),
    ("48 GB", 48 << 30),
    ("80 GB", 80 << 30),
    ("H200", 140 << 30),
    ("B200", 180 << 30),
    ("B300", 270 << 30),
];

/// Positions at which the bytes read for a token are given.
const POSITIONS: [u64; 3] = [1 << 10, 1 << 13, 1 << 17];

/// What is said of a source that is not its model's.
pub struct About {
    what: String,
    parts: usize,
    file_bytes: Option<u64>,
}

impl About {
    pub fn safetensors(source: &SafetensorsSource) -> About {
        let parts = if source.parts() > 1 { format!(" in {} shards", source.parts()) } else { String::new() };
        let what = format!("safetensors, {}{parts}", bytes(source.file_bytes()));
        About { what, parts: source.parts(), file_bytes: Some(source.file_bytes()) }
    }

    pub fn synthetic(source: &SyntheticSource) -> About {
        About {
            what: format!("synthetic weights, seed {}", source.recipe().seed),
            parts: 0,
            file_bytes: None,
        }
    }
}

struct Summary<'a> {
    source: &'a dyn TensorSource,
    about: &'a About,
    /// Element type of the caches.
    kv: KvType,
    family: Family,
    footprint: Footprint,
    skipped: String,
    /// Positions that caches are sized for.
    capacity: u64,
}

/// Prints the tables or the JSON object.
pub fn print(
    source: &dyn TensorSource,
    about: &About,
    args: &Args,
    kv: KvType,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let family = source.family()?;
    let (skipped, context) = match &family {
        Family::Llama(config) => {
            check_tensors(source, config)?;
            (String::new(), config.context)
        }
        Family::Glm5(config) => (glm5::check_tensors(source, config)?.to_string(), config.context),
    };
    let footprint = Footprint::new(source, &family)?;
    let capacity = args.context.unwrap_or(8192).clamp(1, context.into());
    let summary = Summary { source, about, kv, family, footprint, skipped, capacity };
    if args.json { summary.json(out) } else { Ok(summary.tables(out)?) }
}

impl Summary<'_> {
    fn tables(&self, out: &mut impl Write) -> io::Result<()> {
        let (f, kv, capacity) = (&self.footprint, self.kv, self.capacity);
        writeln!(out, "{}", name_of(self.source))?;
        writeln!(out, "{}, {} tensors", self.about.what, self.source.tensors().len())?;
        if !self.skipped.is_empty() {
            writeln!(out, "{}", self.skipped)?;
        }
        writeln!(out)?;
        match &self.family {
            Family::Glm5(config) => glm5_lines(config, out)?,
            Family::Llama(c) => {
                line(out, "architecture", c.architecture.name().into())?;
                line(out, "layers", c.layers.to_string())?;
                line(out, "width", format!("{}, feed-forward {}", c.hidden, c.ff))?;
                let heads = format!("{} query heads, {} KV heads, {} wide", c.heads, c.kv_heads, c.head_dim);
                line(out, "attention", heads)?;
                let head = if c.tied_head { "tied" } else { "of its own" };
                line(out, "vocabulary", format!("{}, head {head}", c.vocab))?;
                line(out, "context", c.context.to_string())?;
            }
        }
        let total = f.total();
        line(
            out,
            "parameters",
            format!("{}, {} used a token", grouped(total.parameters), grouped(total.active)),
        )?;

        writeln!(
            out,
            "\n{:<16} {:>16} {:>12} {:>7} {:>14}",
            "part", "parameters", "on a device", "share", "read a token"
        )?;
        let row = |out: &mut dyn Write, name: &str, size: PartSize| {
            let share = 100.0 * size.bytes as f64 / total.bytes.max(1) as f64;
            let (parameters, held, read) = (grouped(size.parameters), bytes(size.bytes), bytes(size.read));
            writeln!(out, "{name:<16} {parameters:>16} {held:>12} {share:>6.1}% {read:>14}")
        };
        for part in Part::ALL.into_iter().filter(|&part| f.part(part).bytes > 0) {
            row(out, part.name(), f.part(part))?;
        }
        row(out, "all weights", total)?;

        let cache = f.cache_bytes(kv, capacity);
        writeln!(out, "\ncaches of {capacity} positions, {kv}: {}", bytes(cache))?;
        for position in self.positions() {
            let read = f.cache_read(kv, position);
            let all = bytes(total.read + read);
            writeln!(out, "at position {position}: {} of caches read, {all} in all", bytes(read))?;
        }

        writeln!(out, "\n{:<8} {:>12}  what fits", "device", "memory")?;
        for (name, memory) in DEVICES {
            writeln!(out, "{name:<8} {:>12}  {}", bytes(memory), self.fits(memory))?;
        }
        Ok(())
    }

    fn positions(&self) -> impl Iterator<Item = u64> {
        let capacity = self.capacity;
        let mut positions: Vec<u64> = POSITIONS.into_iter().filter(|&at| at < capacity).collect();
        positions.push(capacity - 1);
        positions.into_iter()
    }

    /// Bytes of a device that weights and caches may take.
    fn room(memory: u64) -> u64 {
        memory - memory / 20
    }

    /// Layers that fit one device together with both ends of the model.
    fn layers_on_one(&self, memory: u64) -> usize {
        let f = &self.footprint;
        let ends = f.part(Part::Embedding).bytes + f.part(Part::Head).bytes;
        let Some(mut room) = Self::room(memory).checked_sub(ends) else { return 0 };
        let layers = f.layers.iter().zip(&f.states);
        layers
            .take_while(|(weights, state)| {
                let left = room.checked_sub(**weights + state.bytes(self.kv, self.capacity));
                room = left.unwrap_or(room);
                left.is_some()
            })
            .count()
    }

    fn fits(&self, memory: u64) -> String {
        let stages = self.footprint.stages(Self::room(memory), self.kv, self.capacity);
        let layers = self.footprint.layers.len();
        match stages {
            Some(stages) if stages.len() == 1 => "all of it on one".into(),
            Some(stages) => {
                let each: Vec<String> = stages.iter().map(usize::to_string).collect();
                let one = self.layers_on_one(memory);
                format!(
                    "{} devices ({} layers each); on one {one} of {layers} layers",
                    stages.len(),
                    each.join(" + ")
                )
            }
            None => {
                format!("not even split by layers; on one {} of {layers} layers", self.layers_on_one(memory))
            }
        }
    }

    fn json(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let (f, kv) = (&self.footprint, self.kv);
        let size = |size: PartSize| {
            json!({ "parameters": size.parameters, "active_parameters": size.active, "device_bytes": size.bytes,
                "read_a_token": size.read })
        };
        let parts: BTreeMap<&str, Value> =
            Part::ALL.into_iter().map(|part| (part.name(), size(f.part(part)))).collect();
        let positions: Vec<Value> = self
            .positions()
            .map(|at| {
                let read = f.cache_read(kv, at);
                json!({ "position": at, "cache_bytes_read": read, "bytes_read": read + f.total().read })
            })
            .collect();
        let devices: Vec<Value> = DEVICES
            .into_iter()
            .map(|(name, memory)| {
                json!({
                    "device": name,
                    "memory": memory,
                    "layers_on_one": self.layers_on_one(memory),
                    "stages": f.stages(Self::room(memory), kv, self.capacity),
                })
            })
            .collect();
        let (architecture, layers) = match &self.family {
            Family::Llama(config) => (config.architecture.name(), config.layers as usize),
            Family::Glm5(config) => ("glm5_next", config.layers.len()),
        };
        let summary = json!({
            "file": name_of(self.source),
            "parts": self.about.parts,
            "file_bytes": self.about.file_bytes,
            "architecture": architecture,
            "layers": layers,
            "skipped": if self.skipped.is_empty() { Value::Null } else { self.skipped.as_str().into() },
            "total": size(f.total()),
            "by_part": parts,
            "layer_bytes": f.layers,
            "cache": { "positions": self.capacity, "kv": kv.to_string(), "bytes": f.cache_bytes(kv, self.capacity) },
            "device_bytes": f.total().bytes + f.cache_bytes(kv, self.capacity),
            "read_a_token": positions,
            "devices": devices,
        });
        serde_json::to_writer_pretty(&mut *out, &summary).map_err(io::Error::from)?;
        writeln!(out)?;
        Ok(())
    }
}

fn line(out: &mut impl Write, name: &str, value: String) -> io::Result<()> {
    writeln!(out, "{name:<16} {value}")
}

fn glm5_lines(c: &Glm5Config, out: &mut impl Write) -> io::Result<()> {
    let kda = c.mixers(|kind| kind == MixerKind::Kda).count();
    let dense = c.layers.iter().filter(|layer| layer.ffn == FfnKind::Dense).count();
    let (layers, streams) = (c.layers.len(), c.hc_mult);
    line(out, "architecture", "glm5_next".into())?;
    line(out, "layers", format!("{layers}: {kda} of delta attention, {} of latent attention", layers - kda))?;
    line(out, "width", format!("{}, in {streams} streams, {} mixing rounds", c.hidden, c.hc_iters))?;
    line(
        out,
        "delta attention",
        format!("{} heads, {} wide, {} taps", c.kda_heads, c.kda_head_dim, c.conv_kernel),
    )?;
    let ranks = format!("ranks {} and {}", c.q_lora, c.kv_lora);
    line(out, "latent attention", format!("{} heads, {} + {} wide, {ranks}", c.heads, c.nope, c.v_head))?;
    let (pool, topk) = (c.index_kpool, c.index_topk);
    let indexer =
        format!("{} heads, {} wide, {topk} positions in pools of {pool}", c.index_heads, c.index_dim);
    line(out, "indexer", indexer)?;
    let shared = format!("{} of {} experts of {}", c.experts_per_token, c.experts, c.moe_intermediate);
    line(
        out,
        "networks",
        format!(
            "{dense} dense of {}, {} routed: {shared}, {} shared",
            c.intermediate,
            layers - dense,
            c.shared_experts
        ),
    )?;
    let head = if c.tied_head { "tied" } else { "of its own" };
    line(out, "vocabulary", format!("{}, head {head}", c.vocab))?;
    line(out, "context", c.context.to_string())
}
