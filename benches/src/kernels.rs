//! Every declared kernel, one launch after the other over copies of its operands that no cache holds, timed by the device's
//! events. Throughput is the declared cost's bytes a second.
//!
//! On a GPU the cases of real models' sizes are timed (of a kernel that has none, the largest), on the simulated device, where
//! a second is worth a few million opcodes, the largest of the small ones; there the time is the host's.

use std::cell::RefCell;
use std::error::Error;
use std::time::Duration;

use bitwalk::device::DeviceKind;
use bitwalk::engine::{Engine, EngineError};
use bitwalk::kernel::check::{CheckFailure, PreparedCase};
use bitwalk::kernel::{Case, Cost, KERNELS, KernelDecl};
use bitwalk::measure::{Summary, read_only_rate};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput};
use serde::Serialize;

use crate::rotation::Rotation;

/// Samples of a kernel; criterion's least.
pub const SAMPLES: usize = 10;

/// What was measured of one case.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// The kernel.
    pub kernel: &'static str,
    /// The module that it is of.
    pub family: &'static str,
    /// The case's label.
    pub case: String,
    /// Seconds a launch, the median of the samples.
    pub seconds: f64,
    /// Bytes read, by the declared cost.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Floating-point or integer multiply-add operations.
    pub flops: u64,
    /// Copies of the operands that were launched over in turn.
    pub copies: usize,
    /// Warp instructions a launch, on the simulated device.
    pub opcodes: Option<u64>,
}

impl Measured {
    /// Bytes a second.
    pub fn bytes_s(&self) -> f64 {
        (self.read_bytes + self.write_bytes) as f64 / self.seconds
    }

    /// Operations a second.
    pub fn flops_s(&self) -> f64 {
        self.flops as f64 / self.seconds
    }

    /// Operations a byte.
    pub fn intensity(&self) -> f64 {
        self.flops as f64 / (self.read_bytes + self.write_bytes).max(1) as f64
    }
}

/// What was measured, and against what.
#[derive(Debug, Clone, Serialize)]
pub struct Results {
    /// The device's name.
    pub device: String,
    /// Whether it is the simulated one, whose time is the host's.
    pub simulated: bool,
    /// Bytes a second of reading memory, measured in the same run.
    pub read_only_bytes_s: f64,
    /// float32 operations a second if every lane did one fused multiply-add a cycle at the highest clock; none for the
    /// simulated device.
    pub fma_flops_s: Option<f64>,
    /// Case by case.
    pub kernels: Vec<Measured>,
    /// The kernels and cases that could not be timed, and why.
    pub failures: Vec<String>,
}

/// float32 lanes of a multiprocessor, from compute capability 8.6 on and on 9.0; 8.0 has half.
fn lanes(compute: (u32, u32)) -> u32 {
    if compute == (8, 0) { 64 } else { 128 }
}

/// Times every kernel whose `name/case` criterion's filter lets through.
///
/// # Errors
/// A device whose memory cannot be read; what is wrong with one kernel is among the results.
pub fn run(
    criterion: &mut Criterion,
    engine: &Engine,
    filter: Option<&str>,
) -> Result<Results, Box<dyn Error>> {
    let info = engine.device().info().clone();
    let simulated = info.kind == DeviceKind::Sim;
    let read_only_bytes_s = read_only_rate(engine)?;
    let fma_flops_s = info
        .clock_hz
        .map(|clock| f64::from(info.sm_count) * f64::from(lanes(info.compute)) * 2.0 * clock as f64);
    let mut declared: Vec<_> = KERNELS.iter().copied().collect();
    declared.sort_by_key(|decl| (decl.module, decl.name));
    let mut group = criterion.benchmark_group("kernel");
    // Flat: as many launches in every sample, whose median is then comparable.
    group.sample_size(SAMPLES).sampling_mode(SamplingMode::Flat);
    let mut results = Results {
        device: info.name,
        simulated,
        read_only_bytes_s,
        fma_flops_s,
        kernels: Vec::new(),
        failures: Vec::new(),
    };
    for decl in declared {
        let wanted = |case: &Case| filter.is_none_or(|filter| name(decl, case).contains(filter));
        let cases: Vec<Case> = (decl.cases)().into_iter().filter(wanted).collect();
        if cases.is_empty() {
            continue;
        }
        let function = match engine.function(decl) {
            Ok(function) => function,
            Err(EngineError::NoEntry { .. }) => continue, // of a test
            Err(error) => {
                results.failures.push(format!("{}: {}", decl.name, chain(&error)));
                continue;
            }
        };
        let prepare = |case: &Case| PreparedCase::new(decl, engine.device(), function, case);
        let chosen = match choose(&cases, simulated, prepare) {
            Ok(chosen) => chosen,
            Err(error) => {
                results.failures.push(chain(&error));
                continue;
            }
        };
        for case in chosen {
            let prepared = prepare(case).map_err(Into::into);
            match prepared.and_then(|prepared| measure(&mut group, engine, decl, case, prepared)) {
                Ok(measured) => results.kernels.extend(measured),
                Err(error) => results.failures.push(format!("{}: {}", name(decl, case), chain(&*error))),
            }
        }
    }
    group.finish();
    Ok(results)
}

