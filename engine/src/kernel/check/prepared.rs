//! A case to launch over and over.

use super::{Check, CheckFailure, POISONS, case};
use crate::device::{Access, Buffer, Device, DeviceError, Function, RawBuffer, Stream};
use crate::kernel::{ArgSlot, Case, KernelDecl, Launch};

/// A case of a kernel, bound to buffers that hold what `kernel-check` puts there: what a benchmark launches over and over.
#[derive(Debug)]
pub struct PreparedCase {
    launch: Launch,
    function: Function,
}

/// A pointer argument's memory as bytes.
fn bytes_of(buffer: &RawBuffer) -> Result<Buffer<u8>, DeviceError> {
    let start = buffer.byte_offset();
    Buffer::from_allocation(buffer.allocation())?.slice(start..start + buffer.bytes())
}

impl PreparedCase {
    /// Allocates and fills the case's buffers on `device`, where `function` is the kernel's entry as loaded.
    ///
    /// # Errors
    /// A case that does not fit the declaration, or a device that fails.
    pub fn new(
        decl: &'static KernelDecl,
        device: &Device,
        function: &Function,
        case: &Case,
    ) -> Result<PreparedCase, CheckFailure> {
        let check = Check { decl, device, function, case };
        let inputs = case::inputs(decl, case).map_err(|reason| check.bad_case(reason))?;
        let stream = device.stream().map_err(|source| check.failed(source))?;
        let memory = check.fill(&stream, &inputs, POISONS[0], false)?;
        // The launch holds the buffers from here on.
        Ok(PreparedCase { launch: check.bind(&inputs, &memory)?, function: function.clone() })
    }

    /// The launch.
    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Whether a launch changes what the next one finds: a counter that advances would soon point past every buffer.
    pub fn has_state(&self) -> bool {
        self.launch
            .args
            .slots()
            .iter()
            .any(|slot| matches!(slot, ArgSlot::Pointer { access: Access::ReadWrite, .. }))
    }

    /// Bytes of all arguments' memory.
    pub fn bytes(&self) -> u64 {
        let bytes = |slot: &ArgSlot| match slot {
            ArgSlot::Pointer { buffer, .. } => buffer.bytes() as u64,
            _ => 0,
        };
        self.launch.args.slots().iter().map(bytes).sum()
    }

    /// The same case in memory of its own, holding what this one's memory holds now. Queued on `stream`.
    ///
    /// # Errors
    /// Out of memory; what the device says.
    pub fn duplicate(&self, stream: &Stream) -> Result<PreparedCase, DeviceError> {
        let mut launch = self.launch.clone();
        for slot in launch.args.slots_mut() {
            if let ArgSlot::Pointer { buffer, .. } = slot {
                let copy = Buffer::<u8>::new(buffer.device(), buffer.bytes(), buffer.name())?;
                stream.copy(&copy, &bytes_of(buffer)?)?;
                *buffer = copy.raw();
            }
        }
        Ok(PreparedCase { launch, function: self.function.clone() })
    }

    /// Gives the arguments that are read and written the contents that `first`'s have, of which this is a duplicate. Queued
    /// on `stream`.
    ///
    /// # Errors
    /// What the device says.
    pub fn restore(&self, stream: &Stream, first: &PreparedCase) -> Result<(), DeviceError> {
        let pairs = self.launch.args.slots().iter().zip(first.launch.args.slots());
        for pair in pairs {
            if let (
                ArgSlot::Pointer { buffer, access: Access::ReadWrite, .. },
                ArgSlot::Pointer { buffer: contents, .. },
            ) = pair
            {
                stream.copy(&bytes_of(buffer)?, &bytes_of(contents)?)?;
            }
        }
        Ok(())
    }

    /// Queues it once.
    ///
    /// # Errors
    /// What the device says.
    pub fn submit(&self, stream: &Stream) -> Result<(), DeviceError> {
        self.launch.submit(stream, &self.function)
    }
}
