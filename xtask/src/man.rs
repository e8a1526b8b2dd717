//! `cargo xtask man`: manual pages of `bitwalk` and its subcommands.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};

/// Arguments of `cargo xtask man`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder to write to [default: target/man of the repository]
    #[arg(long)]
    into: Option<PathBuf>,
}

/// Writes the pages.
pub fn run(args: &Args) -> Result<ExitCode> {
    let folder = match &args.into {
        // The program runs in the repository's folder, wherever this one runs.
        Some(folder) => std::path::absolute(folder).with_context(|| format!("{}", folder.display()))?,
        None => crate::test::workspace_root()?.join("target/man"),
    };
    let status =
        crate::completions::bitwalk()?.arg("man").arg(&folder).status().context("running bitwalk")?;
    ensure!(status.success(), "bitwalk man: {status}");
    println!("{}", folder.display());
    Ok(ExitCode::SUCCESS)
}
