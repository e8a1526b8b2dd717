//! What a run can be asked for, in one place: [`RunOptions`], and the environment's part in it ([`VARIABLES`]).

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use bitwalk_kernels::Arch;
use thiserror::Error;

use crate::decode::{CaptureMode, GraphOptions, SeatPolicy};
use crate::device::DeviceSpec;

/// How activations enter linear layers: half of the name of a numeric program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Activations {
    /// float32 everywhere.
    #[default]
    Exact,
    /// Blocks of 32 int16 with a float32 scale, inner products exact in integers, where the weights are integers.
    I16,
}

/// The element type of the key/value cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum KvType {
    /// float32.
    F32,
    /// IEEE half.
    #[default]
    F16,
    /// E4M3, saturating at ±448.
    F8,
}

/// Who launches routed experts. The same bits either way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum ExpertArm {
    /// All selected experts as rows of one pair of kernels.
    #[default]
    Device,
    /// The selection is read back, and the host launches expert by expert: cannot be captured.
    HostOracle,
}

/// When decode graphs are captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum BucketPolicy {
    /// Capacities of 1, 2, 4, 8 … chunks of 64 keys: a session captures a handful of times.
    #[default]
    Doubling,
    /// A capture at every 64-key boundary.
    PerBoundary,
}

macro_rules! named {
    ($ty:ident: $($variant:ident = $name:literal),*) => {
        impl $ty {
            /// Every value.
            pub const ALL: &'static [$ty] = &[$($ty::$variant),*];
        }
        impl fmt::Display for $ty {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($ty::$variant => $name),* })
            }
        }
        impl FromStr for $ty {
            type Err = String;
            fn from_str(s: &str) -> Result<Self, String> {
                match s {
                    $($name => Ok($ty::$variant),)*
                    _ => Err(format!("`{s}` is none of: {}", [$($name),*].join(", "))),
                }
            }
        }
    };
}

named!(Activations: Exact = "exact", I16 = "i16");
named!(KvType: F32 = "f32", F16 = "f16", F8 = "fp8");
named!(ExpertArm: Device = "device", HostOracle = "host-oracle");
named!(BucketPolicy: Doubling = "doubling", PerBoundary = "per-boundary");
named!(CaptureMode: Whole = "whole", RecurrentRuns = "recurrent-runs", Nothing = "0");
named!(SeatPolicy: Latch = "latch", Patch = "patch", Recapture = "recapture");

/// The options of an [`Engine`](crate::engine::Engine).
#[derive(Debug, Clone, Default)]
pub struct EngineOptions {
    /// The activation program.
    pub activations: Activations,
    /// The cache's element type.
    pub kv: KvType,
    /// Who launches routed experts.
    pub experts: ExpertArm,
    /// When decode graphs are captured.
    pub buckets: BucketPolicy,
    /// The PTX target; by default the newest that the device runs.
    pub ptx: Option<Arch>,
}

impl EngineOptions {
    /// The numeric program's name, as every gate and bench prints it.
    pub fn program(&self) -> String {
        format!("{}/rows kv={}", self.activations, self.kv)
    }
}

/// A variable of the environment that stands for an option. What the command line says comes first.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The option that it stands for, where commands have one.
    pub option: &'static str,
    /// What it may be.
    pub accepted: &'static str,
    /// What holds without it.
    pub default: &'static str,
    /// What it is about.
    pub what: &'static str,
}

const fn variable(
    name: &'static str,
    option: &'static str,
    accepted: &'static str,
    default: &'static str,
    what: &'static str,
) -> Variable {
    Variable { name, option, accepted, default, what }
}

