//! Checks of captured graphs: replay, read-back, update, ownership.

use super::{Bench, Checked, N, Stop, add_args, ensure, grid, numbers, params, scale_args};
use crate::device::{
    Buffer, Copies, DeviceCounters, DeviceError, DeviceKind, GraphEdge, GraphNode, HostBuffer, KernelNode,
    LaunchParams, Stream,
};

/// A walk of five nodes over three buffers.
struct Walk {
    x: Buffer<u32>,
    y: Buffer<u32>,
    z: Buffer<u32>,
}

impl Walk {
    fn new(bench: &Bench) -> Result<Self, DeviceError> {
        let buffer = |name, seed| Buffer::from_slice(&bench.device, &numbers(N, seed), name);
        Ok(Self { x: buffer("x", 11)?, y: buffer("y", 12)?, z: buffer("z", 13)? })
    }

    fn submit(&self, bench: &Bench, stream: &Stream) -> Result<(), DeviceError> {
        bench.add(stream, self.x.address(), N, 5)?;
        bench.scale(stream, self.y.address(), self.x.address(), N, 3)?;
        stream.copy(&self.z, &self.y)?;
        stream.fill(&self.y.slice(..10)?, 0x11)?;
        bench.add(stream, self.z.address(), N - 1, 100)
    }

    fn keep(&self) -> Vec<std::sync::Arc<crate::device::Allocation>> {
        [&self.x, &self.y, &self.z].map(Buffer::allocation).into()
    }

    fn contents(&self, stream: &Stream) -> Result<[Vec<u32>; 3], DeviceError> {
        let mut all = [vec![0; N], vec![0; N], vec![0; N]];
        for (buffer, contents) in [&self.x, &self.y, &self.z].into_iter().zip(&mut all) {
            stream.read(buffer, contents)?;
        }
        Ok(all)
    }
}

/// A captured walk does nothing while it is captured, and each replay does what an eager walk does.
pub(super) fn replay_equals_eager(bench: &Bench) -> Checked {
    let (eager, replayed) = (Walk::new(bench)?, Walk::new(bench)?);
    let graph = bench.stream.capture(|stream| replayed.submit(bench, stream))?;
    let untouched = replayed.contents(&bench.stream)?;
    ensure!(untouched == [11, 12, 13].map(|seed| numbers(N, seed)), "the capture ran what it recorded");
    let exec = graph.instantiate(replayed.keep())?;
    for step in 0..3 {
        eager.submit(bench, &bench.stream)?;
        exec.launch(&bench.stream)?;
        let (one, other) = (eager.contents(&bench.stream)?, replayed.contents(&bench.stream)?);
        ensure!(one == other, "replay {step} differs from the eager walk");
        let x = numbers(1, 11)[0].wrapping_add(5 * (step + 1));
        ensure!(one[2][0] == x.wrapping_mul(3).wrapping_add(101), "step {step}: z[0] is {}", one[2][0]);
    }
    Ok(format!("3 replays of 5 nodes, {} elements each", 3 * N))
}

/// The device gives back the nodes as they were submitted, to the byte, and the chain of their order.
pub(super) fn nodes_read_back(bench: &Bench) -> Checked {
    let walk = Walk::new(bench)?;
    let graph = bench.stream.capture(|stream| walk.submit(bench, stream))?;
    let kernel = |function: &str, params: Vec<u8>| {
        GraphNode::Kernel(KernelNode {
            function: function.to_owned(),
            grid: grid(N),
            block: [128, 1, 1],
            shared: 0,
            params,
        })
    };
    let (x, y, z) = (walk.x.address(), walk.y.address(), walk.z.address());
    let due = [
        kernel("add_u32", add_args(x, N, 5)),
        kernel("scale_u32", scale_args(y, x, N, 3)),
        GraphNode::Copy { dst: z, src: y, bytes: 4 * N },
        GraphNode::Fill { dst: y, value: 0x11, bytes: 40 },
        kernel("add_u32", add_args(z, N - 1, 100)),
    ];
    ensure!(graph.nodes().len() == due.len(), "{} nodes read back: {:?}", graph.nodes().len(), graph.nodes());
    for (index, (read, due)) in graph.nodes().iter().zip(&due).enumerate() {
        ensure!(read == due, "node {index} reads back as {read:?}, {due:?} was captured");
    }
    let chain: Vec<_> =
        (1..due.len()).map(|to| GraphEdge { from: to - 1, to, programmatic: false }).collect();
    ensure!(graph.edges() == chain, "edges {:?}", graph.edges());
    Ok(format!("{} nodes, {} edges", due.len(), chain.len()))
}

