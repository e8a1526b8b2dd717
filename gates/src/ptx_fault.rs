//! Faults planted in PTX text, in memory: a kernel that reads another bound, or other arguments, than its caller gave.
//!
//! They are edits of the entry's parameter loads, so that they mean the same whatever the compiler made of the body.

use anyhow::{Context, Result, ensure};
use bitwalk::kernel::KernelDecl;

/// A fault in one kernel.
#[derive(Debug, Clone, Copy)]
pub enum PtxFault {
    /// The kernel sees this integer scalar one larger or smaller than it is.
    OffByOne {
        /// The scalar's name in the declaration.
        scalar: &'static str,
        /// What is added.
        by: i32,
    },
    /// The kernel takes each of two parameters (by C name) for the other.
    Swapped(&'static str, &'static str),
    /// The entry declares a 32-bit scalar with 64 bits.
    Widened(&'static str),
    /// The entry lacks its last parameter.
    Dropped,
    /// The kernel stores a zero through this pointer (by C name) before anything else, but after its wait for the launch
    /// ahead, where it has one.
    Stores(&'static str),
    /// The kernel stores a zero through this pointer (by C name) before it waits for the launch ahead.
    StoresEarly(&'static str),
    /// The kernel reads through this pointer (by C name) before it waits for the launch ahead.
    ReadsEarly(&'static str),
    /// Some threads might leave the kernel without having waited for the launch ahead.
    LeavesEarly,
    /// The kernel waits for the launch ahead, whether it is launched beside it or not.
    Waits,
    /// The entry's barriers are gone.
    Unsynchronised,
}

/// The register that a parameter load fills.
fn loaded(line: &str) -> Result<&str> {
    let register = line.split_whitespace().find(|word| word.starts_with('%'));
    Ok(register.context("a parameter load without a register")?.trim_end_matches(','))
}

/// The lines of an entry, from its declaration to its closing brace.
fn body(entry: &str, text: &str) -> Option<std::ops::Range<usize>> {
    let declares = |line: &str| {
        let name = line.split(".entry ").nth(1).unwrap_or_default();
        name.trim_end_matches('(') == entry
    };
    let start = text.lines().position(declares)?;
    let length = text.lines().skip(start).position(|line| line == "}")?;
    Some(start..start + length)
}

/// The text to `lines`, with `early` before the wait of `entry`; how many places there were.
fn before_the_wait(entry: &str, text: &str, early: &str, lines: &mut Vec<String>) -> Result<usize> {
    let body = body(entry, text).context("no such entry in the text")?;
    let mut planted = 0;
    for (index, line) in text.lines().enumerate() {
        if body.contains(&index) && line.trim() == "griddepcontrol.wait;" && planted == 0 {
            lines.push(early.to_owned());
            planted += 1;
        }
        lines.push(line.to_owned());
    }
    Ok(planted)
}

impl PtxFault {
    /// The text with the fault planted in the entry of `decl`.
    ///
    /// # Errors
    /// If there is no place for it: the kernel has no such parameter, or the text does not load it.
    pub fn plant(self, decl: &KernelDecl, text: &str) -> Result<String> {
        let label = |name: &str| -> Result<String> {
            let index = decl.slots().position(|(slot, _)| slot == name);
            let index = index.with_context(|| format!("kernel {} has no parameter {name}", decl.name))?;
            Ok(format!("{}_param_{index}", decl.entry))
        };
        let mut planted = 0;
        let mut lines: Vec<String> = Vec::new();
        match self {
            PtxFault::OffByOne { scalar, by } => {
                let load = format!("[{}]", label(scalar)?);
                for line in text.lines() {
                    lines.push(line.to_owned());
                    if line.contains("ld.param") && line.contains(&load) {
                        let register = loaded(line)?;
                        lines.push(format!("\tadd.s32 \t{register}, {register}, {by};"));
                        planted += 1;
                    }
                }
            }
            PtxFault::Swapped(a, b) => {
                let (a, b) = (format!("[{}]", label(a)?), format!("[{}]", label(b)?));
                for line in text.lines() {
                    let (from, to) = if line.contains(&a) { (&a, &b) } else { (&b, &a) };
                    planted += usize::from(line.contains(from.as_str()));
                    lines.push(line.replace(from.as_str(), to));
                }
                ensure!(planted != 1, "only one of the two parameters is loaded");
            }
            PtxFault::Widened(scalar) => {
                let label = label(scalar)?;
                for line in text.lines() {
                    let declares = line.trim().trim_end_matches(',') == format!(".param .u32 {label}");
                    planted += usize::from(declares);
                    lines.push(if declares { line.replace(".u32", ".u64") } else { line.to_owned() });
                }
            }
            PtxFault::Stores(pointer) => {
                let load = format!("[{}]", label(pointer)?);
                let body = body(decl.entry, text).context("no such entry in the text")?;
                let waits = |line: &str| line.trim() == "griddepcontrol.wait;";
                let wait = text.lines().skip(body.start).take(body.len()).position(waits);
                let wait = wait.map_or(0, |at| body.start + at);
                // The pointer, once it is loaded, until the store is in place.
                let mut at = None;
                for (index, line) in text.lines().enumerate() {
                    lines.push(line.to_owned());
                    if line.contains("ld.param") && line.contains(&load) {
                        at = Some(loaded(line)?.to_owned());
                    }
                    if index >= wait
                        && let Some(register) = at.take()
                    {
                        lines.push(format!("\tst.global.u32 \t[{register}], 0;"));
                        planted += 1;
                    }
                }
            }
            PtxFault::StoresEarly(pointer) | PtxFault::ReadsEarly(pointer) => {
                let label = label(pointer)?;
                let access = match self {
                    PtxFault::StoresEarly(_) => "st.global.u32 [early], 0;",
                    _ => "ld.global.u32 value, [early];",
                };
                let early = format!(
                    "\t{{ .reg .b64 early; .reg .b32 value; ld.param.u64 early, [{label}]; cvta.to.global.u64 early, early; {access} }}"
                );
                planted += before_the_wait(decl.entry, text, &early, &mut lines)?;
            }
            PtxFault::LeavesEarly => {
                let early = "\t{ .reg .pred leaves; .reg .b32 thread; mov.u32 thread, %tid.x; setp.gt.u32 leaves, thread, 2000; @leaves ret; }";
                planted += before_the_wait(decl.entry, text, early, &mut lines)?;
            }
            PtxFault::Waits => {
                let body = body(decl.entry, text).context("no such entry in the text")?;
                for (index, line) in text.lines().enumerate() {
                    lines.push(line.to_owned());
                    if body.contains(&index) && line == "{" {
                        lines.push("\tgriddepcontrol.wait;".to_owned());
                        planted += 1;
                    }
                }
            }
            PtxFault::Unsynchronised => {
                let body = body(decl.entry, text).context("no such entry in the text")?;
                for (index, line) in text.lines().enumerate() {
                    let barrier = body.contains(&index) && line.trim_start().starts_with("bar.sync");
                    planted += usize::from(barrier);
                    // Faults go on naming the right lines.
                    lines.push(if barrier { String::new() } else { line.to_owned() });
                }
            }
            PtxFault::Dropped => {
                let last = format!("{}_param_{}", decl.entry, decl.slots().count() - 1);
                for line in text.lines() {
                    if line.contains(".param") && !line.contains("ld.param") && line.trim().ends_with(&last) {
                        // The comma before it goes too.
                        if let Some(before) = lines.last_mut() {
                            *before = before.trim_end_matches(',').to_owned();
                        }
                        planted += 1;
                    } else if line.contains("ld.param") && line.contains(&format!("[{last}]")) {
                        // Nothing may name what is gone; the register keeps whatever it has.
                        lines.push(String::new());
                    } else {
                        lines.push(line.to_owned());
                    }
                }
            }
        }
        ensure!(planted > 0, "no place for {self:?} in entry {}", decl.entry);
        Ok(lines.join("\n") + "\n")
    }
}
