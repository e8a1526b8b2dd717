//! A kernel with its arguments: checked once when it is built, launched many times.

use arrayvec::ArrayVec;
use thiserror::Error;

use super::{
    Arg, Cost, KernelDecl, ParamKind, ParamShape, ScalarType, ScalarValue, Scalars, SlotClass, TensorFormat,
};
use crate::device::{Access, Device, DeviceError, Function, LaunchParams, ParamAccess, RawBuffer, Stream};

/// The most PTX parameters that a kernel may have.
pub const MAX_SLOTS: usize = 32;

/// Why arguments do not fit a declaration.
#[derive(Debug, Error)]
#[error("kernel {kernel}, argument `{argument}`: {reason}")]
pub struct LaunchError {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The parameter at fault (`grid`, `block` or `shared` for the launch's geometry).
    pub argument: &'static str,
    /// What is wrong and what was expected.
    pub reason: String,
}

/// One PTX parameter's value.
#[derive(Debug, Clone)]
pub enum ArgSlot {
    /// The address of a buffer, resolved when the kernel is launched.
    Pointer {
        /// Index of the declared parameter.
        param: u8,
        /// What it points to.
        buffer: RawBuffer,
        /// How the kernel uses it.
        access: Access,
    },
    /// An absent optional buffer.
    Null {
        /// Index of the declared parameter.
        param: u8,
    },
    /// A value.
    Scalar {
        /// Index of the declared parameter.
        param: u8,
        /// The value.
        value: ScalarValue,
        /// When it may change.
        class: SlotClass,
    },
}

impl ArgSlot {
    /// Index of the declared parameter.
    pub fn param(&self) -> usize {
        match self {
            ArgSlot::Pointer { param, .. } | ArgSlot::Null { param } | ArgSlot::Scalar { param, .. } => {
                usize::from(*param)
            }
        }
    }
}

/// A launch's arguments: fixed slots in PTX order. Encoding them allocates nothing.
#[derive(Debug, Clone, Default)]
pub struct ArgTable {
    slots: ArrayVec<ArgSlot, MAX_SLOTS>,
}

impl ArgTable {
    /// The slots in PTX order.
    pub fn slots(&self) -> &[ArgSlot] {
        &self.slots
    }

    /// The slots, to be pointed elsewhere.
    pub(super) fn slots_mut(&mut self) -> &mut [ArgSlot] {
        &mut self.slots
    }

    /// Replaces the scalar of parameter `param`, if it is one of `class`.
    pub(super) fn set_scalar(&mut self, param: usize, class: SlotClass, new: ScalarValue) {
        for slot in &mut self.slots {
            match slot {
                ArgSlot::Scalar { param: of, value, class: has }
                    if usize::from(*of) == param && *has == class =>
                {
                    *value = new;
                }
                _ => {}
            }
        }
    }

    /// The parameter block: each value at its own alignment, as the PTX entry lays its `.param`s out. Addresses are
    /// those of this moment, so a re-seated buffer is seen.
    pub fn encode(&self) -> ArrayVec<u8, { MAX_SLOTS * 8 }> {
        let mut out = ArrayVec::new();
        for slot in &self.slots {
            let (bytes, size) = match slot {
                ArgSlot::Pointer { buffer, .. } => (buffer.address().to_le_bytes(), 8),
                ArgSlot::Null { .. } => ([0; 8], 8),
                ArgSlot::Scalar { value, .. } => value.bytes(),
            };
            let size = usize::from(size);
            while out.len() % size != 0 {
                out.push(0);
            }
            out.extend(bytes[..size].iter().copied());
        }
        out
    }
}

/// A kernel, its geometry and its arguments.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The kernel.
    pub decl: &'static KernelDecl,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads a block.
    pub block: [u32; 3],
    /// Dynamic shared memory, bytes.
    pub shared: u32,
    /// The arguments.
    pub args: ArgTable,
    /// What it moves and computes.
    pub cost: Cost,
}

