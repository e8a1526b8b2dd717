//! `ptx/manifest.txt`: which compiler and which sources the checked-in PTX came from, as `sha256  path` lines.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

use super::{Built, CORPUS, SHIPPED, compile};

/// The manifest of `built`, whose sources lie under `crate_dir`.
pub fn text<'a>(crate_dir: &Path, version: &str, built: impl Iterator<Item = &'a Built>) -> Result<String> {
    let mut lines = format!("# Written by `cargo xtask ptx`; do not edit.\nnvcc {version}\n");
    for folder in [SHIPPED, CORPUS] {
        for source in compile::sources(crate_dir, folder, &["cu", "cuh"])? {
            let bytes = std::fs::read(&source).with_context(|| format!("reading {}", source.display()))?;
            let name = source.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            line(&mut lines, &bytes, &format!("{folder}/{name}"));
        }
    }
    for module in built {
        line(&mut lines, module.text.as_bytes(), &module.path());
    }
    Ok(lines)
}

fn line(lines: &mut String, bytes: &[u8], path: &str) {
    for byte in Sha256::digest(bytes) {
        write!(lines, "{byte:02x}").expect("writing to a String does not fail");
    }
    writeln!(lines, "  {path}").expect("writing to a String does not fail");
}

#[cfg(test)]
mod tests {
    use super::line;

    #[test]
    fn a_line_is_the_sha256_of_the_bytes_and_the_path() {
        let mut lines = String::new();
        line(&mut lines, b"abc", "src/a.cu"); // FIPS 180-2, appendix B.1
        assert_eq!(lines, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  src/a.cu\n");
    }
}
