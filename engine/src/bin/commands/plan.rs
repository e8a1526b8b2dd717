//! `bitwalk plan`: the launches of a walk.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use bitwalk::decode::Sampling;
use bitwalk::kernel::Cost;
use bitwalk::models::{CHUNK, Checkpoint, HybridModel};
use bitwalk::plan::{Plan, Step};
use serde_json::json;

use super::model::{ModelArgs, SamplingArgs};

/// Arguments of `bitwalk plan`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A GGUF file, as with --model
    #[arg(value_name = "MODEL")]
    file: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Positions that the cache has room for [default: the model's context, at most 4096]
    #[arg(long, value_name = "N")]
    context: Option<usize>,
    /// Print every layer, also where it is as the one before
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Prints the walk of the first token.
pub fn run(args: &Args) -> Result<()> {
    let sampling: Option<Sampling> = args.sampling.sampling()?;
    let loaded = match &args.file {
        Some(path) => args.model.load_file(Checkpoint::open(path)?)?,
        None => args.model.load()?,
    };
    let mut session = loaded.session(args.context.unwrap_or(4096))?;
    session.set_sampling(sampling.as_ref())?;
    let mut stages = Vec::new();
    let (mut attention, mut n_splits) = ("", 0);
    for (walk, (engine, model)) in session.walks()?.into_iter().zip(&loaded.pipeline.stages) {
        (attention, n_splits) = (walk.attention_kernel, walk.n_splits);
        let whole = walk.launches();
        // Captured for real: the word in the table is what the device said.
        let refusal = whole.capture(engine.stream()).err().map(|error| error.to_string());
        stages.push(Stage { device: engine.device().to_string(), model: model.clone(), whole, refusal });
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let launches: usize = stages.iter().map(|stage| stage.whole.steps().len()).sum();
    let cost = stages.iter().map(|stage| stage.whole.cost()).fold(Cost::default(), |sum, cost| Cost {
        read: sum.read + cost.read,
        write: sum.write + cost.write,
        flops: sum.flops + cost.flops,
    });
    if args.json {
        let refusals: Vec<&str> = stages.iter().filter_map(|stage| stage.refusal.as_deref()).collect();
        let listed: Vec<_> = stages
            .iter()
            .enumerate()
            .flat_map(|(index, stage)| stage.whole.steps().iter().map(move |step| launch(step, index, stage)))
            .collect();
        let mut object = loaded.about();
        let more = json!({
            "attention": attention,
            "n_splits": n_splits,
            "launches": listed,
            "read_bytes": cost.read,
            "write_bytes": cost.write,
            "flops": cost.flops,
            "refusal": if refusals.is_empty() { None } else { Some(refusals.join("; ")) },
        });
        if let serde_json::Value::Object(more) = more {
            object.extend(more);
        }
        serde_json::to_writer_pretty(&mut out, &object).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        for (index, stage) in stages.iter().enumerate() {
            if stages.len() > 1 {
                stage.head(&mut out, index)?;
            }
            table(&mut out, stage.whole.steps(), stage.refusal.is_none(), args.all)?;
            if stages.len() > 1 {
                writeln!(out)?;
            }
        }
        if stages.len() == 1 {
            writeln!(out)?;
        }
        writeln!(
            out,
            "{launches} launches a token, {:.3} MB read, {:.3} MB written, {:.1} Mflop; attention sized for {} keys",
            cost.read as f64 / 1e6,
            cost.write as f64 / 1e6,
            cost.flops as f64 / 1e6,
            u64::from(n_splits) * u64::from(CHUNK)
        )?;
        for (index, stage) in stages.iter().enumerate() {
            let name = if stages.len() > 1 { format!("stage {index}: ") } else { String::new() };
            match &stage.refusal {
                None => writeln!(out, "{name}captured as one graph of {} nodes", stage.whole.steps().len())?,
                Some(reason) => writeln!(out, "{name}not captured: {reason}")?,
            }
        }
    }
    out.flush()?;
    Ok(())
}

/// A stage and its part of the walk.
struct Stage {
    device: String,
    model: Arc<HybridModel>,
    whole: Plan,
    /// Why it is not captured.
    refusal: Option<String>,
}

impl Stage {
    /// The line above its table.
    fn head(&self, out: &mut impl Write, index: usize) -> io::Result<()> {
        let (range, cost) = (self.model.range(), self.whole.cost());
        writeln!(
            out,
            "stage {index} on {}: layers {}–{} of {}, {:.3} MB of weights; {} launches, {:.3} MB read, {:.3} MB written",
            self.device,
            range.first,
            range.end - 1,
            range.total,
            self.model.bytes() as f64 / 1e6,
            self.whole.steps().len(),
            cost.read as f64 / 1e6,
            cost.write as f64 / 1e6
        )
    }
}

fn launch(step: &Step, index: usize, stage: &Stage) -> serde_json::Value {
    let launch = &step.launch;
    json!({
        "stage": index,
        "layer": step.label.layer,
        "what": step.label.what,
        "kernel": launch.decl.name,
        "grid": launch.grid,
        "block": launch.block,
        "shared_bytes": launch.shared,
        "read_bytes": launch.cost.read,
        "write_bytes": launch.cost.write,
        "flops": launch.cost.flops,
        "captured": stage.refusal.is_none(),
    })
}

/// What a row shows; two layers with equal rows are alike.
fn row(step: &Step) -> [String; 6] {
    let size = |[x, y, z]: [u32; 3]| match (x, y, z) {
        (x, 1, 1) => x.to_string(),
        (x, y, 1) => format!("{x}×{y}"),
        (x, y, z) => format!("{x}×{y}×{z}"),
    };
    let launch = &step.launch;
    [
        step.label.what.to_owned(),
        launch.decl.name.to_owned(),
        size(launch.grid),
        size(launch.block),
        launch.cost.read.to_string(),
        launch.cost.write.to_string(),
    ]
}

fn table(out: &mut impl Write, steps: &[Step], captured: bool, all: bool) -> io::Result<()> {
    writeln!(
        out,
        "{:>5}  {:<18} {:<24} {:>10} {:>6} {:>12} {:>10}  graph",
        "layer", "what", "kernel", "grid", "block", "bytes read", "written"
    )?;
    let layer_of = |step: &Step| step.label.layer;
    let mut shown: Option<Vec<[String; 6]>> = None;
    let mut alike = Vec::new();
    // Embedding and head belong to no layer; they are groups of their own.
    for group in steps.chunk_by(|a, b| layer_of(a) == layer_of(b)) {
        let rows: Vec<_> = group.iter().map(row).collect();
        if !all && layer_of(&group[0]).is_some() && shown.as_ref() == Some(&rows) {
            alike.extend(layer_of(&group[0]));
            continue;
        }
        flush(out, &mut alike)?;
        for (step, [what, kernel, grid, block, read, written]) in group.iter().zip(&rows) {
            let layer = layer_of(step).map_or(String::new(), |layer| layer.to_string());
            let graph = if captured { "captured" } else { "gap" };
            writeln!(
                out,
                "{layer:>5}  {what:<18} {kernel:<24} {grid:>10} {block:>6} {read:>12} {written:>10}  {graph}"
            )?;
        }
        shown = layer_of(&group[0]).map(|_| rows);
    }
    flush(out, &mut alike)?;
    Ok(())
}

fn flush(out: &mut impl Write, alike: &mut Vec<u32>) -> io::Result<()> {
    if let (Some(first), Some(last)) = (alike.first(), alike.last()) {
        writeln!(out, "{:>5}  the same", format!("{first}–{last}"))?;
    }
    alike.clear();
    Ok(())
}
