//! Checks that captures leave nothing behind, whatever came before and whatever went wrong.

use super::{Bench, Checked, N, Stop, add_args, ensure, grid, numbers, params};
use crate::device::{Buffer, CaptureError, LaunchParams};

/// A graph captured, run and destroyed, its memory freed and other memory allocated, a hundred times: each run is right, and
/// nothing stays.
pub(super) fn captures_again_and_again(bench: &Bench) -> Checked {
    let in_use = bench.device.bytes_in_use();
    let before = bench.device.counters();
    let mut free = 0;
    for round in 0..100u32 {
        // Sizes differ, so that a later allocation lies across several earlier ones.
        let n = N + 37 * (round as usize % 11);
        let x = Buffer::from_slice(&bench.device, &numbers(n, round), "x")?;
        let y = Buffer::<u32>::new(&bench.device, n, "y")?;
        let graph = bench.stream.capture(|stream| {
            bench.add(stream, x.address(), n, round)?;
            stream.copy(&y, &x)?;
            bench.scale(stream, x.address(), y.address(), n, 3)
        })?;
        let exec = graph.instantiate(vec![x.allocation(), y.allocation()])?;
        exec.launch(&bench.stream)?;
        let mut got = vec![0; n];
        bench.stream.read(&x, &mut got)?;
        let due =
            numbers(n, round).into_iter().map(|x| x.wrapping_add(round).wrapping_mul(3).wrapping_add(1));
        ensure!(due.eq(got), "round {round}: another value than was due");
        if round % 2 == 0 {
            drop((exec, x, y));
        } else {
            drop((y, x, exec));
        }
        let left = bench.device.bytes_in_use() - in_use;
        ensure!(left == 0, "round {round}: {left} bytes are left");
        if round == 9 {
            free = bench.device.memory_info()?.0;
        }
    }
    let counted = bench.device.counters().since(before);
    ensure!(
        (counted.allocations, counted.frees, counted.graph_launches) == (200, 200, 100),
        "100 rounds counted as {counted}"
    );
    // Of other processes too, so less by a little is no proof of a leak; a hundred graphs' worth is.
    let lost = free.saturating_sub(bench.device.memory_info()?.0);
    ensure!(lost < 64 << 20, "{lost} bytes of the device's memory were lost in 90 rounds");
    Ok("100 captures, replays and destructions, 200 allocations freed".to_owned())
}

/// A launch that the device refuses in the middle of a capture, heeded and ignored, on the capturing stream and on one that
/// was drawn in: the streams are idle and usable afterwards, the next eager walk and the next capture are right.
pub(super) fn failure_in_a_capture(bench: &Bench) -> Checked {
    let x = Buffer::from_slice(&bench.device, &[1u32; N], "x")?;
    let other = bench.device.stream()?;
    let fork = bench.device.event()?;
    let args = add_args(x.address(), N, 1);
    let impossible = LaunchParams { shared: 300 << 10, ..params(grid(N), 128, &args) };
    let mut added = 1;
    for ignored in [false, true] {
        for drawn_in in [false, true] {
            let refused = bench.stream.capture(|stream| {
                bench.add(stream, x.address(), N, 100)?;
                let mut at = stream;
                if drawn_in {
                    stream.record(&fork)?;
                    other.wait(&fork)?;
                    at = &other;
                }
                match at.launch(&bench.add, &impossible) {
                    // Ignoring it must not make a graph that lacks a node.
                    Err(_) if ignored => bench.add(stream, x.address(), N, 100),
                    other => other,
                }
            });
            let words = refused.as_ref().err().map(ToString::to_string).unwrap_or_default();
            ensure!(
                matches!(refused, Err(CaptureError::Refused(_))) && words.contains("add_u32"),
                "a capture in which a launch failed: {refused:?}"
            );
            // Idle: both can be waited for, and nothing that was recorded runs.
            bench.stream.synchronize()?;
            other.synchronize()?;
            for stream in [&bench.stream, &other] {
                bench.add(stream, x.address(), N, 1)?;
                stream.synchronize()?;
                added += 1;
            }
            let got = x.to_vec()?;
            ensure!(
                got == [added; N],
                "the eager launches after a failed capture gave {}, {added} due",
                got[0]
            );
        }
    }
    let graph = bench.stream.capture(|stream| bench.add(stream, x.address(), N, 1))?;
    ensure!(graph.node_count() == 1, "the capture after them holds {} nodes", graph.node_count());
    graph.instantiate(vec![x.allocation()])?.launch(&bench.stream)?;
    let mut got = vec![0; N];
    bench.stream.read(&x, &mut got)?;
    ensure!(got == [added + 1; N], "the graph after them gave {}, {} due", got[0], added + 1);
    Ok("4 failing captures, 8 eager launches and a graph after them".to_owned())
}

/// What a launch took from host memory is in the graph: changing it afterwards changes nothing. Pageable memory, which could
/// not be so taken, makes the capture refused.
pub(super) fn host_memory_changed_after_a_capture(bench: &Bench) -> Checked {
    let x = Buffer::from_slice(&bench.device, &[5u32; N], "x")?;
    let mut args = add_args(x.address(), N, 2);
    let graph = bench.stream.capture(|stream| stream.launch(&bench.add, &params(grid(N), 128, &args)))?;
    args.fill(0xff);
    let exec = graph.instantiate(vec![x.allocation()])?;
    args.fill(0);
    exec.launch(&bench.stream)?;
    exec.launch(&bench.stream)?;
    let mut got = vec![0; N];
    bench.stream.read(&x, &mut got)?;
    ensure!(got == [9; N], "a graph gave {} after its launch's arguments were overwritten, 9 due", got[0]);

    let mut host = vec![7u32; N];
    let refused = bench.stream.capture(|stream| {
        stream.write(&x, &host)?;
        bench.add(stream, x.address(), N, 1)
    });
    let words = refused.as_ref().err().map(ToString::to_string).unwrap_or_default();
    ensure!(
        matches!(refused, Err(CaptureError::Refused(_))) && words.contains("pageable copy of `x`"),
        "a pageable copy in a capture: {words}"
    );
    let refused = bench.stream.capture(|stream| {
        bench.add(stream, x.address(), N, 1)?;
        stream.read(&x, &mut host)
    });
    ensure!(
        matches!(refused, Err(CaptureError::Refused(_))),
        "a pageable read-back in a capture: {refused:?}"
    );
    ensure!(host == [7; N], "a refused read-back was carried out");
    ensure!(x.to_vec()? == [9; N], "a refused copy was carried out");
    Ok("arguments overwritten twice, 2 replays unchanged; 2 pageable copies refused".to_owned())
}
