//! Host-side arguments: what a CPU reference is called with.

use std::any::Any;

use super::ScalarValue;
use crate::device::{Element, F8E4M3};

/// How an element type appears in a CPU reference.
pub trait HostElement: Element {
    /// The type that a reference computes outputs in: `f64` for floating-point elements, `Self` for integers.
    type Reference: bytemuck::Pod + PartialEq + std::fmt::Debug + Send + Sync;
    /// Whether it is a floating-point type: then results are compared with a tolerance.
    const IS_FLOAT: bool;
    /// Widens (exact).
    fn widen(self) -> Self::Reference;
    /// For error measures: the reference value as a number.
    fn number(reference: Self::Reference) -> f64;
    /// The nearest value (saturating, for integers).
    fn nearest(value: f64) -> Self;
}

macro_rules! host_element {
    (float: { $($f:ty => $widen:expr, $nearest:expr;)* } integer: { $($i:ty)* }) => {
        $(impl HostElement for $f {
            type Reference = f64;
            const IS_FLOAT: bool = true;
            fn widen(self) -> f64 { let widen: fn($f) -> f64 = $widen; widen(self) }
            fn number(reference: f64) -> f64 { reference }
            fn nearest(value: f64) -> Self { let nearest: fn(f64) -> $f = $nearest; nearest(value) }
        })*
        $(impl HostElement for $i {
            type Reference = $i;
            const IS_FLOAT: bool = false;
            fn widen(self) -> $i { self }
            fn number(reference: $i) -> f64 { reference as f64 }
            fn nearest(value: f64) -> Self { value.round() as $i }
        })*
    };
}

host_element! {
    float: {
        f32 => f64::from, |value| value as f32;
        f64 => |value| value, |value| value;
        half::f16 => half::f16::to_f64, half::f16::from_f64;
        half::bf16 => half::bf16::to_f64, half::bf16::from_f64;
        F8E4M3 => F8E4M3::to_f64, |value| F8E4M3::from_f32(value as f32);
    }
    integer: { u8 i8 u16 i16 u32 i32 u64 i64 }
}

/// A weight matrix, dequantised by the format's definition on the CPU.
#[derive(Debug, Clone)]
pub struct HostTensor {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// `[rows, cols]`, row-major.
    pub values: Vec<f32>,
}

impl HostTensor {
    /// Row `r`.
    pub fn row(&self, r: usize) -> &[f32] {
        &self.values[r * self.cols..][..self.cols]
    }
}

/// One argument of a CPU reference by parameter.
#[derive(Debug)]
pub enum HostArg {
    /// A `Vec<T>`.
    Input(Box<dyn Any + Send>),
    /// A `Vec<T::Reference>`.
    Output(Box<dyn Any + Send>),
    /// A weight matrix.
    Tensor(HostTensor),
    /// A counter's value.
    Counter(u32),
    /// A value.
    Scalar(ScalarValue),
    /// An absent optional buffer.
    Null,
}

/// The accessors below are called by generated code, which matches them to the declaration; a harness that builds the
/// arguments from the same declaration cannot make them fail.
impl HostArg {
    /// The elements of an input.
    ///
    /// # Panics
    /// If the argument is not an input of `T`.
    pub fn input<T: HostElement>(&self) -> &[T] {
        match self {
            HostArg::Input(values) => values.downcast_ref::<Vec<T>>(),
            _ => None,
        }
        .unwrap_or_else(|| panic!("the harness gave {self:?} for an input of {}", T::NAME))
    }

    /// The elements of an optional input.
    pub fn optional<T: HostElement>(&self) -> Option<&[T]> {
        if let HostArg::Null = self { None } else { Some(self.input()) }
    }

    /// The elements of an output, or of an argument that is read and written.
    ///
    /// # Panics
    /// If the argument is not an output of `T`.
    pub fn output<T: HostElement>(&mut self) -> &mut [T::Reference] {
        match self {
            HostArg::Output(values) => values.downcast_mut::<Vec<T::Reference>>(),
            _ => None,
        }
        .unwrap_or_else(|| panic!("the harness gave no output of {}", T::NAME))
    }

    /// A weight matrix.
    ///
    /// # Panics
    /// If the argument is not a tensor.
    pub fn tensor(&self) -> &HostTensor {
        match self {
            HostArg::Tensor(tensor) => tensor,
            _ => panic!("the harness gave {self:?} for a tensor"),
        }
    }

    /// A counter that is read.
    ///
    /// # Panics
    /// If the argument is not a counter.
    pub fn counter(&self) -> u32 {
        match self {
            HostArg::Counter(value) => *value,
            _ => panic!("the harness gave {self:?} for a counter"),
        }
    }

    /// A counter that is read and written.
    ///
    /// # Panics
    /// If the argument is not a counter.
    pub fn counter_mut(&mut self) -> &mut u32 {
        match self {
            HostArg::Counter(value) => value,
            _ => panic!("the harness gave no counter"),
        }
    }

    /// A value.
    ///
    /// # Panics
    /// If the argument is not a scalar of that type.
    pub fn scalar<S: super::Scalar>(&self) -> S {
        match self {
            HostArg::Scalar(value) => S::from_value(*value),
            _ => None,
        }
        .unwrap_or_else(|| panic!("the harness gave {self:?} for a {:?}", S::TYPE))
    }
}
