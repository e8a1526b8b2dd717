//! The engine's kernels, each compiled when it is first asked for.
//!
//! Compiling PTX is the driver's work and takes it tens of milliseconds a kernel, so that all kernels of all models and
//! formats would take seconds. A model needs some twenty: a kernel is loaded by itself, its module's text without the other
//! entries, when a plan first names it. Plans are built outside of captures, where loading is refused.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bitwalk_kernels::Arch;

use crate::device::{Device, Function};
use crate::engine::EngineError;
use crate::kernel::{EntryParam, KERNELS, KernelDecl};

/// What loading kernels took so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct KernelLoads {
    /// Kernels that were loaded.
    pub kernels: u64,
    /// Their parameters, each compared with its declaration.
    pub params: u64,
    /// Time in the device's compiler and in the comparison, of all threads together.
    pub time: Duration,
}

impl AddAssign for KernelLoads {
    fn add_assign(&mut self, other: Self) {
        self.kernels += other.kernels;
        self.params += other.params;
        self.time += other.time;
    }
}

/// One declared kernel.
#[derive(Debug, Default)]
struct Slot {
    function: OnceLock<Function>,
    /// Held while it is being loaded: a second thread that asks for it waits, and other kernels can be loaded meanwhile.
    loading: Mutex<()>,
}

/// Every declared kernel of one PTX target on one device.
#[derive(Debug)]
pub(crate) struct Modules {
    device: Device,
    arch: Arch,
    /// The modules' texts by name.
    texts: HashMap<&'static str, Cow<'static, str>>,
    slots: HashMap<&'static str, Slot>,
    kernels: AtomicU64,
    params: AtomicU64,
    nanoseconds: AtomicU64,
}

impl Modules {
    /// Nothing is loaded yet. `edit` is given each module's name and text.
    pub fn new(
        device: &Device,
        arch: Arch,
        edit: &dyn Fn(&str, &'static str) -> Cow<'static, str>,
    ) -> Modules {
        let texts = bitwalk_kernels::modules(arch).iter().map(|ptx| (ptx.name, edit(ptx.name, ptx.text)));
        let engine_s = KERNELS.iter().filter(|decl| !decl.module.starts_with("test_"));
        Modules {
            device: device.clone(),
            arch,
            texts: texts.collect(),
            slots: engine_s.map(|decl| (decl.name, Slot::default())).collect(),
            kernels: AtomicU64::new(0),
            params: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
        }
    }

    /// The function of a declared kernel, loaded and compared with the declaration at the first call.
    pub fn function(&self, decl: &'static KernelDecl) -> Result<&Function, EngineError> {
        let absent = || EngineError::NoEntry { kernel: decl.name, module: decl.module, entry: decl.entry };
        let slot = self.slots.get(decl.name).ok_or_else(absent)?;
        if let Some(function) = slot.function.get() {
            return Ok(function);
        }
        // The lock guards no data.
        let _loading = slot.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = slot.function.get() {
            return Ok(function);
        }
        let start = Instant::now();
        let text = self.texts.get(decl.module).ok_or_else(absent)?;
        let text = single_entry(text, decl.entry).ok_or_else(absent)?;
        let failed = |source| EngineError::Module { module: decl.module, arch: self.arch.name(), source };
        let module = self.device.load_module(decl.module, &text).map_err(failed)?;
        let function = module.function(decl.entry).map_err(failed)?;
        let info = function.info();
        let params: Vec<EntryParam> = info
            .params
            .iter()
            .map(|p| EntryParam { offset: p.offset, size: p.size, align: p.align })
            .collect();
        decl.check_abi(&params, info.max_threads)?;
        decl.check_dependence(&info.dependence, self.arch.has_dependent_launch())?;
        self.kernels.fetch_add(1, Ordering::Relaxed);
        self.params.fetch_add(params.len() as u64, Ordering::Relaxed);
        self.nanoseconds.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        Ok(slot.function.get_or_init(|| function))
    }

    /// What was loaded so far.
    pub fn loads(&self) -> KernelLoads {
        KernelLoads {
            kernels: self.kernels.load(Ordering::Relaxed),
            params: self.params.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.nanoseconds.load(Ordering::Relaxed)),
        }
    }
}

