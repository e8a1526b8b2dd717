//! Cases: the shapes and inputs on which a kernel is compared with its reference.

use std::sync::Arc;

use super::{HostElement, ScalarValue};

/// What an input buffer or tensor holds. Without one, floats are drawn from a normal distribution, integers uniformly
/// over the whole range, and tensors uniformly over their format's bit patterns with scales of order 1/√cols.
#[derive(Debug, Clone)]
pub enum Fill {
    /// Normal with this standard deviation.
    Normal(f64),
    /// Uniform in this range.
    Uniform(f64, f64),
    /// These values (little-endian element bytes), by element name.
    Values {
        /// `Element::NAME`.
        element: &'static str,
        /// The bytes.
        bytes: Arc<[u8]>,
    },
}

/// One case of a kernel: its scalars by name, and what differs from the defaults. Names are those of the signature;
/// `kernel-check` fails a case that names an unknown one or leaves a scalar out.
#[derive(Debug, Clone, Default)]
pub struct Case {
    pub(crate) label: String,
    pub(crate) scalars: Vec<(&'static str, ScalarValue)>,
    pub(crate) lens: Vec<(&'static str, usize)>,
    pub(crate) fills: Vec<(&'static str, Fill)>,
    pub(crate) absent: Vec<&'static str>,
    pub(crate) representative: bool,
}

impl Case {
    /// An empty case.
    pub fn new(label: impl Into<String>) -> Self {
        Case { label: label.into(), ..Case::default() }
    }

    /// Sets a `u32` scalar.
    pub fn u32(mut self, name: &'static str, value: u32) -> Self {
        self.scalars.push((name, ScalarValue::U32(value)));
        self
    }

    /// Sets an `i32` scalar.
    pub fn i32(mut self, name: &'static str, value: i32) -> Self {
        self.scalars.push((name, ScalarValue::I32(value)));
        self
    }

    /// Sets a `f32` scalar.
    pub fn f32(mut self, name: &'static str, value: f32) -> Self {
        self.scalars.push((name, ScalarValue::F32(value)));
        self
    }

    /// Sets a `u64` scalar.
    pub fn u64(mut self, name: &'static str, value: u64) -> Self {
        self.scalars.push((name, ScalarValue::U64(value)));
        self
    }

    /// Gives a buffer more elements than its declared length (a cache's capacity, say).
    pub fn len(mut self, name: &'static str, elements: usize) -> Self {
        self.lens.push((name, elements));
        self
    }

    /// What an input holds.
    pub fn fill(mut self, name: &'static str, fill: Fill) -> Self {
        self.fills.push((name, fill));
        self
    }

    /// The exact elements of an input (or the initial ones of an argument that is read and written).
    pub fn values<T: HostElement>(mut self, name: &'static str, values: &[T]) -> Self {
        let bytes = bytemuck::cast_slice::<T, u8>(values).into();
        self.lens.push((name, values.len()));
        self.fills.push((name, Fill::Values { element: T::NAME, bytes }));
        self
    }

    /// The value of a counter.
    pub fn counter(self, name: &'static str, value: u32) -> Self {
        self.values(name, &[value])
    }

    /// Leaves an optional buffer out.
    pub fn absent(mut self, name: &'static str) -> Self {
        self.absent.push(name);
        self
    }

    /// Marks a case of a real model's size: benches time it, and `kernel-check` skips it on the simulated device.
    pub fn representative(mut self) -> Self {
        self.representative = true;
        self
    }

    /// The label that reports print.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Whether it is of a real model's size.
    pub fn is_representative(&self) -> bool {
        self.representative
    }
}