impl Launch {
    /// The device that its buffers lie on, but for those that may lie on another; `None` when it has no others.
    pub fn device(&self) -> Option<&Device> {
        self.args.slots.iter().find_map(|slot| match slot {
            ArgSlot::Pointer { buffer, .. } if !self.decl.params[slot.param()].peer => Some(buffer.device()),
            _ => None,
        })
    }

    /// Checks that it is for `device`.
    ///
    /// # Errors
    /// [`DeviceError::WrongDevice`], naming the kernel.
    pub fn expect_device(&self, device: &Device) -> Result<(), DeviceError> {
        match self.device() {
            Some(own) if own != device => Err(DeviceError::WrongDevice {
                what: format!("the memory of kernel `{}`'s arguments", self.decl.name),
                have: own.to_string(),
                want: device.to_string(),
            }),
            _ => Ok(()),
        }
    }

    /// Queues the launch of `function`, the declared entry as it was loaded on the stream's device. It allocates
    /// nothing, so it serves eager runs and captures alike.
    ///
    /// # Errors
    /// [`DeviceError::WrongDevice`] for arguments on another device, those of [`Stream::launch`].
    pub fn submit(&self, stream: &Stream, function: &Function) -> Result<(), DeviceError> {
        self.expect_device(stream.device())?;
        let mut access: ArrayVec<ParamAccess, MAX_SLOTS> = ArrayVec::new();
        for (param, slot) in self.args.slots.iter().enumerate() {
            if let ArgSlot::Pointer { buffer, access: how, .. } = slot {
                let bytes = buffer.bytes() as u64;
                access.push(ParamAccess { param: param as u16, access: *how, bytes });
            }
        }
        stream.launch(
            function,
            &LaunchParams {
                grid: self.grid,
                block: self.block,
                shared: self.shared,
                args: &self.args.encode(),
                access: &access,
                cooperative: self.decl.cooperative,
                programmatic: self.decl.dependent,
            },
        )
    }
}

/// A launch of a kernel with a `#[step]` scalar: it can be run, but no capturable plan takes it.
#[derive(Debug, Clone)]
pub struct EagerLaunch(pub Launch);

/// What a plan that may be captured takes: a [`Launch`], but no [`EagerLaunch`].
#[diagnostic::on_unimplemented(
    message = "a kernel with a `#[step]` argument cannot be part of a captured plan",
    label = "its value changes every step, and a captured plan would replay the first one",
    note = "make the value device-resident (`&Counter`) or a `#[node]` argument, or run the launch eagerly"
)]
pub trait Capturable {
    /// The launch.
    fn into_launch(self) -> Launch;
}

impl Capturable for Launch {
    fn into_launch(self) -> Launch {
        self
    }
}

/// A buffer as cost expressions see it.
#[derive(Debug, Clone, Copy, Default)]
pub struct BufferShape {
    len: u64,
    bytes: u64,
}

impl BufferShape {
    /// Elements that the kernel touches (the declared length); 0 for an absent optional buffer.
    pub const fn len(self) -> u64 {
        self.len
    }

    /// Whether it is absent or of no elements.
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Bytes that the kernel touches.
    pub const fn bytes(self) -> u64 {
        self.bytes
    }
}

/// A tensor as cost expressions see it.
#[derive(Debug, Clone, Copy)]
pub struct TensorShape {
    rows: u64,
    cols: u64,
    format: TensorFormat,
}

impl TensorShape {
    /// Rows.
    pub const fn rows(self) -> u64 {
        self.rows
    }

    /// Columns.
    pub const fn cols(self) -> u64 {
        self.cols
    }

    /// Bytes of all planes.
    pub const fn bytes(self) -> u64 {
        self.format.bytes(self.rows, self.cols)
    }

    /// Bytes of one row.
    pub const fn row_bytes(self) -> u64 {
        self.format.bytes(1, self.cols)
    }
}

/// Checks type-erased arguments against a declaration; used by the code that `#[kernel]` generates.
#[derive(Debug)]
pub struct Binder<'a> {
    decl: &'static KernelDecl,
    args: &'a [Arg<'a>],
    shapes: Vec<ParamShape>,
}

