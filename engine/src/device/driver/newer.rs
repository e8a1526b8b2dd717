//! Driver functions that are newer than `cust_raw`'s CUDA 11.4 bindings, and those whose arguments its enums are
//! too narrow for. Structures are laid out as `cuda.h` of CUDA 13.0 has them.

use super::{CallSlot, forward};
use cust_raw::{CUfunction, CUgraph, CUgraphNode, CUresult, CUstream};
use std::ffi::{c_char, c_void};

/// `CUlaunchConfig`.
#[repr(C)]
pub(in super::super) struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: CUstream,
    pub attributes: *const LaunchAttribute,
    pub attribute_count: u32,
}

/// `CUlaunchAttribute`: an id, padding to 8 bytes, and a union of 64 bytes.
#[repr(C)]
pub(in super::super) struct LaunchAttribute {
    id: u32,
    padding: u32,
    value: [u64; 8],
}

const _: () = assert!(size_of::<LaunchAttribute>() == 72 && size_of::<LaunchConfig>() == 56);

impl LaunchAttribute {
    /// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`: all blocks are resident at once.
    pub(in super::super) const COOPERATIVE: Self = Self::flag(2);
    /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`: the kernel may start before its predecessor ends.
    pub(in super::super) const PROGRAMMATIC: Self = Self::flag(6);

    /// An attribute whose value is a C `int` of 1.
    const fn flag(id: u32) -> Self {
        Self {
            id,
            padding: 0,
            value: [if cfg!(target_endian = "little") { 1 } else { 1 << 32 }, 0, 0, 0, 0, 0, 0, 0],
        }
    }
}

/// `CUgraphEdgeData`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(in super::super) struct EdgeData {
    pub from_port: u8,
    pub to_port: u8,
    /// `CUgraphDependencyType`: 0 full, 1 programmatic.
    pub kind: u8,
    reserved: [u8; 5],
}

forward! {
    [] pub(in super::super) unsafe extern "C":
    cuLaunchKernelEx(config: *const LaunchConfig, f: CUfunction, params: *mut *mut c_void, extra: *mut *mut c_void);
    cuFuncGetParamInfo(func: CUfunction, index: usize, offset: *mut usize, size: *mut usize);
    cuFuncLoad(func: CUfunction);
    cuGraphGetEdges_v2(graph: CUgraph, from: *mut CUgraphNode, to: *mut CUgraphNode, data: *mut EdgeData, count: *mut usize);
}

/// `cuGetErrorName` and `cuGetErrorString` with any code, those that `cust_raw`'s enum lacks included, and without
/// touching the remembered failure.
macro_rules! error_words {
    ($($(#[$doc:meta])* $name:ident = $symbol:literal;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// `text` is valid for a write.
        pub(super) unsafe fn $name(code: u32, text: *mut *const c_char) -> u32 {
            static SLOT: CallSlot = CallSlot::new($symbol);
            // Any failure code will do: the caller only tells 0 from the rest.
            let Some(function) = SLOT.function() else { return 1 };
            // SAFETY: both functions have this signature.
            let function = unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(u32, *mut *const c_char) -> u32>(function)
            };
            // SAFETY: `text` is valid, says the caller.
            unsafe { function(code, text) }
        }
    )* };
}

error_words! {
    /// The name of a code.
    error_name = c"cuGetErrorName";
    /// The description of a code.
    error_string = c"cuGetErrorString";
}