/// A module's text with no other entry than `entry`; `None` if it has no such entry. What stands outside of entries stays, and
/// so do line numbers.
///
/// It relies on how nvcc writes: an entry begins with `.visible .entry NAME(` and ends with the first brace at the start of a
/// line.
fn single_entry(text: &str, entry: &str) -> Option<String> {
    const START: &str = ".visible .entry ";
    let mut single = String::with_capacity(text.len() / 4);
    let (mut found, mut dropping) = (false, false);
    for line in text.split_inclusive('\n') {
        if let Some(rest) = line.strip_prefix(START) {
            let name = rest.split(|c: char| c == '(' || c.is_whitespace()).next();
            let wanted = name == Some(entry);
            found |= wanted;
            dropping = !wanted;
        }
        single.push_str(if dropping { "\n" } else { line });
        if line.starts_with('}') {
            dropping = false;
        }
    }
    found.then_some(single)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceSpec;
    use ptx_sim::census;

    #[test]
    fn an_entry_by_itself_is_the_entry_in_its_module() {
        for arch in [Arch::Compute80, Arch::Compute90] {
            for module in bitwalk_kernels::modules(arch) {
                let whole = census(module.name, module.text).unwrap();
                assert!(!whole.entries.is_empty());
                for entry in &whole.entries {
                    let text = single_entry(module.text, &entry.name).unwrap();
                    let alone = census(module.name, &text).unwrap();
                    assert_eq!(alone.entries, std::slice::from_ref(entry), "{} {}", arch.name(), module.name);
                    let line_of = |text: &str| {
                        text.lines().position(|l| l.contains(&format!(".entry {}(", entry.name)))
                    };
                    assert_eq!(line_of(&text), line_of(module.text));
                    assert_eq!(text.matches(".entry").count(), 1);
                }
            }
        }
    }

    #[test]
    fn what_is_outside_of_entries_stays() {
        let text = ".version 9.0\n\t// .globl\ta\n.visible .entry a(\n)\n{\n\tret;\n}\n\
                    .shared .b8 s[4];\n.visible .entry ab(\n)\n{\n\t{\n\t}\n\tret;\n\n}\n";
        let a = single_entry(text, "a").unwrap();
        assert_eq!(
            a,
            ".version 9.0\n\t// .globl\ta\n.visible .entry a(\n)\n{\n\tret;\n}\n.shared .b8 s[4];\n\n\n\n\n\n\n\n\n"
        );
        let ab = single_entry(text, "ab").unwrap();
        assert_eq!(
            ab,
            ".version 9.0\n\t// .globl\ta\n\n\n\n\n\n.shared .b8 s[4];\n.visible .entry ab(\n)\n{\n\t{\n\t}\n\tret;\n\n}\n"
        );
        assert_eq!(single_entry(text, "b"), None);
    }

    fn modules(edit: &dyn Fn(&str, &'static str) -> Cow<'static, str>) -> Modules {
        Modules::new(&Device::open(DeviceSpec::Sim(0)).unwrap(), Arch::Compute90, edit)
    }

    fn decl(name: &str) -> &'static KernelDecl {
        crate::kernel::by_name(name).unwrap()
    }

    #[test]
    fn a_kernel_is_loaded_once_whoever_asks() {
        let modules = modules(&|_, text| Cow::Borrowed(text));
        assert_eq!(modules.loads(), KernelLoads::default());
        let advance = decl("advance");
        let functions: Vec<Function> = std::thread::scope(|scope| {
            let asking: Vec<_> =
                (0..4).map(|_| scope.spawn(|| modules.function(advance).unwrap().clone())).collect();
            asking.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(functions.iter().all(|function| *function == functions[0]));
        let loads = modules.loads();
        assert_eq!((loads.kernels, loads.params), (1, advance.slots().count() as u64));
    }

    #[test]
    fn faults_are_told_when_the_kernel_is_asked_for() {
        let modules = modules(&|module, text| match module {
            "fill" => Cow::Owned(text.replace(".visible .entry fill_words(", ".visible .entry other(")),
            "activation" => Cow::Owned(text.replace("ret;", "no such opcode;")),
            _ => Cow::Borrowed(text),
        });
        let error = modules.function(decl("fill_words")).unwrap_err();
        assert!(matches!(error, EngineError::NoEntry { module: "fill", entry: "fill_words", .. }), "{error}");
        let activation = KERNELS.iter().find(|decl| decl.module == "activation").unwrap();
        let error = modules.function(activation).unwrap_err();
        assert!(matches!(error, EngineError::Module { module: "activation", .. }), "{error}");
        assert_eq!(modules.loads(), KernelLoads::default());
        modules.function(decl("fill_f32")).unwrap();
    }
}
