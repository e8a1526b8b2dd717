//! Which device to open, the value of `--device` and `BITWALK_DEVICE`; and which several, the value of `--devices`.

use super::{Device, DeviceError};
use ptx_sim::system::System;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

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

/// The most devices that a list may name.
const MAX_DEVICES: usize = 64;

/// A request for several devices of one machine, in the order in which a model's stages lie on them.
///
/// | written | devices |
/// |---|---|
/// | `0,1` | CUDA devices 0 and 1 where there is a driver and a device, else simulated devices 0 and 1 |
/// | `cuda:0,1` | CUDA devices 0 and 1 |
/// | `sim:2` | **two** simulated devices, 0 and 1, of one machine |
/// | `auto`, `cuda`, `sim` | one, as for [`DeviceSpec`] |
///
/// A number after `sim:` is how many here, since simulated devices are all alike; numbers after `cuda:` and alone are ordinals,
/// each given once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum DeviceList {
    /// These ordinals, CUDA's or else simulated.
    Auto(Vec<u32>),
    /// The CUDA devices with these ordinals.
    Cuda(Vec<u32>),
    /// So many simulated devices.
    Sim(u32),
}

impl Default for DeviceList {
    /// `auto`: one device.
    fn default() -> Self {
        Self::Auto(vec![0])
    }
}

/// A list of devices that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{list}` is no list of devices: {reason}. Write 0,1 or cuda:0,1 for GPUs, sim:2 for two simulated devices"
)]
pub struct ParseDeviceListError {
    list: String,
    reason: String,
}

impl FromStr for DeviceList {
    type Err = ParseDeviceListError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = |reason: String| ParseDeviceListError { list: text.to_owned(), reason };
        let number = |word: &str| {
            let digits = !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
            let number = digits.then(|| word.parse::<u32>().ok()).flatten();
            number.ok_or_else(|| bad(format!("`{word}` is no device's number")))
        };
        let ordinals = |words: &str| {
            let mut list = Vec::new();
            for word in words.split(',') {
                let ordinal = number(word)?;
                if list.contains(&ordinal) {
                    return Err(bad(format!("it has device {ordinal} twice")));
                }
                if list.len() == MAX_DEVICES {
                    return Err(bad(format!("it has more than {MAX_DEVICES} devices")));
                }
                list.push(ordinal);
            }
            Ok(list)
        };
        match text.split_once(':') {
            None if text == "auto" => Ok(Self::default()),
            None if text == "cuda" => Ok(Self::Cuda(vec![0])),
            None if text == "sim" => Ok(Self::Sim(1)),
            None => Ok(Self::Auto(ordinals(text)?)),
            Some(("cuda", list)) => Ok(Self::Cuda(ordinals(list)?)),
            Some(("sim", list)) if list.contains(',') => {
                Err(bad("simulated devices are given by their number, all in one".to_owned()))
            }
            Some(("sim", count)) => match number(count)? {
                count if (1..=MAX_DEVICES as u32).contains(&count) => Ok(Self::Sim(count)),
                count => Err(bad(format!("{count} simulated devices are not 1 to {MAX_DEVICES}"))),
            },
            Some((kind, _)) => Err(bad(format!("`{kind}` is no kind of device"))),
        }
    }
}

impl fmt::Display for DeviceList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = match self {
            Self::Sim(count) => return write!(f, "sim:{count}"),
            Self::Auto(list) => list,
            Self::Cuda(list) => {
                write!(f, "cuda:")?;
                list
            }
        };
        list.iter().enumerate().try_for_each(|(at, ordinal)| {
            let comma = if at == 0 { "" } else { "," };
            write!(f, "{comma}{ordinal}")
        })
    }
}

impl DeviceList {
    /// How many devices it asks for.
    #[allow(clippy::len_without_is_empty)] // it names at least one
    pub fn len(&self) -> usize {
        match self {
            Self::Auto(list) | Self::Cuda(list) => list.len(),
            Self::Sim(count) => *count as usize,
        }
    }

    /// Opens the devices, all of one machine; simulated ones of the machine that the process shares.
    ///
    /// # Errors
    /// Those of [`Device::open`].
    pub fn open(&self) -> Result<Vec<Device>, DeviceError> {
        self.open_in(&System::shared())
    }

    /// Opens the devices; simulated ones of `system`.
    ///
    /// # Errors
    /// Those of [`Device::open`].
    pub fn open_in(&self, system: &Arc<System>) -> Result<Vec<Device>, DeviceError> {
        self.open_as(DeviceSpec::Auto, system)
    }

