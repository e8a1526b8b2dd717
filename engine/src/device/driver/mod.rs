//! The NVIDIA driver library, found at run time.
//!
//! Nothing here is linked against `libcuda`: the library is opened when the first function is called, and each
//! function is looked up once. So one binary, built with only Rust, uses a GPU where there is one. That the
//! library is missing and that it lacks a function are different errors.
//!
//! - `forwarders`: the functions that `cust` links against, under their C names
//! - `newer`: functions that are newer than `cust_raw`'s bindings

mod forwarders;
pub(super) mod newer;

use super::error::DeviceError;
use cust_raw::{CUresult, cudaError_enum};
use libloading::Library;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

#[cfg(unix)]
const LIBRARY: &str = "libcuda.so.1";
#[cfg(not(unix))]
const LIBRARY: &str = "nvcuda.dll";

/// Opens a library without making its symbols visible to others: the names defined here must not be answered
/// by the library itself, nor the other way round.
fn open(name: &str) -> Result<Library, String> {
    #[cfg(unix)]
    {
        use libloading::os::unix::{Library as Unix, RTLD_LOCAL, RTLD_NOW};
        // SAFETY: loading runs the library's initialisers; the driver's have no preconditions.
        let library = unsafe { Unix::open(Some(name), RTLD_NOW | RTLD_LOCAL) };
        library.map(Library::from).map_err(|error| words(&error))
    }
    #[cfg(not(unix))]
    {
        // SAFETY: as above.
        unsafe { Library::new(name) }.map_err(|error| words(&error))
    }
}

