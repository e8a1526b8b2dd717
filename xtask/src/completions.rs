//! `cargo xtask completions`: scripts by which shells complete `bitwalk`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

/// Shells and the file names by which they find a script.
const SHELLS: [(&str, &str); 5] = [
    ("bash", "bitwalk.bash"),
    ("zsh", "_bitwalk"),
    ("fish", "bitwalk.fish"),
    ("elvish", "bitwalk.elv"),
    ("powershell", "_bitwalk.ps1"),
];

/// Arguments of `cargo xtask completions`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder to write to [default: target/completions of the repository]
    #[arg(long)]
    into: Option<PathBuf>,
}

/// Writes a script a shell.
pub fn run(args: &Args) -> Result<ExitCode> {
    let root = crate::test::workspace_root()?;
    let folder = args.into.clone().unwrap_or_else(|| root.join("target/completions"));
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    for (shell, file) in SHELLS {
        let output = bitwalk()?.args(["completions", shell]).output().context("running bitwalk")?;
        ensure!(
            output.status.success(),
            "bitwalk completions {shell}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let path = folder.join(file);
        fs::write(&path, output.stdout).with_context(|| format!("writing {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The `bitwalk` program, built if need be.
pub fn bitwalk() -> Result<Command> {
    let root = crate::test::workspace_root()?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).args(["run", "--quiet", "--package", "bitwalk", "--bin", "bitwalk", "--"]);
    Ok(command)
}