/// Every variable, as `docs/options.md` lists them.
pub const VARIABLES: [Variable; 10] = [
    variable(
        "BITWALK_MODEL",
        "--model",
        "a file, a folder, `synthetic:NAME`",
        "the model in `models/`",
        "the model",
    ),
    variable(
        "BITWALK_DEVICE",
        "--device",
        "auto, cuda, cuda:N, sim, sim:N",
        "auto",
        "the device, or the kind of those in `--devices 0,1`",
    ),
    variable("BITWALK_ACT", "--act", "exact, i16", "exact", "the activation program"),
    variable("BITWALK_KV", "--kv", "f32, f16, fp8", "f16", "element type of the key/value cache"),
    variable("BITWALK_EXPERTS", "--experts", "device, host-oracle", "device", "who launches routed experts"),
    variable(
        "BITWALK_GRAPH",
        "--graph, --eager",
        "whole, recurrent-runs, 0",
        "whole",
        "what of a walk is captured; 0: nothing, walks are launched",
    ),
    variable(
        "BITWALK_RESEAT",
        "",
        "latch, patch, recapture",
        "latch",
        "what becomes of a graph whose buffers have moved",
    ),
    variable(
        "BITWALK_VERIFY",
        "",
        "1, 0",
        "1",
        "whether a graph's first replay is compared with an eager run",
    ),
    variable("BITWALK_CHECKS", "", "1, 0", "0", "whether the simulated device runs with all its checks"),
    variable(
        "BITWALK_PTX",
        "",
        "auto, compute_80, compute_90",
        "auto",
        "the PTX target; auto: the newest that the device runs",
    ),
];

/// A variable whose value cannot be read, or that is none.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OptionError {
    /// Not one of its values.
    #[error("{variable} is `{value}`: it may be {accepted}")]
    Value {
        /// The variable.
        variable: &'static str,
        /// What it is.
        value: String,
        /// What it may be.
        accepted: &'static str,
    },
    /// A name that begins like those of options and is none.
    #[error("{variable} is set, and there is no such option: there are {}", names())]
    Unknown {
        /// The variable.
        variable: String,
    },
}

fn names() -> String {
    VARIABLES.map(|variable| variable.name).join(", ")
}

/// Everything that a run is asked for, echoed at its start.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// The model; none for the one that is found.
    pub model: Option<PathBuf>,
    /// The device.
    pub device: DeviceSpec,
    /// Program, cache, experts, PTX.
    pub engine: EngineOptions,
    /// What is captured, and what is done about graphs.
    pub graph: GraphOptions,
    /// Whether the simulated device runs with all its checks.
    pub checks: bool,
}

impl RunOptions {
    /// The defaults, as the environment changes them.
    ///
    /// # Errors
    /// A variable whose value cannot be read; one that begins with `BITWALK_` and is none.
    pub fn from_env() -> Result<RunOptions, OptionError> {
        RunOptions::from_vars(std::env::vars_os())
    }

    /// [`RunOptions::from_env`] of these variables; those without `BITWALK_` in front are others' and are passed over.
    ///
    /// # Errors
    /// The same.
    pub fn from_vars(
        vars: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<RunOptions, OptionError> {
        let mut options = RunOptions::default();
        for (name, value) in vars {
            let name = name.to_string_lossy();
            if !name.starts_with("BITWALK_") {
                continue;
            }
            let Some(variable) = VARIABLES.iter().find(|variable| variable.name == name) else {
                return Err(OptionError::Unknown { variable: name.into_owned() });
            };
            if variable.name == "BITWALK_MODEL" {
                // A path is any words; an empty one opens nothing and is refused like the others' empty values.
                if !value.is_empty() {
                    options.model = Some(value.into());
                    continue;
                }
            }
            let value = value.to_string_lossy();
            if options.set(variable.name, &value).is_none() {
                let (variable, accepted) = (variable.name, variable.accepted);
                return Err(OptionError::Value { variable, value: value.into_owned(), accepted });
            }
        }
        Ok(options)
    }

    /// Sets what a variable stands for; nothing where the value is none of its.
    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        let switch = || match value {
            "1" => Some(true),
            "0" => Some(false),
            _ => None,
        };
        match name {
            "BITWALK_DEVICE" => self.device = value.parse().ok()?,
            "BITWALK_ACT" => self.engine.activations = value.parse().ok()?,
            "BITWALK_KV" => self.engine.kv = value.parse().ok()?,
            "BITWALK_EXPERTS" => self.engine.experts = value.parse().ok()?,
            "BITWALK_GRAPH" => self.graph.mode = value.parse().ok()?,
            "BITWALK_RESEAT" => self.graph.policy = value.parse().ok()?,
            "BITWALK_VERIFY" => self.graph.verify = switch()?,
            "BITWALK_CHECKS" => self.checks = switch()?,
            "BITWALK_PTX" => {
                self.engine.ptx = match value {
                    "auto" => None,
                    name => Some(ARCHS.into_iter().find(|arch| arch.name() == name)?),
                }
            }
            _ => return None,
        }
        Some(())
    }
}