/// The loader's own words, which the error carries as its source.
fn words(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

fn library() -> Result<&'static Library, &'static str> {
    static DRIVER: OnceLock<Result<Library, String>> = OnceLock::new();
    DRIVER.get_or_init(|| open(LIBRARY)).as_ref().map_err(String::as_str)
}

/// Checks that there is a driver library and that it has the functions whose absence would mean a driver that is
/// too old or damaged.
///
/// # Errors
/// [`DeviceError::NoDriver`], [`DeviceError::MissingSymbol`].
pub(super) fn require() -> Result<(), DeviceError> {
    let library = library().map_err(|reason| DeviceError::NoDriver { reason: reason.to_owned() })?;
    REQUIRED.iter().try_for_each(|name| if has(library, name) { Ok(()) } else { Err(missing(name)) })
}

/// What a driver must have before anything is tried: the newest functions used, and the first one called.
const REQUIRED: [&CStr; 6] = [
    c"cuInit",
    c"cuLaunchKernelEx",
    c"cuFuncGetParamInfo",
    c"cuGraphGetEdges_v2",
    c"cuGraphInstantiateWithFlags",
    c"cuGraphExecKernelNodeSetParams",
];

fn has(library: &Library, name: &CStr) -> bool {
    // SAFETY: the symbol is only looked up; its type is never used.
    unsafe { library.get::<*const c_void>(name.to_bytes_with_nul()) }.is_ok()
}

fn missing(name: &'static CStr) -> DeviceError {
    DeviceError::MissingSymbol { symbol: name.to_str().unwrap_or("(not UTF-8)") }
}

/// The place where a forwarder keeps the function it forwards to.
pub(super) struct CallSlot {
    name: &'static CStr,
    /// Null before the first call; then the function, or [`ABSENT`].
    function: AtomicPtr<c_void>,
}

/// Marks a function that was looked for and not found. No function has this address.
const ABSENT: *mut c_void = ptr::without_provenance_mut(1);

impl CallSlot {
    pub(super) const fn new(name: &'static CStr) -> Self {
        Self { name, function: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The function, looked up at the first call.
    pub(super) fn function(&self) -> Option<*mut c_void> {
        let mut function = self.function.load(Ordering::Acquire);
        if function.is_null() {
            function = library().ok().map_or(ABSENT, |library| {
                // SAFETY: the symbol is taken as an address only; the forwarder gives it its type.
                let symbol = unsafe { library.get::<unsafe extern "C" fn()>(self.name.to_bytes_with_nul()) };
                symbol.map_or(ABSENT, |function| *function as *mut c_void)
            });
            self.function.store(function, Ordering::Release);
        }
        (function != ABSENT).then_some(function)
    }

    /// The result of a call whose function is not there.
    pub(super) fn absent(&self) -> CUresult {
        FAILURE.set(Failure::Absent(self.name));
        if library().is_ok() {
            cudaError_enum::CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND
        } else {
            cudaError_enum::CUDA_ERROR_NO_DEVICE
        }
    }

    /// Remembers a failure for the message, and gives its code as one that `cust_raw`'s enum has: a newer driver
    /// returns codes that would be no value of the enum.
    pub(super) fn result(&self, code: u32) -> CUresult {
        if code == 0 {
            return cudaError_enum::CUDA_SUCCESS;
        }
        FAILURE.set(Failure::Code(self.name, code));
        if KNOWN.binary_search(&code).is_err() {
            return cudaError_enum::CUDA_ERROR_UNKNOWN;
        }
        // SAFETY: the enum is `repr(u32)`, and `KNOWN` lists its values.
        unsafe { std::mem::transmute::<u32, CUresult>(code) }
    }
}

/// The values of `cust_raw`'s `CUresult`, ascending.
const KNOWN: [u32; 87] = [
    0, 1, 2, 3, 4, 5, 6, 7, 8, 34, 100, 101, 102, 200, 201, 202, 205, 206, 207, 208, 209, 210, 211, 212, 213,
    214, 215, 216, 217, 218, 219, 220, 221, 222, 223, 224, 300, 301, 302, 303, 304, 400, 401, 500, 600, 700,
    701, 702, 703, 704, 705, 708, 709, 710, 711, 712, 713, 714, 715, 716, 717, 718, 719, 720, 800, 801, 802,
    803, 804, 805, 806, 807, 808, 809, 900, 901, 902, 903, 904, 905, 906, 907, 908, 909, 910, 911, 999,
];

/// What the last failing call of a thread was.
#[derive(Clone, Copy)]
enum Failure {
    None,
    Absent(&'static CStr),
    Code(&'static CStr, u32),
}

thread_local! {
    static FAILURE: Cell<Failure> = const { Cell::new(Failure::None) };
}

/// The code and the description of this thread's last failing call, which must just have failed: the driver's code, which
/// `cust`'s error types do not always have, and its name and text.
pub(super) struct LastFailure {
    /// The driver's code, 0 when the function is missing.
    pub code: u32,
    /// `cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (out of memory)`.
    pub text: String,
    /// The function, when the library lacks it.
    pub absent: Option<&'static CStr>,
}

pub(super) fn last_failure() -> LastFailure {
    match FAILURE.get() {
        Failure::None => LastFailure { code: 0, text: "no call failed".to_owned(), absent: None },
        Failure::Absent(name) => {
            let text = format!("the driver library has no {}", name.to_string_lossy());
            LastFailure { code: 0, text, absent: Some(name) }
        }
        Failure::Code(name, code) => {
            let text = format!("{}: {}", name.to_string_lossy(), describe(code));
            LastFailure { code, text, absent: None }
        }
    }
}

/// The driver's name and words for a code.
fn describe(code: u32) -> String {
    let word = |function: unsafe fn(u32, *mut *const c_char) -> u32| {
        let mut text = ptr::null();
        // SAFETY: the function writes a pointer to a static string, or fails and leaves null.
        let found = unsafe { function(code, &mut text) } == 0 && !text.is_null();
        // SAFETY: as above.
        found.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    };
    match (word(newer::error_name), word(newer::error_string)) {
        (Some(name), Some(text)) => format!("{name} ({text})"),
        (Some(name), None) => name,
        _ => format!("error {code}"),
    }
}

/// Defines functions that forward to the driver library: attributes in brackets, then a visibility, then signatures.
macro_rules! forward {
    ($attributes:tt $vis:vis unsafe extern "C": $($name:ident($($arg:ident: $ty:ty),*);)*) => {
        $( forward! { @one $attributes $vis $name($($arg: $ty),*) } )*
    };
    (@one [$(#[$attribute:meta])*] $vis:vis $name:ident($($arg:ident: $ty:ty),*)) => {
        $(#[$attribute])*
        #[allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]
        $vis unsafe extern "C" fn $name($($arg: $ty),*) -> CUresult {
            static SLOT: CallSlot = CallSlot::new(const {
                match ::std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("a function's name holds a zero"),
                }
            });
            let Some(function) = SLOT.function() else { return SLOT.absent() };
            // SAFETY: the library's function of this name has this signature; its result is taken as the plain
            // integer it is.
            let function = unsafe {
                ::std::mem::transmute::<*mut ::std::ffi::c_void, unsafe extern "C" fn($($ty),*) -> u32>(function)
            };
            // SAFETY: the caller keeps the function's contract.
            SLOT.result(unsafe { function($($arg),*) })
        }
    };
}
use forward;

/// Turns a driver call's result into an error with the driver's words. `device` names the device, `call` the operation.
///
/// # Errors
/// [`DeviceError::Call`], [`DeviceError::MissingSymbol`].
pub(super) fn check(result: CUresult, call: &'static str, device: &str) -> Result<(), DeviceError> {
    if result == cudaError_enum::CUDA_SUCCESS { Ok(()) } else { Err(failure(call, device)) }
}

/// The error for this thread's last failing call.
pub(super) fn failure(call: &'static str, device: &str) -> DeviceError {
    let last = last_failure();
    match last.absent {
        Some(name) => missing(name),
        None => DeviceError::Call { call, device: device.to_owned(), reason: last.text },
    }
}

/// The CUDA version that each version of the PTX language came with, newest first: PTX ISA, release notes.
const PTX_RELEASES: [((u32, u32), (u32, u32)); 19] = [
    ((9, 1), (13, 1)),
    ((9, 0), (13, 0)),
    ((8, 8), (12, 9)),
    ((8, 7), (12, 8)),
    ((8, 6), (12, 7)),
    ((8, 5), (12, 5)),
    ((8, 4), (12, 4)),
    ((8, 3), (12, 3)),
    ((8, 2), (12, 2)),
    ((8, 1), (12, 1)),
    ((8, 0), (12, 0)),
    ((7, 8), (11, 8)),
    ((7, 7), (11, 7)),
    ((7, 6), (11, 6)),
    ((7, 5), (11, 5)),
    ((7, 4), (11, 4)),
    ((7, 3), (11, 3)),
    ((7, 2), (11, 2)),
    ((7, 1), (11, 1)),
];

/// The version in a PTX text's `.version` directive.
pub(super) fn ptx_version(ptx: &str) -> Option<(u32, u32)> {
    let directive = ptx.lines().find_map(|line| line.trim_start().strip_prefix(".version"))?;
    let (major, minor) = directive.split_whitespace().next()?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The CUDA version that a PTX version needs; a PTX version newer than the list needs more than the newest known.
fn cuda_for_ptx(ptx: (u32, u32)) -> (u32, u32) {
    let known = PTX_RELEASES.iter().rev().find(|(version, _)| *version >= ptx);
    known.map_or((ptx.0 + 4, ptx.1), |(_, cuda)| *cuda)
}

/// Checks that a driver that supports CUDA `driver` can compile this PTX.
///
/// # Errors
/// [`DeviceError::DriverTooOld`] with both versions.
pub(super) fn check_ptx_version(ptx: &str, driver: (u32, u32)) -> Result<(), DeviceError> {
    let Some(version) = ptx_version(ptx) else { return Ok(()) };
    let needed = cuda_for_ptx(version);
    // A driver of the same major version compiles older PTX of that version only: minor versions count.
    if driver < needed { Err(DeviceError::DriverTooOld { found: driver, needed }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_told_with_the_loader_s_words() {
        let error = open("libno-such-driver.so.1").unwrap_err();
        assert!(error.contains("libno-such-driver.so.1"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn a_missing_function_is_told_apart_from_a_missing_library() {
        // Any library will do; this one is where the standard library's functions come from.
        let libc = open("libc.so.6").unwrap();
        assert!(has(&libc, c"strlen"));
        assert!(!has(&libc, c"cuLaunchKernelEx"));
        let text = missing(c"cuLaunchKernelEx").to_string();
        assert!(text.contains("`cuLaunchKernelEx`") && text.contains("580"), "{text}");
    }

    #[test]
    fn ptx_newer_than_the_driver_is_told_with_both_versions() {
        let ptx = "//\n// Generated\n.version 9.0\n.target sm_80\n";
        assert_eq!(ptx_version(ptx), Some((9, 0)));
        check_ptx_version(ptx, (13, 0)).unwrap();
        check_ptx_version(ptx, (13, 1)).unwrap();
        let text = check_ptx_version(ptx, (12, 8)).unwrap_err().to_string();
        assert!(text.contains("CUDA 12.8") && text.contains("CUDA 13.0"), "{text}");
        check_ptx_version(".version 8.6\n", (12, 7)).unwrap();
        check_ptx_version(".version 8.6\n", (12, 6)).unwrap_err();
        check_ptx_version(".version 6.0\n", (11, 1)).unwrap();
        check_ptx_version(".version 12.3\n", (13, 1)).unwrap_err();
    }

    #[test]
    fn codes_that_the_bindings_do_not_have_become_unknown_and_are_remembered() {
        let slot = CallSlot::new(c"cuTest");
        assert!(KNOWN.is_sorted());
        assert_eq!(slot.result(0), cudaError_enum::CUDA_SUCCESS);
        assert_eq!(slot.result(2), cudaError_enum::CUDA_ERROR_OUT_OF_MEMORY);
        assert_eq!(slot.result(912), cudaError_enum::CUDA_ERROR_UNKNOWN);
        let last = last_failure();
        assert_eq!(last.code, 912);
        assert!(last.text.contains("cuTest") && last.text.contains("912"), "{}", last.text);
    }
}
