//! Checks of two devices: copies, kernels in each other's memory, and the order of their streams.

use super::{Bench, Checked, N, PTX, Stop, add_args, ensure, grid, numbers, params, scale_args};
use crate::device::{
    Buffer, CaptureError, Copies, Device, DeviceCounters, DeviceError, Function, Stream, Violation,
};

/// The second device, with what the checks need of it.
struct Peer {
    device: Device,
    stream: Stream,
    add: Function,
    scale: Function,
}

impl Peer {
    /// The neighbour of the device under test, reached both ways.
    fn of(bench: &Bench) -> Result<Self, Stop> {
        let own = bench.device.info().ordinal;
        let device = match bench.device.sibling(if own == 0 { 1 } else { own - 1 }) {
            Ok(device) => device,
            Err(DeviceError::BadOrdinal { count, .. }) => {
                return Err(Stop::Skipped(format!("{count} device")));
            }
            Err(error) => return Err(error.into()),
        };
        for (from, to) in [(&bench.device, &device), (&device, &bench.device)] {
            if !from.peer_access(to)? {
                return Err(Stop::Skipped(format!("{from} cannot access the memory of {to}")));
            }
        }
        let module = device.load_module("selftest", PTX)?;
        let (add, scale) = (module.function("add_u32")?, module.function("scale_u32")?);
        Ok(Self { stream: device.stream()?, device, add, scale })
    }

    fn add(&self, x: u64, n: usize, value: u32) -> Result<(), DeviceError> {
        self.stream.launch(&self.add, &params(grid(n), 128, &add_args(x, n, value)))
    }

    fn scale(&self, out: u64, a: u64, n: usize, scale: u32) -> Result<(), DeviceError> {
        self.stream.launch(&self.scale, &params(grid(n), 128, &scale_args(out, a, n, scale)))
    }
}

/// Copies to and from another device of the machine.
pub(super) fn peer_copies(bench: &Bench) -> Checked {
    let peer = Peer::of(bench)?;
    let here = Buffer::from_slice(&bench.device, &numbers(N, 5), "here")?;
    let there = Buffer::<u32>::new(&peer.device, N, "there")?;
    let back = Buffer::<u32>::new(&bench.device, N, "back")?;
    let (sent, done) = (bench.device.event()?, peer.device.event()?);
    let before = (bench.device.counters(), peer.device.counters());
    bench.stream.copy(&there, &here)?;
    bench.stream.record(&sent)?;
    peer.stream.wait(&sent)?;
    peer.add(there.address(), N, 9)?;
    peer.stream.record(&done)?;
    bench.stream.wait(&done)?;
    bench.stream.copy(&back, &there)?;
    let (one, other) = (bench.device.counters().since(before.0), peer.device.counters().since(before.1));
    let due = (
        DeviceCounters { peer: Copies { count: 2, bytes: 8 * N as u64 }, ..DeviceCounters::default() },
        DeviceCounters { kernel_launches: 1, ..DeviceCounters::default() },
    );
    ensure!((one, other) == due, "counted as {one}, on {} {other}", peer.device);
    let mut result = vec![0; N];
    bench.stream.read(&back, &mut result)?;
    let due: Vec<u32> = numbers(N, 5).iter().map(|x| x.wrapping_add(9)).collect();
    ensure!(result == due, "a trip to {} and back gave other values", peer.device);
    let twin = Buffer::<u32>::new(&peer.device, N, "twin")?;
    for stray in [bench.stream.write(&there, &result), bench.stream.copy(&twin, &there)] {
        ensure!(matches!(stray, Err(DeviceError::WrongDevice { .. })), "work for another device: {stray:?}");
    }
    Ok(format!("{} bytes to {} and back", 4 * N, peer.device))
}

