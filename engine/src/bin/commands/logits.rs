//! `bitwalk logits`: the logits of a prompt and of the greedy steps after it, as a safetensors file.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use bitwalk::decode::DecodeError;
use bitwalk::device::Device;
use bitwalk::models::Probe;
use bitwalk::observe::Observed;
use safetensors::tensor::{Dtype, TensorView, serialize};

use super::dump::{Dump, arrays};
use super::interrupt;
use super::model::{ModelArgs, bar};

/// Arguments of `bitwalk logits`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Token ids of the prompt
    #[arg(long, value_delimiter = ',', required = true)]
    ids: Vec<u32>,
    /// Greedy steps after the prompt
    #[arg(long, default_value_t = 0)]
    steps: usize,
    /// The file to write: `ids` [steps + 1] i32, `logits` [steps + 1, vocab] f32 (row 0 is the prompt's last position)
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Decode by replaying captured graphs
    #[arg(long, conflicts_with = "eager")]
    graph: bool,
    /// Decode launch by launch (the default)
    #[arg(long)]
    eager: bool,
    /// Write the logits of every prompt position too: `prompt_logits` [prompt, vocab] f32
    #[arg(long)]
    all_positions: bool,
    /// Write what a glm5_next model does inside, under the names of the golden data; decodes eagerly
    #[arg(long, value_delimiter = ',', conflicts_with = "graph")]
    dump: Vec<Dump>,
    /// Print one JSON object instead of a line
    #[arg(long)]
    json: bool,
}

/// Runs the prompt and the steps, and writes the file.
pub fn run(args: &Args) -> Result<()> {
    interrupt::install()?;
    let loaded = args.model.load()?;
    let positions = args.ids.len().saturating_add(args.steps);
    let context = loaded.model.config().context;
    ensure!(
        positions <= context as usize,
        "{} ids and {} steps, and the model's context is {context}: take fewer",
        args.ids.len(),
        args.steps
    );
    let mut session = loaded.session(positions)?;
    let steps = bar(positions as u64, "prompt, then steps");
    let mut prompt_rows: Vec<f32> = Vec::new();
    let mut seen = Observed::default();
    let stages = &loaded.pipeline.stages;
    let mut observe = |probe: &Probe| {
        // Whichever stage's stream wrote it, a read in another one does not wait for that by itself.
        loaded.pipeline.synchronize()?;
        let at = stages.iter().find(|(engine, _)| engine.device() == probe.device());
        seen.take(at.map_or(&loaded.engine, |(engine, _)| engine).stream(), probe)
    };
    let dumping = !args.dump.is_empty();
    let primed = session.prime_observed(
        &args.ids,
        args.all_positions,
        if dumping { Some(&mut observe) } else { None },
        &mut |session, done| {
            if args.all_positions {
                prompt_rows.extend(session.logits()?);
            }
            steps.set_position(done as u64);
            if interrupt::interrupted() { Err(DecodeError::Stopped) } else { Ok(()) }
        },
    );
    interrupt::check()?;
    primed?;
    let (mut ids, mut rows) = (Vec::new(), Vec::new());
    let mut graphs = loaded.graphs();
    for step in 0..=args.steps {
        if step > 0 {
            if args.graph {
                session.decode_step_graph(&mut graphs)?
            } else {
                session.decode_observed(if dumping { Some(&mut observe) } else { None })?
            }
            steps.inc(1);
            interrupt::check()?;
        }
        rows.extend(session.logits()?);
        // Ids of a vocabulary fit i32 by far; the file format has no unsigned type that all its readers know.
        ids.push(i32::try_from(session.next_token()?)?);
    }
    steps.finish_and_clear();

    let vocab = loaded.model.config().vocab as usize;
    ensure!(rows.len() == ids.len() * vocab, "{} logits for {} rows of {vocab}", rows.len(), ids.len());
    let ids_bytes: &[u8] = bytemuck::cast_slice(&ids);
    let rows_bytes: &[u8] = bytemuck::cast_slice(&rows);
    let mut tensors = vec![
        ("ids", TensorView::new(Dtype::I32, vec![ids.len()], ids_bytes)?),
        ("logits", TensorView::new(Dtype::F32, vec![ids.len(), vocab], rows_bytes)?),
    ];
    if args.all_positions {
        let bytes: &[u8] = bytemuck::cast_slice(&prompt_rows);
        tensors.push(("prompt_logits", TensorView::new(Dtype::F32, vec![args.ids.len(), vocab], bytes)?));
    }
    let dumped = if dumping {
        arrays(&args.dump, &loaded.pipeline, &seen, args.ids.len(), args.steps)?
    } else {
        Vec::new()
    };
    for array in &dumped {
        tensors.push(array.view()?);
    }
    let (engine, decode) = (&loaded.engine, if args.graph { "graph" } else { "eager" });
    let devices: Vec<String> = loaded.pipeline.devices().iter().map(Device::to_string).collect();
    let about = HashMap::from([
        ("program".to_owned(), engine.options().program()),
        ("device".to_owned(), devices.join(" + ")),
        ("ptx".to_owned(), engine.arch().name().to_owned()),
        ("decode".to_owned(), decode.to_owned()),
    ]);
    // Not `serialize_to_file`: it renames a new file into place, which replaces a device such as /dev/null.
    let bytes = serialize(tensors, Some(about)).context("the logits as safetensors")?;
    fs::write(&args.out, bytes).with_context(|| format!("writing {}", args.out.display()))?;
    let mut out = io::stdout().lock();
    if args.json {
        let counters = graphs.counters();
        let mut object = loaded.about();
        object.insert("decode".to_owned(), decode.into());
        object.insert("out".to_owned(), args.out.display().to_string().into());
        object.insert("prompt_ids".to_owned(), args.ids.clone().into());
        object.insert("ids".to_owned(), ids.into());
        object.insert("vocab".to_owned(), vocab.into());
        object.insert("captures".to_owned(), counters.captures.into());
        object.insert("replays".to_owned(), counters.replays.into());
        serde_json::to_writer_pretty(&mut out, &object).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        writeln!(out, "{}: {} rows of {vocab} logits; ids {ids:?}", args.out.display(), ids.len())?;
    }
    Ok(out.flush()?)
}