/// An updated node runs with its new parameters from the next launch on; others and the graph stay.
pub(super) fn node_update(bench: &Bench) -> Checked {
    let x = Buffer::from_slice(&bench.device, &[0u32; N], "x")?;
    let y = Buffer::from_slice(&bench.device, &[0u32; N], "y")?;
    let graph = bench.stream.capture(|stream| {
        bench.add(stream, x.address(), N, 1)?;
        stream.fill(&y.slice(..1)?, 0)?;
        bench.add(stream, x.address(), N, 10)
    })?;
    let mut exec = graph.instantiate(vec![x.allocation()])?;
    exec.launch(&bench.stream)?;
    // The second kernel now adds 1000 to all of y, in one block less than x needs, of twice the threads.
    let args = add_args(y.address(), N, 1000);
    exec.keep(y.allocation());
    exec.set_kernel_params(2, [4, 1, 1], [256, 1, 1], 0, &args)?;
    exec.launch(&bench.stream)?;
    let (mut got_x, mut got_y) = (vec![0; N], vec![0; N]);
    bench.stream.read(&x, &mut got_x)?;
    bench.stream.read(&y, &mut got_y)?;
    ensure!(
        got_x == [12; N],
        "x is {} after one launch as captured and one as updated, 12 was due",
        got_x[0]
    );
    ensure!(got_y == [1000; N], "y is {}, 1000 was due", got_y[0]);
    let baked = exec.graph().nodes()[2].as_kernel().map(|node| node.params.clone());
    ensure!(baked == Some(add_args(x.address(), N, 10)), "the update changed the graph itself");
    let refused = [
        exec.set_kernel_params(1, [1, 1, 1], [32, 1, 1], 0, &args),
        exec.set_kernel_params(3, [1, 1, 1], [32, 1, 1], 0, &args),
        exec.set_kernel_params(0, [1, 1, 1], [32, 1, 1], 0, &args[..8]),
        exec.set_kernel_params(0, [1, 1, 1], [512, 1, 1], 0, &args),
    ];
    for (index, refusal) in refused.iter().enumerate() {
        let typed = matches!(refusal, Err(DeviceError::BadNode { .. } | DeviceError::BadLaunch { .. }));
        ensure!(typed, "unfit update {index}: {refusal:?}");
    }
    exec.launch(&bench.stream)?;
    bench.stream.read(&x, &mut got_x)?;
    ensure!(got_x == [13; N], "a refused update changed the graph: x is {}, 13 was due", got_x[0]);
    Ok(format!("1 node of 3 updated, {} unfit updates refused", refused.len()))
}

/// A second stream that an event draws in: its work is in the graph, with the edges of fork and join.
pub(super) fn fork_and_join(bench: &Bench) -> Checked {
    let other = bench.device.stream()?;
    let x = Buffer::from_slice(&bench.device, &[1u32; N], "x")?;
    let y = Buffer::from_slice(&bench.device, &[0u32; N], "y")?;
    let z = Buffer::from_slice(&bench.device, &[0u32; N], "z")?;
    let (forked, joined) = (bench.device.event()?, bench.device.event()?);
    let graph = bench.stream.capture(|stream| {
        bench.add(stream, x.address(), N, 1)?;
        stream.record(&forked)?;
        other.wait(&forked)?;
        bench.scale(&other, y.address(), x.address(), N, 10)?;
        bench.scale(stream, z.address(), x.address(), N, 100)?;
        other.record(&joined)?;
        stream.wait(&joined)?;
        bench.add(stream, y.address(), N, 5)?;
        bench.add(stream, z.address(), N, 7)
    })?;
    let mut edges: Vec<_> = graph.edges().iter().map(|edge| (edge.from, edge.to)).collect();
    edges.sort_unstable();
    // Node 1 is the other stream's, or node 2 is: the device's order of the two is free.
    ensure!(edges == [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)], "edges {edges:?}");
    let exec = graph.instantiate([&x, &y, &z].map(Buffer::allocation).into())?;
    exec.launch(&bench.stream)?;
    let mut got = vec![0; N];
    bench.stream.read(&y, &mut got)?;
    ensure!(got == [2 * 10 + 1 + 5; N], "y is {}", got[0]);
    bench.stream.read(&z, &mut got)?;
    ensure!(got == [2 * 100 + 1 + 7; N], "z is {}", got[0]);

    // Work that is not joined back cannot be captured; both streams work afterwards.
    let refused = bench.stream.capture(|stream| {
        bench.add(stream, x.address(), N, 1)?;
        stream.record(&forked)?;
        other.wait(&forked)?;
        bench.add(&other, y.address(), N, 1)
    });
    ensure!(refused.is_err(), "a capture with unjoined work was accepted");
    bench.usable()?;
    other.fill(&x, 0)?;
    other.synchronize()?;
    Ok("5 nodes of 2 streams, 5 edges; unjoined work refused".to_owned())
}