    /// Opens the devices, ordinals alone as devices of the kind that `kind` names; simulated ones of `system`.
    ///
    /// # Errors
    /// Those of [`Device::open`].
    pub fn open_as(&self, kind: DeviceSpec, system: &Arc<System>) -> Result<Vec<Device>, DeviceError> {
        let simulated = |ordinals: &mut dyn Iterator<Item = u32>| -> Result<Vec<Device>, DeviceError> {
            ordinals.map(|ordinal| Device::open_in(system, ordinal)).collect()
        };
        let cuda = |list: &[u32]| -> Result<Vec<Device>, DeviceError> {
            list.iter().map(|&ordinal| Device::open(DeviceSpec::Cuda(ordinal))).collect()
        };
        match (self, kind) {
            (Self::Sim(count), _) => simulated(&mut (0..*count)),
            (Self::Cuda(list), _) | (Self::Auto(list), DeviceSpec::Cuda(_)) => cuda(list),
            (Self::Auto(list), DeviceSpec::Sim(_)) => simulated(&mut list.iter().copied()),
            (Self::Auto(list), DeviceSpec::Auto) => match cuda(list) {
                // As for one device: a GPU that is there and does not work, or is one too few, is an error.
                Err(DeviceError::NoDriver { .. } | DeviceError::NoDevice) => {
                    simulated(&mut list.iter().copied())
                }
                other => other,
            },
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

    #[test]
    fn lists_round_trip() {
        for (text, list, written) in [
            ("0,1", DeviceList::Auto(vec![0, 1]), "0,1"),
            ("3", DeviceList::Auto(vec![3]), "3"),
            ("auto", DeviceList::Auto(vec![0]), "0"),
            ("cuda", DeviceList::Cuda(vec![0]), "cuda:0"),
            ("cuda:1,0", DeviceList::Cuda(vec![1, 0]), "cuda:1,0"),
            ("sim", DeviceList::Sim(1), "sim:1"),
            ("sim:3", DeviceList::Sim(3), "sim:3"),
        ] {
            assert_eq!(text.parse(), Ok(list.clone()));
            assert_eq!(list.to_string(), written);
            assert_eq!(written.parse(), Ok(list));
        }
    }

    #[test]
    fn lists_that_make_no_sense_are_told_why() {
        let many = (0..65).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        for (text, words) in [
            ("", "`` is no device's number"),
            ("0,", "`` is no device's number"),
            ("0,-1", "`-1` is no"),
            ("cuda:0,0", "device 0 twice"),
            ("cuda:", "`` is no device's number"),
            ("cuda:0,99999999999", "`99999999999` is no"),
            ("sim:0", "0 simulated devices"),
            ("sim:65", "65 simulated devices"),
            ("sim:0,1", "in one"),
            ("gpu:0", "`gpu` is no kind"),
            ("cuda:0,cuda:1", "`cuda:1` is no"),
            (&many, "more than 64"),
        ] {
            let error = text.parse::<DeviceList>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains(words), "{error}");
            assert!(error.contains("sim:2 for two simulated devices"), "{error}");
        }
    }

    #[test]
    fn simulated_lists_are_of_one_machine() {
        let system = System::new(ptx_sim::system::SystemConfig { devices: 3, ..Default::default() });
        let devices = DeviceList::Sim(3).open_in(&system).unwrap();
        assert_eq!(devices.iter().map(ToString::to_string).collect::<Vec<_>>(), ["sim:0", "sim:1", "sim:2"]);
        assert!(devices[2].peer_access(&devices[0]).unwrap());
        let named = DeviceList::Auto(vec![1, 2]).open_as(DeviceSpec::Sim(0), &system).unwrap();
        assert_eq!(named.iter().map(ToString::to_string).collect::<Vec<_>>(), ["sim:1", "sim:2"]);
        let error = DeviceList::Sim(4).open_in(&system).unwrap_err().to_string();
        assert_eq!(error, "there is no device sim:3: 3 are available, ordinals 0 to 2");
        // Where there is no GPU, ordinals alone are those of simulated devices.
        if Device::open(DeviceSpec::Cuda(0)).is_err() {
            let devices = DeviceList::Auto(vec![2, 0]).open_in(&system).unwrap();
            assert_eq!(devices.iter().map(ToString::to_string).collect::<Vec<_>>(), ["sim:2", "sim:0"]);
            assert!(DeviceList::Cuda(vec![0, 1]).open_in(&system).is_err());
        }
    }
}
