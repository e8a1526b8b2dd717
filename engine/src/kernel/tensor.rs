//! Weight matrices on a device: a format, a shape and one buffer a plane.

use std::fmt;
use std::marker::PhantomData;

use arrayvec::ArrayVec;

use crate::device::{DeviceError, RawBuffer};

/// One plane of a weight format: an array with a fixed number of bytes a block, or a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaneDecl {
    /// Name of the plane, as kernels call it.
    pub name: &'static str,
    /// The C++ element that the kernel's pointer has; 16-bit floats are passed as their bits, `uint16_t`.
    pub c_type: &'static str,
    /// Bytes for each block of [`TensorFormat::block`] weights.
    pub block_bytes: u64,
    /// Bytes for each row, in planes that hold one element a row; 0 in all others.
    pub row_bytes: u64,
}

impl PlaneDecl {
    /// Bytes of the plane of a matrix of `rows` rows of `blocks` blocks.
    pub const fn bytes(&self, rows: u64, blocks: u64) -> u64 {
        rows.saturating_mul(blocks.saturating_mul(self.block_bytes).saturating_add(self.row_bytes))
    }
}

/// The formats in which weights stay on the device. All planes are row-major, `[rows, cols / block]` blocks, but for those
/// with one element a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)] // the field's own names
pub enum TensorFormat {
    /// IEEE single.
    F32,
    /// IEEE half.
    F16,
    /// bfloat16.
    BF16,
    /// 32 weights: `qs` 32 × i8, `d` f16; `w = d·q`.
    Q8_0,
    /// 32 weights: `qs` 16 bytes (byte j: element j low, j + 16 high), `d` f16; `w = d·(q − 8)`.
    Q4_0,
    /// 32 weights: `qs` as Q4_0, `dm` 2 × f16; `w = d·q + m`.
    Q4_1,
    /// 32 weights of five bits, q, in the order of [`pack_five_bits`](crate::quant::pack_five_bits): `qs` 4 words, `qt` 1 word,
    /// `d` f16; `w = d·(q − 16)`.
    Q5_0,
    /// 256 weights, eight sub-blocks of 32: of each `qs` 16 bytes as Q4_0 and `scales` 2 bytes (scale s, minimum m, six bits
    /// each); `dm` 2 × f16; `w = (d·s)·q − dm·m`.
    Q4_K,
    /// 256 weights: as Q4_K, but of each sub-block `qs` 4 words and `qt` 1 word of five bits a weight as Q5_0.
    Q5_K,
    /// 256 weights of six bits, q, in the order of [`pack_six_bits`](crate::quant::pack_six_bits): for each 32 weights `qs` 4 words, `qt`
    /// 2 words and `scales` 2 × i8, s, of 16 weights each; `d` f16, alone in a word; `w = (d·s)·(q − 32)`.
    Q6_K,
    /// 16 weights: `qs` 8 bytes (byte j: element 2j low, 2j + 1 high) of e2m1 (bit 3 the sign), `scales` 1 × e4m3; and a
    /// `global` f32 for each row, so that matrices with scales of their own can be stacked; `w = (e2m1·e4m3)·global`, of
    /// which the first product is exact in f32.
    NVFP4,
}

const fn plane(name: &'static str, c_type: &'static str, block_bytes: u64) -> PlaneDecl {
    PlaneDecl { name, c_type, block_bytes, row_bytes: 0 }
}

const fn row_plane(name: &'static str, c_type: &'static str, row_bytes: u64) -> PlaneDecl {
    PlaneDecl { name, c_type, block_bytes: 0, row_bytes }
}

impl TensorFormat {
    /// Every format.
    pub const ALL: [TensorFormat; 11] = [
        TensorFormat::F32,
        TensorFormat::F16,
        TensorFormat::BF16,
        TensorFormat::Q8_0,
        TensorFormat::Q4_0,
        TensorFormat::Q4_1,
        TensorFormat::Q5_0,
        TensorFormat::Q4_K,
        TensorFormat::Q5_K,
        TensorFormat::Q6_K,
        TensorFormat::NVFP4,
    ];

