//! What a run can be asked for, in one place.

use std::fmt;
use std::str::FromStr;

use bitwalk_kernels::Arch;

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
