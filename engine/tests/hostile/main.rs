//! Files that are not what they claim: each is refused at once, in little memory, with file, place and reason.

mod cases;
mod mutations;
mod templates;

use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bitwalk::config::check_tensors;
use bitwalk::format::gguf::GgufFile;
use bitwalk::format::{FormatError, TensorSource};
use bitwalk::tokenizer::{ChatTemplate, Message, Tokenizer};

/// The fixture, from which all of these are made.
fn fixture() -> Vec<u8> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../gates/fixtures/tiny-llama.gguf")).unwrap()
}

/// All that is asked of a file before a model is built from it.
fn load(path: &Path) -> Result<GgufFile, FormatError> {
    let file = GgufFile::open(path)?;
    use_all(&file)?;
    Ok(file)
}

fn use_all(file: &GgufFile) -> Result<(), FormatError> {
    let config = file.config()?;
    check_tensors(file, &config)?;
    let tokenizer = Tokenizer::from_metadata(file.metadata())?;
    if let Some(template) = ChatTemplate::from_metadata(file.metadata(), &tokenizer)? {
        // What a mutated template says of this does not matter, but that it ends.
        let _ = template.render(&[Message { role: "user".into(), content: "text".into() }], true);
    }
    let text = "The quick 狐 jumps over 13 <|im_end|>\n\n dogs.";
    let ids = tokenizer.encode_prompt(text);
    assert!(ids.iter().all(|&id| id < config.vocab), "an id that the model does not have");
    tokenizer.decode(&ids).expect("ids of its own");
    Ok(())
}

/// Memory and time are the process's, so tests that measure them take turns.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// The most memory the process has had resident, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// Processor time that the process has used. Unlike the clock on the wall it does not run while other programs do.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // Behind the program's name, in parentheses: fields 3, 4 …; 14 and 15 are user and system time in 1/100 s.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(10 * ticks)
}

/// Runs `work`, which may take a second of processor time and 64 MiB beyond `allowed` bytes.
fn within_limits<T>(allowed: u64, work: impl FnOnce() -> T) -> T {
    let (before, start) = (peak_memory(), processor_time());
    let result = work();
    // The kernel counts pages a thread at a time, and its peak can read some pages lower than before.
    let (grown, elapsed) = (peak_memory().saturating_sub(before), processor_time() - start);
    assert!(grown <= (64 << 20) + allowed, "took {grown} bytes of memory");
    assert!(elapsed < Duration::from_secs(1), "took {elapsed:?}");
    result
}

/// Writes `bytes` to a file and loads it, which must fail with a message that begins with the file's name, goes on with
/// `place`, and contains `reason`.
#[track_caller]
fn refused(bytes: &[u8], place: &str, reason: &str) {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hostile.gguf");
    std::fs::write(&path, bytes).unwrap();
    refused_path(&path, bytes.len() as u64, place, reason);
}

#[track_caller]
fn refused_path(path: &Path, map: u64, place: &str, reason: &str) {
    let error = within_limits(map, || load(path)).expect_err("this file must be refused").to_string();
    let rest = error.strip_prefix(&format!("{}: ", path.display()));
    let rest = rest.unwrap_or_else(|| panic!("does not begin with the file's name: {error}"));
    assert!(rest.starts_with(place), "place `{place}` expected: {error}");
    assert!(rest.contains(reason), "reason `{reason}` expected: {error}");
}
