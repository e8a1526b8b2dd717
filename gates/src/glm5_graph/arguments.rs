//! Arguments of the gate and of its binary.

use std::path::PathBuf;

use anyhow::Result;
use bitwalk::device::DeviceList;
use bitwalk::options::{Activations, KvType};
use clap::Parser;

use crate::cli::Usage;

/// How the gate's arguments are written.
pub const USAGE: &str = "[--artifact FOLDER] [--steps N] [--reps N] [--prompt-len N] [--devices 0,1|sim:N] [--stages N] [--act exact|i16] [--kv f32|f16] [--trace]";

/// What to run.
#[derive(Debug, Clone, Parser)]
#[command(name = "glm5-decode-graph-gate", no_binary_name = true, disable_help_flag = true)]
pub struct Arguments {
    /// The checkpoint's folder; the tiny fixture without it
    #[arg(long, env = "GLM5_ARTIFACT", value_name = "FOLDER")]
    pub artifact: Option<PathBuf>,
    /// Decode steps of an arm
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(4..))]
    pub steps: u32,
    /// Repetitions of the timing
    #[arg(long, default_value_t = 5)]
    pub reps: u32,
    /// Tokens of the prompt
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt_len: u32,
    /// The devices, a stage each in turn: ordinals, `cuda:0,1`, or `sim:2` for two simulated ones
    #[arg(long, default_value = "0")]
    pub devices: DeviceList,
    /// Stages; one a device without it
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub stages: Option<u32>,
    /// The activation programs
    #[arg(long, value_delimiter = ',', default_value = "exact")]
    pub act: Vec<Activations>,
    /// Element type of the latent cache
    #[arg(long, default_value = "f32")]
    pub kv: KvType,
    /// A line a token
    #[arg(long)]
    pub trace: bool,
}

impl Arguments {
    /// Reads them.
    ///
    /// # Errors
    /// [`Usage`], with what is wrong and how they are written.
    pub fn parse_words(words: &[String]) -> Result<Arguments> {
        Arguments::try_parse_from(words).map_err(|error| {
            let said = error.to_string();
            let first = said.lines().next().unwrap_or_default().trim_start_matches("error: ");
            Usage(format!("{first}\nusage: {USAGE}")).into()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Arguments> {
        Arguments::parse_words(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn defaults_are_those_documented() {
        let arguments = parse("").unwrap();
        assert_eq!((arguments.steps, arguments.reps, arguments.prompt_len), (64, 5, 64));
        assert_eq!(arguments.devices, DeviceList::Auto(vec![0]));
        assert_eq!((arguments.stages, arguments.trace), (None, false));
    }

    #[test]
    fn words_that_do_not_parse_are_wrong_usage() {
        for words in [
            "--steps 3",
            "--steps x",
            "--stages 0",
            "--devices 0,x",
            "--devices sim:0",
            "--act f64",
            "--what",
            "--reps",
        ] {
            let error = parse(words).unwrap_err();
            assert!(error.is::<Usage>(), "{words}: {error}");
        }
        let two = parse("--devices 0,1 --stages 2 --act exact,i16").unwrap();
        assert_eq!(two.devices, DeviceList::Auto(vec![0, 1]));
        assert_eq!(parse("--devices sim:3").unwrap().devices, DeviceList::Sim(3));
    }
}
