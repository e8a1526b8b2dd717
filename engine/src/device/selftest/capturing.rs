//! Checks of what a capture refuses, and that it ends whatever happens.

use super::{Bench, Checked, N, Stop, ensure};
use crate::device::{Buffer, CaptureError, CaptureState, DeviceError, Event, HostBuffer, Stream, Violation};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;

type Body<'a> = Box<dyn Fn(&Stream) -> Result<(), DeviceError> + 'a>;

/// Each operation that a graph cannot hold: refused at once, the capture refused at its end even when the body goes on,
/// nothing done, and the stream usable.
pub(super) fn forbidden_operations(bench: &Bench) -> Checked {
    let device = &bench.device;
    let x = Buffer::from_slice(device, &[1u32; N], "x")?;
    let (start, end) = (Event::new(device)?, Event::new(device)?);
    bench.stream.record(&start)?;
    bench.stream.record(&end)?;
    let spare = device.stream()?;
    let inner = {
        let graph = bench.stream.capture(|stream| bench.add(stream, x.address(), N, 0))?;
        graph.instantiate(vec![x.allocation()])?
    };
    let cases: [(&str, Body); 13] = [
        ("allocation of `a`", Box::new(|_| device.alloc(64, "a").map(drop))),
        ("allocation of `b`", Box::new(|_| Buffer::from_slice(device, &[0u8; 4], "b").map(drop))),
        ("allocation of `h`", Box::new(|_| HostBuffer::<u8>::new(device, 4, "h").map(drop))),
        ("module `m`", Box::new(|_| device.load_module("m", super::PTX).map(drop))),
        ("pageable copy of `x`", Box::new(|stream| stream.write(&x, &[9; N]))),
        ("pageable copy of `x`", Box::new(|stream| stream.read(&x, &mut [0; N]))),
        ("pageable copy of `x`", Box::new(|_| spare.write(&x, &[9; N]))),
        ("synchronisation (synchronize)", Box::new(Stream::synchronize)),
        ("synchronisation (synchronize)", Box::new(|_| spare.synchronize())),
        ("synchronisation (device synchronize)", Box::new(|_| device.synchronize())),
        ("synchronisation (event synchronize)", Box::new(|_| end.synchronize())),
        ("synchronisation (event elapsed time)", Box::new(|_| end.elapsed_ms(&start).map(drop))),
        ("synchronisation (launch of a graph)", Box::new(|stream| inner.launch(stream))),
    ];
    for (words, operation) in &cases {
        for ignored in [false, true] {
            let refused = bench.stream.capture(|stream| {
                bench.add(stream, x.address(), N, 1)?;
                match operation(stream) {
                    Err(DeviceError::Capture(CaptureError::Forbidden(_))) if ignored => Ok(()),
                    Ok(()) if ignored => Ok(()),
                    other => other,
                }
            });
            match &refused {
                Err(error @ CaptureError::Refused(list)) => {
                    ensure!(list.len() == 1 && error.to_string().contains(words), "{words}: {error}");
                }
                other => return Err(Stop::Failed(format!("{words} was not refused: {other:?}"))),
            }
            ensure!(
                bench.stream.capture_state() == CaptureState::Failed,
                "{words}: {:?}",
                bench.stream.capture_state()
            );
            bench.usable()?;
        }
    }
    // What is dropped in a capture is freed when the capture has ended.
    let in_use = device.bytes_in_use();
    let doomed = Buffer::<u32>::new(device, N, "doomed")?;
    let refused = bench.stream.capture(|stream| {
        bench.add(stream, doomed.address(), N, 1)?;
        drop(doomed);
        Ok::<_, DeviceError>(())
    });
    let freed = Violation::Free("doomed".to_owned());
    ensure!(matches!(&refused, Err(CaptureError::Refused(list)) if *list == [freed]), "a free: {refused:?}");
    ensure!(device.bytes_in_use() == in_use, "memory dropped in a capture was not freed");
    bench.usable()?;
    ensure!(x.to_vec()? == [1; N], "a refused operation was carried out");
    Ok(format!("{} operations refused, heeded and ignored; stream usable after each", cases.len() + 1))
}

