//! One GGUF file: header, metadata, tensor table.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::metadata::Metadata;
use super::reader::Reader;
use crate::format::mmap::FileMap;
use crate::format::{DType, FormatError, TensorInfo};

/// Where tensor data may start if the file does not say otherwise.
const DEFAULT_ALIGNMENT: u32 = 32;
/// Largest alignment accepted: more than a page serves nothing.
const MAX_ALIGNMENT: u32 = 1 << 16;
/// Most tensors a file may have; the largest real models have some thousands.
const MAX_TENSORS: u64 = 1 << 16;
/// Longest tensor name. ggml's own limit is 63 bytes.
const MAX_NAME: u64 = 255;
/// Most dimensions, as in ggml.
const MAX_DIMS: u32 = 4;

/// A parsed file. Tensor offsets have been checked: each range lies in the file, aligned, and no two overlap.
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) map: Arc<FileMap>,
    pub(super) version: u32,
    pub(super) metadata: Metadata,
    /// Tensors with the byte offset of their data from the start of the file.
    pub(super) tensors: Vec<(TensorInfo, usize)>,
}

impl Part {
    pub(super) fn parse(path: &Path, map: Arc<FileMap>) -> Result<Part, FormatError> {
        let mut reader = Reader::new(path, &map);
        let version = read_version(&mut reader)?;
        let at = reader.at();
        let tensor_count = reader.u64("the tensor count")?;
        if tensor_count > MAX_TENSORS {
            return Err(reader
                .error(at, format!("{tensor_count} tensors announced; at most {MAX_TENSORS} are allowed")));
        }
        let pair_count = reader.u64("the metadata pair count")?;
        let metadata = Metadata::read(&mut reader, &map, pair_count)?;
        let alignment = alignment(&metadata)?;

        let mut table = Vec::new();
        for i in 0..tensor_count {
            table.push(read_tensor(&mut reader, i)?);
        }
        // On overflow past the end of the address space there is no data either.
        let data_start = (reader.at() as u64).next_multiple_of(alignment.into());
        let tensors = place(path, map.len() as u64, data_start, alignment.into(), table)?;
        Ok(Part { path: path.into(), map, version, metadata, tensors })
    }
}

fn read_version(reader: &mut Reader<'_>) -> Result<u32, FormatError> {
    let path = reader.path();
    let left = reader.left();
    let magic = reader.take(left.min(8), "the magic number")?;
    if !magic.starts_with(b"GGUF") {
        let found = match magic {
            [b'F', b'U', b'G', b'G', ..] => "its magic number is byte-swapped: a big-endian file".into(),
            [b't', b'j', b'g', b'g', ..] | [b'f', b'm', b'g', b'g', ..] | [b'l', b'm', b'g', b'g', ..] => {
                "it is in one of ggml's formats from before GGUF; convert it".into()
            }
            [b'P', b'K', 3, 4, ..] => "it is a zip archive; a wheel or a PyTorch checkpoint, perhaps".into(),
            // A safetensors file begins with the length of its JSON header, then the header.
            [_, _, _, _, _, 0, 0, 0] if reader.left() > 0 && reader.take(1, "the header")? == b"{" => {
                "it looks like safetensors, which holds no GGUF metadata".into()
            }
            _ => format!("it begins with {:02x?}, not with `GGUF`", &magic[..magic.len().min(4)]),
        };
        return Err(FormatError::NotGguf { path: path.into(), found });
    }
    let Some(version) = magic.get(4..8) else {
        return Err(reader.error(4, "the file ends inside the version"));
    };
    let version = u32::from_le_bytes(version.try_into().expect("four bytes"));
    match version {
        2 | 3 => Ok(version),
        1 => Err(reader.error(4, "GGUF version 1 is not supported; versions 2 and 3 are")),
        _ if (1..=0xffff).contains(&version.swap_bytes()) => Err(reader.error(
            4,
            format!("a big-endian file (its version reads {version:#010x}); only little-endian files are supported"),
        )),
        _ => Err(reader.error(4, format!("GGUF version {version} is not supported; versions 2 and 3 are"))),
    }
}

fn alignment(metadata: &Metadata) -> Result<u32, FormatError> {
    const KEY: &str = "general.alignment";
    let alignment = metadata.u32(KEY)?.unwrap_or(DEFAULT_ALIGNMENT);
    if !(8..=MAX_ALIGNMENT).contains(&alignment) || !alignment.is_power_of_two() {
        let reason = format!("is {alignment}, but a power of two from 8 to {MAX_ALIGNMENT} is wanted");
        return Err(metadata.error(KEY, reason));
    }
    Ok(alignment)
}

