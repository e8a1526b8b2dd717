//! The static descriptor of a declared kernel and the list of all of them.

use linkme::distributed_slice;

use super::{Arg, Case, HostArg, Launch, LaunchError, ScalarType, ScalarValue, TensorFormat};
use crate::device::Access;

/// Every kernel declared in the program, in link order: sort by name for stable output.
#[distributed_slice]
pub static KERNELS: [&'static KernelDecl];

/// The declared kernel called `name` (its Rust name), if there is one.
pub fn by_name(name: &str) -> Option<&'static KernelDecl> {
    KERNELS.iter().copied().find(|decl| decl.name == name)
}

/// Implemented by the marker type that `#[kernel]` generates.
pub trait Kernel: 'static {
    /// The kernel's descriptor.
    const DECL: &'static KernelDecl;
}

/// All that a declaration says of a kernel.
#[derive(Debug)]
pub struct KernelDecl {
    /// The Rust name, which is also the name in the kernel index.
    pub name: &'static str,
    /// The PTX module: `kernels-ptx/src/<module>.cu`.
    pub module: &'static str,
    /// The `.entry` in that module.
    pub entry: &'static str,
    /// The doc comment.
    pub doc: &'static str,
    /// Source file of the declaration.
    pub file: &'static str,
    /// Line of the declaration.
    pub line: u32,
    /// The parameters in declared order.
    pub params: &'static [ParamDecl],
    /// Threads a block where the declaration gives literals; checked against the PTX entry's `.maxntid`.
    pub block: Option<[u32; 3]>,
    /// The worst error that `kernel-check` accepts, relative to the largest reference value of an output; 0 is exact.
    pub tolerance: f64,
    /// All blocks must be resident at once (grid-wide barriers).
    pub cooperative: bool,
    /// May be launched before its predecessor has finished (programmatic dependent launch).
    pub dependent: bool,
    /// Has a `#[step]` scalar, so cannot be part of a captured plan.
    pub eager_only: bool,
    /// Least lengths and exact shapes, by parameter, from the scalars.
    pub shapes: fn(&Scalars<'_>) -> Vec<ParamShape>,
    /// The type-erased constructor.
    pub bind: fn(&[Arg<'_>]) -> Result<Launch, LaunchError>,
    /// The type-erased CPU reference.
    pub reference: fn(&mut [HostArg]),
    /// The shapes and inputs that `kernel-check` and the benches run.
    pub cases: fn() -> Vec<Case>,
}

impl KernelDecl {
    /// The PTX parameters in order, with the C name of each (`w_qs`, `w_d`, `x`, …).
    pub fn slots(&self) -> impl Iterator<Item = (String, &'static SlotDecl)> {
        self.params.iter().flat_map(|param| {
            param.slots.iter().map(move |slot| {
                let name = match slot.suffix {
                    "" => param.name.to_owned(),
                    suffix => format!("{}_{suffix}", param.name),
                };
                (name, slot)
            })
        })
    }

    /// The C++ prototype that the kernel's source must agree with.
    pub fn prototype(&self) -> String {
        let params: Vec<String> =
            self.slots().map(|(name, slot)| format!("{} {name}", slot.c_type())).collect();
        format!("extern \"C\" __global__ void {}({});", self.entry, params.join(", "))
    }

    /// Index of the parameter called `name`.
    pub fn param_index(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|param| param.name == name)
    }
}

/// One parameter of the Rust signature.
#[derive(Debug)]
pub struct ParamDecl {
    /// The name in the signature.
    pub name: &'static str,
    /// What it is.
    pub kind: ParamKind,
    /// The PTX parameters it lowers to.
    pub slots: &'static [SlotDecl],
    /// Whether it may lie on another device than the one that runs the kernel (`#[peer]`).
    pub peer: bool,
}

/// What a parameter of the signature is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParamKind {
    /// A slice of `element`; `optional` may be null.
    Buffer {
        /// The element's name, as `Element::NAME`.
        element: &'static str,
        /// Bytes an element.
        element_bytes: u32,
        /// How the kernel uses it.
        access: Access,
        /// `Option<&[T]>`.
        optional: bool,
    },
    /// A quantised (or plain) weight matrix.
    Tensor(TensorFormat),
    /// A device-resident `u32`.
    Counter(Access),
    /// A scalar passed by value.
    Scalar {
        /// Its type.
        ty: ScalarType,
        /// When its value may change.
        class: SlotClass,
    },
}

/// One PTX parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlotDecl {
    /// Appended to the parameter's name (`qs` of `w` is `w_qs`); empty for a parameter of one slot.
    pub suffix: &'static str,
    /// The C++ type pointed to, or the scalar's type.
    pub c_element: &'static str,
    /// `None` for a scalar, else how the kernel uses what is pointed to.
    pub access: Option<Access>,
    /// Bytes, which is also the alignment.
    pub size: u32,
    /// When the value may change.
    pub class: SlotClass,
}

impl SlotDecl {
    /// The C++ type of the parameter.
    pub fn c_type(&self) -> String {
        match self.access {
            None => self.c_element.to_owned(),
            Some(Access::Read) => format!("const {}*", self.c_element),
            Some(Access::Write | Access::ReadWrite) => format!("{}*", self.c_element),
        }
    }
}

/// When a parameter's value may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotClass {
    /// Fixed in a captured node.
    Baked,
    /// Updated by name in the instantiated graph.
    Node,
    /// Changes every step; eager only.
    Step,
}

/// What the scalars imply for a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamShape {
    /// A scalar or counter.
    None,
    /// At least so many elements.
    Len(u64),
    /// Exactly this shape.
    Tensor {
        /// Rows.
        rows: u64,
        /// Columns (the inner product's length).
        cols: u64,
    },
}

/// The scalars of a call by parameter index; `None` where the parameter is no scalar.
#[derive(Debug, Clone, Copy)]
pub struct Scalars<'a>(pub &'a [Option<ScalarValue>]);

impl Scalars<'_> {
    /// The integer scalar at parameter `index`, widened; 0 for anything else, which no length expression names.
    pub fn integer(&self, index: usize) -> u64 {
        self.0.get(index).copied().flatten().map_or(0, ScalarValue::integer)
    }
}

/// What a launch moves and computes, from the declaration's `#[cost]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// Bytes read from device memory.
    pub read: u64,
    /// Bytes written to device memory.
    pub write: u64,
    /// Floating-point (or integer multiply-add) operations.
    pub flops: u64,
}