/// Kernels of either device load from and store to the other's memory, launched one by one and in graphs.
pub(super) fn kernels_in_peer_memory(bench: &Bench) -> Checked {
    let peer = Peer::of(bench)?;
    let here = Buffer::from_slice(&bench.device, &numbers(N, 6), "here")?;
    let there = Buffer::from_slice(&peer.device, &vec![0u32; N], "there")?;
    bench.scale(&bench.stream, there.address(), here.address(), N, 3)?;
    let graph = bench.stream.capture(|stream| {
        bench.add(stream, there.address(), N, 2)?;
        bench.add(stream, here.address(), N, 1)
    })?;
    let exec = graph.instantiate(vec![here.allocation(), there.allocation()])?;
    exec.launch(&bench.stream)?;
    exec.launch(&bench.stream)?;
    bench.stream.synchronize()?;
    peer.scale(here.address(), there.address(), N, 5)?;
    peer.stream.synchronize()?;
    for ((i, start), (one, other)) in
        numbers(N, 6).into_iter().enumerate().zip(here.to_vec()?.into_iter().zip(there.to_vec()?))
    {
        let there = start.wrapping_mul(3).wrapping_add(1 + 2 + 2);
        let here = there.wrapping_mul(5).wrapping_add(1);
        ensure!((one, other) == (here, there), "element {i}: {one} and {other}, {here} and {there} due");
    }
    Ok(format!(
        "{} elements of {}'s memory written, {N} read there, {N} written from there",
        3 * N,
        peer.device
    ))
}

/// Copies between devices are nodes of a graph like others, counted at each run.
pub(super) fn peer_copies_in_a_graph(bench: &Bench) -> Checked {
    let peer = Peer::of(bench)?;
    let here = Buffer::from_slice(&bench.device, &numbers(N, 7), "here")?;
    let there = Buffer::<u32>::new(&peer.device, N, "there")?;
    let back = Buffer::<u32>::new(&bench.device, N, "back")?;
    let graph = bench.stream.capture(|stream| {
        bench.add(stream, here.address(), N, 1)?;
        stream.copy(&there, &here)?;
        stream.copy(&back, &there)
    })?;
    let kinds: Vec<_> = graph.nodes().iter().map(|node| node.kind()).collect();
    ensure!(kinds == ["kernel", "copy", "copy"], "{kinds:?} was captured");
    let exec = graph.instantiate(vec![here.allocation()])?;
    drop(there);
    let before = bench.device.counters();
    for _ in 0..3 {
        exec.launch(&bench.stream)?;
    }
    let counted = bench.device.counters().since(before);
    let due = DeviceCounters {
        peer: Copies { count: 6, bytes: 24 * N as u64 },
        graph_launches: 3,
        graph_kernels: 3,
        ..DeviceCounters::default()
    };
    ensure!(counted == due, "3 runs counted as {counted}, {due} was due");
    let due: Vec<u32> = numbers(N, 7).iter().map(|x| x.wrapping_add(3)).collect();
    ensure!(back.to_vec()? == due, "3 runs of a graph with copies to {} gave other values", peer.device);
    Ok(format!("3 runs, 6 copies of {} bytes", 4 * N))
}

/// Without peer access copies go through the host: the same bits, in order with the stream, and not in a graph.
pub(super) fn copies_through_the_host(bench: &Bench) -> Checked {
    let peer = Peer::of(bench)?;
    bench.device.set_peer_access(&peer.device, false)?;
    let outcome = staged(bench, &peer);
    bench.device.set_peer_access(&peer.device, true)?;
    outcome
}

fn staged(bench: &Bench, peer: &Peer) -> Checked {
    let here = Buffer::from_slice(&bench.device, &numbers(N, 8), "here")?;
    let there = Buffer::<u32>::new(&peer.device, N, "there")?;
    let back = Buffer::<u32>::new(&bench.device, N, "back")?;
    let (sent, done) = (bench.device.event()?, peer.device.event()?);
    let before = (bench.device.counters(), peer.device.counters());
    // Kernels around each copy, and nothing that waits on the host: each copy must take what the one before it in the
    // stream wrote, and the next kernel must not overtake it.
    for value in 1..=10 {
        bench.add(&bench.stream, here.address(), N, value)?;
        bench.stream.copy(&there, &here)?;
        bench.scale(&bench.stream, here.address(), here.address(), N, 0)?;
        bench.stream.record(&sent)?;
        peer.stream.wait(&sent)?;
        peer.add(there.address(), N, 100)?;
        peer.stream.record(&done)?;
        bench.stream.wait(&done)?;
        bench.stream.copy(&back, &there)?;
        bench.stream.copy(&here, &back)?;
    }
    let (one, other) = (bench.device.counters().since(before.0), peer.device.counters().since(before.1));
    let moved = |count| Copies { count, bytes: count * 4 * N as u64 };
    ensure!(
        (one.staged, one.peer, one.host_to_device, one.device_to_host)
            == (moved(20), Copies::default(), moved(10), moved(10)),
        "20 copies through the host counted as {one}"
    );
    ensure!(
        (other.staged, other.host_to_device, other.device_to_host) == (moved(0), moved(10), moved(10)),
        "20 copies through the host counted on {} as {other}",
        peer.device
    );
    let due: Vec<u32> = numbers(N, 8).iter().map(|x| x.wrapping_add(55 + 1000)).collect();
    let mut got = vec![0; N];
    bench.stream.read(&here, &mut got)?;
    ensure!(got == due, "20 copies through the host gave other values");
    let refused = bench.stream.capture(|stream| {
        bench.add(stream, here.address(), N, 1)?;
        stream.copy(&there, &here)
    });
    let violation = Violation::StagedCopy("here".to_owned());
    ensure!(
        matches!(&refused, Err(CaptureError::Refused(list)) if *list == [violation]),
        "a copy through the host in a capture: {refused:?}"
    );
    bench.usable()?;
    Ok(format!("20 copies of {} bytes, in order with 30 kernels; one in a capture refused", 4 * N))
}