/// The 4 bytes a token that a decode loop reads: in the graph, through page-locked memory, counted at each replay.
pub(super) fn read_back_in_a_graph(bench: &Bench) -> Checked {
    let x = Buffer::from_slice(&bench.device, &[40u32; 8], "x")?;
    let host = HostBuffer::<u32>::new(&bench.device, 1, "token")?;
    let before = bench.device.counters();
    let graph = bench.stream.capture(|stream| {
        bench.add(stream, x.address(), 8, 1)?;
        stream.read_pinned(&x.slice(3..4)?, &host)
    })?;
    ensure!(bench.device.counters() == before, "a captured copy was counted as made");
    let copied = graph.nodes().last().map(GraphNode::kind) == Some("copy");
    ensure!(copied, "the last node is {:?}", graph.nodes().last());
    let exec = graph.instantiate(vec![x.allocation()])?;
    for step in 1..=5 {
        exec.launch(&bench.stream)?;
        bench.stream.synchronize()?;
        ensure!(host.get(0) == 40 + step, "read-back {step} is {}", host.get(0));
    }
    let counted = bench.device.counters().since(before);
    let due = DeviceCounters {
        device_to_host: Copies { count: 5, bytes: 20 },
        graph_launches: 5,
        graph_kernels: 5,
        ..DeviceCounters::default()
    };
    ensure!(counted == due, "5 replays counted as {counted}, {due} was due");
    Ok("5 replays, 20 bytes read back".to_owned())
}

/// A graph outlives the owners of what it touches, and a re-seat makes it stale, not wild.
pub(super) fn graph_owns_what_it_touches(bench: &Bench) -> Checked {
    let before = bench.device.bytes_in_use();
    let x = Buffer::from_slice(&bench.device, &[1u32; N], "x")?;
    let y = Buffer::<u32>::new(&bench.device, N, "y")?;
    let host = HostBuffer::<u32>::new(&bench.device, 1, "host")?;
    let module = bench.device.load_module("selftest again", super::PTX)?;
    let add = module.function("add_u32")?;
    let args = add_args(x.address(), N, 1);
    let graph = bench.stream.capture(|stream| {
        stream.launch(&add, &params(grid(N), 128, &args))?;
        stream.copy(&y, &x)?;
        stream.read_pinned(&y.slice(..1)?, &host)
    })?;
    let old = x.place();
    let exec = graph.instantiate(vec![x.allocation()])?;
    drop((module, add, y));
    // The buffer moves; the graph goes on with the allocation that it baked and holds.
    let new = bench.device.alloc(x.bytes(), "new x")?;
    drop(x.reseat(new)?);
    bench.stream.fill(&x, 0xff)?;
    exec.launch(&bench.stream)?;
    exec.launch(&bench.stream)?;
    bench.stream.synchronize()?;
    ensure!(host.get(0) == 3, "the graph read {} back, 3 was due", host.get(0));
    ensure!(x.to_vec()? == [u32::MAX; N], "the graph wrote to the new allocation");
    ensure!(
        x.place().generation == old.generation + 1 && x.place().address != old.address,
        "{:?}",
        x.place()
    );
    let held = exec.keep_alive().iter().any(|allocation| allocation.address() == old.address);
    ensure!(held, "the old allocation is not held");
    drop(exec);
    drop((x, host));
    ensure!(
        bench.device.bytes_in_use() == before,
        "{} bytes were left",
        bench.device.bytes_in_use() - before
    );
    Ok("2 replays after module and buffers were dropped; all memory freed".to_owned())
}