/// Those of a real model's size on a GPU, where there are any, else the largest of the others.
fn choose(
    cases: &[Case],
    simulated: bool,
    prepare: impl Fn(&Case) -> Result<PreparedCase, CheckFailure>,
) -> Result<Vec<&Case>, CheckFailure> {
    let (real, small): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.is_representative());
    if !simulated && !real.is_empty() {
        return Ok(real);
    }
    let mut largest: Option<(u64, &Case)> = None;
    for case in small {
        let cost = prepare(case)?.launch().cost;
        let bytes = cost.read + cost.write;
        largest = largest.filter(|(most, _)| *most >= bytes).or(Some((bytes, case)));
    }
    Ok(largest.map(|(_, case)| case).into_iter().collect())
}

/// Times one case; nothing where criterion's own filter left it out.
fn measure(
    group: &mut BenchmarkGroup<'_, WallTime>,
    engine: &Engine,
    decl: &'static KernelDecl,
    case: &Case,
    prepared: PreparedCase,
) -> Result<Option<Measured>, Box<dyn Error>> {
    let cost = prepared.launch().cost;
    let rotation = Rotation::new(prepared, engine.stream())?;
    let opcodes = opcodes(engine, &rotation)?;
    let samples = RefCell::new(Vec::new());
    let failure = RefCell::new(None);
    group.throughput(Throughput::Bytes(cost.read + cost.write));
    group.bench_function(name(decl, case), |b| {
        b.iter_custom(|launches| match rotation.time(launches) {
            Ok(time) => {
                samples.borrow_mut().push(time.as_secs_f64() / launches as f64);
                time
            }
            // Criterion wants a time; what it makes of it is not used.
            Err(error) => {
                failure.borrow_mut().get_or_insert(error);
                Duration::from_micros(launches)
            }
        });
    });
    if let Some(error) = failure.into_inner() {
        return Err(error.into());
    }
    // The ones before are of the warm-up.
    let samples = samples.into_inner();
    let last = &samples[samples.len().saturating_sub(SAMPLES)..];
    Ok(Summary::of(last).map(|summary| of(decl, case, cost, &rotation, summary.median, opcodes)))
}

/// An error with what lies behind it.
fn chain(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(behind) = source {
        words = format!("{words}: {behind}");
        source = behind.source();
    }
    words
}

fn name(decl: &KernelDecl, case: &Case) -> String {
    format!("{}/{}", decl.name, case.label())
}

/// Warp instructions of a launch.
fn opcodes(engine: &Engine, rotation: &Rotation) -> Result<Option<u64>, Box<dyn Error>> {
    let Some(before) = engine.device().warp_instructions() else { return Ok(None) };
    rotation.time(1)?;
    let after = engine.device().warp_instructions().unwrap_or(before);
    Ok(Some((after - before) / rotation.launches() as u64))
}

fn of(
    decl: &'static KernelDecl,
    case: &Case,
    cost: Cost,
    rotation: &Rotation,
    seconds: f64,
    opcodes: Option<u64>,
) -> Measured {
    Measured {
        kernel: decl.name,
        family: decl.module,
        case: case.label().to_owned(),
        seconds,
        read_bytes: cost.read,
        write_bytes: cost.write,
        flops: cost.flops,
        copies: rotation.copies(),
        opcodes,
    }
}

/// The measurements as lines of a table, the highest rate first within each family.
pub fn table(results: &Results) -> Vec<String> {
    let last = if results.simulated { "Mopcodes/s" } else { "of read-only" };
    let (scale, prefix) = if results.simulated { (1e6, 'M') } else { (1e9, 'G') };
    let mut lines = vec![format!(
        "{:<12} {:<58} {:>12} {:>10} {:>10} {:>7} {last:>13}",
        "family",
        "kernel/case",
        "µs",
        format!("{prefix}B/s"),
        format!("{prefix}flop/s"),
        "copies"
    )];
    let mut kernels: Vec<&Measured> = results.kernels.iter().collect();
    kernels.sort_by(|a, b| a.family.cmp(b.family).then(b.bytes_s().total_cmp(&a.bytes_s())));
    for measured in kernels {
        let last = match measured.opcodes {
            Some(opcodes) => format!("{:.1}", opcodes as f64 / measured.seconds / 1e6),
            None => format!("{:.1} %", measured.bytes_s() / results.read_only_bytes_s * 100.0),
        };
        lines.push(format!(
            "{:<12} {:<58} {:>12.2} {:>10.1} {:>10.1} {:>7} {last:>13}",
            measured.family,
            format!("{}/{}", measured.kernel, measured.case),
            measured.seconds * 1e6,
            measured.bytes_s() / scale,
            measured.flops_s() / scale,
            measured.copies,
        ));
    }
    lines
}
