//! What every command that runs a model takes and does: device, program, loading, sampling options.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bitwalk::decode::{DecodeError, Sampling, SamplingOptions, Session};
use bitwalk::device::{Device, DeviceSpec};
use bitwalk::engine::Engine;
use bitwalk::generate::TextModel;
use bitwalk::models::{Checkpoint, HybridModel};
use bitwalk::options::{Activations, EngineOptions, ExpertArm, KvType};
use indicatif::{ProgressBar, ProgressStyle};

use super::interrupt::{self, Interrupted};
use super::{tell, usage};

/// The file that `cargo xtask model smollm2` leaves in `models/`.
const DEFAULT_MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The model, the device and the numeric program.
#[derive(Debug, Clone, clap::Args)]
pub struct ModelArgs {
    /// A GGUF file, a folder of safetensors, or `synthetic:NAME`; without it, the file that `cargo xtask model smollm2` fetched
    #[arg(long, value_name = "FILE", env = "BITWALK_MODEL")]
    model: Option<PathBuf>,
    /// The device: auto, cuda, cuda:N, sim or sim:N
    #[arg(long, env = "BITWALK_DEVICE", default_value = "auto")]
    device: DeviceSpec,
    /// The activation program: exact or i16
    #[arg(long, value_name = "PROGRAM", default_value_t)]
    act: Activations,
    /// Element type of the key/value cache: f32, f16 or fp8
    #[arg(long, value_name = "TYPE", default_value_t)]
    kv: KvType,
    /// Who launches routed experts: device, or host-oracle (one by one, for a selection that is read back; the same bits)
    #[arg(long, value_name = "ARM", default_value_t)]
    experts: ExpertArm,
}

/// A model on a device.
pub struct Loaded {
    pub engine: Arc<Engine>,
    pub model: Arc<HybridModel>,
    pub file: Checkpoint,
    /// Time from opening the device to the last tensor.
    pub load: Duration,
}

impl ModelArgs {
    /// The same with another model.
    pub fn with_model(&self, model: PathBuf) -> ModelArgs {
        ModelArgs { model: Some(model), ..self.clone() }
    }

    /// The activation program asked for.
    pub fn activations(&self) -> Activations {
        self.act
    }

    /// The same under another activation program.
    pub fn with_activations(&self, act: Activations) -> ModelArgs {
        ModelArgs { act, ..self.clone() }
    }

    /// Everything but model and activation program, as a process would be given it.
    pub fn machine_words(&self) -> Vec<String> {
        let words = ["--device", &self.device.to_string(), "--kv", &self.kv.to_string()].map(str::to_owned);
        words.into_iter().chain(["--experts".to_owned(), self.experts.to_string()]).collect()
    }

    /// Opens the file.
    pub fn open(&self) -> Result<Checkpoint> {
        let path = match &self.model {
            Some(path) => path.clone(),
            None => default_model()?,
        };
        Ok(Checkpoint::open(&path)?)
    }

    /// Opens the file, then the device, and loads the model: a slip in the file's name should not wait for a device.
    pub fn load(&self) -> Result<Loaded> {
        self.load_file(self.open()?)
    }

    /// Opens the device and loads the model, with a bar where stderr is a terminal.
    pub fn load_file(&self, file: Checkpoint) -> Result<Loaded> {
        let start = Instant::now();
        let device = Device::open(self.device)?;
        let options = EngineOptions {
            activations: self.act,
            kv: self.kv,
            experts: self.experts,
            ..EngineOptions::default()
        };
        let path = file.source().path().display();
        tell(format_args!("bitwalk: {path}, {}, {}", device.opened_because(), options.program()));
        let engine = Arc::new(Engine::new(device, options)?);
        let bar = bar(0, "loading");
        let model = HybridModel::load_from_source(&engine, file.source(), &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        let model = Arc::new(model?);
        engine.synchronize()?;
        interrupt::check()?;
        Ok(Loaded { engine, model, file, load: start.elapsed() })
    }
}

impl Loaded {
    /// Tokenizer, template and end tokens.
    pub fn text(&self) -> Result<TextModel> {
        text_of(&self.file)
    }

    /// The model's file, device and program, for JSON.
    pub fn about(&self) -> serde_json::Map<String, serde_json::Value> {
        let about = serde_json::json!({
            "model": self.file.source().path().display().to_string(),
            "device": self.engine.device().to_string(),
            "device_name": self.engine.name(),
            "program": self.engine.options().program(),
            "ptx": self.engine.arch().name(),
            "load_s": self.load.as_secs_f64(),
        });
        match about {
            serde_json::Value::Object(about) => about,
            _ => unreachable!("an object was written"),
        }
    }

