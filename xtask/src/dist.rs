//! `cargo xtask dist`: everything that gates and benchmarks need, in one folder that runs without Rust.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail, ensure};

/// Folders of the repository that travel, and what they are called in the pack. Gates look for them beside their own
/// executable.
const FOLDERS: [(&str, &str); 2] = [("gates/fixtures", "fixtures"), ("gates/scripts", "scripts")];

/// Executables that travel.
const BINARIES: [&str; 4] = ["bitwalk", "xtask", "graph-decode-gate", "glm5-decode-graph-gate"];

/// The most that the folder may weigh: what a host is sent in one go.
const LIMIT: u64 = 128 << 20;

/// Options of `dist`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Where to put the folder
    #[arg(long, default_value = "target/dist")]
    out: PathBuf,
    /// Real models to take along (not counted against the limit)
    #[arg(long, value_name = "FILE")]
    model: Vec<PathBuf>,
}

/// Builds with the `dist` profile and packs the folder.
pub fn run(args: &Args) -> Result<ExitCode> {
    let root = crate::test::workspace_root()?;
    // A target folder of its own: cargo's folder for a profile is called like the profile, which is the pack's name.
    let build = root.join("target/dist-build");
    let mut cargo = Command::new(crate::test::cargo());
    cargo.current_dir(&root).args(["build", "--profile", "dist", "--target-dir"]).arg(&build);
    for package in ["bitwalk", "xtask", "bitwalk-gates"] {
        cargo.args(["--package", package]);
    }
    ensure!(cargo.arg("--bins").status().context("cargo build")?.success(), "cargo build failed");

    let out = root.join(&args.out);
    if out.exists() {
        // Only what this verb made is removed: a folder that was named by mistake is not.
        ensure!(
            out.join("xtask").is_file() || out.read_dir()?.next().is_none(),
            "{} exists and is no earlier dist folder: name another with --out",
            out.display()
        );
        fs::remove_dir_all(&out).with_context(|| format!("removing the old {}", out.display()))?;
    }
    fs::create_dir_all(&out)?;
    let mut bytes = 0;
    for name in BINARIES {
        bytes += copy(&build.join("dist").join(name), &out.join(name))?;
    }
    for (from, to) in FOLDERS {
        bytes += copy_folder(&root.join(from), &out.join(to))?;
    }
    for license in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        bytes += copy(&root.join(license), &out.join(license))?;
    }
    if bytes > LIMIT {
        bail!("{} holds {bytes} bytes, more than {LIMIT}: take something out", out.display());
    }
    let mut models = 0;
    for model in &args.model {
        let name = model.file_name().with_context(|| format!("{}: no file name", model.display()))?;
        fs::create_dir_all(out.join("models"))?;
        models += copy(model, &out.join("models").join(name))?;
    }
    println!("{}: {:.1} MiB, models {:.1} MiB", out.display(), mib(bytes), mib(models));
    println!("on the GPU host: ./xtask gate --require cuda");
    Ok(ExitCode::SUCCESS)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn copy(from: &Path, to: &Path) -> Result<u64> {
    fs::copy(from, to).with_context(|| format!("copying {} to {}", from.display(), to.display()))
}

fn copy_folder(from: &Path, to: &Path) -> Result<u64> {
    fs::create_dir_all(to)?;
    let mut bytes = 0;
    for entry in fs::read_dir(from).with_context(|| format!("reading {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        bytes += if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?
        } else {
            copy(&entry.path(), &target)?
        };
    }
    Ok(bytes)
}
