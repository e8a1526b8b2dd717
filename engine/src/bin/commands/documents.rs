//! `bitwalk completions` and `bitwalk man`: what other programs say about this one, from its own definition.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::Shell;

/// Arguments of `bitwalk completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `bitwalk man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// The folder to write the pages to
    folder: PathBuf,
}

/// Prints a completion script.
pub fn completions(args: &CompletionsArgs, mut command: Command) -> Result<()> {
    // Into memory first: the generator panics where it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "bitwalk", &mut script);
    let mut out = io::stdout().lock();
    out.write_all(&script)?;
    Ok(out.flush()?)
}

/// Writes a page for the command and for each of its subcommands.
pub fn man(args: &ManArgs, command: Command) -> Result<()> {
    fs::create_dir_all(&args.folder).with_context(|| format!("making {}", args.folder.display()))?;
    let write = || format!("writing to {}", args.folder.display());
    clap_mangen::generate_to(command.disable_help_subcommand(true), &args.folder).with_context(write)
}
