//! Streams, captures, events and graphs of copies and fills; kernels are tested where they are executed.

use super::*;

fn machine() -> Arc<System> {
    let system = System::new(SystemConfig { devices: 2, memory: 1 << 20, ..SystemConfig::default() });
    system.enable_peer_access(0, 1).unwrap();
    system.enable_peer_access(1, 0).unwrap();
    system
}

fn bytes(system: &System, address: u64, count: usize) -> Vec<u8> {
    let mut out = vec![0; count];
    system.memory().read(address, &mut out).unwrap();
    out
}

#[test]
fn devices_and_their_memory_are_bounded() {
    let system = machine();
    assert_eq!(system.allocate(2, 16, "x"), Err(SystemError::BadDevice { ordinal: 2, count: 2 }));
    assert!(system.stream(7).is_err());
    let most = system.allocate(0, 1 << 20, "most").unwrap();
    let error = system.allocate(0, 1, "one more").unwrap_err();
    let name = "one more".to_owned();
    assert_eq!(error, SystemError::OutOfMemory { device: 0, name, asked: 1, free: 0, total: 1 << 20 });
    // The other device has memory of its own.
    system.allocate(1, 1 << 20, "theirs").unwrap();
    system.free(most).unwrap();
    assert!(system.free(most).is_err(), "a second free");
    assert_eq!(system.memory_info(0).unwrap(), (1 << 20, 1 << 20));
    system.allocate(0, 1 << 19, "again").unwrap();
}

