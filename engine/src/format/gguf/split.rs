//! Models split over several files, `NAME-00001-of-000NN.gguf` … , as `gguf-split` writes them.
//!
//! Each part is a GGUF file with its own tensors. The first holds the model's metadata; each says which
//! part it is (`split.no`, from 0) and of how many (`split.count`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::metadata::Metadata;
use super::part::Part;
use crate::format::FormatError;
use crate::format::mmap::FileMap;

const NUMBER: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// The number of parts, if there are more than one.
pub(super) fn count(metadata: &Metadata) -> Result<Option<u32>, FormatError> {
    Ok(metadata.u32(COUNT)?.filter(|&count| count > 1))
}

/// All parts of the model that `part` belongs to, in order.
pub(super) fn gather(part: Part) -> Result<Vec<Part>, FormatError> {
    let Some(count) = count(&part.metadata)? else { return Ok(vec![part]) };
    let given = part.metadata.require_u32(NUMBER)?;
    if given >= count {
        return Err(part
            .metadata
            .error(NUMBER, format!("is {given}, but there are only {count} parts (from 0)")));
    }
    let stem = stem(&part.path, given, count)?;

    let mut given_part = Some(part);
    let mut parts: Vec<Part> = Vec::new();
    for number in 0..count {
        let part = if number == given {
            given_part.take().expect("each number comes once")
        } else {
            open(&part_path(&stem, number, count), number, count)?
        };
        parts.push(part);
    }

    let metadata = &parts[0].metadata;
    let announced = metadata.u32(TENSORS)?;
    let found: usize = parts.iter().map(|part| part.tensors.len()).sum();
    match announced {
        Some(announced) if announced as usize != found => {
            Err(metadata
                .error(TENSORS, format!("is {announced}, but the {count} parts hold {found} tensors")))
        }
        _ => Ok(parts),
    }
}

fn open(path: &Path, number: u32, count: u32) -> Result<Part, FormatError> {
    let error = |reason: String| FormatError::Split { path: path.into(), reason };
    if !path.exists() {
        return Err(error(format!("part {} of {count} is absent; put it beside the others", number + 1)));
    }
    let part = Part::parse(path, Arc::new(FileMap::open(path)?))?;
    let (no, of) = (part.metadata.require_u32(NUMBER)?, part.metadata.require_u32(COUNT)?);
    if (no, of) != (number, count) {
        return Err(error(format!(
            "by its name part {} of {count}, but its metadata says part {} of {of}",
            number + 1,
            u64::from(no) + 1
        )));
    }
    Ok(part)
}

/// What the names of all parts begin with.
fn stem(path: &Path, number: u32, count: u32) -> Result<PathBuf, FormatError> {
    let suffix = suffix(number, count);
    let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(&suffix));
    match name {
        Some(stem) => Ok(path.with_file_name(stem)),
        None => Err(FormatError::Split {
            path: path.into(),
            reason: format!(
                "its metadata says part {} of {count}, so its name must end in `{suffix}`",
                u64::from(number) + 1
            ),
        }),
    }
}

fn part_path(stem: &Path, number: u32, count: u32) -> PathBuf {
    let mut path = stem.as_os_str().to_owned();
    path.push(suffix(number, count));
    path.into()
}

fn suffix(number: u32, count: u32) -> String {
    format!("-{:05}-of-{count:05}.gguf", u64::from(number) + 1)
}
