//! `bitwalk plan`: the launches of a walk.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use anyhow::Result;
use bitwalk::decode::Sampling;
use bitwalk::models::{CHUNK, Checkpoint};
use bitwalk::plan::Step;
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
    let engine = session.engine().clone();
    let walk = session.walk()?.clone();
    let whole = walk.launches();
    // Captured for real: the word in the table is what the device said.
    let captured = whole.capture(engine.stream());
    let refusal = captured.as_ref().err().map(|error| error.to_string());
    let steps = whole.steps();
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        let launches: Vec<_> = steps.iter().map(|step| launch(step, refusal.is_none())).collect();
        let mut object = loaded.about();
        let cost = whole.cost();
        let more = json!({
            "attention": walk.attention_kernel,
            "n_splits": walk.n_splits,
            "launches": launches,
            "read_bytes": cost.read,
            "write_bytes": cost.write,
            "flops": cost.flops,
            "refusal": refusal,
        });
        if let serde_json::Value::Object(more) = more {
            object.extend(more);
        }
        serde_json::to_writer_pretty(&mut out, &object).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        table(&mut out, steps, refusal.is_none(), args.all)?;
        let cost = whole.cost();
        writeln!(
            out,
            "\n{} launches a token, {:.3} MB read, {:.3} MB written, {:.1} Mflop; attention sized for {} keys",
            steps.len(),
            cost.read as f64 / 1e6,
            cost.write as f64 / 1e6,
            cost.flops as f64 / 1e6,
            u64::from(walk.n_splits) * u64::from(CHUNK)
        )?;
        match refusal {
            None => writeln!(out, "captured as one graph of {} nodes", steps.len())?,
            Some(reason) => writeln!(out, "not captured: {reason}")?,
        }
    }
    out.flush()?;
    Ok(())
}

fn launch(step: &Step, captured: bool) -> serde_json::Value {
    let launch = &step.launch;
    json!({
        "layer": step.label.layer,
        "what": step.label.what,
        "kernel": launch.decl.name,
        "grid": launch.grid,
        "block": launch.block,
        "shared_bytes": launch.shared,
        "read_bytes": launch.cost.read,
        "write_bytes": launch.cost.write,
        "flops": launch.cost.flops,
        "captured": captured,
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
