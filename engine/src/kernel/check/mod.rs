//! `kernel-check`: a kernel on a device against its float64 reference.
//!
//! For each case of the declaration the inputs are made, all that is only written is poisoned, and kernel and reference
//! run twice, from two poisons. So every element that the reference writes is proven written by the kernel, and every
//! other one proven untouched; inputs must be as they were. The first run has guards around each buffer, which show
//! stores beside it; in the second each buffer is an allocation of its exact size, so that a device that checks bounds
//! sees loads beside it as well.
//!
//! Integers are compared exactly. The error of a floating-point output is max |got − reference| over max |reference| of
//! that buffer; NaN is accepted only where the reference has it. The worst error over all cases must not be above the
//! declared tolerance, and the tolerance not more than 8 times the worst error.

mod case;
mod element;
mod memory;
mod prepared;
mod random;
mod tensor;
#[cfg(test)]
mod tests;

use thiserror::Error;

use super::{Arg, Case, KernelDecl, Launch, LaunchError, RawTensor};
use crate::device::{Device, DeviceError, Function, Stream};
use case::Input;
use element::{Compared, Run};
use memory::Memory;
pub use prepared::PreparedCase;

/// How many times the worst error a tolerance may be.
const LOOSENESS: f64 = 8.0;
/// Dynamic shared memory, in bytes, above which a function must be allowed it first.
const SHARED_BY_DEFAULT: u32 = 48 << 10;
/// What outputs hold before the first and the second run.
const POISONS: [u8; 2] = [0xff, 0x5a];

/// What `kernel-check` found of a kernel that passed.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelReport {
    /// The kernel's name.
    pub kernel: &'static str,
    /// Cases run.
    pub cases: usize,
    /// Cases of a real model's size that were left out.
    pub skipped: usize,
    /// Output elements compared, over all cases.
    pub elements: u64,
    /// The worst error.
    pub worst: f64,
    /// The declared tolerance.
    pub tolerance: f64,
    /// The label of the case with the worst error.
    pub worst_case: String,
}

/// Why a kernel did not pass.
#[derive(Debug, Error)]
pub enum CheckFailure {
    /// A case that does not fit the declaration.
    #[error("kernel {kernel}, case `{case}`: {reason}")]
    Case {
        /// The kernel.
        kernel: &'static str,
        /// The case's label.
        case: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The constructor refused the arguments.
    #[error("case `{case}`")]
    Launch {
        /// The case's label.
        case: String,
        /// What it said.
        #[source]
        source: LaunchError,
    },
    /// The device refused or failed.
    #[error("kernel {kernel}, case `{case}` on {device}")]
    Device {
        /// The kernel.
        kernel: &'static str,
        /// The case's label.
        case: String,
        /// The device.
        device: String,
        /// What it said.
        #[source]
        source: DeviceError,
    },
    /// The function is not the declared entry.
    #[error("kernel {kernel} is entry `{entry}`, but function `{function}` was given")]
    OtherFunction {
        /// The kernel.
        kernel: &'static str,
        /// The declared entry.
        entry: &'static str,
        /// The function's name.
        function: String,
    },
    /// An element is not what it must be, whatever the tolerance.
    #[error("kernel {kernel}, case `{case}`, argument `{argument}`, {what}")]
    Element {
        /// The kernel.
        kernel: &'static str,
        /// The case's label.
        case: String,
        /// The argument.
        argument: &'static str,
        /// Which element, and what it holds.
        what: String,
    },
    /// Something was written outside an argument, or into one that is only read.
    #[error("kernel {kernel}, case `{case}`, argument `{argument}`: byte {offset} {what}")]
    Stray {
        /// The kernel.
        kernel: &'static str,
        /// The case's label.
        case: String,
        /// The argument.
        argument: &'static str,
        /// From the start of the argument (of the plane, for a tensor).
        offset: i64,
        /// What happened.
        what: &'static str,
    },
    /// The worst error is above the tolerance.
    #[error(
        "kernel {kernel}, case `{case}`, argument `{argument}`, element {index}: {got:e}, the reference gives {wanted:e}: \
         an error of {worst:.2e} of the largest value, above the declared tolerance {tolerance:e}"
    )]
    Tolerance {
        /// The kernel.
        kernel: &'static str,
        /// The case's label.
        case: String,
        /// The argument.
        argument: &'static str,
        /// The element with the worst error.
        index: usize,
        /// What the kernel gave.
        got: f64,
        /// What the reference gave.
        wanted: f64,
        /// The error.
        worst: f64,
        /// The declared tolerance.
        tolerance: f64,
    },
    /// The tolerance is too large to be of use.
    #[error(
        "kernel {kernel}: the declared tolerance {tolerance:e} is too loose, more than {LOOSENESS} times the worst error \
         seen, {worst:.2e} (case `{case}`)"
    )]
    Loose {
        /// The kernel.
        kernel: &'static str,
        /// The case of the worst error.
        case: String,
        /// The worst error.
        worst: f64,
        /// The declared tolerance.
        tolerance: f64,
    },
    /// Nothing was compared.
    #[error(
        "kernel {kernel}: nothing was compared ({cases} cases, {elements} elements): it needs cases that write something"
    )]
    Vacuous {
        /// The kernel.
        kernel: &'static str,
        /// Cases run.
        cases: usize,
        /// Elements compared.
        elements: u64,
    },
}

