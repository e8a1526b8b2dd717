//! What a device did: copies in number and bytes, allocations, launches.

use std::fmt;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicU64, Ordering};

/// Copies of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// How many.
    pub count: u64,
    /// What they moved, in bytes.
    pub bytes: u64,
}

impl Copies {
    /// One copy.
    pub(super) fn one(bytes: usize) -> Self {
        Self { count: 1, bytes: bytes as u64 }
    }
}

impl fmt::Display for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.count, self.bytes)
    }
}

/// What was done through a device's streams so far, or between two moments ([`DeviceCounters::since`]).
///
/// What a graph does is counted at each of its launches, on the device of the stream that captured it. What kernels load
/// and store is not counted, in another device's memory neither.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// From host memory to the device's, pageable or page-locked.
    pub host_to_device: Copies,
    /// From the device's memory to the host's, pageable or page-locked.
    pub device_to_host: Copies,
    /// Between this device's memory and another's, directly.
    pub peer: Copies,
    /// Between this device's memory and another's through the host. What they do on the way is counted as copies to the host
    /// and to a device as well, on the device that does it.
    pub staged: Copies,
    /// Allocations of device memory.
    pub allocations: u64,
    /// Allocations that were freed.
    pub frees: u64,
    /// Kernels launched one by one.
    pub kernel_launches: u64,
    /// Graphs launched.
    pub graph_launches: u64,
    /// Kernels that those graphs held.
    pub graph_kernels: u64,
}

/// How many numbers [`DeviceCounters`] are.
const FIELDS: usize = 13;

impl DeviceCounters {
    pub(super) fn to_device(bytes: usize) -> Self {
        Self { host_to_device: Copies::one(bytes), ..Self::default() }
    }

    pub(super) fn to_host(bytes: usize) -> Self {
        Self { device_to_host: Copies::one(bytes), ..Self::default() }
    }

    fn to_array(self) -> [u64; FIELDS] {
        let [a, b, c, d] = [self.host_to_device, self.device_to_host, self.peer, self.staged];
        [
            a.count,
            a.bytes,
            b.count,
            b.bytes,
            c.count,
            c.bytes,
            d.count,
            d.bytes,
            self.allocations,
            self.frees,
            self.kernel_launches,
            self.graph_launches,
            self.graph_kernels,
        ]
    }

    fn from_array(all: [u64; FIELDS]) -> Self {
        let copies = |at: usize| Copies { count: all[at], bytes: all[at + 1] };
        Self {
            host_to_device: copies(0),
            device_to_host: copies(2),
            peer: copies(4),
            staged: copies(6),
            allocations: all[8],
            frees: all[9],
            kernel_launches: all[10],
            graph_launches: all[11],
            graph_kernels: all[12],
        }
    }

    /// What was done between an earlier count and this one.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let (mut all, earlier) = (self.to_array(), earlier.to_array());
        all.iter_mut().zip(earlier).for_each(|(now, then)| *now = now.wrapping_sub(then));
        Self::from_array(all)
    }
}

impl AddAssign for DeviceCounters {
    fn add_assign(&mut self, other: Self) {
        let (mut all, other) = (self.to_array(), other.to_array());
        all.iter_mut().zip(other).for_each(|(sum, more)| *sum = sum.wrapping_add(more));
        *self = Self::from_array(all);
    }
}

impl fmt::Display for DeviceCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "copies: {} to the device, {} to the host, {} to or from peers, {} staged; {} allocations, {} frees; \
             {} kernel launches, {} graph launches of {} kernels",
            self.host_to_device,
            self.device_to_host,
            self.peer,
            self.staged,
            self.allocations,
            self.frees,
            self.kernel_launches,
            self.graph_launches,
            self.graph_kernels
        )
    }
}

/// The running count of one device.
#[derive(Debug, Default)]
pub(super) struct CounterCells([AtomicU64; FIELDS]);

impl CounterCells {
    pub(super) fn add(&self, counters: DeviceCounters) {
        for (cell, more) in self.0.iter().zip(counters.to_array()) {
            // Most are zero, and a launch should not touch a dozen cache lines' worth of atomics for nothing.
            if more != 0 {
                cell.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    pub(super) fn read(&self) -> DeviceCounters {
        DeviceCounters::from_array(std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_differences_keep_the_fields_apart() {
        let primes: [u64; FIELDS] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41];
        let one = DeviceCounters::from_array(primes);
        assert_eq!(one.to_array(), primes);
        assert_eq!((one.device_to_host, one.graph_kernels), (Copies { count: 5, bytes: 7 }, 41));
        let cells = CounterCells::default();
        cells.add(one);
        let before = cells.read();
        cells.add(DeviceCounters::to_host(4));
        cells.add(DeviceCounters { frees: 1, ..DeviceCounters::default() });
        let mut due = DeviceCounters::to_host(4);
        due.frees = 1;
        assert_eq!(cells.read().since(before), due);
        due += one;
        assert_eq!(cells.read(), due);
    }
}
