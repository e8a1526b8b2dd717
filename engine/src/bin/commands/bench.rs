//! `bitwalk bench`: prompt and decode times, eager beside graph.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bitwalk::decode::{GraphDecodeState, Production, Session};
use bitwalk::device::{Buffer, DeviceKind};
use bitwalk::engine::Engine;
use bitwalk::kernels::ceiling::read_only;
use bitwalk::plan::{Arena, PlanBuilder};
use serde_json::json;

use super::interrupt;
use super::model::{Loaded, ModelArgs, bar};

/// Arguments of `bitwalk bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// Tokens of the prompt
    #[arg(long, value_name = "N", default_value_t = 64)]
    prompt_tokens: usize,
    /// Tokens to decode
    #[arg(long, value_name = "N", default_value_t = 64)]
    tokens: usize,
    /// Repetitions, after one that warms up [default: 5 on a GPU, 1 without warming up on the simulated device]
    #[arg(long, value_name = "N")]
    repetitions: Option<NonZeroUsize>,
    /// Tokens for which the host waits at a time
    #[arg(long, value_name = "K", default_value = "1")]
    queue: NonZeroUsize,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// One repetition of one arm.
struct Timing {
    prompt: Duration,
    decode: Duration,
    ids: Vec<u32>,
}

/// The medians of one arm.
struct Arm {
    name: &'static str,
    prompt_tok_s: f64,
    ms: f64,
}

/// Times both arms in turn and prints medians.
pub fn run(args: &Args) -> Result<()> {
    ensure!(args.prompt_tokens > 0 && args.tokens > 1, "at least one prompt token and two tokens are needed");
    interrupt::install()?;
    let loaded = args.model.load()?;
    let gpu = loaded.engine.device().info().kind == DeviceKind::Cuda;
    let positions = args.prompt_tokens + args.tokens;
    let context = loaded.model.config().context as usize;
    ensure!(positions <= context, "{positions} tokens, and the model's context is {context}");
    let mut session = loaded.session(positions)?;
    let vocab = loaded.model.config().vocab;
    let prompt: Vec<u32> = (0..args.prompt_tokens as u32).map(|i| (100 + i * 7 % 900) % vocab).collect();
    let repetitions = args.repetitions.map_or(if gpu { 5 } else { 1 }, NonZeroUsize::get);
    let warm_up = usize::from(repetitions > 1);
    let mut graphs = GraphDecodeState::new();
    let (mut eager, mut graph) = (Vec::new(), Vec::new());
    let progress = bar((repetitions + warm_up) as u64, "eager and graph");
    for repetition in 0..repetitions + warm_up {
        let a = time(&mut session, None, &prompt, args)?;
        let b = time(&mut session, Some(&mut graphs), &prompt, args)?;
        ensure!(a.ids == b.ids, "repetition {repetition}: eager and graph gave different tokens");
        if repetition >= warm_up {
            eager.push(a);
            graph.push(b);
        }
        progress.inc(1);
        interrupt::check()?;
    }
    progress.finish_and_clear();
    let arms = [("eager", eager), ("graph", graph)].map(|(name, timings)| {
        let steps = (args.tokens - 1) as f64;
        let prompt = median(timings.iter().map(|t| t.prompt.as_secs_f64()).collect());
        let decode = median(timings.iter().map(|t| t.decode.as_secs_f64()).collect());
        Arm { name, prompt_tok_s: args.prompt_tokens as f64 / prompt, ms: decode * 1e3 / steps }
    });
    let walk = session.walk()?;
    let whole = walk.launches();
    let cost = whole.cost();
    let bytes = cost.read + cost.write;
    let launches = whole.steps().len();
    let ceiling = if gpu { Some(ceiling(&loaded.engine)?) } else { None };
    print(args, &loaded, &arms, Walk { bytes, launches, ceiling })
}

/// What a walk moves, and how fast memory could be read.
struct Walk {
    bytes: u64,
    launches: usize,
    /// Bytes a second.
    ceiling: Option<f64>,
}

impl Walk {
    /// Per cent of the ceiling that a walk of `ms` reaches.
    fn share(&self, ms: f64) -> Option<f64> {
        self.ceiling.map(|ceiling| self.bytes as f64 / (ms * 1e-3) / ceiling * 100.0)
    }
}

