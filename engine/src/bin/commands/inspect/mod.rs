//! `bitwalk inspect`: what is in a model file, or would be in a synthetic one.

mod checkpoint;
mod gguf;
mod words;

use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use bitwalk::format::TensorSource;
use bitwalk::format::gguf::GgufFile;
use bitwalk::format::safetensors::SafetensorsSource;
use bitwalk::format::synthetic::{Recipe, SyntheticSource};
use bitwalk::options::{KvType, RunOptions};

use super::model::default_model;
use super::usage;

/// Arguments of `bitwalk inspect`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A GGUF file (of a split one, any part), a folder or file of safetensors, or the name of a synthetic model such as
    /// glm-5.3-flash,layers=24; without it, the file that `cargo xtask model smollm2` fetched
    /// [env: BITWALK_MODEL]
    file: Option<PathBuf>,
    /// Print one JSON object instead of tables
    #[arg(long)]
    json: bool,
    /// Positions that the caches of a checkpoint are sized for [default: 8192, or the model's context]
    #[arg(long, value_name = "N")]
    context: Option<u64>,
    /// Element type of its cached keys, values and latents: f32, f16 or fp8 [env: BITWALK_KV] [default: f16]
    #[arg(long, value_name = "TYPE")]
    kv: Option<KvType>,
}

/// Prints the tables or the JSON object.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let options = RunOptions::from_env().map_err(|error| usage(error.to_string()))?;
    let path = match args.file.clone().or(options.model) {
        Some(path) => path,
        None => default_model()?,
    };
    let kv = args.kv.unwrap_or(options.engine.kv);
    let mut out = BufWriter::new(io::stdout().lock());
    if let Some(recipe) = recipe(&path) {
        let source = SyntheticSource::new(recipe?).map_err(|error| usage(error.to_string()))?;
        checkpoint::print(&source, &checkpoint::About::synthetic(&source), args, kv, &mut out)?;
    } else if is_safetensors(&path) {
        let source = SafetensorsSource::open(&path)?;
        checkpoint::print(&source, &checkpoint::About::safetensors(&source), args, kv, &mut out)?;
    } else {
        gguf::print(&GgufFile::open(&path)?, args.json, &mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// The recipe that a name asks for, if it is one and no file is called so.
fn recipe(path: &Path) -> Option<anyhow::Result<Recipe>> {
    let text = path.to_str()?;
    let (text, named) = match text.strip_prefix("synthetic:") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let name = text.split(',').next().unwrap_or(text);
    let known = Recipe::NAMES.contains(&name) && !path.exists();
    (named || known).then(|| text.parse().map_err(|error| usage(format!("{error}"))))
}

fn is_safetensors(path: &Path) -> bool {
    path.is_dir() || path.extension().is_some_and(|end| end == "safetensors" || end == "json")
}

/// What a source with a configuration is called.
fn name_of(source: &dyn TensorSource) -> String {
    source.path().display().to_string()
}
