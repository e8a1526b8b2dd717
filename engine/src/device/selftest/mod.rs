//! What must hold on any device: checks that run as tests on the simulated device and as a gate on a GPU.
//!
//! Expected values are closed forms of what the two small kernels here compute, never another run's output,
//! except where a replay is compared with the eager run that it stands for.

mod capturing;
mod graphs;
mod hygiene;
mod memory;
mod peers;

use super::{CaptureError, Device, DeviceError, Function, LaunchParams, Module, Stream};

/// What one check found.
#[derive(Clone, Debug)]
pub struct Check {
    /// The check's name.
    pub name: &'static str,
    /// What was compared and how much of it; or, when it could not run on this machine, why; or what was wrong.
    pub outcome: Outcome,
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It held; what was compared.
    Passed(String),
    /// It needs something that this machine lacks.
    Skipped(String),
    /// It did not hold.
    Failed(String),
}

/// What all checks found.
#[derive(Clone, Debug)]
pub struct Report {
    /// The line about the device.
    pub device: String,
    /// The checks, in the order they ran.
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether some check ran and none failed.
    pub fn passed(&self) -> bool {
        self.checks.iter().any(|check| matches!(check.outcome, Outcome::Passed(_)))
            && self.failures().next().is_none()
    }

    /// The checks that did not hold.
    pub fn failures(&self) -> impl Iterator<Item = &Check> {
        self.checks.iter().filter(|check| matches!(check.outcome, Outcome::Failed(_)))
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "device self-test on {}", self.device)?;
        for Check { name, outcome } in &self.checks {
            match outcome {
                Outcome::Passed(facts) => writeln!(f, "  pass    {name}: {facts}")?,
                Outcome::Skipped(reason) => writeln!(f, "  SKIPPED {name}: {reason}")?,
                Outcome::Failed(reason) => writeln!(f, "  FAIL    {name}: {reason}")?,
            }
        }
        Ok(())
    }
}

/// Why a check did not hold, or could not run.
#[derive(Debug)]
enum Stop {
    Failed(String),
    Skipped(String),
}

impl From<DeviceError> for Stop {
    fn from(error: DeviceError) -> Self {
        Self::Failed(error.to_string())
    }
}

impl From<CaptureError> for Stop {
    fn from(error: CaptureError) -> Self {
        Self::Failed(error.to_string())
    }
}

type Checked = Result<String, Stop>;
type CheckFn = fn(&Bench) -> Checked;

/// Fails the check unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($words:tt)+) => {
        if !$condition {
            return Err(Stop::Failed(format!($($words)+)));
        }
    };
}
use ensure;

/// The checks, by name.
const CHECKS: [(&str, CheckFn); 31] = [
    ("round trips", memory::round_trips),
    ("everything counted", memory::everything_counted),
    ("uploads in pieces", memory::uploads_in_pieces),
    ("lengths and slices refused", memory::lengths_refused),
    ("out of memory", memory::out_of_memory),
    ("memory freed once", memory::memory_freed_once),
    ("re-seat", memory::reseat),
    ("module errors", memory::module_errors),
    ("launch", memory::launch),
    ("launch refused", memory::launch_refused),
    ("events", memory::events),
    ("replay equals eager", graphs::replay_equals_eager),
    ("nodes read back", graphs::nodes_read_back),
    ("node update", graphs::node_update),
    ("fork and join", graphs::fork_and_join),
    ("read-back in a graph", graphs::read_back_in_a_graph),
    ("graph owns what it touches", graphs::graph_owns_what_it_touches),
    ("programmatic launch", graphs::programmatic_launch),
    ("what a programmatic launch follows", graphs::programmatic_neighbours),
    ("forbidden operations", capturing::forbidden_operations),
    ("error and panic in a capture", capturing::error_and_panic),
    ("empty and nested captures", capturing::empty_and_nested),
    ("captures again and again", hygiene::captures_again_and_again),
    ("failure in a capture", hygiene::failure_in_a_capture),
    ("host memory changed after a capture", hygiene::host_memory_changed_after_a_capture),
    ("peer copies", peers::peer_copies),
    ("kernels in peer memory", peers::kernels_in_peer_memory),
    ("peer copies in a graph", peers::peer_copies_in_a_graph),
    ("copies through the host", peers::copies_through_the_host),
    ("events across devices", peers::events_across_devices),
    ("graphs in turn", peers::graphs_in_turn),
];

/// Runs all checks on `device`.
///
/// # Errors
/// When the device cannot even load the kernels that the checks run or make a stream; failing checks are in the report.
pub fn run(device: &Device) -> Result<Report, DeviceError> {
    run_edited(device, str::to_owned)
}