fn print(args: &Args, loaded: &Loaded, arms: &[Arm], walk: Walk) -> Result<()> {
    let mut out = io::stdout().lock();
    let memory = loaded.engine.device().bytes_in_use();
    if args.json {
        let mut object = loaded.about();
        object.insert("prompt_tokens".to_owned(), args.prompt_tokens.into());
        object.insert("tokens".to_owned(), args.tokens.into());
        object.insert("queue".to_owned(), args.queue.get().into());
        object.insert("bytes_per_token".to_owned(), walk.bytes.into());
        object.insert("launches_per_token".to_owned(), walk.launches.into());
        object.insert("device_bytes".to_owned(), memory.into());
        object.insert("read_only_bytes_s".to_owned(), walk.ceiling.into());
        for arm in arms {
            let figures = json!({
                "ms_per_token": arm.ms,
                "tok_s": 1e3 / arm.ms,
                "prompt_tok_s": arm.prompt_tok_s,
                "percent_of_read_only": walk.share(arm.ms),
            });
            object.insert(arm.name.to_owned(), figures);
        }
        serde_json::to_writer_pretty(&mut out, &object).map_err(io::Error::from)?;
        writeln!(out)?;
        return Ok(out.flush()?);
    }
    writeln!(
        out,
        "prompt {} tokens, {} decoded, {} a synchronisation",
        args.prompt_tokens, args.tokens, args.queue
    )?;
    writeln!(
        out,
        "{:<6} {:>12} {:>10} {:>14} {:>14}",
        "", "ms/token", "tok/s", "prompt tok/s", "of read-only"
    )?;
    for arm in arms {
        let share = walk.share(arm.ms).map_or("-".to_owned(), |share| format!("{share:.1} %"));
        writeln!(
            out,
            "{:<6} {:>12.4} {:>10.1} {:>14.1} {share:>14}",
            arm.name,
            arm.ms,
            1e3 / arm.ms,
            arm.prompt_tok_s
        )?;
    }
    writeln!(out, "{} launches and {:.3} MB a token", walk.launches, walk.bytes as f64 / 1e6)?;
    if let Some(ceiling) = walk.ceiling {
        writeln!(out, "read-only rate of this device, measured now: {:.3} TB/s", ceiling / 1e12)?;
    }
    writeln!(
        out,
        "{:.1} MB on the device, loaded in {:.2} s",
        memory as f64 / 1e6,
        loaded.load.as_secs_f64()
    )?;
    Ok(out.flush()?)
}

fn time(
    session: &mut Session,
    graphs: Option<&mut GraphDecodeState>,
    prompt: &[u32],
    args: &Args,
) -> Result<Timing> {
    session.clear()?;
    let engine = session.engine().clone();
    let start = Instant::now();
    session.prime(prompt)?;
    engine.synchronize()?;
    let prompt = start.elapsed();
    let start = Instant::now();
    let ask = Production { graphs, tokens: args.tokens, queue: args.queue, stop: &[] };
    let produced = session.produce(ask, |_| Ok(true))?;
    Ok(Timing { prompt, decode: start.elapsed(), ids: produced.ids })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// Bytes a second of reading memory once, by the fastest of ten passes over more than any cache holds.
fn ceiling(engine: &Engine) -> Result<f64> {
    let (free, _) = engine.device().memory_info()?;
    let quads = (free / 2).min(4 << 30) / 16;
    let blocks = engine.device().info().sm_count * 8;
    let words: Buffer<u32> = engine.uninit(4 * quads as usize, "memory to read")?;
    engine.stream().fill(&words, 0)?;
    let folded: Buffer<u32> = engine.uninit(blocks as usize, "folded")?;
    let mut b = PlanBuilder::new(engine, &Arena::new(engine.device()), "ceiling");
    b.push("read", read_only(&words, &folded, quads as u32, blocks))?;
    let plan = b.finish();
    let mut best = Duration::MAX;
    for _ in 0..10 {
        engine.synchronize()?;
        let start = Instant::now();
        plan.run(engine.stream())?;
        engine.synchronize()?;
        best = best.min(start.elapsed());
    }
    Ok(words.bytes() as f64 / best.as_secs_f64())
}