/// `add_u32` that waits for its predecessor itself.
const PROGRAMMATIC_PTX: &str = r"
.version 8.0
.target sm_90
.address_size 64

.visible .entry add_after(
	.param .u64 add_after_param_0,
	.param .u32 add_after_param_1,
	.param .u32 add_after_param_2
)
{
	.reg .pred 	%p<2>;
	.reg .b32 	%r<9>;
	.reg .b64 	%rd<5>;
	ld.param.u64 	%rd1, [add_after_param_0];
	ld.param.u32 	%r1, [add_after_param_1];
	ld.param.u32 	%r2, [add_after_param_2];
	griddepcontrol.launch_dependents;
	griddepcontrol.wait;
	mov.u32 	%r3, %ctaid.x;
	mov.u32 	%r4, %ntid.x;
	mov.u32 	%r5, %tid.x;
	mad.lo.s32 	%r6, %r3, %r4, %r5;
	setp.ge.u32 	%p1, %r6, %r1;
	@%p1 bra 	$L__BB0_2;
	cvta.to.global.u64 	%rd2, %rd1;
	mul.wide.u32 	%rd3, %r6, 4;
	add.s64 	%rd4, %rd2, %rd3;
	ld.global.u32 	%r7, [%rd4];
	add.s32 	%r8, %r7, %r2;
	st.global.u32 	[%rd4], %r8;
$L__BB0_2:
	ret;
}
";

/// Kernels that start before their predecessor ends: the same values, and an edge that says so.
pub(super) fn programmatic_launch(bench: &Bench) -> Checked {
    let info = bench.device.info();
    if info.compute < (9, 0) {
        return Err(Stop::Skipped(format!(
            "compute capability {}.{} is below 9.0",
            info.compute.0, info.compute.1
        )));
    }
    let module = bench.device.load_module("programmatic", PROGRAMMATIC_PTX)?;
    let add = module.function("add_after")?;
    let x = Buffer::from_slice(&bench.device, &[0u32; N], "x")?;
    let submit = |stream: &Stream| -> Result<(), DeviceError> {
        for value in 1..=20 {
            let args = add_args(x.address(), N, value);
            stream.launch(&add, &LaunchParams { programmatic: true, ..params(grid(N), 128, &args) })?;
        }
        Ok(())
    };
    submit(&bench.stream)?;
    let graph = bench.stream.capture(submit)?;
    let programmatic = graph.edges().iter().filter(|edge| edge.programmatic).count();
    ensure!(
        programmatic == 19,
        "{programmatic} of {} edges are programmatic, 19 were due",
        graph.edges().len()
    );
    let mut exec = graph.instantiate(vec![x.allocation()])?;
    exec.launch(&bench.stream)?;
    let mut got = vec![0; N];
    bench.stream.read(&x, &mut got)?;
    ensure!(got == [420; N], "x is {}, 420 was due", got[0]);
    // A node that starts early is updated like any other: the last adds 1000 instead of 20.
    exec.set_kernel_params(19, grid(N), [128, 1, 1], 0, &add_args(x.address(), N, 1000))?;
    exec.launch(&bench.stream)?;
    bench.stream.read(&x, &mut got)?;
    ensure!(got == [420 + 190 + 1000; N], "x is {} after an update, 1610 was due", got[0]);
    let place = if info.kind == DeviceKind::Sim { "in order" } else { "overlapped" };
    Ok(format!("20 eager launches and 20 nodes, {place}, 19 programmatic edges"))
}

