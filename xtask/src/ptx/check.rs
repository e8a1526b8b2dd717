//! Comparison of what a build gives with what is checked in.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Fails on any byte of difference between `outputs` (path under `crate_dir`, text) and the files there, naming each file and the
/// first line that differs, and on PTX files that no source gives.
pub fn compare(crate_dir: &Path, outputs: &[(String, String)]) -> Result<()> {
    let mut differences = Vec::new();
    for (path, built) in outputs {
        match std::fs::read_to_string(crate_dir.join(path)) {
            Err(error) => differences.push(format!("{path}: {error}")),
            Ok(kept) if kept != *built => {
                let same = kept.lines().zip(built.lines()).take_while(|(a, b)| a == b).count();
                differences.push(format!("{path}: differs from line {} on", same + 1));
            }
            Ok(_) => {}
        }
    }
    // PTX files are stale against the whole list, not against the header alone.
    if outputs.iter().any(|(path, _)| path.ends_with(".ptx")) {
        let stale = stale(crate_dir, outputs)?;
        differences.extend(stale.into_iter().map(|path| format!("{path}: no source gives this file")));
    }
    if differences.is_empty() {
        return Ok(());
    }
    bail!(
        "the checked-in PTX is not what the sources give; run `cargo xtask ptx`:\n{}",
        differences.join("\n")
    );
}

/// Removes PTX files that no source gives any more.
pub fn remove_stale(crate_dir: &Path, outputs: &[(String, String)]) -> Result<()> {
    for path in stale(crate_dir, outputs)? {
        std::fs::remove_file(crate_dir.join(&path)).with_context(|| format!("removing {path}"))?;
    }
    Ok(())
}

fn stale(crate_dir: &Path, outputs: &[(String, String)]) -> Result<Vec<String>> {
    let expected: BTreeSet<&str> = outputs.iter().map(|(path, _)| path.as_str()).collect();
    let mut found = Vec::new();
    for target in super::TARGETS.into_iter().chain([super::CORPUS]) {
        let folder = crate_dir.join("ptx").join(target);
        if !folder.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(&folder).with_context(|| format!("listing {}", folder.display()))? {
            let name = entry?.file_name();
            let path = format!("ptx/{target}/{}", name.to_string_lossy());
            if path.ends_with(".ptx") && !expected.contains(path.as_str()) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{compare, remove_stale};

    #[test]
    fn a_changed_byte_a_missing_file_and_a_stale_one_each_fail() {
        let folder = std::env::temp_dir().join(format!("bitwalk-check-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("ptx/compute_90")).unwrap();
        let outputs = vec![("ptx/compute_90/a.ptx".to_owned(), "one\ntwo\n".to_owned())];
        let message = compare(&folder, &outputs).unwrap_err().to_string();
        assert!(message.contains("ptx/compute_90/a.ptx: No such file"), "{message}");
        std::fs::write(folder.join("ptx/compute_90/a.ptx"), "one\ntwo \n").unwrap();
        let message = compare(&folder, &outputs).unwrap_err().to_string();
        assert!(message.contains("differs from line 2"), "{message}");
        std::fs::write(folder.join("ptx/compute_90/a.ptx"), "one\ntwo\n").unwrap();
        compare(&folder, &outputs).unwrap();
        std::fs::write(folder.join("ptx/compute_90/b.ptx"), "").unwrap();
        let message = compare(&folder, &outputs).unwrap_err().to_string();
        assert!(message.contains("b.ptx: no source gives"), "{message}");
        remove_stale(&folder, &outputs).unwrap();
        compare(&folder, &outputs).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
