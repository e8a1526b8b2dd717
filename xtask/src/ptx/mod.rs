//! `cargo xtask ptx`: compile the kernels, lint the PTX, write the manifest and the embedded list; `--check` proves that what is
//! checked in is what the sources give. `cargo xtask ptx-census` counts its opcodes.

mod census;
mod check;
mod compile;
mod embed;
mod lint;
mod manifest;
mod prototypes;
mod statements;
mod toolchain;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

pub use census::{CensusArgs, run as census};

/// The compiler whose output is checked in. Newer toolkits emit PTX that drivers of the 580 series refuse, and another
/// compiler's text differs even where its meaning does not.
pub const NVCC_VERSION: &str = "V13.0.88";

/// The targets: Ampere and later, and Hopper.
pub const TARGETS: [&str; 2] = ["compute_80", "compute_90"];

/// Arguments of `cargo xtask ptx`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Rebuild into a temporary folder and fail on any byte of difference from what is checked in.
    #[arg(long)]
    check: bool,
    /// Also assemble for sm_80 and sm_90 with ptxas and print registers, spills and shared memory of each entry.
    #[arg(long)]
    resources: bool,
}

/// One translation unit built for one target.
pub struct Built {
    /// The folder of its source under `kernels-ptx/`: `src`, or `corpus` for what only checkers are tested with.
    pub folder: &'static str,
    /// The `.cu` file's stem.
    pub module: String,
    /// `compute_80` or `compute_90`.
    pub target: &'static str,
    /// The PTX text.
    pub text: String,
}

impl Built {
    /// The file under `kernels-ptx/` that holds this module, with `/` between its parts.
    pub fn path(&self) -> String {
        match self.folder {
            SHIPPED => format!("ptx/{}/{}.ptx", self.target, self.module),
            folder => format!("ptx/{folder}/{}.ptx", self.module),
        }
    }
}

/// The folder of the kernels that ship.
pub const SHIPPED: &str = "src";

/// The folder of the kernels that checkers must catch, or must not flag.
pub const CORPUS: &str = "corpus";

/// The repository's root, as this binary was built in it.
pub fn repository() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().map_or_else(|| manifest.to_path_buf(), Path::to_path_buf)
}

/// Runs `cargo xtask ptx`.
pub fn run(arguments: &Args) -> Result<ExitCode> {
    let root = repository();
    let crate_dir = root.join("kernels-ptx");
    let nvcc = toolchain::find(&root)?;
    if nvcc.version != NVCC_VERSION {
        let message = format!(
            "{} is {}, but the checked-in PTX is built by {NVCC_VERSION}; unset NVCC and CUDA_PATH to use the pip wheels",
            nvcc.path.display(),
            nvcc.version
        );
        if arguments.check {
            bail!("{message}");
        }
        eprintln!("warning: {message}");
    }
    // The header is compiled with what it declares, so it is brought up to date first, or compared first.
    let header = vec![("src/bw_prototypes.cuh".to_owned(), prototypes::header())];
    if arguments.check {
        check::compare(&crate_dir, &header)?;
    } else {
        write(&crate_dir, &header)?;
    }
    let built = compile::all(&nvcc, &crate_dir)?;
    let corpus = compile::corpus(&nvcc, &crate_dir)?;
    prototypes::compare(&built)?;
    let findings: Vec<String> = built.iter().flat_map(|module| lint::lint(module, &root)).collect();
    if !findings.is_empty() {
        bail!("the PTX breaks the numeric contract:\n{}", findings.join("\n"));
    }
    if arguments.resources {
        compile::print_resources(&nvcc, &built)?;
    }
    let texts = built.iter().chain(&corpus).map(|m| (m.path(), m.text.clone()));
    let mut outputs: Vec<(String, String)> = texts.collect();
    outputs.push(("src/modules.rs".to_owned(), embed::source(&built, &corpus)));
    let manifest = manifest::text(&crate_dir, &nvcc.version, built.iter().chain(&corpus))?;
    outputs.push(("ptx/manifest.txt".to_owned(), manifest));
    if arguments.check {
        check::compare(&crate_dir, &outputs)?;
        println!("ptx --check: {} files, byte for byte", outputs.len());
    } else {
        check::remove_stale(&crate_dir, &outputs)?;
        write(&crate_dir, &outputs)?;
        let (modules, targets) = (built.len() / TARGETS.len(), TARGETS.len());
        println!("ptx: {modules} modules for {targets} targets, {} of the corpus", corpus.len());
    }
    Ok(ExitCode::SUCCESS)
}

fn write(crate_dir: &Path, outputs: &[(String, String)]) -> Result<()> {
    for (path, text) in outputs {
        let path = crate_dir.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
        }
        std::fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
