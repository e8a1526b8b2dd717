//! The run-time half of a kernel declaration.
//!
//! `#[kernel]` (crate `bitwalk-macros`) turns one Rust signature into
//!
//! * a constructor of the same name, which checks its arguments and returns a [`Launch`];
//! * a marker type in `PascalCase` that implements [`Kernel`], whose [`KernelDecl`] is registered in [`KERNELS`];
//! * a trait `…Node` with one `set_…` method for each `#[node]` scalar, implemented for [`Node`] of that marker only.
//!
//! Everything else that a declaration serves (the C++ prototypes, the ABI check against PTX, the argument tables of
//! captured graphs, `kernel-check`, benches, the kernel index) reads the [`KernelDecl`] through this module.
//!
//! # Grammar
//!
//! ```text
//! /// docs
//! #[kernel(module = "matvec_q8_0", entry = "matvec_q8_0", reference = path::to::reference, cases = path::to::cases, tol = 2e-6)]
//! #[launch(grid = (rows.div_ceil(4), 1, 1), block = (128, 1, 1), shared = 0)]   // shared, cooperative, dependent: optional
//! #[cost(read = w.bytes() + 4 * cols, write = 4 * rows, flops = 2 * rows * cols)]
//! pub fn matvec_q8_0(
//!     #[shape(rows, cols)] w: &QTensor<Q8_0>,
//!     #[len(cols)] x: &[f32],
//!     #[len(rows)] residual: Option<&[f32]>,
//!     #[out] #[len(rows)] y: &mut [f32],
//!     rows: u32,
//!     cols: u32,
//! );
//! ```
//!
//! | declared | lowers to | constructor takes | reference gets |
//! |---|---|---|---|
//! | `&[T]` | `const T*` | `&Buffer<T>` | `&[T]` |
//! | `&mut [T]` | `T*`, read and written | `&Buffer<T>` | `&mut [T::Reference]`, holding the initial values |
//! | `#[out] &mut [T]` | `T*`, only written | `&Buffer<T>` | `&mut [T::Reference]`, poisoned |
//! | `Option<&[T]>` | `const T*` or null | `Option<&Buffer<T>>` | `Option<&[T]>` |
//! | `&QTensor<Q>` | one `const*` a plane of `Q` | `&QTensor<Q>` | `&HostTensor` (dequantised) |
//! | `&Counter` | `const uint32_t*` | `&Counter` | `u32` |
//! | `&mut Counter` | `uint32_t*` | `&Counter` | `&mut u32` |
//! | `u32`, `i32`, `f32`, `u64` | by value, baked | the scalar | the scalar |
//! | `#[node] n: u32` | by value, updatable by name in a captured node | the scalar | the scalar |
//! | `#[step] n: u32` | by value, makes the kernel eager-only | the scalar | the scalar |
//!
//! `T::Reference` is `f64` for floating-point elements and `T` itself for integers ([`HostElement`]).
//! `#[len(e)]` is the least number of elements that the kernel touches and `#[shape(r, c)]` the exact shape of a
//! tensor.
//!
//! Expressions are evaluated in `u64` over the integer scalars of the signature; `cost` sees buffers as [`BufferShape`]
//! and tensors as [`TensorShape`] as well. Upper-case names are constants, functions are found as usual. Sums,
//! differences and products saturate and dividing by zero gives zero, so that no argument can make them panic: what
//! comes out too large or empty is a [`LaunchError`]. A `#[node]` scalar may appear in `cost` only, since lengths and
//! geometry are fixed when the kernel is captured.

mod abi;
mod arg;
mod case;
pub mod check;
mod decl;
mod host;
mod launch;
mod node;
mod param;
mod tensor;
#[cfg(test)]
mod tests;

pub use abi::{AbiMismatch, EntryParam};
pub use arg::{Arg, Scalar, ScalarType, ScalarValue};
pub use case::{Case, Fill};
pub use decl::{
    Cost, KERNELS, Kernel, KernelDecl, ParamDecl, ParamKind, ParamShape, Scalars, SlotClass, SlotDecl,
    by_name,
};
pub use host::{HostArg, HostElement, HostTensor};
pub use launch::{
    ArgSlot, ArgTable, Binder, BufferShape, Capturable, EagerLaunch, Launch, LaunchError, MAX_SLOTS,
    TensorShape,
};
pub use node::{Node, NodeError};
pub use param::{
    Classed, Counter, CounterIn, CounterInOut, In, InOut, KernelParam, OptionalIn, Out, Quantised,
};
pub use tensor::{
    BF16, F16, F32, NVFP4, PlaneDecl, Q4_0, Q4_1, Q4_K, Q5_0, Q5_K, Q6_K, Q8_0, QTensor, QuantFormat,
    RawTensor, TensorFormat,
};

/// The attribute that declares a kernel.
pub use bitwalk_macros::kernel;

#[doc(hidden)]
pub mod macro_support;