    /// The format's planes.
    pub const fn planes(self) -> &'static [PlaneDecl] {
        match self {
            TensorFormat::F32 => const { &[plane("data", "float", 4)] },
            TensorFormat::F16 => const { &[plane("data", "uint16_t", 2)] },
            TensorFormat::BF16 => const { &[plane("data", "uint16_t", 2)] },
            TensorFormat::Q8_0 => const { &[plane("qs", "int8_t", 32), plane("d", "uint16_t", 2)] },
            TensorFormat::Q4_0 => const { &[plane("qs", "uint8_t", 16), plane("d", "uint16_t", 2)] },
            TensorFormat::Q4_1 => const { &[plane("qs", "uint8_t", 16), plane("dm", "uint16_t", 4)] },
            TensorFormat::Q5_0 => {
                const { &[plane("qs", "uint32_t", 16), plane("qt", "uint32_t", 4), plane("d", "uint16_t", 2)] }
            }
            TensorFormat::Q4_K => {
                const { &[plane("qs", "uint8_t", 128), plane("scales", "uint8_t", 16), plane("dm", "uint16_t", 4)] }
            }
            TensorFormat::Q5_K => {
                const {
                    &[
                        plane("qs", "uint32_t", 128),
                        plane("qt", "uint32_t", 32),
                        plane("scales", "uint8_t", 16),
                        plane("dm", "uint16_t", 4),
                    ]
                }
            }
            TensorFormat::Q6_K => {
                const {
                    &[
                        plane("qs", "uint32_t", 128),
                        plane("qt", "uint32_t", 64),
                        plane("scales", "int8_t", 16),
                        plane("d", "uint16_t", 4),
                    ]
                }
            }
            TensorFormat::NVFP4 => {
                const {
                    &[
                        plane("qs", "uint8_t", 8),
                        plane("scales", "uint8_t", 1),
                        row_plane("global", "float", 4),
                    ]
                }
            }
        }
    }

    /// Weights a block.
    pub const fn block(self) -> u64 {
        match self {
            TensorFormat::F32 | TensorFormat::F16 | TensorFormat::BF16 => 1,
            TensorFormat::Q8_0 | TensorFormat::Q4_0 | TensorFormat::Q4_1 | TensorFormat::Q5_0 => 32,
            TensorFormat::Q4_K | TensorFormat::Q5_K | TensorFormat::Q6_K => 256,
            TensorFormat::NVFP4 => 16,
        }
    }

    /// What the number of columns must be a multiple of: kernels load 16 bytes at a time.
    pub const fn column_multiple(self) -> u64 {
        match self {
            TensorFormat::F32 | TensorFormat::F16 | TensorFormat::BF16 => 8,
            TensorFormat::Q8_0
            | TensorFormat::Q4_0
            | TensorFormat::Q4_1
            | TensorFormat::Q5_0
            | TensorFormat::NVFP4 => 32,
            TensorFormat::Q4_K | TensorFormat::Q5_K | TensorFormat::Q6_K => 256,
        }
    }

    /// Whether inner products of the `i16` program are taken in integers.
    pub const fn is_integer(self) -> bool {
        !matches!(self, TensorFormat::F32 | TensorFormat::F16 | TensorFormat::BF16)
    }

    /// Bytes of all planes of a `[rows, cols]` matrix.
    pub const fn bytes(self, rows: u64, cols: u64) -> u64 {
        let planes = self.planes();
        let (mut sum, mut i) = (0u64, 0);
        while i < planes.len() {
            sum = sum.saturating_add(planes[i].bytes(rows, cols / self.block()));
            i += 1;
        }
        sum
    }

    /// The name that model files and tools print.
    pub const fn name(self) -> &'static str {
        match self {
            TensorFormat::F32 => "F32",
            TensorFormat::F16 => "F16",
            TensorFormat::BF16 => "BF16",
            TensorFormat::Q8_0 => "Q8_0",
            TensorFormat::Q4_0 => "Q4_0",
            TensorFormat::Q4_1 => "Q4_1",
            TensorFormat::Q5_0 => "Q5_0",
            TensorFormat::Q4_K => "Q4_K",
            TensorFormat::Q5_K => "Q5_K",
            TensorFormat::Q6_K => "Q6_K",
            TensorFormat::NVFP4 => "NVFP4",
        }
    }
}