/// The body's error comes out, and a panic goes on; the capture has ended either way.
pub(super) fn error_and_panic(bench: &Bench) -> Checked {
    let x = Buffer::from_slice(&bench.device, &[1u32; N], "x")?;
    let failed = bench.stream.capture(|stream| {
        bench.add(stream, x.address(), N, 1)?;
        Err::<(), _>(DeviceError::Unsupported { device: "here".into(), what: "what the body wants".into() })
    });
    let words = failed.as_ref().err().map(ToString::to_string).unwrap_or_default();
    let body = matches!(failed, Err(CaptureError::Body(_))) && words.contains("what the body wants");
    ensure!(body, "the body's error came out as {words:?}");
    ensure!(bench.stream.capture_state() == CaptureState::Failed, "{:?}", bench.stream.capture_state());
    bench.usable()?;

    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let result = bench.stream.capture(|stream| {
            bench.add(stream, x.address(), N, 1)?;
            // Without the hook's message: nothing went wrong here.
            resume_unwind(Box::new("from the body"));
            #[allow(unreachable_code)]
            Ok::<(), DeviceError>(())
        });
        result.is_ok()
    }));
    let payload = panicked.err().and_then(|payload| payload.downcast_ref::<&str>().map(ToString::to_string));
    ensure!(payload.as_deref() == Some("from the body"), "the panic came out as {payload:?}");
    ensure!(bench.stream.capture_state() == CaptureState::Failed, "{:?}", bench.stream.capture_state());
    bench.usable()?;
    ensure!(x.to_vec()? == [1; N], "a failed capture ran what it recorded");
    let graph = bench.stream.capture(|stream| bench.add(stream, x.address(), N, 1))?;
    ensure!(graph.node_count() == 1, "the capture after them holds {} nodes", graph.node_count());
    ensure!(bench.stream.capture_state() == CaptureState::Captured, "{:?}", bench.stream.capture_state());
    Ok("an error, a panic, then a good capture".to_owned())
}

/// A capture of nothing, and one within another.
pub(super) fn empty_and_nested(bench: &Bench) -> Checked {
    let empty = bench.stream.capture(|_| Ok::<(), DeviceError>(()));
    ensure!(matches!(empty, Err(CaptureError::Empty)), "an empty capture: {empty:?}");
    bench.usable()?;
    let x = Buffer::from_slice(&bench.device, &[1u32; N], "x")?;
    let other = bench.device.stream()?;
    let mut inner = Vec::new();
    let outer = bench.stream.capture(|stream| {
        for nested in [stream, &other] {
            inner.push(nested.capture(|stream| bench.add(stream, x.address(), N, 1)));
        }
        bench.add(stream, x.address(), N, 1)
    })?;
    let refused = inner.iter().all(|inner| matches!(inner, Err(CaptureError::AlreadyCapturing)));
    ensure!(refused && inner.len() == 2, "captures within a capture: {inner:?}");
    ensure!(outer.node_count() == 1, "the outer capture holds {} nodes", outer.node_count());
    // Another thread's capture is its own, and what this thread does meanwhile is no part of it.
    let (ready, wait) = (Barrier::new(2), Barrier::new(2));
    let theirs = std::thread::scope(|scope| {
        let (ready, wait) = (&ready, &wait);
        let (other, x) = (&other, &x);
        let thread = scope.spawn(move || {
            other.capture(|stream| {
                ready.wait();
                wait.wait();
                bench.add(stream, x.address(), N, 1)
            })
        });
        ready.wait();
        let mine = meanwhile(bench);
        wait.wait();
        thread.join().map(|theirs| (mine, theirs))
    });
    let Ok((mine, theirs)) = theirs else {
        return Err(Stop::Failed("the capturing thread panicked".to_owned()));
    };
    mine?;
    ensure!(theirs?.node_count() == 1, "another thread's capture took in this thread's work");
    bench.usable()?;
    Ok("empty and nested refused; another thread's capture apart".to_owned())
}

/// What a thread may do while another one captures: everything.
fn meanwhile(bench: &Bench) -> Result<(), DeviceError> {
    let y = Buffer::from_slice(&bench.device, &[1u32; 64], "meanwhile")?;
    bench.add(&bench.stream, y.address(), 64, 1)?;
    bench.stream.synchronize()?;
    bench.device.synchronize()?;
    y.to_vec().map(drop)
}