/// Checks `decl` on `device`, where `function` is its entry as loaded; cases of a real model's size only if
/// `representative`.
///
/// # Errors
/// The first [`CheckFailure`] of a case; what depends on the worst error, after all cases.
pub fn check_kernel(
    decl: &'static KernelDecl,
    device: &Device,
    function: &Function,
    representative: bool,
) -> Result<KernelReport, CheckFailure> {
    if function.name() != decl.entry {
        let (kernel, entry) = (decl.name, decl.entry);
        return Err(CheckFailure::OtherFunction { kernel, entry, function: function.name().to_owned() });
    }
    let (mut cases, mut skipped, mut elements) = (0, 0, 0);
    let mut worst = Worst::default();
    for case in (decl.cases)() {
        if case.is_representative() && !representative {
            skipped += 1;
            continue;
        }
        let check = Check { decl, device, function, case: &case };
        for (argument, compared) in check.run()? {
            elements += compared.elements;
            if worst.case.is_none() || compared.worst > worst.compared.worst {
                worst = Worst { case: Some(case.label.clone()), argument, compared };
            }
        }
        cases += 1;
    }
    let (kernel, tolerance) = (decl.name, decl.tolerance);
    let Worst { case, argument, compared: Compared { worst, index, got, wanted, .. } } = worst;
    let Some(case) = case.filter(|_| elements > 0) else {
        return Err(CheckFailure::Vacuous { kernel, cases, elements });
    };
    if worst > tolerance {
        return Err(CheckFailure::Tolerance { kernel, case, argument, index, got, wanted, worst, tolerance });
    }
    if worst > 0.0 && tolerance > LOOSENESS * worst {
        return Err(CheckFailure::Loose { kernel, case, worst, tolerance });
    }
    Ok(KernelReport { kernel, cases, skipped, elements, worst, tolerance, worst_case: case })
}

/// The comparison with the worst error so far.
#[derive(Default)]
struct Worst {
    case: Option<String>,
    argument: &'static str,
    compared: Compared,
}

/// One case of one kernel.
struct Check<'a> {
    decl: &'static KernelDecl,
    device: &'a Device,
    function: &'a Function,
    case: &'a Case,
}