impl fmt::Display for TensorFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A format as a type, so that a kernel's signature can name it.
pub trait QuantFormat: 'static {
    /// Which format.
    const FORMAT: TensorFormat;
}

macro_rules! formats {
    ($($name:ident)*) => {$(
        #[doc = concat!("[`TensorFormat::", stringify!($name), "`] as a type.")]
        #[derive(Debug, Clone, Copy)]
        #[allow(non_camel_case_types)]
        pub struct $name;
        impl QuantFormat for $name {
            const FORMAT: TensorFormat = TensorFormat::$name;
        }
    )*};
}
formats!(F32 F16 BF16 Q8_0 Q4_0 Q4_1 Q5_0 Q4_K Q5_K Q6_K NVFP4);

/// A weight matrix whose format is known at run time.
#[derive(Debug, Clone)]
pub struct RawTensor {
    format: TensorFormat,
    rows: u64,
    cols: u64,
    planes: ArrayVec<RawBuffer, 4>,
}

impl RawTensor {
    /// A `[rows, cols]` matrix over `planes`, one buffer a plane of `format` in order.
    ///
    /// # Errors
    /// A sentence, when the columns do not fit the format, or a plane is absent or of another size.
    pub fn new(format: TensorFormat, rows: u64, cols: u64, planes: &[RawBuffer]) -> Result<Self, String> {
        if rows == 0 || cols == 0 || !cols.is_multiple_of(format.column_multiple()) {
            let multiple = format.column_multiple();
            return Err(format!(
                "shape [{rows}, {cols}]: {format} needs rows, and columns a multiple of {multiple}"
            ));
        }
        let decls = format.planes();
        if planes.len() != decls.len() {
            return Err(format!("{} planes given, {format} has {}", planes.len(), decls.len()));
        }
        for (decl, buffer) in decls.iter().zip(planes) {
            let wanted = decl.bytes(rows, cols / format.block());
            if (buffer.bytes() as u64) < wanted {
                return Err(format!("plane {} holds {} bytes, not {wanted}", decl.name, buffer.bytes()));
            }
        }
        Ok(RawTensor { format, rows, cols, planes: planes.iter().cloned().collect() })
    }

    /// The format.
    pub fn format(&self) -> TensorFormat {
        self.format
    }

    /// Rows: outputs.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Columns: the inner product's length.
    pub fn cols(&self) -> u64 {
        self.cols
    }

    /// One buffer a plane.
    pub fn planes(&self) -> &[RawBuffer] {
        &self.planes
    }

    /// Bytes of all planes.
    pub fn bytes(&self) -> u64 {
        self.format.bytes(self.rows, self.cols)
    }

    /// The matrix of the `rows` rows from `first` on, in the same memory.
    ///
    /// # Errors
    /// Rows that are not there.
    pub fn row_range(&self, first: u64, rows: u64) -> Result<RawTensor, DeviceError> {
        let blocks = self.cols / self.format.block();
        let slice = |(decl, plane): (&PlaneDecl, &RawBuffer)| {
            let from = decl.bytes(first, blocks) as usize;
            let to = from.saturating_add(decl.bytes(rows, blocks) as usize);
            Ok(plane.clone().typed::<u8>()?.slice(from..to)?.raw())
        };
        let planes =
            self.format.planes().iter().zip(&self.planes).map(slice).collect::<Result<_, DeviceError>>()?;
        Ok(RawTensor { format: self.format, rows, cols: self.cols, planes })
    }

    /// The tensor as a typed one, if it has the format `Q`.
    pub fn typed<Q: QuantFormat>(&self) -> Option<QTensor<Q>> {
        (self.format == Q::FORMAT).then(|| QTensor { raw: self.clone(), format: PhantomData })
    }
}

/// A weight matrix of format `Q`.
#[derive(Debug, Clone)]
pub struct QTensor<Q> {
    raw: RawTensor,
    format: PhantomData<Q>,
}

impl<Q: QuantFormat> QTensor<Q> {
    /// The tensor without its type.
    pub fn raw(&self) -> &RawTensor {
        &self.raw
    }
}
