//! Type-erased arguments: what the generated constructors and `kernel-check` hand to a kernel's `bind`.

use super::RawTensor;
use crate::device::RawBuffer;

/// One argument by parameter.
#[derive(Debug, Clone)]
pub enum Arg<'a> {
    /// A buffer of `len` elements called `element`.
    Buffer {
        /// Where it is.
        buffer: RawBuffer,
        /// The element's name.
        element: &'static str,
        /// Elements.
        len: u64,
    },
    /// A weight matrix.
    Tensor(&'a RawTensor),
    /// A value.
    Scalar(ScalarValue),
    /// An optional buffer that is absent.
    Null,
}

/// The types that a kernel takes by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScalarType {
    /// `uint32_t`
    U32,
    /// `int32_t`
    I32,
    /// `float`
    F32,
    /// `uint64_t`
    U64,
}

/// A value of one of those types.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScalarValue {
    /// `uint32_t`
    U32(u32),
    /// `int32_t`
    I32(i32),
    /// `float`
    F32(f32),
    /// `uint64_t`
    U64(u64),
}

impl ScalarValue {
    /// Its type.
    pub const fn ty(self) -> ScalarType {
        match self {
            ScalarValue::U32(_) => ScalarType::U32,
            ScalarValue::I32(_) => ScalarType::I32,
            ScalarValue::F32(_) => ScalarType::F32,
            ScalarValue::U64(_) => ScalarType::U64,
        }
    }

    /// An integer, widened; 0 for a float and below zero.
    pub const fn integer(self) -> u64 {
        match self {
            ScalarValue::U32(v) => v as u64,
            ScalarValue::U64(v) => v,
            ScalarValue::I32(v) if v > 0 => v as u64,
            ScalarValue::I32(_) | ScalarValue::F32(_) => 0,
        }
    }

    /// Its bytes, little-endian, and how many of them count.
    pub const fn bytes(self) -> ([u8; 8], u8) {
        let word = match self {
            ScalarValue::U32(v) => v,
            ScalarValue::I32(v) => v as u32,
            ScalarValue::F32(v) => v.to_bits(),
            ScalarValue::U64(v) => return (v.to_le_bytes(), 8),
        };
        ((word as u64).to_le_bytes(), 4)
    }
}

/// A Rust type that is one of [`ScalarType`].
pub trait Scalar: Copy {
    /// Which.
    const TYPE: ScalarType;
    /// The value, if it has this type.
    fn from_value(value: ScalarValue) -> Option<Self>;
    /// The value without its type.
    fn value(self) -> ScalarValue;
}

macro_rules! scalar {
    ($($ty:ident $variant:ident)*) => {$(
        impl Scalar for $ty {
            const TYPE: ScalarType = ScalarType::$variant;
            fn from_value(value: ScalarValue) -> Option<Self> {
                match value { ScalarValue::$variant(v) => Some(v), _ => None }
            }
            fn value(self) -> ScalarValue {
                ScalarValue::$variant(self)
            }
        }
    )*};
}
scalar!(u32 U32 i32 I32 f32 F32 u64 U64);