/// A launch starts early only after a launch: what comes after a copy, a fill, an event or nothing waits for all of it, and
/// what comes after a launch that started early waits for that one whole.
pub(super) fn programmatic_neighbours(bench: &Bench) -> Checked {
    let info = bench.device.info();
    if info.compute < (9, 0) {
        return Err(Stop::Skipped("there is no programmatic launch below compute capability 9.0".to_owned()));
    }
    let module = bench.device.load_module("programmatic", PROGRAMMATIC_PTX)?;
    let after = module.function("add_after")?;
    let buffer = |name| Buffer::from_slice(&bench.device, &[0u32; N], name);
    let (x, y, z) = (buffer("x")?, buffer("y")?, buffer("z")?);
    let other = bench.device.stream()?;
    let (forked, joined) = (bench.device.event()?, bench.device.event()?);
    let add = |stream: &Stream, to: &Buffer<u32>, value: u32| {
        let args = add_args(to.address(), N, value);
        stream.launch(&after, &LaunchParams { programmatic: true, ..params(grid(N), 128, &args) })
    };
    let submit = |stream: &Stream| -> Result<(), DeviceError> {
        add(stream, &x, 1)?; // 0: the first
        add(stream, &x, 2)?; // 1: early
        stream.fill(&y, 0)?; // 2
        add(stream, &y, 3)?; // 3
        stream.copy(&z, &y)?; // 4
        add(stream, &z, 4)?; // 5
        bench.add(stream, z.address(), N, 5)?; // 6: not dependent
        add(stream, &z, 6)?; // 7: early, after one that never lets it begin
        stream.record(&forked)?;
        other.wait(&forked)?;
        add(&other, &y, 7)?; // 8, or 10 where the device lists it later
        add(&other, &y, 8)?; // early
        other.record(&joined)?;
        stream.wait(&joined)?;
        add(stream, &y, 9)?; // 10: after both streams
        stream.copy(&z.slice(..1)?, &y.slice(..1)?) // 11
    };
    let due = |what: &str, times: u32| -> Result<(), Stop> {
        let [mut got_x, mut got_y, mut got_z] = [vec![0; N], vec![0; N], vec![0; N]];
        bench.stream.read(&x, &mut got_x)?;
        bench.stream.read(&y, &mut got_y)?;
        bench.stream.read(&z, &mut got_z)?;
        ensure!(got_x == [3 * times; N], "{what}: x is {}, {} was due", got_x[0], 3 * times);
        ensure!(got_y == [27; N], "{what}: y is {}, 27 was due", got_y[0]);
        ensure!((got_z[0], got_z[1]) == (27, 18), "{what}: z is {} and {}", got_z[0], got_z[1]);
        Ok(())
    };
    submit(&bench.stream)?;
    due("eager", 1)?;
    let graph = bench.stream.capture(submit)?;
    let kernels = |edge: &&GraphEdge| {
        [edge.from, edge.to].iter().all(|&node| graph.nodes()[node].as_kernel().is_some())
    };
    let early: Vec<&GraphEdge> = graph.edges().iter().filter(|edge| edge.programmatic).collect();
    ensure!(early.len() == 3, "programmatic edges {early:?}, 3 were due");
    ensure!(early.iter().all(kernels), "a programmatic edge from or to what is no kernel: {early:?}");
    let alone = |edge: &&GraphEdge| graph.edges().iter().filter(|other| other.to == edge.to).count() == 1;
    ensure!(early.iter().all(alone), "a launch that starts early depends on others: {early:?}");
    let exec = graph.instantiate([&x, &y, &z].map(Buffer::allocation).into())?;
    exec.launch(&bench.stream)?;
    due("replayed", 2)?;
    // After a graph, after a wait of the host: as the first.
    exec.launch(&bench.stream)?;
    add(&bench.stream, &x, 0)?;
    due("replayed and eager", 3)?;
    let mut got = vec![0; N];
    // PTX without a wait takes the request for a plain launch.
    let plain = |stream: &Stream| -> Result<(), DeviceError> {
        for value in 1..=3 {
            let args = add_args(x.address(), N, value);
            let early = LaunchParams { programmatic: true, ..params(grid(N), 128, &args) };
            stream.launch(&bench.add, &early)?;
        }
        Ok(())
    };
    let graph = bench.stream.capture(plain)?;
    let early = graph.edges().iter().filter(|edge| edge.programmatic).count();
    ensure!(early == 0, "{early} programmatic edges to kernels that do not wait");
    graph.instantiate(vec![x.allocation()])?.launch(&bench.stream)?;
    bench.stream.read(&x, &mut got)?;
    ensure!(got == [9 + 6; N], "after kernels without a wait x is {}, 15 was due", got[0]);
    Ok("12 nodes, 3 programmatic edges, none beside a copy, a fill, an event or the start".to_owned())
}