impl<'a> Binder<'a> {
    /// Checks count, kinds, element types, formats, lengths and shapes.
    ///
    /// # Errors
    /// The first argument that does not fit, by name.
    pub fn new(decl: &'static KernelDecl, args: &'a [Arg<'a>]) -> Result<Self, LaunchError> {
        if args.len() != decl.params.len() {
            let reason = format!("{} arguments given, {} declared", args.len(), decl.params.len());
            return Err(LaunchError { kernel: decl.name, argument: "(all)", reason });
        }
        let mut scalars: ArrayVec<Option<ScalarValue>, MAX_SLOTS> = ArrayVec::new();
        for arg in args {
            scalars.push(if let Arg::Scalar(value) = arg { Some(*value) } else { None });
        }
        let shapes = (decl.shapes)(&Scalars(&scalars));
        let binder = Binder { decl, args, shapes };
        for index in 0..args.len() {
            binder.check(index)?;
        }
        Ok(binder)
    }

    fn fail(&self, index: usize, reason: String) -> LaunchError {
        LaunchError { kernel: self.decl.name, argument: self.decl.params[index].name, reason }
    }

    fn check(&self, index: usize) -> Result<(), LaunchError> {
        let shape = self.shapes[index];
        match (&self.args[index], &self.decl.params[index].kind) {
            (Arg::Buffer { element, len, .. }, ParamKind::Buffer { element: wanted, .. }) => {
                if element != wanted {
                    return Err(
                        self.fail(index, format!("elements of {element}, but the kernel takes {wanted}"))
                    );
                }
                match shape {
                    ParamShape::Len(least) if *len < least => {
                        Err(self.fail(index, format!("{len} elements, but the kernel touches {least}")))
                    }
                    _ => Ok(()),
                }
            }
            (Arg::Buffer { element, len, .. }, ParamKind::Counter(_)) => {
                if *element != "u32" || *len < 1 {
                    return Err(self.fail(index, format!("a counter is one u32, not {len} of {element}")));
                }
                Ok(())
            }
            (Arg::Null, ParamKind::Buffer { optional: true, .. }) => Ok(()),
            (Arg::Tensor(tensor), ParamKind::Tensor(wanted)) => {
                if tensor.format() != *wanted {
                    let reason = format!("a tensor of {}, but the kernel takes {wanted}", tensor.format());
                    return Err(self.fail(index, reason));
                }
                match shape {
                    ParamShape::Tensor { rows, cols } if (tensor.rows(), tensor.cols()) != (rows, cols) => {
                        let (r, c) = (tensor.rows(), tensor.cols());
                        Err(self
                            .fail(index, format!("shape [{r}, {c}], but the scalars say [{rows}, {cols}]")))
                    }
                    _ => Ok(()),
                }
            }
            (Arg::Scalar(value), ParamKind::Scalar { ty, .. }) if value.ty() == *ty => Ok(()),
            (arg, kind) => Err(self.fail(index, format!("{arg:?} given where {kind:?} is declared"))),
        }
    }

    /// The integer scalar at `index`, widened: what the declaration's expressions are evaluated over.
    pub fn integer(&self, index: usize) -> u64 {
        match &self.args[index] {
            Arg::Scalar(value) => value.integer(),
            _ => 0,
        }
    }

    /// The buffer at `index`, as cost expressions see it.
    pub fn buffer(&self, index: usize) -> BufferShape {
        let (ParamShape::Len(len), Arg::Buffer { .. }) = (self.shapes[index], &self.args[index]) else {
            return BufferShape::default();
        };
        let ParamKind::Buffer { element_bytes, .. } = self.decl.params[index].kind else {
            return BufferShape::default();
        };
        BufferShape { len, bytes: len.saturating_mul(u64::from(element_bytes)) }
    }

    /// The tensor at `index`, as cost expressions see it.
    pub fn tensor(&self, index: usize) -> TensorShape {
        let format = self.decl.params[index].kind.tensor_format().unwrap_or(TensorFormat::F32);
        match &self.args[index] {
            Arg::Tensor(tensor) => TensorShape { rows: tensor.rows(), cols: tensor.cols(), format },
            _ => TensorShape { rows: 0, cols: 0, format },
        }
    }

    /// Puts the launch together.
    ///
    /// # Errors
    /// A grid or block that no device accepts.
    pub fn finish(
        self,
        grid: [u64; 3],
        block: [u64; 3],
        shared: u64,
        cost: Cost,
    ) -> Result<Launch, LaunchError> {
        let fail = |argument, reason| LaunchError { kernel: self.decl.name, argument, reason };
        let narrow = |argument: &'static str, sizes: [u64; 3], limits: [u64; 3]| {
            let fits = sizes.iter().zip(limits).all(|(&size, limit)| size > 0 && size <= limit);
            let reason =
                || format!("{sizes:?} is empty or larger than {limits:?}, which is what a device takes");
            if fits { Ok(sizes.map(|size| size as u32)) } else { Err(fail(argument, reason())) }
        };
        let grid = narrow("grid", grid, [i32::MAX as u64, 65_535, 65_535])?;
        let block = narrow("block", block, [1024, 1024, 64])?;
        let threads: u32 = block.iter().product();
        if threads > 1024 {
            return Err(fail("block", format!("{block:?} is {threads} threads; a block holds at most 1024")));
        }
        let shared = u32::try_from(shared).map_err(|_| {
            fail("shared", format!("{shared} bytes of shared memory are more than a device has"))
        })?;
        let mut slots = ArrayVec::new();
        for (index, (arg, param)) in self.args.iter().zip(self.decl.params).enumerate() {
            let i = index as u8;
            match (arg, param.kind) {
                (
                    Arg::Buffer { buffer, .. },
                    ParamKind::Buffer { access, .. } | ParamKind::Counter(access),
                ) => {
                    slots.push(ArgSlot::Pointer { param: i, buffer: buffer.clone(), access });
                }
                (Arg::Tensor(tensor), _) => {
                    for plane in tensor.planes() {
                        slots.push(ArgSlot::Pointer {
                            param: i,
                            buffer: plane.clone(),
                            access: Access::Read,
                        });
                    }
                }
                (Arg::Scalar(value), ParamKind::Scalar { class, .. }) => {
                    slots.push(ArgSlot::Scalar { param: i, value: *value, class });
                }
                _ => slots.push(ArgSlot::Null { param: i }),
            }
        }
        one_device(self.decl, &slots)?;
        Ok(Launch { decl: self.decl, grid, block, shared, args: ArgTable { slots }, cost })
    }
}

