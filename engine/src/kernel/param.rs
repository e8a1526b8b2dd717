//! How each kind of declared parameter lowers to PTX parameters.

use std::marker::PhantomData;

use super::{Arg, ParamKind, QTensor, QuantFormat, ScalarType, ScalarValue, SlotClass, SlotDecl};
use crate::device::{Access, Buffer, Element};

/// A device-resident `u32` that varies from step to step: position, lengths, counts.
pub type Counter = Buffer<u32>;

/// The lowering of one declared parameter type: constants for the descriptor, and the erasure of what the
/// constructor takes.
pub trait KernelParam {
    /// What the parameter is.
    const KIND: ParamKind;
    /// The PTX parameters it becomes.
    const SLOTS: &'static [SlotDecl];
    /// What the constructor takes.
    type Bound<'a>;
    /// Erases it.
    fn erase<'a>(bound: Self::Bound<'a>) -> Arg<'a>;
}

const fn pointer(c_element: &'static str, access: Access) -> SlotDecl {
    SlotDecl { suffix: "", c_element, access: Some(access), size: 8, class: SlotClass::Baked }
}

macro_rules! slice_param {
    ($(#[$doc:meta] $name:ident: $access:expr;)*) => {$(
        #[$doc]
        #[derive(Debug)]
        pub struct $name<T>(PhantomData<T>);
        impl<T: Element> KernelParam for $name<T> {
            const KIND: ParamKind = ParamKind::Buffer {
                element: T::NAME, element_bytes: size_of::<T>() as u32, access: $access, optional: false,
            };
            const SLOTS: &'static [SlotDecl] = &[pointer(T::C_TYPE, $access)];
            type Bound<'a> = &'a Buffer<T>;
            fn erase<'a>(bound: Self::Bound<'a>) -> Arg<'a> {
                Arg::Buffer { buffer: bound.raw(), element: T::NAME, len: bound.len() as u64 }
            }
        }
    )*};
}

slice_param! {
    /// `&[T]`: read.
    In: Access::Read;
    /// `&mut [T]`: read and written.
    InOut: Access::ReadWrite;
    /// `#[out] &mut [T]`: only written.
    Out: Access::Write;
}

/// `Option<&[T]>`: read, or null.
#[derive(Debug)]
pub struct OptionalIn<T>(PhantomData<T>);

impl<T: Element> KernelParam for OptionalIn<T> {
    const KIND: ParamKind = ParamKind::Buffer {
        element: T::NAME,
        element_bytes: size_of::<T>() as u32,
        access: Access::Read,
        optional: true,
    };
    const SLOTS: &'static [SlotDecl] = &[pointer(T::C_TYPE, Access::Read)];
    type Bound<'a> = Option<&'a Buffer<T>>;
    fn erase<'a>(bound: Self::Bound<'a>) -> Arg<'a> {
        bound.map_or(Arg::Null, In::<T>::erase)
    }
}

macro_rules! counter_param {
    ($(#[$doc:meta] $name:ident: $access:expr;)*) => {$(
        #[$doc]
        #[derive(Debug)]
        pub struct $name;
        impl KernelParam for $name {
            const KIND: ParamKind = ParamKind::Counter($access);
            const SLOTS: &'static [SlotDecl] = &[pointer("uint32_t", $access)];
            type Bound<'a> = &'a Counter;
            fn erase<'a>(bound: Self::Bound<'a>) -> Arg<'a> {
                In::<u32>::erase(bound)
            }
        }
    )*};
}

counter_param! {
    /// `&Counter`: read.
    CounterIn: Access::Read;
    /// `&mut Counter`: read and written.
    CounterInOut: Access::ReadWrite;
}

/// `&QTensor<Q>`: one pointer a plane of `Q`, read.
#[derive(Debug)]
pub struct Quantised<Q>(PhantomData<Q>);

impl<Q: QuantFormat> Quantised<Q> {
    const PLANE_SLOTS: [SlotDecl; 4] = {
        let planes = Q::FORMAT.planes();
        let mut slots = [pointer("", Access::Read); 4];
        let mut i = 0;
        while i < planes.len() {
            // A format of one plane is just the parameter's name.
            let suffix = if planes.len() == 1 { "" } else { planes[i].name };
            slots[i] = SlotDecl {
                suffix,
                c_element: planes[i].c_type,
                access: Some(Access::Read),
                size: 8,
                class: SlotClass::Baked,
            };
            i += 1;
        }
        slots
    };
}

impl<Q: QuantFormat> KernelParam for Quantised<Q> {
    const KIND: ParamKind = ParamKind::Tensor(Q::FORMAT);
    const SLOTS: &'static [SlotDecl] = {
        let slots: &'static [SlotDecl] = &Self::PLANE_SLOTS;
        slots.split_at(Q::FORMAT.planes().len()).0
    };
    type Bound<'a> = &'a QTensor<Q>;
    fn erase<'a>(bound: Self::Bound<'a>) -> Arg<'a> {
        Arg::Tensor(bound.raw())
    }
}

macro_rules! scalar_param {
    ($($ty:ident => $variant:ident, $c:literal;)*) => {$(
        impl KernelParam for $ty {
            const KIND: ParamKind = ParamKind::Scalar { ty: ScalarType::$variant, class: SlotClass::Baked };
            const SLOTS: &'static [SlotDecl] = &[SlotDecl {
                suffix: "", c_element: $c, access: None, size: size_of::<$ty>() as u32, class: SlotClass::Baked,
            }];
            type Bound<'a> = $ty;
            fn erase<'a>(bound: Self::Bound<'a>) -> Arg<'a> {
                Arg::Scalar(ScalarValue::$variant(bound))
            }
        }
    )*};
}

scalar_param! {
    u32 => U32, "uint32_t";
    i32 => I32, "int32_t";
    f32 => F32, "float";
    u64 => U64, "uint64_t";
}

/// A scalar `S` of another class than baked: `NODE` true is `#[node]`, false is `#[step]`.
#[derive(Debug)]
pub struct Classed<S, const NODE: bool>(PhantomData<S>);

impl<S, const NODE: bool> Classed<S, NODE> {
    const CLASS: SlotClass = if NODE { SlotClass::Node } else { SlotClass::Step };
}

impl<S: KernelParam, const NODE: bool> KernelParam for Classed<S, NODE> {
    const KIND: ParamKind = match S::KIND {
        ParamKind::Scalar { ty, .. } => ParamKind::Scalar { ty, class: Self::CLASS },
        kind => kind,
    };
    const SLOTS: &'static [SlotDecl] = &[SlotDecl {
        suffix: "",
        c_element: S::SLOTS[0].c_element,
        access: None,
        size: S::SLOTS[0].size,
        class: Self::CLASS,
    }];
    type Bound<'a> = S::Bound<'a>;
    fn erase<'a>(bound: Self::Bound<'a>) -> Arg<'a> {
        S::erase(bound)
    }
}