#[test]
fn copies_cross_devices_and_check_their_ranges() {
    let system = machine();
    let (here, there) = (system.allocate(0, 64, "here").unwrap(), system.allocate(1, 64, "there").unwrap());
    let stream = system.stream(0).unwrap();
    stream.upload(here, &(0..64).collect::<Vec<u8>>()).unwrap();
    stream.copy(there + 8, here, 56).unwrap();
    stream.fill(there, 9, 4).unwrap();
    let mut out = [0; 64];
    stream.download(&mut out, there).unwrap();
    assert_eq!(out[..10], [9, 9, 9, 9, 0, 0, 0, 0, 0, 1]);
    assert_eq!(out[63], 55);
    assert!(matches!(stream.copy(there, here, 65), Err(SystemError::Memory(_))));
    let host = Arc::new(HostMemory::new(8));
    assert!(matches!(stream.download_pinned(host.clone(), here, 9), Err(SystemError::HostRange { .. })));
    host.store(0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    stream.upload_pinned(here + 60, host.clone(), 5, 3).unwrap();
    assert_eq!(bytes(&system, here, 64)[59..], [59, 6, 7, 8, 63]);
    assert!(matches!(stream.upload_pinned(here, host, 5, 4), Err(SystemError::HostRange { .. })));
}

#[test]
fn another_device_s_memory_needs_peer_access() {
    let system = System::new(SystemConfig { devices: 2, memory: 1 << 20, ..SystemConfig::default() });
    let (here, there) = (system.allocate(0, 64, "here").unwrap(), system.allocate(1, 64, "there").unwrap());
    let stream = system.stream(0).unwrap();
    let host = Arc::new(HostMemory::new(8));
    for refused in [
        stream.copy(there, here, 64),
        stream.copy(here, there, 64),
        stream.fill(there, 1, 64),
        stream.upload_pinned(there, host.clone(), 0, 8),
        stream.download_pinned(host, there, 8),
    ] {
        let Err(SystemError::Memory(MemoryError::NoPeerAccess { name, device, owner, .. })) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((name.as_str(), device, owner), ("there", 0, 1));
    }
    system.enable_peer_access(0, 1).unwrap();
    stream.fill(there, 1, 64).unwrap();
    stream.copy(here, there, 64).unwrap();
    assert_eq!(bytes(&system, here, 64), [1; 64]);
    let other = system.stream(1).unwrap();
    assert!(other.copy(here, there, 64).is_err(), "access the other way round was not asked for");
    assert_eq!(system.enable_peer_access(0, 2), Err(SystemError::BadDevice { ordinal: 2, count: 2 }));

    let apart = System::new(SystemConfig {
        devices: 2,
        memory: 1 << 20,
        peer_access: false,
        ..SystemConfig::default()
    });
    assert_eq!(apart.enable_peer_access(1, 0), Err(SystemError::NoPeerAccess { device: 1, owner: 0 }));
    apart.enable_peer_access(1, 1).unwrap();
}

#[test]
fn a_bad_link_changes_one_byte_of_copies_that_reach_it() {
    let link = BadLink { from: 1, to: 0, offset: 20, mask: 0x84 };
    let config =
        SystemConfig { devices: 2, memory: 1 << 20, bad_link: Some(link), ..SystemConfig::default() };
    let system = System::new(config);
    system.enable_peer_access(0, 1).unwrap();
    let (here, there) = (system.allocate(0, 64, "here").unwrap(), system.allocate(1, 64, "there").unwrap());
    let stream = system.stream(0).unwrap();
    stream.fill(there, 1, 64).unwrap();
    for (length, due) in [(20, 1), (21, 0x85)] {
        stream.fill(here, 9, 64).unwrap();
        stream.copy(here, there, length).unwrap();
        let got = bytes(&system, here, length as usize);
        assert!(got[..20] == [1; 20] && got.get(20).is_none_or(|&byte| byte == due), "{got:?}");
    }
    stream.copy(there, here, 64).unwrap();
    assert_eq!(bytes(&system, there, 64), bytes(&system, here, 64), "the other way is sound");
}

#[test]
fn a_capture_records_and_a_replay_runs() {
    let system = machine();
    let (a, b) = (system.allocate(0, 16, "a").unwrap(), system.allocate(0, 16, "b").unwrap());
    let host = Arc::new(HostMemory::new(4));
    let stream = system.stream(0).unwrap();
    stream.begin_capture().unwrap();
    assert_eq!(stream.begin_capture(), Err(SystemError::AlreadyCapturing));
    stream.fill(a, 3, 16).unwrap();
    stream.copy(b, a, 8).unwrap();
    stream.download_pinned(host.clone(), b + 6, 4).unwrap();
    let graph = stream.end_capture().unwrap();
    assert_eq!(bytes(&system, a, 16), [0; 16], "a capture runs nothing");
    assert_eq!(graph.edges(), [(0, 1), (1, 2)]);
    let exec = graph.instantiate();
    stream.launch_graph(&exec).unwrap();
    assert_eq!(bytes(&system, b, 16)[6..10], [3, 3, 0, 0]);
    let mut read = [0; 4];
    host.load(0, &mut read).unwrap();
    assert_eq!(read, [3, 3, 0, 0]);
    // A replay reads memory as it is then, and a freed address is a fault, not a crash.
    system.free(a).unwrap();
    assert!(matches!(stream.launch_graph(&exec), Err(SystemError::Memory(_))));
    assert_eq!(stream.end_capture().unwrap_err(), SystemError::NotCapturing);
}

#[test]
fn what_cannot_be_captured_makes_the_capture_invalid_and_leaves_the_stream_usable() {
    let system = machine();
    let a = system.allocate(0, 16, "a").unwrap();
    let stream = system.stream(0).unwrap();
    stream.begin_capture().unwrap();
    stream.fill(a, 1, 16).unwrap();
    let exec = stream.end_capture().unwrap().instantiate();
    type Operation<'a> = Box<dyn Fn() -> Result<()> + 'a>;
    let operations: [Operation; 4] = [
        Box::new(|| stream.upload(a, &[1])),
        Box::new(|| stream.download(&mut [0], a)),
        Box::new(|| stream.synchronize()),
        Box::new(|| stream.launch_graph(&exec)),
    ];
    for operation in &operations {
        stream.begin_capture().unwrap();
        stream.fill(a, 1, 16).unwrap();
        let refused = operation().unwrap_err();
        assert!(matches!(refused, SystemError::NotCapturable(_)));
        assert_eq!(stream.end_capture().unwrap_err(), refused);
        stream.synchronize().unwrap();
    }
    assert_eq!(bytes(&system, a, 16), [0; 16]);
}

/// A graph in which stream 1 (of device 1) fills what stream 0 copies afterwards, when joined.
fn forked(system: &Arc<System>, joined: bool) -> (u64, Result<Graph>) {
    let (a, b) = (system.allocate(0, 8, "a").unwrap(), system.allocate(1, 8, "b").unwrap());
    let (main, side) = (system.stream(0).unwrap(), system.stream(1).unwrap());
    let (fork, join) = (Event::new(), Event::new());
    main.begin_capture().unwrap();
    main.fill(a, 1, 8).unwrap();
    main.record(&fork);
    side.wait(&fork).unwrap();
    side.copy(b, a, 8).unwrap();
    main.fill(a + 4, 2, 1).unwrap();
    side.record(&join);
    if joined {
        main.wait(&join).unwrap();
    }
    main.copy(a, b, 4).unwrap();
    let graph = main.end_capture();
    side.synchronize().unwrap();
    main.synchronize().unwrap();
    (b, graph)
}

#[test]
fn events_fork_and_join_a_capture() {
    let system = machine();
    let (b, graph) = forked(&system, true);
    let graph = graph.unwrap();
    assert_eq!(graph.edges(), [(0, 1), (0, 2), (1, 3), (2, 3)]);
    assert_eq!(graph.nodes().iter().map(|node| node.device).collect::<Vec<_>>(), [0, 1, 0, 0]);
    let exec = graph.instantiate();
    system.stream(0).unwrap().launch_graph(&exec).unwrap();
    assert_eq!(bytes(&system, b, 8), [1; 8]);
    // Nodes 1 and 2 race on a[4]: another legal order shows it.
    system.set_schedule(Schedule::LatestFirst);
    system.stream(0).unwrap().launch_graph(&exec).unwrap();
    assert_eq!(bytes(&system, b, 8), [1, 1, 1, 1, 2, 1, 1, 1]);
}

/// What one stream fills and another copies, with and without the wait that orders the two: the copy, and what the first
/// stream's memory is after all.
fn filled_and_copied(system: &Arc<System>, waits: bool) -> (Vec<u8>, Vec<u8>) {
    let (a, b) = (system.allocate(0, 8, "a").unwrap(), system.allocate(1, 8, "b").unwrap());
    let (one, two, done) = (system.stream(0).unwrap(), system.stream(1).unwrap(), Event::new());
    one.fill(a, 1, 8).unwrap();
    one.record(&done);
    one.fill(a, 2, 4).unwrap();
    if waits {
        two.wait(&done).unwrap();
    }
    two.copy(b, a, 8).unwrap();
    let mut copied = vec![0; 8];
    two.download(&mut copied, b).unwrap();
    one.synchronize().unwrap();
    (copied, bytes(system, a, 8))
}

#[test]
fn deferred_work_happens_when_it_is_waited_for_and_no_earlier() {
    let system = machine();
    assert_eq!(
        filled_and_copied(&system, false).0,
        [2, 2, 2, 2, 1, 1, 1, 1],
        "submission hides what is missing"
    );
    system.set_schedule(Schedule::Deferred);
    let end = vec![2, 2, 2, 2, 1, 1, 1, 1];
    assert_eq!(filled_and_copied(&system, false), (vec![0; 8], end.clone()), "nothing made the fill happen");
    assert_eq!(
        filled_and_copied(&system, true),
        (vec![1; 8], end),
        "the fill happened, what came after it not"
    );
}

#[test]
fn a_machine_can_lose_waits_between_devices() {
    let config = SystemConfig { devices: 2, memory: 1 << 20, lost_waits: true, ..SystemConfig::default() };
    let system = System::new(config);
    system.enable_peer_access(1, 0).unwrap();
    system.set_schedule(Schedule::Deferred);
    assert_eq!(filled_and_copied(&system, true).0, [0; 8]);
}

#[test]
fn deferred_streams_of_two_devices_take_turns() {
    let system = machine();
    system.set_schedule(Schedule::Deferred);
    let (a, b) = (system.allocate(0, 4, "a").unwrap(), system.allocate(1, 4, "b").unwrap());
    let (one, two) = (system.stream(0).unwrap(), system.stream(1).unwrap());
    let (sent, returned) = (Event::new(), Event::new());
    one.begin_capture().unwrap();
    one.copy(b, a, 3).unwrap();
    let graph = one.end_capture().unwrap().instantiate();
    for round in 1..=200u8 {
        one.fill(a, round, 4).unwrap();
        one.launch_graph(&graph).unwrap();
        one.record(&sent);
        two.wait(&sent).unwrap();
        two.copy(a + 3, b + 2, 1).unwrap();
        two.fill(b, 0, 1).unwrap();
        two.record(&returned);
        one.wait(&returned).unwrap();
    }
    assert_eq!(bytes(&system, a, 4), [0; 4], "nothing waited so far");
    returned.synchronize(&system).unwrap();
    assert_eq!((bytes(&system, a, 4), bytes(&system, b, 4)), (vec![200; 4], vec![0, 200, 200, 0]));
}

#[test]
fn deferred_failures_show_at_the_wait_and_once() {
    let system = machine();
    system.set_schedule(Schedule::Deferred);
    let a = system.allocate(0, 8, "a").unwrap();
    let stream = system.stream(0).unwrap();
    stream.fill(a, 1, 9).unwrap();
    stream.fill(a, 2, 8).unwrap();
    assert!(matches!(stream.synchronize(), Err(SystemError::Memory(MemoryError::OutOfBounds { .. }))));
    stream.synchronize().unwrap();
    assert_eq!(bytes(&system, a, 8), [2; 8]);
    // A free, a synchronisation of the device and the end of the stream wait too.
    let b = system.allocate(0, 8, "b").unwrap();
    stream.fill(b, 3, 8).unwrap();
    stream.copy(a, b, 1).unwrap();
    system.free(b).unwrap();
    assert_eq!(bytes(&system, a, 1), [3]);
    stream.fill(a, 4, 1).unwrap();
    system.synchronize(Some(1)).unwrap();
    assert_eq!(bytes(&system, a, 1), [3]);
    system.synchronize(Some(0)).unwrap();
    assert_eq!(bytes(&system, a, 1), [4]);
    stream.fill(a, 5, 1).unwrap();
    drop(stream);
    assert_eq!(bytes(&system, a, 1), [5]);
}

#[test]
fn unjoined_work_is_refused_and_frees_both_streams() {
    let (_, graph) = forked(&machine(), false);
    assert_eq!(graph.unwrap_err(), SystemError::Unjoined { device: 1 });
}

#[test]
fn captures_are_isolated_from_what_is_outside() {
    let system = machine();
    let a = system.allocate(0, 8, "a").unwrap();
    let (one, two) = (system.stream(0).unwrap(), system.stream(0).unwrap());
    let (outside, inside) = (Event::new(), Event::new());
    two.record(&outside);
    one.begin_capture().unwrap();
    one.fill(a, 1, 8).unwrap();
    one.record(&inside);
    assert_eq!(one.wait(&outside), Err(SystemError::Isolation));
    assert_eq!(one.end_capture().unwrap_err(), SystemError::Isolation);
    assert_eq!(two.wait(&inside), Err(SystemError::Isolation), "an event of a capture that has ended");
    two.begin_capture().unwrap();
    assert_eq!(two.wait(&inside), Err(SystemError::Isolation), "an event of another capture");
    assert!(two.end_capture().is_err());
    // Waiting for an event that was never recorded does nothing, in a capture too.
    two.begin_capture().unwrap();
    two.wait(&Event::new()).unwrap();
    two.fill(a, 1, 8).unwrap();
    assert_eq!(two.end_capture().unwrap().nodes().len(), 1);
}

#[test]
fn event_times_need_recordings() {
    let system = machine();
    let stream = system.stream(0).unwrap();
    let (start, end) = (Event::new(), Event::new());
    stream.record(&start);
    assert_eq!(Event::elapsed_ms(&start, &end), Err(SystemError::NotRecorded));
    stream.record(&end);
    assert!(Event::elapsed_ms(&start, &end).unwrap() >= 0.0);
    stream.begin_capture().unwrap();
    stream.record(&end);
    assert!(end.synchronize(&system).is_err());
    assert_eq!(Event::elapsed_ms(&start, &end), Err(SystemError::NotRecorded));
    assert_eq!(stream.end_capture().unwrap().nodes().len(), 0);
}

#[test]
fn updates_must_fit_their_node() {
    let system = machine();
    let a = system.allocate(0, 8, "a").unwrap();
    let stream = system.stream(0).unwrap();
    stream.begin_capture().unwrap();
    stream.fill(a, 1, 8).unwrap();
    let exec = stream.end_capture().unwrap().instantiate();
    for index in [0, 1] {
        let refused = exec.set_kernel_params(index, [1; 3], [1; 3], 0, &[]);
        assert!(matches!(refused, Err(SystemError::BadNode { index: i, .. }) if i == index), "{refused:?}");
    }
}

#[test]
fn streams_of_several_threads_take_turns() {
    let system = machine();
    let a = system.allocate(0, 64, "a").unwrap();
    let stream = system.stream(0).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (stream, system) = (&stream, &system);
            scope.spawn(move || {
                for round in 0..200u8 {
                    stream.fill(a, thread ^ round, 64).unwrap();
                    let own = system.stream(0).unwrap();
                    own.begin_capture().unwrap();
                    own.fill(a, round, 64).unwrap();
                    assert_eq!(own.end_capture().unwrap().nodes().len(), 1);
                }
            });
        }
    });
    let last = bytes(&system, a, 64);
    assert!(last.iter().all(|&byte| byte == last[0]), "an operation ran in parts: {last:?}");
}
