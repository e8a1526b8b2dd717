//! Which device to open: the value of `--device` and `BITWALK_DEVICE`.

use std::fmt;
use std::str::FromStr;

/// A request for a device.
///
/// Written `auto`, `cuda`, `cuda:N`, `sim` or `sim:N`; `cuda` is `cuda:0`, `sim` is `sim:0`, and `sim:N`
/// opens the simulated device with ordinal N (simulated devices come into being when they are opened).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum DeviceSpec {
    /// The first CUDA device when there is a driver and a device, else the simulated device 0.
    #[default]
    Auto,
    /// The CUDA device with this ordinal, or an error.
    Cuda(u32),
    /// The simulated device with this ordinal.
    Sim(u32),
}

/// A device specification that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` names no device: write auto, cuda, cuda:N, sim or sim:N")]
pub struct ParseDeviceSpecError(String);

impl FromStr for DeviceSpec {
    type Err = ParseDeviceSpecError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || ParseDeviceSpecError(text.to_owned());
        let (kind, ordinal) = match text.split_once(':') {
            // `+3` and the like parse as integers in Rust but are not how an ordinal is written.
            Some((kind, digits)) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                (kind, Some(digits.parse().map_err(|_| bad())?))
            }
            Some(_) => return Err(bad()),
            None => (text, None),
        };
        match (kind, ordinal) {
            ("auto", None) => Ok(Self::Auto),
            ("cuda", n) => Ok(Self::Cuda(n.unwrap_or(0))),
            ("sim", n) => Ok(Self::Sim(n.unwrap_or(0))),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => write!(f, "auto"),
            Self::Cuda(n) => write!(f, "cuda:{n}"),
            Self::Sim(n) => write!(f, "sim:{n}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_round_trip() {
        for (text, spec) in [
            ("auto", DeviceSpec::Auto),
            ("cuda", DeviceSpec::Cuda(0)),
            ("cuda:3", DeviceSpec::Cuda(3)),
            ("sim", DeviceSpec::Sim(0)),
            ("sim:12", DeviceSpec::Sim(12)),
        ] {
            assert_eq!(text.parse(), Ok(spec));
            assert_eq!(spec.to_string().parse(), Ok(spec));
        }
    }

    #[test]
    fn nonsense_is_refused_with_the_text() {
        for text in
            ["", "gpu", "cuda:", "cuda:-1", "cuda:+1", "cuda:1:2", "auto:0", "sim:x", "sim:99999999999"]
        {
            let error = text.parse::<DeviceSpec>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }
}
