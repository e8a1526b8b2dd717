use super::*;

#[test]
fn a_device_sees_its_own_memory_and_that_of_its_peers() {
    let memory = Memory::new();
    let theirs = memory.allocate(1, 5, "theirs").unwrap();
    let sizes = |device| memory.slots_for(device).iter().map(|slot| slot.size).collect::<Vec<_>>();
    assert_eq!((sizes(0), sizes(1)), (vec![0], vec![5]));
    let mine = memory.allocate(0, 3, "mine").unwrap();
    assert_eq!((sizes(0), sizes(1)), (vec![0, 3], vec![5, 0]));
    let refused = memory.check_reach(0, theirs + 4);
    let name = "theirs".to_owned();
    assert_eq!(refused, Err(MemoryError::NoPeerAccess { address: theirs + 4, name, device: 0, owner: 1 }));
    assert_eq!(memory.check_reach(0, mine), Ok(()));
    memory.enable_peer_access(0, 1);
    assert_eq!((sizes(0), sizes(1)), (vec![5, 3], vec![5, 0]));
    assert_eq!((memory.reaches(0, 1), memory.reaches(1, 0), memory.reaches(2, 2)), (true, false, true));
    assert_eq!((memory.check_reach(0, theirs), memory.check_reach(1, mine).is_err()), (Ok(()), true));
    memory.free(mine).unwrap();
    assert_eq!((sizes(0), sizes(1)), (vec![5, 0], vec![5, 0]));
    assert!(memory.slots_for(1)[1].freed() && memory.slots_for(1)[1].foreign().is_none());
}

#[test]
fn addresses_are_aligned_unique_and_never_reused() {
    let memory = Memory::new();
    let a = memory.allocate(0, 3, "a").unwrap();
    let b = memory.allocate(1, 5, "b").unwrap();
    assert!(a.is_multiple_of(256) && b.is_multiple_of(256) && a != b && a != 0);
    assert_eq!((memory.bytes_in_use(0), memory.bytes_in_use(1)), (3, 5));
    assert_eq!((memory.device_of(a), memory.device_of(b + 4)), (Ok(0), Ok(1)));
    memory.free(a).unwrap();
    assert_eq!(memory.bytes_in_use(0), 0);
    let c = memory.allocate(0, 3, "c").unwrap();
    assert_ne!(a, c);
    assert_eq!(memory.free(a), Err(MemoryError::Freed { address: a, name: "a".into() }));
    assert_eq!(memory.read(a, &mut [0]), Err(MemoryError::Freed { address: a, name: "a".into() }));
}

#[test]
fn bytes_come_back_and_start_as_zero() {
    let memory = Memory::new();
    let a = memory.allocate(0, 16, "a").unwrap();
    let mut out = [9u8; 16];
    memory.read(a, &mut out).unwrap();
    assert_eq!(out, [0; 16]);
    memory.write(a + 4, &[1, 2, 3, 4]).unwrap();
    memory.fill(a + 8, 7, 2).unwrap();
    memory.fill_u32(a + 12, 0x0403_0201, 1).unwrap();
    memory.read(a, &mut out).unwrap();
    assert_eq!(out, [0, 0, 0, 0, 1, 2, 3, 4, 7, 7, 0, 0, 1, 2, 3, 4]);
    let b = memory.allocate(3, 8, "b").unwrap();
    memory.copy(b, a + 4, 8).unwrap();
    memory.copy(b + 1, b, 4).unwrap(); // overlapping, as through a buffer
    let mut out = [0u8; 8];
    memory.read(b, &mut out).unwrap();
    assert_eq!(out, [1, 1, 2, 3, 4, 7, 0, 0]);
}

#[test]
fn ranges_are_checked() {
    let memory = Memory::new();
    let a = memory.allocate(0, 10, "weights").unwrap();
    assert!(memory.read(a + 10, &mut []).is_ok(), "an empty range at the end is a range");
    let error = memory.write(a + 8, &[0; 3]).unwrap_err();
    assert_eq!(
        error,
        MemoryError::OutOfBounds { address: a + 8, bytes: 3, name: "weights".into(), offset: 8, size: 10 }
    );
    assert!(error.to_string().contains("`weights`"));
    assert!(matches!(memory.fill(a, 0, u64::MAX), Err(MemoryError::OutOfBounds { .. })));
    assert!(matches!(memory.fill_u32(a, 0, u64::MAX), Err(MemoryError::OutOfBounds { .. })));
    assert!(matches!(memory.copy(a, a + 5, 6), Err(MemoryError::OutOfBounds { .. })));
    assert!(matches!(memory.copy(a + 5, a, 6), Err(MemoryError::OutOfBounds { .. })));
    assert!(matches!(memory.fill_u32(a + 2, 0, 1), Err(MemoryError::Misaligned { .. })));
    assert!(matches!(memory.free(a + 1), Err(MemoryError::NotABase { offset: 1, .. })));
}

#[test]
fn wild_addresses_and_bad_sizes_are_refused() {
    let memory = Memory::new();
    for address in [0, 1, window::SHARED, 1 << 40, 7 << 40, u64::MAX] {
        assert_eq!(memory.read(address, &mut [0]), Err(MemoryError::Unknown { address }));
    }
    assert!(matches!(memory.allocate(0, 0, "x"), Err(MemoryError::Empty { .. })));
    for bytes in [MAX_ALLOCATION + 1, u64::MAX, u64::MAX - 100] {
        assert!(matches!(memory.allocate(2, bytes, "x"), Err(MemoryError::OutOfMemory { device: 2, .. })));
    }
    assert_eq!(memory.bytes_in_use(2), 0);
}

#[test]
fn a_snapshot_keeps_freed_bytes_mapped() {
    let memory = Memory::new();
    let a = memory.allocate(0, 4, "a").unwrap();
    memory.write(a, &[5; 4]).unwrap();
    let slots = memory.slots_for(0);
    memory.free(a).unwrap();
    let slot = &slots[slot_of(a).unwrap()];
    // SAFETY: the snapshot holds the allocation.
    assert_eq!((slot.freed(), unsafe { slot.base.read() }), (false, 5));
    assert!(memory.slots()[slot_of(a).unwrap()].freed());
}
