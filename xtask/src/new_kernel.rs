//! `cargo xtask new-kernel NAME`: a body, a declaration, a reference and cases that pass as they are, ready to be changed.
//!
//! Tests over the cases, the bench, the row in the kernel index and the gates come from the declaration.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::ptx::repository;

/// Arguments of `new-kernel`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the kernel, its entry and its module, in snake_case
    name: String,
}

/// Runs the verb.
pub fn run(args: &Args) -> Result<ExitCode> {
    let written = create(&repository(), &args.name)?;
    println!(
        "wrote {}",
        written.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    );
    println!(
        "next: change the body and the declaration, `cargo xtask ptx`, `cargo xtask gate kernel-check`, then place it in a plan"
    );
    Ok(ExitCode::SUCCESS)
}

/// Writes the two files and the `mod` line under `root`; the paths written, relative to it.
fn create(root: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let snake = name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if !snake {
        bail!("`{name}` is no snake_case name: lower-case letters, digits and _, a letter first");
    }
    let body = PathBuf::from(format!("kernels-ptx/src/{name}.cu"));
    let declaration = PathBuf::from(format!("engine/src/kernels/{name}.rs"));
    let list = PathBuf::from("engine/src/kernels/mod.rs");
    for path in [&body, &declaration] {
        if root.join(path).exists() {
            bail!("{} exists already", path.display());
        }
    }
    let modules =
        std::fs::read_to_string(root.join(&list)).with_context(|| format!("reading {}", list.display()))?;
    let modules = with_module(&modules, name);
    for (path, text) in [
        (&body, BODY.replace("NAME", name)),
        (&declaration, DECLARATION.replace("NAME", name)),
        (&list, modules),
    ] {
        std::fs::write(root.join(path), text).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(vec![body, declaration, list])
}

/// `text` with `pub mod name;` among its module lines, in order.
fn with_module(text: &str, name: &str) -> String {
    let line = format!("pub mod {name};");
    let mut lines: Vec<&str> = text.lines().collect();
    let after = lines.iter().rposition(|l| l.starts_with("pub mod ") && **l < *line);
    let first = lines.iter().position(|l| l.starts_with("pub mod "));
    lines.insert(after.map_or(first.unwrap_or(lines.len()), |at| at + 1), &line);
    lines.join("\n") + "\n"
}

const BODY: &str = r#"// What NAME computes, and how its work is shared out.
#include "bw_prototypes.cuh"
#include "dependent.cuh"

// y[i] = factor · x[i]
extern "C" __global__ void __launch_bounds__(256) NAME(const float* x, float* y, float factor, uint32_t n) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  bw::dependent_begin();
  if (i < n) y[i] = factor * x[i];
}
"#;

const DECLARATION: &str = r#"//! What NAME is for.

use crate::kernel::{Case, kernel};

fn reference(x: &[f32], y: &mut [f64], factor: f32, n: u32) {
    for (y, &x) in y.iter_mut().zip(x).take(n as usize) {
        *y = f64::from(factor) * f64::from(x);
    }
}

/// One element, odd sizes, past a block; then a real model's size.
fn cases() -> Vec<Case> {
    let case = |n: u32| Case::new(format!("{n} elements")).u32("n", n).f32("factor", 0.3);
    vec![case(1), case(255), case(257), case(1 << 20).representative()]
}

/// `y = factor · x`, a thread an element. The tolerance is one rounding, 2⁻²⁴.
#[kernel(module = "NAME", entry = "NAME", reference = reference, cases = cases, tol = 6e-8)]
#[launch(grid = (n.div_ceil(256), 1, 1), block = (256, 1, 1), dependent)]
#[cost(read = x.bytes(), write = y.bytes(), flops = n)]
pub fn NAME(
    #[len(n)] x: &[f32],
    #[out]
    #[len(n)]
    y: &mut [f32],
    factor: f32,
    n: u32,
);
"#;

#[cfg(test)]
mod tests {
    use super::{create, with_module};

    #[test]
    fn the_module_line_goes_where_it_sorts() {
        let text = "//! Docs.\n\npub mod embed;\npub mod norm;\n";
        assert_eq!(
            with_module(text, "matvec"),
            "//! Docs.\n\npub mod embed;\npub mod matvec;\npub mod norm;\n"
        );
        assert_eq!(
            with_module(text, "activation"),
            "//! Docs.\n\npub mod activation;\npub mod embed;\npub mod norm;\n"
        );
        assert_eq!(
            with_module(text, "sample"),
            "//! Docs.\n\npub mod embed;\npub mod norm;\npub mod sample;\n"
        );
    }

    #[test]
    fn a_new_kernel_is_two_files_and_a_line_and_overwrites_nothing() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["kernels-ptx/src", "engine/src/kernels"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        std::fs::write(root.path().join("engine/src/kernels/mod.rs"), "pub mod norm;\n").unwrap();
        assert_eq!(create(root.path(), "scale_rows").unwrap().len(), 3);
        let body = std::fs::read_to_string(root.path().join("kernels-ptx/src/scale_rows.cu")).unwrap();
        assert!(body.contains("void __launch_bounds__(256) scale_rows(const float* x"), "{body}");
        let list = std::fs::read_to_string(root.path().join("engine/src/kernels/mod.rs")).unwrap();
        assert_eq!(list, "pub mod norm;\npub mod scale_rows;\n");
        assert!(create(root.path(), "scale_rows").unwrap_err().to_string().contains("exists already"));
        for name in ["", "Scale", "1st", "a-b", "../x"] {
            assert!(create(root.path(), name).unwrap_err().to_string().contains("snake_case"), "{name}");
        }
    }
}
