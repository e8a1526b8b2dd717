//! Whether what one device sends to another arrives: a pattern over every link, both ways, before anything relies on it.
//!
//! A machine may be set up so that copies between its devices report success and deliver other bytes (an IOMMU in the way is
//! the usual cause), and then a pipeline computes nonsense from the first hop on. So each link carries a pattern in which no
//! two words of a place are alike, by copies and by stores of a kernel, in a small and a large size, and is read back.

use super::{Buffer, Device, DeviceError, LaunchParams, Stream};
use std::fmt;

/// The sizes that links are checked with, in bytes: one that goes in one piece, one that does not.
pub const SIZES: [usize; 2] = [16 << 10, 64 << 20];

/// How bytes went from one device to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A copy between the two devices' memories.
    Copy,
    /// A kernel of the first device storing to the memory of the second.
    Stores,
    /// A copy through the host, where the devices are not connected.
    Staged,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Copy => "copied directly",
            Self::Stores => "stored by a kernel",
            Self::Staged => "copied through the host",
        })
    }
}

/// Why a link cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// Other bytes arrived than were sent.
    #[error(
        "the link from {from} to {to} is corrupt: of {bytes} bytes {way}, the first wrong ones are at offset {offset}, \
         {found:#010x} where {expected:#010x} was sent. Use other devices (`--devices`), or have the machine's connection \
         between the two looked at (an IOMMU or ACS setting is the usual cause)"
    )]
    Corrupt {
        /// The device that sent.
        from: String,
        /// The device that received.
        to: String,
        /// How.
        way: Way,
        /// How many bytes were sent.
        bytes: usize,
        /// Offset in bytes of the first 32-bit word that differs.
        offset: usize,
        /// The word sent.
        expected: u32,
        /// The word that arrived.
        found: u32,
    },
    /// The check could not run.
    #[error("checking the link from {from} to {to}: {source}")]
    Device {
        /// The device that sends.
        from: String,
        /// The device that receives.
        to: String,
        /// What failed.
        source: DeviceError,
    },
}

/// A link that delivered all patterns, in one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedLink {
    /// The device that sent.
    pub from: String,
    /// The device that received.
    pub to: String,
    /// Whether the first device reaches the memory of the second, so that hops can be made by kernels and in graphs.
    pub direct: bool,
    /// Bytes compared.
    pub bytes: u64,
}

impl fmt::Display for CheckedLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.direct { "direct" } else { "through the host" };
        write!(f, "link {} -> {}: {way}, {} bytes arrived as sent", self.from, self.to, self.bytes)
    }
}

/// Checks every link among `devices`, both ways, with patterns of [`SIZES`]; needs twice 64 MiB on each device while it runs.
///
/// # Errors
/// [`LinkError::Corrupt`] for the first link that delivers other bytes; [`LinkError::Device`].
pub fn check(devices: &[Device]) -> Result<Vec<CheckedLink>, LinkError> {
    check_with(devices, &SIZES)
}

/// [`check`] with patterns of these sizes in bytes, each a multiple of 16.
///
/// # Errors
/// As [`check`].
pub fn check_with(devices: &[Device], sizes: &[usize]) -> Result<Vec<CheckedLink>, LinkError> {
    let patterns: Vec<Vec<u32>> = sizes.iter().map(|bytes| pattern(bytes / 4)).collect();
    let mut links = Vec::new();
    for (at, from) in devices.iter().enumerate() {
        for to in devices.iter().skip(at + 1) {
            for (from, to) in [(from, to), (to, from)] {
                let mut link =
                    CheckedLink { from: from.to_string(), to: to.to_string(), direct: false, bytes: 0 };
                let checked = Sender::new(from, to).and_then(|sender| {
                    link.direct = sender.direct;
                    patterns.iter().map(|pattern| sender.send(pattern)).collect::<Result<Vec<_>, _>>()
                });
                let checked = checked.map_err(|source| LinkError::Device {
                    from: link.from.clone(),
                    to: link.to.clone(),
                    source,
                })?;
                for (pattern, sent) in patterns.iter().zip(checked) {
                    for (way, arrived) in sent {
                        compare(&link, way, pattern, &arrived)?;
                        link.bytes += 4 * pattern.len() as u64;
                    }
                }
                links.push(link);
            }
        }
    }
    Ok(links)
}

