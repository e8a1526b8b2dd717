//! `bitwalk generate`: a prompt's continuation, streamed.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bitwalk::decode::{CaptureMode, Finish, GraphCounters, GraphDecodeState, Produced, Production, Session};
use bitwalk::device::DeviceKind;
use bitwalk::generate::TextModel;
use bitwalk::options::RunOptions;
use bitwalk::tokenizer::TextStream;
use serde_json::json;

use super::interrupt::{self, Interrupted, interrupted};
use super::model::{Loaded, ModelArgs, SamplingArgs, prime, text_of};
use super::{tell, usage};

/// Arguments of `bitwalk generate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// The prompt; without it and --prompt-file, standard input
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_file")]
    prompt: Option<String>,
    /// A file with the prompt; its last line end is left off
    #[arg(long, value_name = "FILE")]
    prompt_file: Option<PathBuf>,
    /// Give the prompt to the model as it is, not as a user's message in the model's chat template
    #[arg(long)]
    raw: bool,
    /// Tokens at most; 0 only reads the prompt into the cache
    #[arg(long, value_name = "N", default_value_t = 256)]
    max_tokens: usize,
    #[command(flatten)]
    decode: DecodeArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Print times and counts to standard error afterwards
    #[arg(long)]
    stats: bool,
    /// Print one JSON object instead of the text
    #[arg(long)]
    json: bool,
}

/// How walks are run.
#[derive(Debug, clap::Args)]
pub struct DecodeArgs {
    /// Decode by replaying captured graphs (the default)
    #[arg(long, conflicts_with = "eager")]
    graph: bool,
    /// Decode launch by launch
    #[arg(long)]
    eager: bool,
    /// Tokens for which the host waits at a time [default: 4 on a GPU, 1 on the simulated device]
    #[arg(long, value_name = "K")]
    queue: Option<NonZeroUsize>,
}

impl DecodeArgs {
    /// `graph` or `eager`.
    pub fn mode(&self, options: &RunOptions) -> &'static str {
        if self.launched(options) { "eager" } else { "graph" }
    }

    /// Whether walks are launched: what the command line says, else `BITWALK_GRAPH`.
    fn launched(&self, options: &RunOptions) -> bool {
        self.eager || (!self.graph && options.graph.mode == CaptureMode::Nothing)
    }

    /// No graphs yet; whoever asks for them by `--graph` gets them, whatever `BITWALK_GRAPH` says.
    pub fn graphs(&self, options: &RunOptions) -> Option<GraphDecodeState> {
        let mut graph = options.graph;
        if self.graph && graph.mode == CaptureMode::Nothing {
            graph.mode = CaptureMode::Whole;
        }
        (!self.launched(options)).then(|| GraphDecodeState::with_options(graph))
    }

    fn queue(&self, kind: DeviceKind) -> NonZeroUsize {
        let default = if kind == DeviceKind::Cuda {
            const { NonZeroUsize::new(4).unwrap() }
        } else {
            NonZeroUsize::MIN
        };
        self.queue.unwrap_or(default)
    }
}

/// A reply and how it came about.
pub struct Reply {
    pub text: String,
    pub produced: Produced,
    /// Without that of the comparison of first replays.
    pub time: Duration,
}

impl Reply {
    /// Why there is no more of it, in a word.
    pub fn finish(&self) -> &'static str {
        match self.produced.finish {
            Finish::Stop(_) => "stop",
            Finish::Length => "length",
            Finish::Full => "context",
            Finish::Asked => "interrupted",
        }
    }
}

/// Produces tokens and hands their text to `show` as it becomes complete.
pub fn reply(
    session: &mut Session,
    mut graphs: Option<&mut GraphDecodeState>,
    text: &TextModel,
    decode: &DecodeArgs,
    tokens: usize,
    mut show: impl FnMut(&str) -> io::Result<()>,
) -> Result<Reply> {
    let start = Instant::now();
    let mut stream = TextStream::new(&text.tokenizer);
    let (mut written, mut failed) = (String::new(), None::<anyhow::Error>);
    let queue = decode.queue(session.engine().device().info().kind);
    let verifying = |graphs: &Option<&mut GraphDecodeState>| {
        graphs.as_ref().map_or(Duration::ZERO, |graphs| graphs.counters().verifying)
    };
    let before = verifying(&graphs);
    let ask = Production { graphs: graphs.as_deref_mut(), tokens, queue, stop: &text.stop };
    let produced = session.produce(ask, |id| {
        let shown = stream.push(id).map_err(anyhow::Error::from).and_then(|piece| {
            written += &piece;
            if !piece.is_empty() {
                show(&piece)?;
            }
            Ok(())
        });
        failed = shown.err();
        Ok(failed.is_none() && !interrupted())
    })?;
    if let Some(error) = failed {
        return Err(error);
    }
    let rest = stream.finish();
    if !rest.is_empty() {
        written += &rest;
        show(&rest)?;
    }
    let time = start.elapsed().saturating_sub(verifying(&graphs) - before);
    Ok(Reply { text: written, produced, time })
}

impl Args {
    /// Wrong usage where no prompt can come from anywhere.
    fn check(&self) -> Result<()> {
        if self.prompt.is_none() && self.prompt_file.is_none() && io::stdin().is_terminal() {
            let words = "no prompt: give --prompt, --prompt-file or text on standard input";
            return Err(usage(words.to_owned()));
        }
        Ok(())
    }

