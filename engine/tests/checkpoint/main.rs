//! safetensors checkpoints of `glm5_next`: what the golden ones hold, and what is refused of those that lie.

mod config;
mod encodings;
mod golden;
mod hostile;
mod mutations;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bitwalk::config::glm5::{Skipped, check_tensors};
use bitwalk::format::safetensors::SafetensorsSource;
use bitwalk::format::{FormatError, TensorSource};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// The folder of a golden checkpoint.
fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../gates/fixtures").join(name)
}

/// A checkpoint in pieces, to be changed.
#[derive(Clone)]
struct Pieces {
    config: Value,
    tensors: BTreeMap<String, (Dtype, Vec<usize>, Vec<u8>)>,
}

impl Pieces {
    fn read(name: &str) -> Pieces {
        let bytes = std::fs::read(folder(name).join("model.safetensors")).unwrap();
        let file = SafeTensors::deserialize(&bytes).unwrap();
        let piece = |(name, view): (&str, TensorView<'_>)| {
            (name.to_string(), (view.dtype(), view.shape().to_vec(), view.data().to_vec()))
        };
        let config = std::fs::read(folder(name).join("config.json")).unwrap();
        let config = serde_json::from_slice(&config).unwrap();
        Pieces { config, tensors: file.iter().map(piece).collect() }
    }

    fn bytes(&self) -> Vec<u8> {
        let views = self.tensors.iter().map(|(name, (dtype, shape, data))| {
            (name.as_str(), TensorView::new(*dtype, shape.clone(), data).unwrap())
        });
        safetensors::serialize(views, None).unwrap()
    }

    fn source(&self) -> Result<SafetensorsSource, FormatError> {
        SafetensorsSource::from_bytes("model.safetensors", self.bytes(), self.config.clone())
    }

    /// Opens and checks, as a loader does before the first upload.
    fn check(&self) -> Result<Skipped, FormatError> {
        use_all(&self.source()?)
    }

    fn text(&mut self) -> &mut serde_json::Map<String, Value> {
        self.config["text_config"].as_object_mut().unwrap()
    }
}

/// All that is asked of a checkpoint before a model is built from it.
fn use_all(source: &SafetensorsSource) -> Result<Skipped, FormatError> {
    let config = source.glm5()?;
    check_tensors(source, &config)
}

fn open(path: &Path) -> Result<Skipped, FormatError> {
    use_all(&SafetensorsSource::open(path)?)
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

/// Processor time that this thread has used. Unlike the clock on the wall it does not run while other programs do.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // Behind the program's name, in parentheses: fields 3, 4 …; 14 and 15 are user and system time in 1/100 s.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(10 * ticks)
}

/// Runs `work`, which may take a second of processor time and 64 MiB beyond `allowed` bytes.
fn within_limits<T>(allowed: u64, work: impl FnOnce() -> T) -> T {
    let (before, start) = (peak_memory(), processor_time());
    let result = work();
    let (grown, elapsed) = (peak_memory().saturating_sub(before), processor_time() - start);
    assert!(grown <= (64 << 20) + allowed, "took {grown} bytes of memory");
    assert!(elapsed < Duration::from_secs(1), "took {elapsed:?}");
    result
}

/// Checks that a message names all of these.
#[track_caller]
fn names(error: &FormatError, parts: &[&str]) {
    let error = error.to_string();
    for part in parts {
        assert!(error.contains(part), "`{part}` expected in: {error}");
    }
}

/// The f32 values of a tensor of plain floats.
fn floats(source: &dyn TensorSource, name: &str) -> Vec<f32> {
    let info = source.find(name).unwrap();
    let mut values = vec![0f32; info.elements() as usize];
    bitwalk::quant::dequantise(info.dtype, &source.data(name).unwrap(), &mut values).unwrap();
    values
}