/// A table entry: the tensor and the offset of its data within the data section.
fn read_tensor(reader: &mut Reader<'_>, i: u64) -> Result<(TensorInfo, u64), FormatError> {
    let path = reader.path();
    let name = reader.name(MAX_NAME, format_args!("the name of tensor {i}"))?;
    let error = |reason: String| FormatError::Tensor { path: path.into(), tensor: name.into(), reason };

    let at = reader.at();
    let dims = reader.u32(format_args!("the dimension count of tensor `{name}`"))?;
    if dims > MAX_DIMS {
        return Err(error(format!("has {dims} dimensions at byte {at}; at most {MAX_DIMS} are allowed")));
    }
    let mut shape = Vec::with_capacity(dims as usize);
    for d in 0..dims {
        shape.push(reader.u64(format_args!("dimension {d} of tensor `{name}`"))?);
    }
    if let Some(d) = shape.iter().position(|&extent| extent == 0) {
        return Err(error(format!("dimension {d} is 0 at byte {}", at + 4 + 8 * d)));
    }
    shape.reverse();

    let at = reader.at();
    let number = reader.u32(format_args!("the type of tensor `{name}`"))?;
    let dtype = DType::from_ggml(number)
        .ok_or_else(|| error(format!("has type {number} at byte {at}, which ggml does not define")))?;
    let offset = reader.u64(format_args!("the offset of tensor `{name}`"))?;
    let info = TensorInfo { name: name.into(), shape, dtype };
    checked_bytes(&info).map_err(error)?;
    Ok((info, offset))
}

/// The tensor's size, if it can be computed.
fn checked_bytes(info: &TensorInfo) -> Result<u64, String> {
    let row = info.dtype.row_bytes(info.cols()).ok_or_else(|| {
        format!(
            "its rows of {} elements are no whole blocks of {} ({})",
            info.cols(),
            info.dtype.block_len(),
            info.dtype
        )
    })?;
    let mut outer = info.shape.iter().rev().skip(1);
    let bytes = outer.try_fold(row, |bytes, &extent| bytes.checked_mul(extent));
    // The number of elements must be computable too, whatever the type.
    let elements = info.shape.iter().try_fold(1u64, |n, &extent| n.checked_mul(extent));
    match (bytes, elements) {
        (Some(bytes), Some(_)) => Ok(bytes),
        _ => Err(format!("its size overflows: shape {:?} of {}", info.shape, info.dtype)),
    }
}

/// Turns offsets in the data section into offsets in the file, and checks them.
fn place(
    path: &Path,
    file_len: u64,
    data_start: u64,
    alignment: u64,
    table: Vec<(TensorInfo, u64)>,
) -> Result<Vec<(TensorInfo, usize)>, FormatError> {
    let error = |info: &TensorInfo, reason| FormatError::Tensor {
        path: path.into(),
        tensor: info.name.clone(),
        reason,
    };
    let mut placed = Vec::with_capacity(table.len());
    for (info, offset) in table {
        if !offset.is_multiple_of(alignment) {
            return Err(error(
                &info,
                format!("its offset {offset} is no multiple of the alignment {alignment}"),
            ));
        }
        let start = data_start.checked_add(offset);
        let end = start.and_then(|start| start.checked_add(info.bytes()));
        match (start, end) {
            (Some(start), Some(end)) if end <= file_len => placed.push((info, start as usize)),
            (Some(start), Some(end)) => {
                let reason = format!(
                    "its data is announced from byte {start} to {end}, but the file ends at {file_len}; cut short?"
                );
                return Err(error(&info, reason));
            }
            _ => return Err(error(&info, format!("its offset {offset} overflows"))),
        }
    }
    let mut order: Vec<usize> = (0..placed.len()).collect();
    order.sort_unstable_by_key(|&i| placed[i].1);
    for pair in order.windows(2) {
        let ((before, start), (after, next)) = (&placed[pair[0]], &placed[pair[1]]);
        if *start as u64 + before.bytes() > *next as u64 {
            return Err(error(
                after,
                format!("its data at byte {next} overlaps that of tensor `{}`", before.name),
            ));
        }
    }
    Ok(placed)
}