/// Streams of two devices take turns through events, with no wait of the host.
pub(super) fn events_across_devices(bench: &Bench) -> Checked {
    let peer = Peer::of(bench)?;
    let x = Buffer::from_slice(&bench.device, &numbers(N, 9), "x")?;
    let (mine, theirs) = (bench.device.event()?, peer.device.event()?);
    let mut due = numbers(N, 9);
    for round in 0..100u32 {
        // x + round here, then 3x + 1 there: another order gives another value.
        bench.add(&bench.stream, x.address(), N, round)?;
        bench.stream.record(&mine)?;
        peer.stream.wait(&mine)?;
        peer.scale(x.address(), x.address(), N, 3)?;
        peer.stream.record(&theirs)?;
        bench.stream.wait(&theirs)?;
        due.iter_mut().for_each(|x| *x = x.wrapping_add(round).wrapping_mul(3).wrapping_add(1));
    }
    let mut got = vec![0; N];
    bench.stream.read(&x, &mut got)?;
    ensure!(got == due, "streams of {} and {} in turn gave other values", bench.device, peer.device);
    theirs.synchronize()?;
    let stray = bench.stream.record(&theirs);
    ensure!(matches!(stray, Err(DeviceError::WrongDevice { .. })), "another device's event: {stray:?}");
    Ok(format!("100 turns of {} and {}", bench.device, peer.device))
}

/// A graph a device, launched in turn with an event wait between: the order of a token that walks the stages and comes back.
pub(super) fn graphs_in_turn(bench: &Bench) -> Checked {
    /// Kernels of each graph: enough that one launched too early would see the other's work half done.
    const KERNELS: u32 = 20;
    let peer = Peer::of(bench)?;
    let first = Buffer::from_slice(&bench.device, &numbers(N, 10), "first")?;
    let second = Buffer::from_slice(&peer.device, &vec![0u32; N], "second")?;
    let here = bench.stream.capture(|stream| {
        (1..=KERNELS).try_for_each(|value| bench.add(stream, first.address(), N, value))?;
        // The hop: a kernel here writes the other stage's input.
        bench.scale(stream, second.address(), first.address(), N, 3)
    })?;
    let there = peer.stream.capture(|_| {
        (1..=KERNELS).try_for_each(|value| peer.add(second.address(), N, value))?;
        peer.scale(first.address(), second.address(), N, 5)
    })?;
    let here = here.instantiate(vec![first.allocation(), second.allocation()])?;
    let there = there.instantiate(vec![first.allocation(), second.allocation()])?;
    let (sent, returned) = (bench.device.event()?, peer.device.event()?);
    let mut due = numbers(N, 10);
    let sum = KERNELS * (KERNELS + 1) / 2;
    for _ in 0..50 {
        here.launch(&bench.stream)?;
        bench.stream.record(&sent)?;
        peer.stream.wait(&sent)?;
        there.launch(&peer.stream)?;
        peer.stream.record(&returned)?;
        bench.stream.wait(&returned)?;
        for x in &mut due {
            let second = x.wrapping_add(sum).wrapping_mul(3).wrapping_add(1);
            *x = second.wrapping_add(sum).wrapping_mul(5).wrapping_add(1);
        }
    }
    let mut got = vec![0; N];
    bench.stream.read(&first, &mut got)?;
    ensure!(got == due, "graphs of {} and {} in turn gave other values", bench.device, peer.device);
    Ok(format!("50 rounds of 2 graphs of {} nodes", KERNELS + 1))
}
