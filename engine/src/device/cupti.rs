//! The device's own record of each kernel it ran, through CUPTI's activity interface.
//!
//! CUPTI (`libcupti`) is part of the CUDA toolkit, not of the driver, and nothing needs it but a trace: it is looked for when one
//! is asked for. Its records grow with its versions, by fields at their end, so only versions are accepted whose header
//! was read for the places used here: `CUpti_ActivityKernel9` (12.6 to 12.9), `…10` (13.0) and `…11` (13.1).

use std::alloc::{Layout, alloc, dealloc};
use std::env;
use std::ffi::{CStr, OsString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::Library;

/// Why there are no records.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TracerError {
    /// No library was found.
    #[error(
        "libcupti was not found (looked for {tried}): it comes with the CUDA toolkit, and as the Python package \
         `nvidia-cuda-cupti`; put libcupti.so.13 beside the program, or its folder into LD_LIBRARY_PATH"
    )]
    NotFound {
        /// What was tried.
        tried: String,
    },
    /// A version whose records are not known.
    #[error(
        "{library} has version {found}: known are 24 to 28 (CUDA 12.6 to 12.9) and 130000 to 130199 (CUDA 13.0 and 13.1)"
    )]
    Version {
        /// The library.
        library: String,
        /// Its version.
        found: u32,
    },
    /// The library lacks a function.
    #[error("{library} has no {function}")]
    Symbol {
        /// The library.
        library: String,
        /// The function.
        function: &'static str,
    },
    /// A call failed.
    #[error("{function}: {reason}")]
    Call {
        /// The function.
        function: &'static str,
        /// What it says.
        reason: String,
    },
    /// Records are being taken already.
    #[error("kernels are being recorded already, and there is one recorder a process")]
    Busy,
    /// Records were lost.
    #[error("{0} records were dropped")]
    Dropped(usize),
}

/// One kernel that the device ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelRecord {
    /// The entry's name.
    pub name: String,
    /// When it began, in nanoseconds of [`KernelTracer::now`]'s clock.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// The device's ordinal.
    pub device: u32,
    /// The stream that it ran on, by CUPTI's number.
    pub stream: u32,
    /// The graph node that it was, or 0.
    pub graph_node: u64,
}