/// Checks that all buffers lie on one device but those of parameters that may lie elsewhere.
fn one_device(decl: &'static KernelDecl, slots: &[ArgSlot]) -> Result<(), LaunchError> {
    let mut first: Option<(&'static str, &Device)> = None;
    for slot in slots {
        let ArgSlot::Pointer { buffer, .. } = slot else { continue };
        let argument = &decl.params[slot.param()];
        match first {
            _ if argument.peer => {}
            None => first = Some((argument.name, buffer.device())),
            Some((_, device)) if device == buffer.device() => {}
            Some((other, device)) => {
                let reason = format!(
                    "`{}` lies on {}, but `{other}` on {device}: the kernel runs on one device, and only a `#[peer]` \
                     argument may lie on another",
                    buffer.name(),
                    buffer.device()
                );
                return Err(LaunchError { kernel: decl.name, argument: argument.name, reason });
            }
        }
    }
    Ok(())
}

impl ParamKind {
    /// The weight format of a tensor parameter.
    pub const fn tensor_format(&self) -> Option<TensorFormat> {
        match self {
            ParamKind::Tensor(format) => Some(*format),
            _ => None,
        }
    }

    /// The type of a scalar parameter.
    pub const fn scalar_type(&self) -> Option<ScalarType> {
        match self {
            ParamKind::Scalar { ty, .. } => Some(*ty),
            _ => None,
        }
    }
}