    /// The prompt, which may have `most` bytes.
    fn text(&self, most: u64) -> Result<String> {
        let (text, place) = match (&self.prompt, &self.prompt_file) {
            (Some(text), _) => (text.clone(), "--prompt".to_owned()),
            (None, Some(path)) => {
                let reading = || format!("reading {}", path.display());
                let file = File::open(path).with_context(reading)?;
                (read_to(file, most).with_context(reading)?, path.display().to_string())
            }
            (None, None) => {
                let text = read_to(io::stdin().lock(), most);
                (text.context("reading the prompt from standard input")?, "standard input".to_owned())
            }
        };
        if text.len() as u64 > most {
            bail!("{place}: a prompt of more than {most} bytes cannot fit the model's context: shorten it");
        }
        // The line end that `echo` and editors add is not meant for the model.
        let whole = if self.prompt.is_some() { &text[..] } else { text.strip_suffix('\n').unwrap_or(&text) };
        Ok(whole.to_owned())
    }
}

/// Reads text, and no more than a byte past `most`.
fn read_to(from: impl Read, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        // Cut anywhere; it is not used.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error.utf8_error()))
}

/// Bytes past which no prompt fits a context of so many tokens, with room for white space that a template takes off.
fn longest_prompt(text: &TextModel, context: u32) -> u64 {
    (2 * u64::from(context) * text.tokenizer.longest() as u64).max(1 << 16)
}

/// Reads the prompt, streams the reply.
pub fn run(args: &Args) -> Result<()> {
    let sampling = args.sampling.sampling()?;
    args.check()?;
    interrupt::install()?;
    // All that can be wrong with the prompt is said before a device is opened and weights are loaded.
    let file = args.model.open()?;
    let text = text_of(&file)?;
    let context = file.source().config()?.context;
    let ids = text.prompt(&args.text(longest_prompt(&text, context))?, args.raw)?;
    if ids.is_empty() {
        bail!("the prompt is empty");
    }
    if ids.len() > context as usize {
        bail!("the prompt has {} tokens, and the model's context is {context}: shorten it", ids.len());
    }
    let loaded = args.model.load_file(file)?;
    let mut session = loaded.session(ids.len().saturating_add(args.max_tokens))?;
    session.set_sampling(sampling.as_ref())?;
    let primed = prime(&mut session, &ids)?;
    let mut graphs = args.decode.graphs(&loaded.options);
    let mut out = io::stdout().lock();
    let reply = reply(&mut session, graphs.as_mut(), &text, &args.decode, args.max_tokens, |piece| {
        if args.json {
            return Ok(());
        }
        out.write_all(piece.as_bytes())?;
        out.flush()
    })?;
    let counters = graphs.as_ref().map(GraphDecodeState::counters).unwrap_or_default();
    if args.json {
        let object = args.object(&loaded, &session, counters, &ids, primed, &reply);
        serde_json::to_writer_pretty(&mut out, &object).map_err(io::Error::from)?;
    }
    if args.json || args.max_tokens > 0 {
        writeln!(out)?;
    }
    out.flush()?;
    if args.stats {
        stats(&loaded, counters, args.decode.mode(&loaded.options), ids.len(), primed, &reply);
    }
    if interrupted() { Err(Interrupted.into()) } else { Ok(()) }
}

/// Milliseconds a walk, of a reply that took some.
fn walk_ms(reply: &Reply) -> Option<f64> {
    (reply.produced.walks > 0).then(|| reply.time.as_secs_f64() * 1e3 / reply.produced.walks as f64)
}

fn stats(
    loaded: &Loaded,
    counters: GraphCounters,
    mode: &str,
    prompt: usize,
    primed: Duration,
    reply: &Reply,
) {
    let seconds = primed.as_secs_f64();
    let memory = loaded.pipeline.bytes_in_use() / 1_000_000;
    tell(format_args!("load: {:.2} s, {memory} MB on the device", loaded.load.as_secs_f64()));
    let pace = prompt as f64 / seconds;
    tell(format_args!("prompt: {prompt} tokens in {seconds:.3} s, {pace:.1} tok/s"));
    let produced = &reply.produced;
    let pace =
        walk_ms(reply).map_or(String::new(), |ms| format!(", {ms:.3} ms/token, {:.1} tok/s", 1e3 / ms));
    tell(format_args!(
        "reply: {} tokens, {} walks in {:.3} s{pace}; ended by {}",
        produced.ids.len(),
        produced.walks,
        reply.time.as_secs_f64(),
        reply.finish()
    ));
    let verified = match counters.verified {
        0 => String::new(),
        count => format!(
            "; {count} first replays verified in {:.3} s, which is not counted",
            counters.verifying.as_secs_f64()
        ),
    };
    tell(format_args!(
        "{mode}: {} captures, {} replays, {} synchronisations{verified}",
        counters.captures, counters.replays, produced.synchronisations
    ));
}

impl Args {
    fn object(
        &self,
        loaded: &Loaded,
        session: &Session,
        counters: GraphCounters,
        ids: &[u32],
        primed: Duration,
        reply: &Reply,
    ) -> serde_json::Value {
        let mut object = loaded.about();
        let more = json!({
            "decode": self.decode.mode(&loaded.options),
            "prompt_ids": ids,
            "ids": reply.produced.ids,
            "text": reply.text,
            "finish": reply.finish(),
            "cached": session.cache().held(),
            "device_bytes": loaded.pipeline.bytes_in_use(),
            "prompt_s": primed.as_secs_f64(),
            "prompt_tok_s": ids.len() as f64 / primed.as_secs_f64(),
            "decode_s": reply.time.as_secs_f64(),
            "walks": reply.produced.walks,
            "ms_per_walk": walk_ms(reply),
            "synchronisations": reply.produced.synchronisations,
            "captures": counters.captures,
            "verified": counters.verified,
            "replays": counters.replays,
        });
        if let serde_json::Value::Object(more) = more {
            object.extend(more);
        }
        object.into()
    }
}
