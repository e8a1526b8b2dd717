//! `bitwalk logits`: the logits of a prompt and of the greedy steps after it, as a safetensors file.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bitwalk::decode::{GraphDecodeState, Session};
use bitwalk::device::{Device, DeviceSpec};
use bitwalk::engine::Engine;
use bitwalk::format::gguf::GgufFile;
use bitwalk::models::HybridModel;
use bitwalk::options::{Activations, EngineOptions, KvType};
use indicatif::{ProgressBar, ProgressStyle};
use safetensors::tensor::{Dtype, TensorView, serialize_to_file};

/// Arguments of `bitwalk logits`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A GGUF file
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
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
    /// The device: auto, cuda, cuda:N, sim or sim:N
    #[arg(long, env = "BITWALK_DEVICE", default_value = "auto")]
    device: DeviceSpec,
    /// The activation program: exact or i16
    #[arg(long, value_name = "PROGRAM", default_value_t)]
    act: Activations,
    /// Element type of the key/value cache: f32, f16 or fp8
    #[arg(long, value_name = "TYPE", default_value_t)]
    kv: KvType,
    /// Write the logits of every prompt position too: `prompt_logits` [prompt, vocab] f32
    #[arg(long)]
    all_positions: bool,
}

/// Runs the prompt and the steps, and writes the file.
pub fn run(args: &Args) -> Result<()> {
    let device = Device::open(args.device)?;
    let options = EngineOptions { activations: args.act, kv: args.kv, ..EngineOptions::default() };
    let program = options.program();
    eprintln!("device {}; program {program}", device.opened_because());
    let engine = Arc::new(Engine::new(device, options)?);
    let file = GgufFile::open(&args.model)?;
    let loading = bar(0, "loading");
    let model = HybridModel::load(&engine, &file, &mut |done, total| {
        loading.set_length(total);
        loading.set_position(done);
    });
    loading.finish_and_clear();
    let model = Arc::new(model?);

    let positions = args.ids.len() + args.steps;
    let capacity = u32::try_from(positions).context("prompt and steps")?;
    let mut session = Session::new(&engine, &model, capacity)?;
    let steps = bar(positions as u64, "prompt, then steps");
    let mut prompt_rows: Vec<f32> = Vec::new();
    session.prime_with(&args.ids, args.all_positions, |session, _| {
        if args.all_positions {
            prompt_rows.extend(session.logits()?);
        }
        steps.inc(1);
        Ok(())
    })?;
    let (mut ids, mut rows) = (Vec::new(), Vec::new());
    let mut graphs = GraphDecodeState::new();
    for step in 0..=args.steps {
        if step > 0 {
            if args.graph {
                session.decode_step_graph(&mut graphs)?
            } else {
                session.decode_step()?
            }
            steps.inc(1);
        }
        rows.extend(session.logits()?);
        // Ids of a vocabulary fit i32 by far; the file format has no unsigned type that all its readers know.
        ids.push(i32::try_from(session.next_token()?)?);
    }
    steps.finish_and_clear();

    let vocab = model.config().vocab as usize;
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
    let about = HashMap::from([
        ("program".to_owned(), program),
        ("device".to_owned(), engine.device().to_string()),
        ("ptx".to_owned(), engine.arch().name().to_owned()),
        ("decode".to_owned(), if args.graph { "graph" } else { "eager" }.to_owned()),
    ]);
    serialize_to_file(tensors, Some(about), &args.out)
        .with_context(|| format!("writing {}", args.out.display()))?;
    let counters = graphs.counters();
    if args.graph {
        eprintln!("{} captures, {} replays", counters.captures, counters.replays);
    }
    println!("{}: {} rows of {vocab} logits; ids {ids:?}", args.out.display(), ids.len());
    Ok(())
}

/// A progress bar, invisible where stderr is no terminal.
fn bar(length: u64, message: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(length).with_message(message);
    if let Ok(style) = ProgressStyle::with_template("{msg:20} {bar:40} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar
}
