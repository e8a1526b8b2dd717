//! What every command that runs a model takes and does: device, program, loading, sampling options.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bitwalk::decode::{DecodeError, GraphDecodeState, Sampling, SamplingOptions, Session};
use bitwalk::device::links::CheckedLink;
use bitwalk::device::{Device, DeviceList, DeviceSpec};
use bitwalk::engine::{Engine, KernelLoads};
use bitwalk::generate::TextModel;
use bitwalk::models::{Checkpoint, HybridModel, LoadTimings};
use bitwalk::options::{Activations, ExpertArm, KvType, RunOptions};
use bitwalk::pipeline::{Pipeline, open_linked};
use indicatif::{ProgressBar, ProgressStyle};
use ptx_sim::exec::{Checks, ExecOptions};
use ptx_sim::system::System;

use super::interrupt::{self, Interrupted};
use super::{tell, usage};

/// The file that `cargo xtask model smollm2` leaves in `models/`.
const DEFAULT_MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// The model, the devices and the numeric program.
#[derive(Debug, Clone, clap::Args)]
pub struct ModelArgs {
    /// A GGUF file, a folder of safetensors, or `synthetic:NAME`; without it, the file that `cargo xtask model smollm2` fetched
    /// [env: BITWALK_MODEL]
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// The device: auto, cuda, cuda:N, sim or sim:N [env: BITWALK_DEVICE] [default: auto]
    #[arg(long)]
    device: Option<DeviceSpec>,
    /// Several devices, which take the model's layers in stages: ordinals (0,1), cuda:0,1, or sim:N for N simulated ones
    #[arg(long, value_name = "LIST")]
    devices: Option<DeviceList>,
    /// Stages that the layers are split into, by bytes, the devices taken in turn [default: one a device]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_STAGES))]
    stages: Option<u32>,
    /// The activation program: exact or i16 [env: BITWALK_ACT] [default: exact]
    #[arg(long, value_name = "PROGRAM")]
    act: Option<Activations>,
    /// Element type of the key/value cache: f32, f16 or fp8 [env: BITWALK_KV] [default: f16]
    #[arg(long, value_name = "TYPE")]
    kv: Option<KvType>,
    /// Who launches routed experts: device, or host-oracle (one by one, for a selection that is read back; the same bits)
    /// [env: BITWALK_EXPERTS] [default: device]
    #[arg(long, value_name = "ARM")]
    experts: Option<ExpertArm>,
}

/// Stages that can be asked for.
const MOST_STAGES: i64 = 64;

/// A model on its devices.
pub struct Loaded {
    /// The engine of the last stage, which has the logits: the only one where there is one stage.
    pub engine: Arc<Engine>,
    /// The last stage's part of the model: all of it where there is one stage.
    pub model: Arc<HybridModel>,
    /// All stages.
    pub pipeline: Pipeline,
    pub file: Checkpoint,
    /// What the run was asked for.
    pub options: RunOptions,
    /// Time from opening the devices to the last tensor.
    pub load: Duration,
    /// Opening the file, where that was done here.
    opening_file: Duration,
    /// Opening the devices.
    opening_devices: Duration,
}

impl ModelArgs {
    /// The same with another model.
    pub fn with_model(&self, model: PathBuf) -> ModelArgs {
        ModelArgs { model: Some(model), ..self.clone() }
    }

    /// The activation program asked for.
    pub fn activations(&self) -> Result<Activations> {
        Ok(self.options()?.engine.activations)
    }

    /// The same under another activation program.
    pub fn with_activations(&self, act: Activations) -> ModelArgs {
        ModelArgs { act: Some(act), ..self.clone() }
    }

    /// Everything but model and activation program, as a process would be given it that has the same environment.
    pub fn machine_words(&self) -> Vec<String> {
        let options = [
            ("--device", self.device.map(|value| value.to_string())),
            ("--devices", self.devices.as_ref().map(DeviceList::to_string)),
            ("--stages", self.stages.map(|value| value.to_string())),
            ("--kv", self.kv.map(|value| value.to_string())),
            ("--experts", self.experts.map(|value| value.to_string())),
        ];
        let given = options.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
        given.flatten().collect()
    }

    /// The options: the environment's, then those of the command line.
    fn options(&self) -> Result<RunOptions> {
        let mut options = RunOptions::from_env().map_err(|error| usage(error.to_string()))?;
        options.device = self.device.unwrap_or(options.device);
        options.engine.activations = self.act.unwrap_or(options.engine.activations);
        options.engine.kv = self.kv.unwrap_or(options.engine.kv);
        options.engine.experts = self.experts.unwrap_or(options.engine.experts);
        options.model = self.model.clone().or(options.model);
        if let (Some(devices), Some(stages)) = (&self.devices, self.stages)
            && (stages as usize) < devices.len()
        {
            let (devices, idle) = (devices.len(), devices.len() - stages as usize);
            return Err(usage(format!(
                "--stages {stages} leaves {idle} of {devices} devices without a stage: name fewer devices, or ask for more stages"
            )));
        }
        Ok(options)
    }

    /// Opens the file.
    pub fn open(&self) -> Result<Checkpoint> {
        let path = match self.options()?.model {
            Some(path) => path,
            None => default_model()?,
        };
        Ok(Checkpoint::open(&path)?)
    }

    /// Opens the file, then the devices, and loads the model: a slip in the file's name should not wait for a device.
    pub fn load(&self) -> Result<Loaded> {
        let start = Instant::now();
        let file = self.open()?;
        let opening_file = start.elapsed();
        Ok(Loaded { opening_file, ..self.load_file(file)? })
    }

