//! The `bitwalk` command. Exit codes: 0 done, 1 a run failed, 2 wrong usage, 130 interrupted.

mod commands;

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use commands::interrupt::{self, Interrupted};
use commands::{Usage, tell};

/// An LLM decode engine for NVIDIA GPUs
#[derive(Debug, Parser)]
#[command(name = "bitwalk", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Continue a prompt, or answer it where the model has a chat template
    Generate(commands::generate::Args),
    /// Talk with an instruct model
    Chat(commands::chat::Args),
    /// Show what is in a model file: sizes, formats, tensors, metadata
    Inspect(commands::inspect::Args),
    /// Show the launches of a walk, by layer
    Plan(commands::plan::Args),
    /// Time the prompt and decoding, eager beside graph
    Bench(commands::bench::Args),
    /// Show where one token's time goes: every launch and gap, as a timeline for chrome://tracing or Perfetto
    Trace(commands::trace::Args),
    /// Write the logits of a prompt and of greedy steps after it to a safetensors file
    Logits(commands::logits::Args),
    /// Print a shell's completion script
    Completions(commands::documents::CompletionsArgs),
    /// Write the man pages to a folder
    #[command(hide = true)]
    Man(commands::documents::ManArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Generate(args) => commands::generate::run(&args),
        Command::Chat(args) => commands::chat::run(&args),
        Command::Inspect(args) => commands::inspect::run(&args),
        Command::Plan(args) => commands::plan::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Trace(args) => commands::trace::run(&args),
        Command::Logits(args) => commands::logits::run(&args),
        Command::Completions(args) => commands::documents::completions(&args, Cli::command()),
        Command::Man(args) => commands::documents::man(&args, Cli::command()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<Interrupted>() => ExitCode::from(interrupt::EXIT),
        Err(error) => {
            // What reads a file or writes one says which; only standard output goes without a word.
            let place = if error.is::<io::Error>() { "writing to standard output: " } else { "" };
            tell(format_args!("bitwalk: {place}{error:#}"));
            if error.is::<Usage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// Whether the reader of the output went away (`bitwalk inspect F | head`), which is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe))
}
