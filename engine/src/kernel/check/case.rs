//! The arguments of one case, from the declaration: what the device and the reference get.

use std::borrow::Cow;

use super::element::{Codec, Output, codec};
use super::random::Random;
use super::tensor;
use crate::device::Access;
use crate::kernel::{
    Case, Fill, HostArg, HostTensor, KernelDecl, ParamDecl, ParamKind, ParamShape, ScalarValue, Scalars,
    TensorFormat,
};

/// One parameter's argument, on the host.
pub(super) enum Input {
    /// Passed by value.
    Scalar(ScalarValue),
    /// A null pointer.
    Null,
    /// A buffer that is read.
    Read { codec: &'static dyn Codec, bytes: Vec<u8> },
    /// A buffer that is written, or read and written; `bytes` are its first contents in the latter case.
    Write { codec: &'static dyn Codec, output: Output, bytes: Vec<u8> },
    /// A device-resident value; `mutable` when the kernel may write it.
    Counter { value: u32, mutable: bool },
    /// A weight matrix.
    Tensor { format: TensorFormat, shape: [u64; 2], planes: Vec<Vec<u8>>, host: HostTensor },
}

impl Input {
    /// The reference's argument, with outputs poisoned.
    pub fn host(&self, poison: u8) -> HostArg {
        match self {
            Input::Scalar(value) => HostArg::Scalar(*value),
            Input::Null => HostArg::Null,
            Input::Read { codec, bytes } => codec.input(bytes),
            Input::Write { codec, output: Output::Updated, bytes } => codec.initial(bytes),
            Input::Write { codec, output: Output::Written, bytes } => {
                codec.poisoned(codec.count(bytes.len()), poison)
            }
            Input::Counter { value, .. } => HostArg::Counter(*value),
            Input::Tensor { host, .. } => HostArg::Tensor(host.clone()),
        }
    }

    /// What the device's buffers hold before the launch, one by plane.
    pub fn device(&self, poison: u8) -> Vec<Cow<'_, [u8]>> {
        match self {
            Input::Scalar(_) | Input::Null => Vec::new(),
            Input::Read { bytes, .. } | Input::Write { output: Output::Updated, bytes, .. } => {
                vec![bytes.into()]
            }
            Input::Write { output: Output::Written, bytes, .. } => vec![vec![poison; bytes.len()].into()],
            Input::Counter { value, .. } => vec![value.to_le_bytes().to_vec().into()],
            Input::Tensor { planes, .. } => planes.iter().map(Cow::from).collect(),
        }
    }
}

/// The arguments of `case`.
///
/// # Errors
/// A case that names what the kernel does not have, leaves out what it needs, or gives it of another type.
pub(super) fn inputs(decl: &KernelDecl, case: &Case) -> Result<Vec<Input>, String> {
    names(decl, case)?;
    let scalars = decl.params.iter().map(|param| scalar(param, case)).collect::<Result<Vec<_>, _>>()?;
    let shapes = (decl.shapes)(&Scalars(&scalars));
    let arguments = decl.params.iter().zip(&scalars).zip(shapes);
    arguments
        .map(|((param, scalar), shape)| {
            let random = Random::new(&[decl.name, &case.label, param.name]);
            input(param, *scalar, shape, case, random).map_err(|reason| format!("`{}`: {reason}", param.name))
        })
        .collect()
}

/// Every name that a case gives is one of the signature's, of the right kind, and given once.
fn names(decl: &KernelDecl, case: &Case) -> Result<(), String> {
    let scalars = case.scalars.iter().map(|(name, _)| (*name, "a scalar"));
    let lens = case.lens.iter().map(|(name, _)| (*name, "a length"));
    let fills = case.fills.iter().map(|(name, _)| (*name, "contents"));
    let absent = case.absent.iter().map(|name| (*name, "absence"));
    let mut seen = std::collections::HashSet::new();
    for (name, what) in scalars.chain(lens).chain(fills).chain(absent) {
        let Some(index) = decl.param_index(name) else {
            return Err(format!("the case gives {what} for `{name}`, which the kernel does not have"));
        };
        let fits = match (&decl.params[index].kind, what) {
            (ParamKind::Scalar { .. }, _) => what == "a scalar",
            (_, "a scalar") => false,
            (ParamKind::Buffer { optional, .. }, "absence") => *optional,
            (_, "absence") => false,
            (ParamKind::Tensor(_), "a length") => false,
            _ => true,
        };
        if !fits {
            return Err(format!("the case gives {what} for `{name}`, which cannot have it"));
        }
        if !seen.insert((name, what)) {
            return Err(format!("the case gives {what} for `{name}` twice"));
        }
    }
    Ok(())
}

fn scalar(param: &ParamDecl, case: &Case) -> Result<Option<ScalarValue>, String> {
    let ParamKind::Scalar { ty, .. } = param.kind else { return Ok(None) };
    let given = case.scalars.iter().find(|(name, _)| *name == param.name);
    match given {
        None => Err(format!("the case gives no value for the scalar `{}`", param.name)),
        Some((_, value)) if value.ty() != ty => {
            Err(format!("the case gives {value:?} for `{}`, a scalar of type {ty:?}", param.name))
        }
        Some((_, value)) => Ok(Some(*value)),
    }
}

fn input(
    param: &ParamDecl,
    scalar: Option<ScalarValue>,
    shape: ParamShape,
    case: &Case,
    random: Random,
) -> Result<Input, String> {
    let fill = case.fills.iter().find(|(name, _)| *name == param.name).map(|(_, fill)| fill);
    match param.kind {
        ParamKind::Scalar { .. } => scalar.map(Input::Scalar).ok_or_else(|| "no value".to_owned()),
        ParamKind::Counter(access) => match fill {
            Some(Fill::Values { element: "u32", bytes }) if bytes.len() == 4 => {
                let value = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                Ok(Input::Counter { value, mutable: access != Access::Read })
            }
            _ => Err("the case gives no value for this counter: `.counter(name, value)`".to_owned()),
        },
        ParamKind::Buffer { element, element_bytes, access, .. } => {
            if case.absent.contains(&param.name) {
                return Ok(Input::Null);
            }
            let codec =
                codec(element).ok_or_else(|| format!("elements of {element} have no reference type"))?;
            let ParamShape::Len(least) = shape else { return Err("it has no declared length".to_owned()) };
            let asked = case.lens.iter().find(|(name, _)| *name == param.name).map(|(_, len)| *len as u64);
            let len = asked.unwrap_or(least).max(1);
            // A case is written by hand, so a length that no machine holds is a slip in its scalars.
            if len.saturating_mul(u64::from(element_bytes)) > 1 << 34 {
                return Err(format!("{len} elements are more than a case may have"));
            }
            let len = len as usize;
            let output = match access {
                Access::Read => None,
                Access::Write => Some(Output::Written),
                Access::ReadWrite => Some(Output::Updated),
            };
            if output == Some(Output::Written) && fill.is_some() {
                return Err("the case gives contents, but the kernel only writes it".to_owned());
            }
            let bytes = match output {
                Some(Output::Written) => vec![0; len * element_bytes as usize],
                _ => codec.fill(fill, len, random)?,
            };
            Ok(match output {
                None => Input::Read { codec, bytes },
                Some(output) => Input::Write { codec, output, bytes },
            })
        }
        ParamKind::Tensor(format) => {
            let ParamShape::Tensor { rows, cols } = shape else {
                return Err("it has no declared shape".to_owned());
            };
            if rows.saturating_mul(cols) > 1 << 32 {
                return Err(format!("a tensor [{rows}, {cols}] is larger than a case may have"));
            }
            let (planes, host) = tensor::random(format, rows, cols, fill, random)?;
            Ok(Input::Tensor { format, shape: [rows, cols], planes, host })
        }
    }
}
