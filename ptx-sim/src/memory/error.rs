//! Why an operation on memory was refused.

/// Why an operation on [`Memory`] was refused. Nothing was read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// The host has no room for the allocation, or it exceeds what an address can name.
    #[error(
        "out of memory on simulated device {device}: asked for {asked} bytes for `{name}`, {in_use} bytes are in use"
    )]
    OutOfMemory {
        /// The device asked.
        device: u32,
        /// Bytes asked for.
        asked: u64,
        /// Bytes in use on that device.
        in_use: u64,
        /// The name the allocation would have had.
        name: String,
    },
    /// An allocation of no bytes.
    #[error("allocation `{name}` on simulated device {device} asks for 0 bytes")]
    Empty {
        /// The device asked.
        device: u32,
        /// The name the allocation would have had.
        name: String,
    },
    /// The address was never given out.
    #[error("address {address:#x} belongs to no allocation")]
    Unknown {
        /// The address.
        address: u64,
    },
    /// The address belongs to an allocation that was freed.
    #[error("address {address:#x} is in `{name}`, which was freed (use after free)")]
    Freed {
        /// The address.
        address: u64,
        /// The freed allocation.
        name: String,
    },
    /// A device's access to the memory of another device, to which it has no access.
    #[error(
        "address {address:#x} is in `{name}`, in the memory of device {owner}, to which device {device} has no peer access"
    )]
    NoPeerAccess {
        /// The address.
        address: u64,
        /// The allocation.
        name: String,
        /// The device that accesses it.
        device: u32,
        /// The device whose memory it is.
        owner: u32,
    },
    /// The range leaves the allocation.
    #[error("{bytes} bytes at {address:#x} leave `{name}`: offset {offset} of {size} bytes")]
    OutOfBounds {
        /// First address of the range.
        address: u64,
        /// Length of the range in bytes.
        bytes: u64,
        /// The allocation.
        name: String,
        /// Offset of the range within the allocation.
        offset: u64,
        /// Size of the allocation in bytes.
        size: u64,
    },
    /// `free` was given an address inside an allocation.
    #[error("cannot free {address:#x}: it is {offset} bytes into `{name}`, not its start")]
    NotABase {
        /// The address.
        address: u64,
        /// The allocation.
        name: String,
        /// Offset of the address within it.
        offset: u64,
    },
    /// A fill of 32-bit words at an address that is no multiple of 4.
    #[error("address {address:#x} is not aligned to {align} bytes")]
    Misaligned {
        /// The address.
        address: u64,
        /// The alignment needed.
        align: u64,
    },
}