    /// Opens the devices and loads the model, with a bar where stderr is a terminal.
    pub fn load_file(&self, file: Checkpoint) -> Result<Loaded> {
        let options = self.options()?;
        let start = Instant::now();
        let (devices, links) = self.devices(&options)?;
        let opening_devices = start.elapsed();
        let stages = self.stages.unwrap_or(devices.len() as u32);
        let path = file.source().path().display();
        let opened: Vec<&str> = devices.iter().map(Device::opened_because).collect();
        tell(format_args!("bitwalk: {path}, {}, {}", opened.join(" + "), options.engine.program()));
        tell(format_args!("bitwalk: options: {options}"));
        if !links.is_empty() {
            let staged: Vec<String> = links
                .iter()
                .filter(|link| !link.direct)
                .map(|link| format!("{} -> {}", link.from, link.to))
                .collect();
            let how = match &staged[..] {
                [] => "all direct".to_owned(),
                staged => format!("through the host: {}", staged.join(", ")),
            };
            tell(format_args!("bitwalk: {} links checked, {how}", links.len()));
        }
        let bar = bar(0, "loading");
        // Nothing is written meanwhile, so Ctrl-C need not wait for the last tensor.
        let pipeline = interrupt::waiting(|| {
            Pipeline::load(&devices, stages, &options.engine, file.source(), &mut |stage, done, total| {
                if stages > 1 {
                    bar.set_message(format!("loading, stage {stage}"));
                }
                bar.set_length(total);
                bar.set_position(done);
            })
        });
        bar.finish_and_clear();
        let pipeline = pipeline?;
        interrupt::check()?;
        let Some((engine, model)) = pipeline.stages.last().cloned() else {
            unreachable!("a model has at least one stage")
        };
        let (load, opening_file) = (start.elapsed(), Duration::ZERO);
        Ok(Loaded { engine, model, pipeline, file, options, load, opening_file, opening_devices })
    }

    /// Opens what `--devices` or `--device` names; the links among several are checked.
    fn devices(&self, options: &RunOptions) -> Result<(Vec<Device>, Vec<CheckedLink>)> {
        let system = System::shared();
        if options.checks {
            system.set_exec_options(ExecOptions { checks: Checks::ALL, ..ExecOptions::default() });
        }
        match &self.devices {
            Some(list) => Ok(open_linked(list, options.device, &system)?),
            None => Ok((vec![Device::open(options.device)?], Vec::new())),
        }
    }
}

impl Loaded {
    /// Tokenizer, template and end tokens.
    pub fn text(&self) -> Result<TextModel> {
        text_of(&self.file)
    }

    /// The model's file, devices, stages, options and program, for JSON.
    pub fn about(&self) -> serde_json::Map<String, serde_json::Value> {
        let devices: Vec<String> = self.pipeline.devices().iter().map(Device::to_string).collect();
        let stages = self.pipeline.stages.iter().map(|(engine, model)| {
            let range = model.range();
            serde_json::json!({
                "device": engine.device().to_string(),
                "layers": [range.first, range.end],
                "weight_bytes": model.bytes(),
            })
        });
        let stages: Vec<_> = stages.collect();
        let about = serde_json::json!({
            "model": self.file.source().path().display().to_string(),
            "device": devices.join(" + "),
            "device_name": self.engine.name(),
            "stages": stages,
            "options": self.options.to_string(),
            "program": self.engine.options().program(),
            "ptx": self.engine.arch().name(),
            "load_s": self.load.as_secs_f64(),
            "load": self.load_steps(),
        });
        match about {
            serde_json::Value::Object(about) => about,
            _ => unreachable!("an object was written"),
        }
    }

    /// What was loaded on all stages together: weights, and the kernels that were asked for so far.
    fn loads(&self) -> (LoadTimings, KernelLoads) {
        let (mut weights, mut kernels) = (LoadTimings::default(), KernelLoads::default());
        for (engine, model) in &self.pipeline.stages {
            weights += *model.loading();
            kernels += engine.kernel_loads();
        }
        (weights, kernels)
    }

    /// What loading consisted of, for JSON.
    fn load_steps(&self) -> serde_json::Value {
        let (weights, kernels) = self.loads();
        serde_json::json!({
            "open_file_s": self.opening_file.as_secs_f64(),
            "open_devices_s": self.opening_devices.as_secs_f64(),
            "weights_s": weights.total.as_secs_f64(),
            "stored_bytes": weights.stored_bytes,
            "bytes_s": weights.rate(),
            "threads": weights.threads,
            "making_thread_s": weights.making.as_secs_f64(),
            "waiting_thread_s": weights.waiting.as_secs_f64(),
            "allocating_s": weights.allocating.as_secs_f64(),
            "pinned_bytes": weights.pinned_bytes,
            "kernels": kernels.kernels,
            "kernels_s": kernels.time.as_secs_f64(),
        })
    }

    /// The same as a line.
    pub fn load_line(&self) -> String {
        let (weights, kernels) = self.loads();
        format!(
            "file opened in {:.3} s, device in {:.3} s; {weights}; {} kernels in {:.3} s",
            self.opening_file.as_secs_f64(),
            self.opening_devices.as_secs_f64(),
            kernels.kernels,
            kernels.time.as_secs_f64()
        )
    }

    /// A session for `tokens` tokens, or for as many as the model's context has.
    pub fn session(&self, tokens: usize) -> Result<Session> {
        let context = self.model.config().context;
        let capacity = u32::try_from(tokens).unwrap_or(u32::MAX).clamp(1, context);
        Ok(self.pipeline.session(capacity)?)
    }

    /// No graphs yet, under the options asked for.
    pub fn graphs(&self) -> GraphDecodeState {
        GraphDecodeState::with_options(self.options.graph)
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
