//! Where nvcc comes from: `$NVCC`, `$CUDA_PATH/bin`, `PATH`, or pip wheels installed into `target/cuda-toolkit`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The wheels that together compile CUDA C++ to PTX.
const WHEELS: [&str; 5] = [
    "nvidia-cuda-nvcc==13.0.88",
    "nvidia-cuda-runtime==13.0.96",
    "nvidia-cuda-crt==13.0.88",
    "nvidia-nvvm==13.0.88",
    "nvidia-cuda-cccl==13.0.85",
];

/// A compiler that answered.
pub struct Nvcc {
    /// The executable.
    pub path: PathBuf,
    /// As `nvcc --version` names it, `V13.0.88`.
    pub version: String,
}

impl Nvcc {
    /// A sibling tool, such as `ptxas`.
    pub fn sibling(&self, tool: &str) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(tool)
    }
}

/// Finds nvcc, installing the wheels when no other place has one.
pub fn find(root: &Path) -> Result<Nvcc> {
    let installed = root.join("target/cuda-toolkit/nvidia/cu13/bin/nvcc");
    let nvcc = match named() {
        Some(path) => probe(path)?,
        None if installed.is_file() => probe(installed)?,
        None => {
            install(&root.join("target/cuda-toolkit"))?;
            probe(installed)?
        }
    };
    require_host_compiler()?;
    Ok(nvcc)
}

/// The nvcc that the environment names, or that is on the path.
fn named() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("NVCC").filter(|v| !v.is_empty()) {
        return Some(path.into());
    }
    if let Some(toolkit) = std::env::var_os("CUDA_PATH").filter(|v| !v.is_empty()) {
        return Some(Path::new(&toolkit).join("bin/nvcc"));
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("nvcc")).find(|candidate| candidate.is_file())
}

fn probe(path: PathBuf) -> Result<Nvcc> {
    let output = Command::new(&path)
        .arg("--version")
        .output()
        .with_context(|| format!("running {} --version", path.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text
        .split(|c: char| c.is_whitespace() || c == ',')
        .find(|word| word.starts_with('V') && word[1..].starts_with(|c: char| c.is_ascii_digit()));
    match version {
        Some(version) if output.status.success() => Ok(Nvcc { version: version.to_owned(), path }),
        _ => bail!("{} --version did not name a version: is it nvcc?", path.display()),
    }
}

fn install(target: &Path) -> Result<()> {
    eprintln!(
        "no nvcc in NVCC, CUDA_PATH or PATH: installing {} into {}",
        WHEELS.join(" "),
        target.display()
    );
    let status = Command::new("python3")
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
            "--no-deps",
            "--target",
        ])
        .arg(target)
        .args(WHEELS)
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .status()
        .context("running python3 -m pip (needed to install nvcc; or set NVCC to a CUDA 13.0 compiler)")?;
    if !status.success() {
        bail!(
            "pip could not install nvcc's wheels ({status}); set NVCC to a CUDA 13.0 compiler, or check the network"
        );
    }
    Ok(())
}

/// nvcc preprocesses with the host's compiler even when it only emits PTX.
fn require_host_compiler() -> Result<()> {
    match Command::new("g++").arg("--version").output() {
        Ok(output) if output.status.success() => Ok(()),
        _ => bail!("nvcc needs g++ on PATH (Debian: apt-get install g++)"),
    }
}