const ARCHS: [Arch; 2] = [Arch::Compute80, Arch::Compute90];

/// `name=value`, a space between two, names as in the variables.
impl fmt::Display for RunOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} checks={}", self.engine, self.graph, u8::from(self.checks))
    }
}

/// `act=exact kv=f16 experts=device ptx=auto`, with the bucket policy where it is not the default.
impl fmt::Display for EngineOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "act={} kv={} experts={}", self.activations, self.kv, self.experts)?;
        if self.buckets != BucketPolicy::default() {
            write!(f, " buckets={}", self.buckets)?;
        }
        write!(f, " ptx={}", self.ptx.map_or("auto", Arch::name))
    }
}

/// `graph=whole reseat=latch verify=1`.
impl fmt::Display for GraphOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "graph={} reseat={} verify={}", self.mode, self.policy, u8::from(self.verify))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(vars: &[(&str, &str)]) -> Result<RunOptions, OptionError> {
        RunOptions::from_vars(vars.iter().map(|(name, value)| (name.into(), value.into())))
    }

    #[test]
    fn without_variables_the_defaults_hold() {
        let options = of(&[("PATH", "/bin"), ("GLM5_ARTIFACT", "x")]).unwrap();
        let echo = "act=exact kv=f16 experts=device ptx=auto graph=whole reseat=latch verify=1 checks=0";
        assert_eq!(options.to_string(), echo);
        assert_eq!((options.device, options.model), (DeviceSpec::Auto, None));
    }

    #[test]
    fn variables_set_what_they_name() {
        let options = of(&[
            ("BITWALK_MODEL", "a b.gguf"),
            ("BITWALK_DEVICE", "sim:3"),
            ("BITWALK_ACT", "i16"),
            ("BITWALK_KV", "fp8"),
            ("BITWALK_EXPERTS", "host-oracle"),
            ("BITWALK_GRAPH", "0"),
            ("BITWALK_RESEAT", "recapture"),
            ("BITWALK_VERIFY", "0"),
            ("BITWALK_CHECKS", "1"),
            ("BITWALK_PTX", "compute_80"),
        ]);
        let options = options.unwrap();
        let echo =
            "act=i16 kv=fp8 experts=host-oracle ptx=compute_80 graph=0 reseat=recapture verify=0 checks=1";
        assert_eq!(options.to_string(), echo);
        assert_eq!((options.device, options.model), (DeviceSpec::Sim(3), Some("a b.gguf".into())));
    }

    /// Every value that the table lists is read, and every other one is refused with the table's words.
    #[test]
    fn a_value_that_cannot_be_read_names_variable_value_and_choices() {
        for variable in &VARIABLES[1..] {
            for value in variable.accepted.split(", ") {
                let value = value.replace('N', "1");
                assert!(of(&[(variable.name, &value)]).is_ok(), "{}={value}", variable.name);
            }
            for value in ["", "2", "no", "Exact", "exact "] {
                let words = of(&[(variable.name, value)]).unwrap_err().to_string();
                assert_eq!(words, format!("{} is `{value}`: it may be {}", variable.name, variable.accepted));
            }
            let default = of(&[(variable.name, variable.default)]).unwrap();
            assert_eq!(default.to_string(), RunOptions::default().to_string(), "{}", variable.name);
        }
        assert!(of(&[("BITWALK_MODEL", "")]).is_err());
    }

    #[test]
    fn a_variable_that_is_none_is_refused_by_name() {
        let words = of(&[("BITWALK_VERFIY", "0")]).unwrap_err().to_string();
        assert!(words.starts_with("BITWALK_VERFIY is set, and there is no such option"), "{words}");
        assert!(words.contains("BITWALK_VERIFY"), "{words}");
    }

    #[test]
    fn the_documented_table_is_this_one() {
        let page = include_str!("../../docs/options.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `BITWALK_")).collect();
        let wanted: Vec<String> = VARIABLES
            .iter()
            .map(|v| {
                let option = if v.option.is_empty() {
                    String::new()
                } else {
                    format!("`{}`", v.option.replace(", ", "`, `"))
                };
                format!("| `{}` | {option} | {} | {} | {} |", v.name, v.accepted, v.default, v.what)
            })
            .collect();
        assert_eq!(rows, wanted);
    }
}
