//! nvcc, once a source and target, with the flags of the numeric contract.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::toolchain::Nvcc;
use super::{Built, CORPUS, SHIPPED, TARGETS};

/// The numeric contract (docs/numerics.md): no contraction, denormals kept, correctly rounded division and square root.
const FLAGS: [&str; 8] = [
    "-ptx",
    "-std=c++17",
    "-fmad=false",
    "-ftz=false",
    "-prec-div=true",
    "-prec-sqrt=true",
    "-Werror",
    "all-warnings",
];

/// The kernels' sources in a folder, by name.
pub fn sources(crate_dir: &Path, folder: &str, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let folder = crate_dir.join(folder);
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().and_then(|e| e.to_str()).is_some_and(|e| extensions.contains(&e)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Compiles every `.cu` for every target.
pub fn all(nvcc: &Nvcc, crate_dir: &Path) -> Result<Vec<Built>> {
    let mut built = Vec::new();
    for source in sources(crate_dir, SHIPPED, &["cu"])? {
        for target in TARGETS {
            built.push(one(nvcc, crate_dir, SHIPPED, &source, target)?);
        }
    }
    Ok(built)
}

/// Compiles every `.cu` of the corpus: for the oldest target, or the newest where the name ends in `_sm90`.
pub fn corpus(nvcc: &Nvcc, crate_dir: &Path) -> Result<Vec<Built>> {
    let sources = sources(crate_dir, CORPUS, &["cu"])?;
    let target = |source: &Path| {
        let newest = source.file_stem().is_some_and(|stem| stem.to_string_lossy().ends_with("_sm90"));
        TARGETS[usize::from(newest)]
    };
    sources.iter().map(|source| one(nvcc, crate_dir, CORPUS, source, target(source))).collect()
}

/// Compiles `<folder>/<source>` to PTX text. The compiler runs in the source folder and is given a bare file name, so that no path can
/// reach the text.
fn one(
    nvcc: &Nvcc,
    crate_dir: &Path,
    folder: &'static str,
    source: &Path,
    target: &'static str,
) -> Result<Built> {
    let name = source.file_name().and_then(|n| n.to_str()).unwrap_or_default();
    let output = std::env::temp_dir().join(format!("bitwalk-ptx-{}-{target}-{name}.ptx", std::process::id()));
    let result = Command::new(&nvcc.path)
        .current_dir(crate_dir.join(folder))
        .args(FLAGS)
        .arg(format!("-arch={target}"))
        .arg(name)
        .arg("-o")
        .arg(&output)
        .output()
        .with_context(|| format!("running {}", nvcc.path.display()))?;
    if !result.status.success() {
        bail!("nvcc refused {name} for {target}:\n{}", String::from_utf8_lossy(&result.stderr));
    }
    let text =
        std::fs::read_to_string(&output).with_context(|| format!("reading nvcc's output for {name}"))?;
    std::fs::remove_file(&output).ok(); // a leftover in the temporary folder harms nothing
    Ok(Built { folder, module: name.trim_end_matches(".cu").to_owned(), target, text })
}

/// Assembles each module with ptxas and prints what each entry uses.
pub fn print_resources(nvcc: &Nvcc, built: &[Built]) -> Result<()> {
    let ptxas = nvcc.sibling("ptxas");
    println!("{:<28} {:>6} {:>9} {:>7} {:>7}", "entry", "target", "registers", "spilled", "shared");
    for module in built {
        let target = module.target.replace("compute_", "sm_");
        let input = std::env::temp_dir().join(format!("bitwalk-ptxas-{}.ptx", std::process::id()));
        std::fs::write(&input, &module.text).with_context(|| format!("writing {}", input.display()))?;
        let output = Command::new(&ptxas)
            .args(["-v", "-arch", &target, "-o", "/dev/null"])
            .arg(&input)
            .output()
            .with_context(|| format!("running {}", ptxas.display()))?;
        std::fs::remove_file(&input).ok(); // a leftover in the temporary folder harms nothing
        let report = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            bail!("ptxas refused {} for {target}:\n{report}", module.module);
        }
        let (mut entry, mut spilled) = ("", 0);
        for line in report.lines() {
            if let Some(rest) = line.split("Compiling entry function '").nth(1) {
                entry = rest.split('\'').next().unwrap_or("");
            } else if line.contains("spill stores") {
                spilled = number_before(line, " bytes spill stores").unwrap_or(0);
            } else if let Some(registers) = number_before(line, " registers") {
                let shared = number_before(line, " bytes smem").unwrap_or(0);
                println!("{entry:<28} {target:>6} {registers:>9} {spilled:>7} {shared:>7}");
            }
        }
    }
    Ok(())
}

/// The number that stands right before `marker`.
fn number_before(line: &str, marker: &str) -> Option<u32> {
    let end = line.find(marker)?;
    line[..end].rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}
