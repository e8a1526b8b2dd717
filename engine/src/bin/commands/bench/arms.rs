//! One program's arms: eager and graph, timed in turn.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bitwalk::decode::{GraphDecodeState, Production, Session};
use bitwalk::device::ThreadMeter;
use bitwalk::measure::Summary;

use super::super::model::{Loaded, ModelArgs};
use super::Args;

/// The arms of one program.
pub struct Bench {
    pub loaded: Loaded,
    pub session: Session,
    /// Bytes that the program's weights, cache and scratch took.
    pub device_bytes: u64,
    pub eager: Arm,
    pub graph: Arm,
    graphs: GraphDecodeState,
    prompt: Vec<u32>,
}

/// Repetitions of one arm.
#[derive(Default)]
pub struct Arm {
    prompt: Vec<f64>,
    decode: Vec<f64>,
    /// The submitting thread's CPU time outside waits, as a share of the time of the same tokens.
    pub submitting: Option<f64>,
    /// All of its CPU time, waits included.
    pub busy: Option<f64>,
}

/// One repetition of one arm.
struct Timing {
    prompt: Duration,
    decode: Duration,
    ids: Vec<u32>,
}

impl Arm {
    fn push(&mut self, timing: &Timing) {
        self.prompt.push(timing.prompt.as_secs_f64());
        self.decode.push(timing.decode.as_secs_f64());
    }

    /// Milliseconds a token.
    pub fn ms(&self, args: &Args) -> Result<Summary> {
        let steps = (args.tokens() - 1) as f64;
        let each: Vec<f64> = self.decode.iter().map(|seconds| seconds * 1e3 / steps).collect();
        Summary::of(&each).context("no repetition was timed")
    }

    /// Tokens of the prompt a second.
    pub fn prompt_tok_s(&self, args: &Args) -> Result<f64> {
        let prompt = Summary::of(&self.prompt).context("no repetition was timed")?;
        Ok(args.prompt_tokens as f64 / prompt.median)
    }
}

impl Bench {
    /// Loads the model for one program and makes room for its tokens; `before` bytes of the device are in use.
    pub fn load(args: &Args, model: &ModelArgs, before: u64) -> Result<Bench> {
        let loaded = model.load()?;
        let start = args.context.map_or(args.prompt_tokens, |context| context as usize);
        ensure!(start > 0, "decoding begins at a context of at least one position");
        let positions = start.max(args.prompt_tokens) + args.tokens();
        let context = loaded.model.config().context as usize;
        ensure!(positions <= context, "{positions} tokens, and the model's context is {context}");
        let session = loaded.session(positions)?;
        let vocab = loaded.model.config().vocab;
        let prompt = (0..args.prompt_tokens as u32).map(|i| (100 + i * 7 % 900) % vocab).collect();
        Ok(Bench {
            device_bytes: loaded.pipeline.bytes_in_use().saturating_sub(before),
            graphs: loaded.graphs(),
            loaded,
            session,
            eager: Arm::default(),
            graph: Arm::default(),
            prompt,
        })
    }

    /// Times each arm once.
    pub fn repeat(&mut self, args: &Args, repetition: usize, counted: bool) -> Result<()> {
        let before = self.loaded.pipeline.bytes_in_use();
        let eager = time(&mut self.session, None, &self.prompt, args)?;
        let graph = time(&mut self.session, Some(&mut self.graphs), &self.prompt, args)?;
        // Walks and their scratch are made when they are first needed.
        self.device_bytes += self.loaded.pipeline.bytes_in_use().saturating_sub(before);
        ensure!(eager.ids == graph.ids, "repetition {repetition}: eager and graph gave different tokens");
        if counted {
            self.eager.push(&eager);
            self.graph.push(&graph);
        }
        Ok(())
    }

    /// Measures what submitting costs the host, in a run of each arm that is not timed for the table.
    pub fn submission(&mut self, args: &Args) -> Result<()> {
        for (arm, graphs) in [(&mut self.eager, None), (&mut self.graph, Some(&mut self.graphs))] {
            start(&mut self.session, &self.prompt, args)?;
            let Some(meter) = ThreadMeter::start() else { continue };
            produce(&mut self.session, graphs, args)?;
            let times = meter.stop();
            let share = |cpu: Duration| cpu.as_secs_f64() / times.wall.as_secs_f64();
            arm.submitting = Some(share(times.submitting()));
            arm.busy = Some(share(times.cpu));
        }
        Ok(())
    }
}

/// Runs the prompt, and goes to the context asked for; the prompt's time.
fn start(session: &mut Session, prompt: &[u32], args: &Args) -> Result<Duration> {
    session.clear()?;
    let engine = session.engine().clone();
    let begun = Instant::now();
    session.prime(prompt)?;
    engine.synchronize()?;
    let time = begun.elapsed();
    if let Some(context) = args.context {
        session.pretend_context(context)?;
        engine.synchronize()?;
    }
    Ok(time)
}

fn produce(session: &mut Session, graphs: Option<&mut GraphDecodeState>, args: &Args) -> Result<Vec<u32>> {
    let ask = Production { graphs, tokens: args.tokens(), queue: args.queue, stop: &[] };
    Ok(session.produce(ask, |_| Ok(true))?.ids)
}

fn time(
    session: &mut Session,
    mut graphs: Option<&mut GraphDecodeState>,
    prompt: &[u32],
    args: &Args,
) -> Result<Timing> {
    let verifying = |graphs: &Option<&mut GraphDecodeState>| {
        graphs.as_ref().map_or(Duration::ZERO, |graphs| graphs.counters().verifying)
    };
    let before = verifying(&graphs);
    let prompt = start(session, prompt, args)?;
    let begun = Instant::now();
    let ids = produce(session, graphs.as_deref_mut(), args)?;
    // What the comparison of first replays took is no part of decoding.
    let decode = begun.elapsed().saturating_sub(verifying(&graphs) - before);
    Ok(Timing { prompt, decode, ids })
}