/// `CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL`: kernels, without keeping them from overlapping.
const CONCURRENT_KERNEL: u32 = 10;
/// `CUPTI_ERROR_MAX_LIMIT_REACHED`: no further record in a buffer.
const NO_MORE: u32 = 12;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`
const FORCED: u32 = 1;
/// Bytes of a buffer that records are written to: some ten thousand of them.
const BUFFER_BYTES: usize = 4 << 20;
/// `ACTIVITY_RECORD_ALIGNMENT`
const ALIGNMENT: usize = 8;
/// Bytes of a kernel's record up to the last field used.
const RECORD_BYTES: usize = 160;

type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The functions used, as `cupti_activity.h` and `cupti_version.h` declare them. All return a `CUptiResult`.
struct Cupti {
    version: u32,
    result_string: unsafe extern "C" fn(u32, *mut *const c_char) -> u32,
    register_callbacks: unsafe extern "C" fn(Requested, Completed) -> u32,
    enable: unsafe extern "C" fn(u32) -> u32,
    disable: unsafe extern "C" fn(u32) -> u32,
    flush_all: unsafe extern "C" fn(u32) -> u32,
    next_record: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32,
    timestamp: unsafe extern "C" fn(*mut u64) -> u32,
    /// Never closed: it may call back as long as the process lives.
    _library: Library,
}

static CUPTI: OnceLock<Result<Cupti, TracerError>> = OnceLock::new();
static ACTIVE: AtomicBool = AtomicBool::new(false);
static RECORDS: Mutex<Records> = Mutex::new(Records { kernels: Vec::new(), dropped: 0 });

struct Records {
    kernels: Vec<KernelRecord>,
    dropped: usize,
}

fn records() -> MutexGuard<'static, Records> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the library may be, most specific first: beside the program, in a toolkit, where the loader looks.
fn candidates() -> Vec<PathBuf> {
    let program = env::current_exe().ok();
    let beside = program.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    let toolkits =
        ["CUDA_PATH", "CUDA_HOME"].into_iter().filter_map(|name| env::var_os(name).map(PathBuf::from));
    let toolkits = toolkits.chain([PathBuf::from("/usr/local/cuda")]);
    let folders = toolkits.flat_map(|root| [root.join("extras/CUPTI/lib64"), root.join("lib64")]);
    // The empty path is the loader's own list, LD_LIBRARY_PATH first.
    let folders: Vec<PathBuf> = beside.into_iter().chain(folders).chain([PathBuf::new()]).collect();
    let names = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];
    names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name))).collect()
}

fn open() -> Result<(Library, String), TracerError> {
    let mut tried: Vec<OsString> = Vec::new();
    for path in candidates() {
        // A file that is not there needs no loader to say so; a bare name is the loader's to find.
        if path.parent().is_some_and(|folder| folder != Path::new("")) && !path.is_file() {
            continue;
        }
        // SAFETY: loading runs the library's initialisers; CUPTI's have no preconditions.
        match unsafe { Library::new(&path) } {
            Ok(library) => return Ok((library, path.display().to_string())),
            Err(_) => tried.push(path.into_os_string()),
        }
    }
    let tried: Vec<String> = tried.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    Err(TracerError::NotFound { tried: tried.join(", ") })
}

/// Whether the records of this version are known.
fn known(version: u32) -> bool {
    matches!(version, 24..=28 | 130_000..=130_199)
}

impl Cupti {
    fn load() -> Result<Cupti, TracerError> {
        let (library, path) = open()?;
        macro_rules! symbol {
            ($name:literal: $ty:ty) => {{
                // SAFETY: the library's function of this name has this type, as the headers of the versions accepted say.
                let found = unsafe { library.get::<$ty>(concat!($name, "\0").as_bytes()) };
                *found.map_err(|_| TracerError::Symbol { library: path.clone(), function: $name })?
            }};
        }
        let get_version = symbol!("cuptiGetVersion": unsafe extern "C" fn(*mut u32) -> u32);
        let mut version = 0;
        // SAFETY: `version` is valid for the write. A failure leaves 0, which is no known version.
        unsafe { get_version(&mut version) };
        if !known(version) {
            return Err(TracerError::Version { library: path, found: version });
        }
        Ok(Cupti {
            version,
            result_string: symbol!("cuptiGetResultString": unsafe extern "C" fn(u32, *mut *const c_char) -> u32),
            register_callbacks: symbol!("cuptiActivityRegisterCallbacks": unsafe extern "C" fn(Requested, Completed) -> u32),
            enable: symbol!("cuptiActivityEnable": unsafe extern "C" fn(u32) -> u32),
            disable: symbol!("cuptiActivityDisable": unsafe extern "C" fn(u32) -> u32),
            flush_all: symbol!("cuptiActivityFlushAll": unsafe extern "C" fn(u32) -> u32),
            next_record: symbol!("cuptiActivityGetNextRecord": unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> u32),
            dropped: symbol!("cuptiActivityGetNumDroppedRecords": unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> u32),
            timestamp: symbol!("cuptiGetTimestamp": unsafe extern "C" fn(*mut u64) -> u32),
            _library: library,
        })
    }

    fn get() -> Result<&'static Cupti, TracerError> {
        CUPTI.get_or_init(Cupti::load).as_ref().map_err(TracerError::clone)
    }

    fn check(&self, result: u32, function: &'static str) -> Result<(), TracerError> {
        if result == 0 {
            return Ok(());
        }
        let mut words = ptr::null();
        // SAFETY: `words` is valid for the write; the function writes a pointer to a static string, or fails.
        let named = unsafe { (self.result_string)(result, &mut words) } == 0 && !words.is_null();
        let reason = if named {
            // SAFETY: as above.
            unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
        } else {
            format!("error {result}")
        };
        Err(TracerError::Call { function, reason })
    }
}

fn buffer_layout() -> Option<Layout> {
    Layout::from_size_align(BUFFER_BYTES, ALIGNMENT).ok()
}

/// CUPTI asks for memory for records.
///
/// # Safety
/// All three are valid for a write.
unsafe extern "C" fn buffer_requested(buffer: *mut *mut u8, bytes: *mut usize, most: *mut usize) {
    // SAFETY: the layout is not empty.
    let memory = buffer_layout().map_or(ptr::null_mut(), |layout| unsafe { alloc(layout) });
    // SAFETY: says the caller. 0 records at most means as many as fit.
    unsafe {
        *buffer = memory;
        *bytes = if memory.is_null() { 0 } else { BUFFER_BYTES };
        *most = 0;
    }
}

/// CUPTI gives memory back, with records in its first `valid` bytes.
///
/// # Safety
/// `buffer` came from [`buffer_requested`] and is given back once.
unsafe extern "C" fn buffer_completed(
    context: *mut c_void,
    stream: u32,
    buffer: *mut u8,
    _bytes: usize,
    valid: usize,
) {
    if buffer.is_null() {
        return;
    }
    if let Some(Ok(cupti)) = CUPTI.get() {
        let mut records = records();
        let mut record = ptr::null_mut();
        loop {
            // SAFETY: the buffer holds `valid` bytes of records; `record` is null or the one before.
            let result = unsafe { (cupti.next_record)(buffer, valid, &mut record) };
            if result == NO_MORE || result != 0 || record.is_null() {
                break;
            }
            // SAFETY: every record begins with its kind, and one of a kernel has at least this size.
            unsafe {
                if record.cast::<u32>().read_unaligned() == CONCURRENT_KERNEL {
                    let bytes = record.cast::<[u8; RECORD_BYTES]>().read_unaligned();
                    records.kernels.push(decode(&bytes, |name| name_at(name)));
                }
            }
        }
        let mut dropped = 0;
        // SAFETY: `dropped` is valid for the write; context and stream are those that CUPTI named.
        if unsafe { (cupti.dropped)(context, stream, &mut dropped) } == 0 {
            records.dropped += dropped;
        }
    }
    if let Some(layout) = buffer_layout() {
        // SAFETY: the memory came from `buffer_requested`, with this layout.
        unsafe { dealloc(buffer, layout) };
    }
}

/// The name that a record points to.
///
/// # Safety
/// `address` is null or that of a string which lives.
unsafe fn name_at(address: u64) -> String {
    let name: *const c_char = ptr::with_exposed_provenance(address as usize);
    if name.is_null() {
        return String::new();
    }
    // SAFETY: says the caller.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// A kernel's record, by the places of its fields in `CUpti_ActivityKernel9` and its successors (`offsetof` of the headers of
/// 12.6, 12.8, 12.9 and 13.0).
fn decode(record: &[u8; RECORD_BYTES], name: impl FnOnce(u64) -> String) -> KernelRecord {
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|i| record[at + i]));
    let long = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| record[at + i]));
    KernelRecord {
        start: long(16),
        end: long(24),
        device: word(40),
        stream: word(48),
        name: name(long(104)),
        graph_node: long(144),
    }
}

/// Records every kernel of the process while it lives.
#[derive(Debug)]
pub struct KernelTracer(());

impl KernelTracer {
    /// Begins to record. Graphs that were instantiated before may go unrecorded node by node: capture them after.
    ///
    /// # Errors
    /// No library, or one of an unknown version; what it says; a recorder that there is already.
    pub fn start() -> Result<KernelTracer, TracerError> {
        let cupti = Cupti::get()?;
        if ACTIVE.swap(true, Ordering::AcqRel) {
            return Err(TracerError::Busy);
        }
        let tracer = KernelTracer(());
        *records() = Records { kernels: Vec::new(), dropped: 0 };
        // SAFETY: both functions keep the contract of their types.
        let result = unsafe { (cupti.register_callbacks)(buffer_requested, buffer_completed) };
        cupti.check(result, "cuptiActivityRegisterCallbacks")?;
        // SAFETY: a kind that every version has.
        cupti.check(unsafe { (cupti.enable)(CONCURRENT_KERNEL) }, "cuptiActivityEnable")?;
        Ok(tracer)
    }

    /// What `cuptiGetVersion` says.
    ///
    /// # Errors
    /// None after a start.
    pub fn version(&self) -> Result<u32, TracerError> {
        Ok(Cupti::get()?.version)
    }

    /// Now, on the clock of the records, in nanoseconds.
    ///
    /// # Errors
    /// What the library says.
    pub fn now(&self) -> Result<u64, TracerError> {
        let cupti = Cupti::get()?;
        let mut now = 0;
        // SAFETY: `now` is valid for the write.
        cupti.check(unsafe { (cupti.timestamp)(&mut now) }, "cuptiGetTimestamp")?;
        Ok(now)
    }

    /// The kernels that have ended since the last call, in order of their beginning. Wait for the device first.
    ///
    /// # Errors
    /// What the library says; records that it had to drop.
    pub fn take(&self) -> Result<Vec<KernelRecord>, TracerError> {
        let cupti = Cupti::get()?;
        // SAFETY: no arguments to get wrong; the callbacks are registered.
        cupti.check(unsafe { (cupti.flush_all)(FORCED) }, "cuptiActivityFlushAll")?;
        let Records { mut kernels, dropped } =
            std::mem::replace(&mut *records(), Records { kernels: Vec::new(), dropped: 0 });
        if dropped > 0 {
            return Err(TracerError::Dropped(dropped));
        }
        kernels.sort_by_key(|kernel| kernel.start);
        Ok(kernels)
    }
}

impl Drop for KernelTracer {
    fn drop(&mut self) {
        if let Ok(cupti) = Cupti::get() {
            // SAFETY: as in `start` and `take`. A failure leaves nothing to be done.
            unsafe {
                (cupti.disable)(CONCURRENT_KERNEL);
                (cupti.flush_all)(FORCED);
            }
        }
        ACTIVE.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places are `offsetof` of a C compiler over the headers of CUDA 12.6, 12.8, 12.9 and 13.0, which agree.
    #[test]
    fn a_record_is_read_where_the_header_puts_its_fields() {
        let mut record = [0xee; RECORD_BYTES];
        for (at, value) in [(16, 1_000_000_007u64), (24, 1_000_003_000), (104, 0x7f00_1234_5678), (144, 42)] {
            record[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        for (at, value) in [(0, CONCURRENT_KERNEL), (40, 1), (48, 13)] {
            record[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        let read = decode(&record, |address| format!("{address:#x}"));
        let name = "0x7f0012345678".to_owned();
        let (start, end) = (1_000_000_007, 1_000_003_000);
        assert_eq!(read, KernelRecord { name, start, end, device: 1, stream: 13, graph_node: 42 });
    }

    #[test]
    fn unknown_versions_are_refused_by_name() {
        assert!([24, 26, 28, 130_001, 130_101].into_iter().all(known));
        assert!([0, 17, 23, 29, 130_200, 140_000].into_iter().all(|version| !known(version)));
        let error = TracerError::Version { library: "libcupti.so.14".to_owned(), found: 140_000 };
        let text = error.to_string();
        assert!(
            text.contains("libcupti.so.14") && text.contains("140000") && text.contains("13.0"),
            "{text}"
        );
    }

    #[test]
    fn the_library_is_looked_for_beside_the_program_first_and_where_the_loader_looks_last() {
        let paths = candidates();
        assert!(paths[0].ends_with("libcupti.so.13") && paths[0].is_absolute(), "{paths:?}");
        assert_eq!(paths.last(), Some(&PathBuf::from("libcupti.so")));
    }
}
