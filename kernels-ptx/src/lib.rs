//! The PTX of bitwalk's kernels, embedded.
//!
//! The sources are `src/*.cu` and `src/*.cuh`; `cargo xtask ptx` compiles them for two targets into `ptx/<arch>/`, which is
//! checked in, so that building this crate needs no CUDA toolkit.

mod modules;

/// The virtual architecture that a module is built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// Ampere and later, compute capability 8.0.
    Compute80,
    /// Hopper and later, compute capability 9.0.
    Compute90,
}

impl Arch {
    /// The richest target that a device of compute capability `major.minor` runs; `None` below 8.0.
    pub fn for_capability(major: u32, minor: u32) -> Option<Self> {
        match (major, minor) {
            (9.., _) => Some(Self::Compute90),
            (8, _) => Some(Self::Compute80),
            _ => None,
        }
    }

    /// Whether PTX for it knows programmatic dependent launch (`griddepcontrol`).
    pub const fn has_dependent_launch(self) -> bool {
        matches!(self, Self::Compute90)
    }

    /// As nvcc names it, `compute_90`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Compute80 => "compute_80",
            Self::Compute90 => "compute_90",
        }
    }
}

/// One compiled translation unit.
#[derive(Clone, Copy, Debug)]
pub struct PtxModule {
    /// The `.cu` file's stem, which kernel declarations name as `module`.
    pub name: &'static str,
    /// What it was built for.
    pub arch: Arch,
    /// The PTX.
    pub text: &'static str,
}

/// One line of the generated list.
const fn module(name: &'static str, arch: Arch, text: &'static str) -> PtxModule {
    PtxModule { name, arch, text }
}

/// Every module built for `arch`, by name.
pub fn modules(arch: Arch) -> &'static [PtxModule] {
    match arch {
        Arch::Compute80 => modules::COMPUTE_80,
        Arch::Compute90 => modules::COMPUTE_90,
    }
}

/// Kernels that the simulated device's checkers must catch, or must not flag, each built for one target. They ship with no
/// engine.
pub fn corpus() -> &'static [PtxModule] {
    modules::CORPUS
}

#[cfg(test)]
mod tests {
    use super::{Arch, modules};

    #[test]
    fn both_targets_hold_the_same_modules_and_entries() {
        let entries = |arch| -> Vec<(&str, Vec<&str>)> {
            modules(arch)
                .iter()
                .map(|m| (m.name, m.text.lines().filter(|l| l.contains(".entry")).collect()))
                .collect()
        };
        assert!(!modules(Arch::Compute80).is_empty());
        assert_eq!(entries(Arch::Compute80), entries(Arch::Compute90));
    }

    #[test]
    fn each_module_targets_its_architecture() {
        for arch in [Arch::Compute80, Arch::Compute90] {
            let target = format!(".target {}", arch.name().replace("compute", "sm"));
            for module in modules(arch) {
                assert_eq!(module.arch, arch);
                assert!(module.text.lines().any(|l| l.trim_end() == target), "{}", module.name);
            }
        }
    }

    #[test]
    fn the_target_is_the_richest_a_device_runs() {
        assert_eq!(Arch::for_capability(7, 5), None);
        assert_eq!(Arch::for_capability(8, 9), Some(Arch::Compute80));
        assert_eq!(Arch::for_capability(9, 0), Some(Arch::Compute90));
        assert_eq!(Arch::for_capability(12, 0), Some(Arch::Compute90));
    }
}