impl Check<'_> {
    /// Runs kernel and reference from both poisons; the comparison of each argument that is written.
    fn run(&self) -> Result<Vec<(&'static str, Compared)>, CheckFailure> {
        let inputs = case::inputs(self.decl, self.case).map_err(|reason| self.bad_case(reason))?;
        let [first, second] = POISONS;
        let after = self.launch(&inputs, first, true)?;
        let after_2 = self.launch(&inputs, second, false)?;
        let [mut host, mut host_2] =
            POISONS.map(|poison| inputs.iter().map(|input| input.host(poison)).collect::<Vec<_>>());
        // They take longer than all the rest, and know nothing of each other.
        std::thread::scope(|scope| {
            scope.spawn(|| (self.decl.reference)(&mut host_2));
            (self.decl.reference)(&mut host);
        });
        let mut found = Vec::new();
        for (index, input) in inputs.iter().enumerate() {
            let argument = self.decl.params[index].name;
            let compared = match input {
                Input::Write { codec, output, .. } => {
                    let (before, before_2) = (input.device(first), input.device(second));
                    let mut runs = [
                        Run { before: &before[0], after: &after[index][0], reference: &mut host[index] },
                        Run {
                            before: &before_2[0],
                            after: &after_2[index][0],
                            reference: &mut host_2[index],
                        },
                    ];
                    codec.compare(*output, &mut runs)
                }
                Input::Counter { value, mutable: true } => {
                    let wanted = host[index].counter();
                    let got = [&after, &after_2]
                        .map(|after| u32::from_le_bytes(after[index][0][..4].try_into().unwrap_or_default()));
                    compare_counter(*value, got, wanted)
                }
                _ => continue,
            };
            let compared = compared.map_err(|mismatch| self.element(argument, mismatch.to_string()))?;
            found.push((argument, compared));
        }
        Ok(found)
    }

    /// What each argument's buffers hold after a launch. Those that are only read are checked to be as they were.
    fn launch(&self, inputs: &[Input], poison: u8, guarded: bool) -> Result<Vec<Vec<Vec<u8>>>, CheckFailure> {
        let stream = self.device.stream().map_err(|source| self.failed(source))?;
        let memory = self.fill(&stream, inputs, poison, guarded)?;
        self.submit(&stream, inputs, &memory)?;
        let mut after = Vec::with_capacity(inputs.len());
        for (index, (input, buffers)) in inputs.iter().zip(&memory).enumerate() {
            let argument = self.decl.params[index].name;
            let mut held = Vec::with_capacity(buffers.len());
            for buffer in buffers {
                let bytes = buffer.read(&stream).map_err(|source| self.failed(source))?;
                let what = "is outside it, and was overwritten";
                held.push(bytes.map_err(|offset| self.stray(argument, offset, what))?);
            }
            let writable = matches!(input, Input::Write { .. } | Input::Counter { mutable: true, .. });
            for (before, after) in input.device(poison).iter().zip(&held) {
                let changed = before.iter().zip(after).position(|(before, after)| before != after);
                if let Some(offset) = changed.filter(|_| !writable) {
                    return Err(self.stray(
                        argument,
                        offset as i64,
                        "was overwritten, but the argument is only read",
                    ));
                }
            }
            after.push(held);
        }
        Ok(after)
    }

    /// One buffer for each plane of each argument that has any, holding what the launch is to find.
    fn fill(
        &self,
        stream: &Stream,
        inputs: &[Input],
        poison: u8,
        guarded: bool,
    ) -> Result<Vec<Vec<Memory>>, CheckFailure> {
        let mut memory = Vec::with_capacity(inputs.len());
        for (input, param) in inputs.iter().zip(self.decl.params) {
            let contents = input.device(poison);
            let buffers: Result<Vec<Memory>, DeviceError> = contents
                .iter()
                .map(|contents| Memory::new(self.device, stream, param.name, contents, guarded))
                .collect();
            memory.push(buffers.map_err(|source| self.failed(source))?);
        }
        Ok(memory)
    }

    /// Binds the buffers.
    fn bind(&self, inputs: &[Input], memory: &[Vec<Memory>]) -> Result<Launch, CheckFailure> {
        let buffers: Result<Vec<Vec<_>>, DeviceError> =
            memory.iter().map(|planes| planes.iter().map(Memory::buffer).collect()).collect();
        let buffers = buffers.map_err(|source| self.failed(source))?;
        let mut tensors = Vec::with_capacity(inputs.len());
        for (input, planes) in inputs.iter().zip(&buffers) {
            tensors.push(match input {
                Input::Tensor { format, shape: [rows, cols], .. } => Some(
                    RawTensor::new(*format, *rows, *cols, planes).map_err(|reason| self.bad_case(reason))?,
                ),
                _ => None,
            });
        }
        let args: Vec<Arg<'_>> = inputs
            .iter()
            .enumerate()
            .map(|(index, input)| match (input, tensors[index].as_ref()) {
                (_, Some(tensor)) => Arg::Tensor(tensor),
                (Input::Scalar(value), _) => Arg::Scalar(*value),
                (Input::Null, _) => Arg::Null,
                (Input::Read { codec, bytes } | Input::Write { codec, bytes, .. }, _) => Arg::Buffer {
                    buffer: buffers[index][0].clone(),
                    element: codec.name(),
                    len: codec.count(bytes.len()) as u64,
                },
                (Input::Counter { .. } | Input::Tensor { .. }, _) => {
                    Arg::Buffer { buffer: buffers[index][0].clone(), element: "u32", len: 1 }
                }
            })
            .collect();
        let launch = (self.decl.bind)(&args)
            .map_err(|source| CheckFailure::Launch { case: self.case.label.clone(), source })?;
        if launch.shared > SHARED_BY_DEFAULT {
            self.function.allow_shared(launch.shared).map_err(|source| self.failed(source))?;
        }
        Ok(launch)
    }

    /// Binds the buffers, launches and waits.
    fn submit(&self, stream: &Stream, inputs: &[Input], memory: &[Vec<Memory>]) -> Result<(), CheckFailure> {
        let launch = self.bind(inputs, memory)?;
        let run = launch.submit(stream, self.function).and_then(|()| stream.synchronize());
        run.map_err(|source| self.failed(source))
    }

    fn bad_case(&self, reason: String) -> CheckFailure {
        CheckFailure::Case { kernel: self.decl.name, case: self.case.label.clone(), reason }
    }

    fn failed(&self, source: DeviceError) -> CheckFailure {
        let (kernel, case) = (self.decl.name, self.case.label.clone());
        CheckFailure::Device { kernel, case, device: self.device.to_string(), source }
    }

    fn element(&self, argument: &'static str, what: String) -> CheckFailure {
        CheckFailure::Element { kernel: self.decl.name, case: self.case.label.clone(), argument, what }
    }

    fn stray(&self, argument: &'static str, offset: i64, what: &'static str) -> CheckFailure {
        CheckFailure::Stray { kernel: self.decl.name, case: self.case.label.clone(), argument, offset, what }
    }
}

/// A counter that is read and written: an integer that held the same value before both runs.
fn compare_counter(before: u32, got: [u32; 2], wanted: u32) -> Result<Compared, element::Mismatch> {
    if got != [wanted; 2] {
        let what = format!("{got:?} after two runs, the reference gives {wanted}");
        return Err(element::Mismatch { index: 0, what });
    }
    Ok(Compared { elements: u64::from(before != wanted), ..Compared::default() })
}
