//! The `bitwalk` command. Exit codes: 0 done, 1 a run failed, 2 wrong usage.

mod commands;

use std::io::{self, ErrorKind};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// An LLM decode engine for NVIDIA GPUs
#[derive(Debug, Parser)]
#[command(name = "bitwalk", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show what is in a model file: sizes, formats, tensors, metadata
    Inspect(commands::inspect::Args),
    /// Write the logits of a prompt and of greedy steps after it to a safetensors file
    Logits(commands::logits::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Inspect(args) => commands::inspect::run(&args),
        Command::Logits(args) => commands::logits::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bitwalk: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether the reader of the output went away (`bitwalk inspect F | head`), which is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == ErrorKind::BrokenPipe))
}