/// [`run`], with the PTX of its kernels passed through `edit`: how a gate plants a fault.
///
/// # Errors
/// The same.
#[doc(hidden)]
pub fn run_edited(device: &Device, edit: impl FnOnce(&str) -> String) -> Result<Report, DeviceError> {
    let bench = Bench::new(device, &edit(PTX))?;
    let checks = CHECKS.iter().map(|&(name, check)| Check {
        name,
        outcome: match check(&bench) {
            Ok(facts) => Outcome::Passed(facts),
            Err(Stop::Skipped(reason)) => Outcome::Skipped(reason),
            Err(Stop::Failed(reason)) => Outcome::Failed(reason),
        },
    });
    Ok(Report { device: device.opened_because().to_owned(), checks: checks.collect() })
}

/// `x[i] += value` and `out[i] = a[i] * scale + 1` for i below n; the second has a gap in its parameter block.
const PTX: &str = r"
.version 8.0
.target sm_80
.address_size 64

.visible .entry add_u32(
	.param .u64 add_u32_param_0,
	.param .u32 add_u32_param_1,
	.param .u32 add_u32_param_2
)
.maxntid 256, 1, 1
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<9>;
	.reg .b64 	%rd<5>;
	ld.param.u64 	%rd1, [add_u32_param_0];
	ld.param.u32 	%r1, [add_u32_param_1];
	ld.param.u32 	%r2, [add_u32_param_2];
	mov.u32 	%r3, %ctaid.x;
	mov.u32 	%r4, %ntid.x;
	mov.u32 	%r5, %tid.x;
	mad.lo.s32 	%r6, %r3, %r4, %r5;
	setp.ge.u32 	%p1, %r6, %r1;
	@%p1 bra 	$L__BB0_2;
	cvta.to.global.u64 	%rd2, %rd1;
	mul.wide.u32 	%rd3, %r6, 4;
	add.s64 	%rd4, %rd2, %rd3;
	ld.global.u32 	%r7, [%rd4];
	add.s32 	%r8, %r7, %r2;
	st.global.u32 	[%rd4], %r8;
$L__BB0_2:
	ret;
}

.visible .entry scale_u32(
	.param .u32 scale_u32_param_0,
	.param .u64 scale_u32_param_1,
	.param .u64 scale_u32_param_2,
	.param .u32 scale_u32_param_3
)
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<9>;
	.reg .b64 	%rd<8>;
	ld.param.u32 	%r1, [scale_u32_param_0];
	ld.param.u64 	%rd1, [scale_u32_param_1];
	ld.param.u64 	%rd2, [scale_u32_param_2];
	ld.param.u32 	%r2, [scale_u32_param_3];
	mov.u32 	%r3, %ctaid.x;
	mov.u32 	%r4, %ntid.x;
	mov.u32 	%r5, %tid.x;
	mad.lo.s32 	%r6, %r3, %r4, %r5;
	setp.ge.u32 	%p1, %r6, %r1;
	@%p1 bra 	$L__BB1_2;
	cvta.to.global.u64 	%rd3, %rd1;
	cvta.to.global.u64 	%rd4, %rd2;
	mul.wide.u32 	%rd5, %r6, 4;
	add.s64 	%rd6, %rd4, %rd5;
	add.s64 	%rd7, %rd3, %rd5;
	ld.global.u32 	%r7, [%rd6];
	mad.lo.s32 	%r8, %r7, %r2, 1;
	st.global.u32 	[%rd7], %r8;
$L__BB1_2:
	ret;
}
";

/// Elements of the buffers that the kernels work on: no multiple of a block.
const N: usize = 1000;

/// A device with what the checks need.
struct Bench {
    device: Device,
    stream: Stream,
    module: Module,
    add: Function,
    scale: Function,
}

impl Bench {
    fn new(device: &Device, ptx: &str) -> Result<Self, DeviceError> {
        let module = device.load_module("selftest", ptx)?;
        let (add, scale) = (module.function("add_u32")?, module.function("scale_u32")?);
        Ok(Self { device: device.clone(), stream: device.stream()?, module, add, scale })
    }

    /// Launches `x[i] += value` over `n` elements.
    fn add(&self, stream: &Stream, x: u64, n: usize, value: u32) -> Result<(), DeviceError> {
        let args = add_args(x, n, value);
        stream.launch(&self.add, &params(grid(n), 128, &args))
    }

    /// Launches `out[i] = a[i] * scale + 1` over `n` elements.
    fn scale(&self, stream: &Stream, out: u64, a: u64, n: usize, scale: u32) -> Result<(), DeviceError> {
        let args = scale_args(out, a, n, scale);
        stream.launch(&self.scale, &params(grid(n), 128, &args))
    }

