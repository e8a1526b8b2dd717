//! Ctrl-C: the line being written is finished, then the process exits with 130. A second one exits at once.

use std::process;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use thiserror::Error;

use super::tell;

/// The exit code of a run that was interrupted: 128 + SIGINT.
pub const EXIT: u8 = 130;

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static WAITING: AtomicBool = AtomicBool::new(false);

/// The run was interrupted.
#[derive(Debug, Error)]
#[error("interrupted")]
pub struct Interrupted;

/// Takes Ctrl-C over from here on.
pub fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        // While a line is awaited nothing is being written, and nobody would look at the flag.
        if WAITING.load(Ordering::SeqCst) || INTERRUPTED.swap(true, Ordering::SeqCst) {
            tell("");
            process::exit(i32::from(EXIT));
        }
    })
    .context("Ctrl-C cannot be handled")
}

/// Whether Ctrl-C was pressed.
pub fn interrupted() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Ends the run if Ctrl-C was pressed.
pub fn check() -> Result<(), Interrupted> {
    if interrupted() { Err(Interrupted) } else { Ok(()) }
}

/// Calls `wait`, during which Ctrl-C exits at once.
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    WAITING.store(true, Ordering::SeqCst);
    let result = wait();
    WAITING.store(false, Ordering::SeqCst);
    result
}