/// Words that depend on their place in all their bits, no two of a pattern alike: the multiplications are by odd numbers and
/// the shifts are undone by what they leave, so each step is one to one.
fn pattern(words: usize) -> Vec<u32> {
    let word = |i: u32| {
        let x = (i ^ 0x5bd1_e995).wrapping_mul(0x9e37_79b1);
        let x = (x ^ (x >> 15)).wrapping_mul(0x85eb_ca6b);
        x ^ (x >> 13)
    };
    (0..words as u32).map(word).collect()
}

fn compare(link: &CheckedLink, way: Way, sent: &[u32], arrived: &[u32]) -> Result<(), LinkError> {
    if sent == arrived {
        return Ok(());
    }
    let differing = sent.iter().zip(arrived).enumerate().find(|(_, (sent, arrived))| sent != arrived);
    let (word, (&expected, &found)) = differing.unwrap_or((0, (&0, &0)));
    let (from, to) = (link.from.clone(), link.to.clone());
    Err(LinkError::Corrupt { from, to, way, bytes: 4 * sent.len(), offset: 4 * word, expected, found })
}

/// `to[i] = from[i]` for i below n, in units of 16 bytes.
const PTX: &str = r"
.version 8.0
.target sm_80
.address_size 64

.visible .entry store_across(
	.param .u64 store_across_param_0,
	.param .u64 store_across_param_1,
	.param .u32 store_across_param_2
)
.maxntid 256, 1, 1
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<10>;
	.reg .b64 	%rd<8>;
	ld.param.u64 	%rd1, [store_across_param_0];
	ld.param.u64 	%rd2, [store_across_param_1];
	ld.param.u32 	%r1, [store_across_param_2];
	mov.u32 	%r2, %ctaid.x;
	mov.u32 	%r3, %ntid.x;
	mov.u32 	%r4, %tid.x;
	mad.lo.s32 	%r5, %r2, %r3, %r4;
	setp.ge.u32 	%p1, %r5, %r1;
	@%p1 bra 	$L__BB0_2;
	cvta.to.global.u64 	%rd3, %rd1;
	cvta.to.global.u64 	%rd4, %rd2;
	mul.wide.u32 	%rd5, %r5, 16;
	add.s64 	%rd6, %rd4, %rd5;
	add.s64 	%rd7, %rd3, %rd5;
	ld.global.v4.u32 	{%r6, %r7, %r8, %r9}, [%rd6];
	st.global.v4.u32 	[%rd7], {%r6, %r7, %r8, %r9};
$L__BB0_2:
	ret;
}
";

/// One direction of a link.
struct Sender<'a> {
    from: &'a Device,
    to: &'a Device,
    direct: bool,
    stream: Stream,
    receiving: Stream,
}

impl<'a> Sender<'a> {
    fn new(from: &'a Device, to: &'a Device) -> Result<Self, DeviceError> {
        let direct = from.peer_access(to)?;
        Ok(Self { from, to, direct, stream: from.stream()?, receiving: to.stream()? })
    }

    /// Sends a pattern in each way that there is, and gives what arrived.
    fn send(&self, pattern: &[u32]) -> Result<Vec<(Way, Vec<u32>)>, DeviceError> {
        let source = Buffer::from_slice(self.from, pattern, "link pattern")?;
        let target = Buffer::<u32>::new(self.to, pattern.len(), "link target")?;
        let ways: &[Way] = if self.direct { &[Way::Copy, Way::Stores] } else { &[Way::Staged] };
        let mut arrived = Vec::with_capacity(ways.len());
        for &way in ways {
            // What is there before is no pattern, so that what never arrived is not taken for it.
            self.receiving.fill(&target, 0xa5)?;
            self.receiving.synchronize()?;
            if way == Way::Stores {
                self.store(&target, &source)?;
            } else {
                self.stream.copy(&target, &source)?;
            }
            self.stream.synchronize()?;
            let mut words = vec![0; pattern.len()];
            self.receiving.read(&target, &mut words)?;
            arrived.push((way, words));
        }
        Ok(arrived)
    }