    /// A session for `tokens` tokens, or for as many as the model's context has.
    pub fn session(&self, tokens: usize) -> Result<Session> {
        let context = self.model.config().context;
        let capacity = u32::try_from(tokens).unwrap_or(u32::MAX).clamp(1, context);
        Ok(Session::new(&self.engine, &self.model, capacity)?)
    }
}

/// Tokenizer, template and end tokens of a checkpoint that has them.
pub fn text_of(file: &Checkpoint) -> Result<TextModel> {
    match file.gguf() {
        Some(gguf) => Ok(TextModel::from_metadata(gguf.metadata())?),
        None => anyhow::bail!(
            "{}: no tokenizer is read from such checkpoints: `bitwalk logits --ids` takes token ids",
            file.source().path().display()
        ),
    }
}

/// Runs `ids` into the cache, with a bar; the time it took.
pub fn prime(session: &mut Session, ids: &[u32]) -> Result<Duration> {
    let start = Instant::now();
    let bar = bar(ids.len() as u64, "reading the prompt");
    let outcome = session.prime_with(ids, false, |_, done| {
        bar.set_position(done as u64);
        if interrupt::interrupted() { Err(DecodeError::Stopped) } else { Ok(()) }
    });
    bar.finish_and_clear();
    match outcome {
        Err(DecodeError::Stopped) => Err(Interrupted.into()),
        Err(error) => Err(error.into()),
        Ok(()) => {
            session.engine().synchronize()?;
            Ok(start.elapsed())
        }
    }
}

/// A progress bar, invisible where stderr is no terminal.
pub fn bar(length: u64, message: &'static str) -> ProgressBar {
    let bar = ProgressBar::new(length).with_message(message);
    if let Ok(style) = ProgressStyle::with_template("{msg:20} {bar:40} {percent}% {eta}") {
        bar.set_style(style);
    }
    bar
}

/// `models/` in the working directory or one of its parents, or beside the program.
pub fn default_model() -> Result<PathBuf> {
    let here = std::env::current_dir().context("the working directory")?;
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent);
    // Relative where it can be: the path is shown.
    let folders = [Path::new("")].into_iter().chain(here.ancestors().skip(1)).chain(beside);
    let found = folders.map(|folder| folder.join("models").join(DEFAULT_MODEL)).find(|path| path.is_file());
    found.ok_or_else(|| {
        usage(format!(
            "no --model was given, and there is no models/{DEFAULT_MODEL} here: \
             `cargo xtask model smollm2` fetches it (100 MB)"
        ))
    })
}

/// How the next token is chosen.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling (without --temp, the likeliest token)")]
pub struct SamplingArgs {
    /// Draw the next token, at this temperature
    #[arg(long, value_name = "T", allow_negative_numbers = true)]
    temp: Option<f32>,
    /// Draw from the K likeliest only
    #[arg(long, value_name = "K", requires = "temp")]
    top_k: Option<u32>,
    /// Draw from the fewest that hold this share of the probability
    #[arg(long, value_name = "P", requires = "temp", allow_negative_numbers = true)]
    top_p: Option<f32>,
    /// Drop tokens with less than this part of the likeliest's probability
    #[arg(long, value_name = "P", requires = "temp", allow_negative_numbers = true)]
    min_p: Option<f32>,
    /// Make tokens that have occurred less likely: divide their logits by this
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    repeat_penalty: Option<f32>,
    /// The draws' seed; equal seeds give equal text [default: 0]
    #[arg(long, value_name = "N", requires = "temp")]
    seed: Option<u64>,
}

impl SamplingArgs {
    /// The sampling asked for; `None` is greedy.
    pub fn sampling(&self) -> Result<Option<Sampling>> {
        if self.temp.is_none() && self.repeat_penalty.is_none() {
            return Ok(None);
        }
        let options = SamplingOptions {
            temperature: self.temp.unwrap_or(1.0),
            // The likeliest after the penalty.
            top_k: if self.temp.is_none() { Some(1) } else { self.top_k },
            top_p: self.top_p,
            min_p: self.min_p,
            repeat_penalty: self.repeat_penalty.unwrap_or(1.0),
            seed: self.seed.unwrap_or(0),
        };
        Sampling::new(options).map(Some).map_err(|error| usage(format!("--{error}")))
    }
}