    /// Checks that the stream runs work and reads back: after a refused capture, that it is usable.
    fn usable(&self) -> Result<(), Stop> {
        let buffer = super::Buffer::from_slice(&self.device, &[5u32; 4], "usable")?;
        self.add(&self.stream, buffer.address(), 4, 7)?;
        let mut back = [0; 4];
        self.stream.read(&buffer, &mut back)?;
        ensure!(back == [12; 4], "the stream gave {back:?} after a refused capture, 12 was due");
        Ok(())
    }
}

fn grid(n: usize) -> [u32; 3] {
    [n.div_ceil(128) as u32, 1, 1]
}

fn add_args(x: u64, n: usize, value: u32) -> Vec<u8> {
    [&x.to_le_bytes()[..], &(n as u32).to_le_bytes(), &value.to_le_bytes()].concat()
}

fn scale_args(out: u64, a: u64, n: usize, scale: u32) -> Vec<u8> {
    [&(n as u32).to_le_bytes()[..], &[0; 4], &out.to_le_bytes(), &a.to_le_bytes(), &scale.to_le_bytes()]
        .concat()
}

fn params(grid: [u32; 3], block: u32, args: &[u8]) -> LaunchParams<'_> {
    LaunchParams {
        grid,
        block: [block, 1, 1],
        shared: 0,
        args,
        access: &[],
        cooperative: false,
        programmatic: false,
    }
}

/// Numbers without a pattern that a wrong offset would keep.
fn numbers(n: usize, seed: u32) -> Vec<u32> {
    (0..n as u32).map(|i| (i ^ seed).wrapping_mul(0x9e37_79b9).rotate_left(13)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceSpec;
    use ptx_sim::system::{System, SystemConfig};

    fn check_all(device: &Device) {
        let report = run(device).unwrap();
        assert!(report.passed(), "{report}");
        let skipped: Vec<_> =
            report.checks.iter().filter(|check| matches!(check.outcome, Outcome::Skipped(_))).collect();
        assert!(skipped.is_empty(), "nothing is skipped on the simulated device: {skipped:?}");
    }

    #[test]
    fn every_check_holds_on_a_simulated_device() {
        let system = System::new(SystemConfig { devices: 2, memory: 1 << 30, ..SystemConfig::default() });
        check_all(&Device::open_in(&system, 0).unwrap());
        check_all(&Device::open_in(&system, 1).unwrap());
        assert_eq!(system.memory().bytes_in_use(0) + system.memory().bytes_in_use(1), 0);
    }

    #[test]
    fn every_check_holds_with_graphs_run_in_another_legal_order() {
        let system = System::new(SystemConfig { devices: 2, memory: 1 << 30, ..SystemConfig::default() });
        system.set_schedule(ptx_sim::system::Schedule::LatestFirst);
        check_all(&Device::open_in(&system, 0).unwrap());
    }

    #[test]
    fn every_check_holds_with_streams_that_run_as_late_as_they_may() {
        let system = System::new(SystemConfig { devices: 2, memory: 1 << 30, ..SystemConfig::default() });
        system.set_schedule(ptx_sim::system::Schedule::Deferred);
        check_all(&Device::open_in(&system, 0).unwrap());
        assert_eq!(system.memory().bytes_in_use(0) + system.memory().bytes_in_use(1), 0);
    }

    /// Runs the checks on CUDA where there is a GPU; where there is none, the error must say so.
    #[test]
    fn cuda_passes_or_says_what_is_missing() {
        match Device::open(DeviceSpec::Cuda(0)) {
            Ok(device) => {
                let report = run(&device).unwrap();
                println!("{report}");
                assert!(report.passed(), "{report}");
            }
            Err(error @ (DeviceError::NoDriver { .. } | DeviceError::NoDevice)) => {
                let text = error.to_string();
                assert!(text.contains("--device sim"), "{text}");
                let auto = Device::open(DeviceSpec::Auto).unwrap();
                assert!(auto.opened_because().starts_with("sim:0, since"), "{}", auto.opened_because());
            }
            Err(other) => panic!("{other}"),
        }
    }

    #[test]
    fn a_failing_check_fails_the_report() {
        let outcome = |outcome| Check { name: "x", outcome };
        let passed = outcome(Outcome::Passed(String::new()));
        let report = |checks| Report { device: String::new(), checks };
        assert!(report(vec![passed.clone()]).passed());
        assert!(!report(vec![passed, outcome(Outcome::Failed(String::new()))]).passed());
        assert!(!report(vec![outcome(Outcome::Skipped(String::new()))]).passed());
        assert!(!report(vec![]).passed());
    }
}