    fn store(&self, target: &Buffer<u32>, source: &Buffer<u32>) -> Result<(), DeviceError> {
        let store = self.from.load_module("links", PTX)?.function("store_across")?;
        let vectors = (source.len() / 4) as u32;
        let mut args = [0; 20];
        args[..8].copy_from_slice(&target.address().to_le_bytes());
        args[8..16].copy_from_slice(&source.address().to_le_bytes());
        args[16..].copy_from_slice(&vectors.to_le_bytes());
        let params = LaunchParams {
            grid: [vectors.div_ceil(256), 1, 1],
            block: [256, 1, 1],
            shared: 0,
            args: &args,
            access: &[],
            cooperative: false,
            programmatic: false,
        };
        self.stream.launch(&store, &params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceList;
    use ptx_sim::system::{BadLink, System, SystemConfig};

    fn devices(config: SystemConfig) -> Vec<Device> {
        DeviceList::Sim(config.devices).open_in(&System::new(config)).unwrap()
    }

    const THREE: fn() -> SystemConfig = || SystemConfig { devices: 3, ..SystemConfig::default() };

    #[test]
    fn no_two_words_of_a_pattern_are_alike() {
        let mut words = pattern(1 << 16);
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 1 << 16);
    }

    #[test]
    fn sound_links_are_listed_both_ways() {
        let links = check_with(&devices(THREE()), &[16 << 10, 1 << 20]).unwrap();
        let ends: Vec<_> = links.iter().map(|link| (link.from.as_str(), link.to.as_str())).collect();
        let (a, b, c) = ("sim:0", "sim:1", "sim:2");
        assert_eq!(ends, [(a, b), (b, a), (a, c), (c, a), (b, c), (c, b)]);
        assert!(links.iter().all(|link| link.direct && link.bytes == 2 * ((16 << 10) + (1 << 20))));
        let apart = devices(SystemConfig { peer_access: false, ..THREE() });
        let links = check_with(&apart, &[16 << 10]).unwrap();
        assert!(links.len() == 6 && links.iter().all(|link| !link.direct && link.bytes == 16 << 10));
        assert!(links[0].to_string().contains("link sim:0 -> sim:1: through the host"), "{}", links[0]);
    }

    #[test]
    fn both_sizes_go_over_the_link() {
        let links = check(&devices(SystemConfig { devices: 2, ..SystemConfig::default() })).unwrap();
        assert_eq!(links[1].bytes, 2 * ((16 << 10) + (64 << 20)));
    }

    #[test]
    fn a_corrupt_link_is_refused_by_name() {
        // The small size is not long enough to show it.
        let bad = BadLink { from: 2, to: 1, offset: (1 << 19) + 6, mask: 0x10 };
        let error =
            check_with(&devices(SystemConfig { bad_link: Some(bad), ..THREE() }), &[16 << 10, 1 << 20]);
        let error = error.unwrap_err();
        let LinkError::Corrupt { way, bytes, offset, expected, found, .. } = &error else {
            panic!("{error}")
        };
        assert_eq!((*way, *bytes, *offset), (Way::Copy, 1 << 20, (1 << 19) + 4));
        assert_eq!(expected ^ found, 0x10 << 16);
        assert_eq!(*expected, pattern(1 << 18)[(1 << 17) + 1]);
        let text = error.to_string();
        for words in ["from sim:2 to sim:1", "1048576 bytes", "offset 524292", "--devices"] {
            assert!(text.contains(words), "{text}");
        }
    }
}
