//! `bitwalk bench`: prompt and decode times, eager beside graph, of one program or of several in the same run; and the table of
//! dense models.

mod arms;
mod report;
mod table;

use std::num::NonZeroUsize;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use bitwalk::device::DeviceKind;
use bitwalk::measure::read_only_rate;
use bitwalk::options::Activations;

use super::model::{ModelArgs, bar};
use super::synthetic::SyntheticArgs;
use super::{interrupt, usage};
use arms::Bench;

/// Arguments of `bitwalk bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    #[command(flatten)]
    synthetic: SyntheticArgs,
    /// Tokens of the prompt
    #[arg(long, value_name = "N", default_value_t = 64)]
    prompt_tokens: usize,
    /// Tokens to decode [default: 64, of the table 257]
    #[arg(long, value_name = "N")]
    tokens: Option<usize>,
    /// Begin decoding at a context of N positions of zeros, not at the prompt's end
    #[arg(long, value_name = "N")]
    context: Option<u32>,
    /// Repetitions, after one that warms up [default: 5 on a GPU, 1 without warming up on the simulated device]
    #[arg(long, alias = "repetitions", value_name = "N")]
    reps: Option<NonZeroUsize>,
    /// Tokens for which the host waits at a time
    #[arg(long, value_name = "K", default_value = "1")]
    queue: NonZeroUsize,
    /// Several activation programs in the same run, interleaved: exact,i16
    #[arg(long, value_name = "PROGRAMS", value_delimiter = ',')]
    compare: Vec<Activations>,
    /// The table of dense models, one process a row, as markdown; FILE (JSON) has other rows than the built-in ones
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = table::BUILT_IN)]
    table: Option<PathBuf>,
    /// Only the table's rows whose name or model contains one of these
    #[arg(long, value_name = "WORDS", value_delimiter = ',', requires = "table")]
    rows: Vec<String>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Tokens to decode.
    fn tokens(&self) -> usize {
        self.tokens.unwrap_or(if self.table.is_some() { 257 } else { 64 })
    }
}

/// Times all arms in turn and prints medians.
pub fn run(args: &Args) -> Result<()> {
    ensure!(
        args.prompt_tokens > 0 && args.tokens() > 1,
        "at least one prompt token and two tokens are needed"
    );
    interrupt::install()?;
    if let Some(file) = &args.table {
        return table::run(args, file);
    }
    let model = args.synthetic.applied_to(&args.model)?;
    let programs = match &args.compare[..] {
        [] => vec![model.activations()?],
        several => several.to_vec(),
    };
    if (1..programs.len()).any(|index| programs[..index].contains(&programs[index])) {
        return Err(usage("--compare names a program twice".to_owned()));
    }
    let mut benches = Vec::new();
    for program in programs {
        let before = benches.last().map_or(0, |bench: &Bench| bench.loaded.pipeline.bytes_in_use());
        benches.push(Bench::load(args, &model.with_activations(program), before)?);
    }
    let gpu = benches[0].loaded.engine.device().info().kind == DeviceKind::Cuda;
    let repetitions = args.reps.map_or(if gpu { 5 } else { 1 }, NonZeroUsize::get);
    let warm_up = usize::from(repetitions > 1);
    let progress = bar((repetitions + warm_up) as u64, "eager and graph");
    for repetition in 0..repetitions + warm_up {
        for bench in &mut benches {
            bench.repeat(args, repetition, repetition >= warm_up)?;
        }
        progress.inc(1);
        interrupt::check()?;
    }
    // On the simulated device the submitting thread is the device.
    for bench in benches.iter_mut().filter(|_| gpu) {
        bench.submission(args)?;
    }
    progress.finish_and_clear();
    let ceiling = if gpu { Some(read_only_rate(&benches[0].loaded.engine)?) } else { None };
    report::print(args, repetitions, &mut benches, ceiling)
}
