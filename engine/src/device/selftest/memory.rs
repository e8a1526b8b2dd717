//! Checks of memory, modules, launches and events.

use super::{Bench, Checked, N, Stop, add_args, ensure, numbers, params};
use crate::device::{
    Buffer, Copies, DeviceCounters, DeviceError, Element, F8E4M3, HostBuffer, LaunchParams, Uploader,
};
use half::{bf16, f16};

fn round_trip<T: Element + PartialEq>(bench: &Bench, data: &[T]) -> Result<usize, Stop> {
    let buffer = Buffer::<T>::new(&bench.device, data.len(), T::NAME)?;
    ensure!(
        buffer.address() % 256 == 0,
        "{}: address {:#x} is not 256-byte aligned",
        T::NAME,
        buffer.address()
    );
    bench.stream.write(&buffer, data)?;
    let mut back = vec![T::zeroed(); data.len()];
    bench.stream.read(&buffer, &mut back)?;
    ensure!(back == data, "{} did not come back as written", T::NAME);
    ensure!(buffer.to_vec()? == data, "{} did not come back from another stream", T::NAME);
    Ok(buffer.bytes())
}

/// Every element type, slices, fills and copies.
pub(super) fn round_trips(bench: &Bench) -> Checked {
    let words = numbers(N, 1);
    let mut bytes = round_trip::<u32>(bench, &words)?;
    // Only finite values: a NaN would not compare equal to itself.
    let reals: Vec<f32> = words.iter().map(|&w| w as f32 - 1e9).collect();
    bytes += round_trip::<f32>(bench, &reals)?;
    bytes += round_trip::<f64>(bench, &reals.iter().map(|&x| f64::from(x)).collect::<Vec<_>>())?;
    bytes += round_trip::<f16>(bench, &reals.iter().map(|&x| f16::from_f32(x * 1e-6)).collect::<Vec<_>>())?;
    bytes += round_trip::<bf16>(bench, &reals.iter().map(|&x| bf16::from_f32(x)).collect::<Vec<_>>())?;
    bytes += round_trip::<F8E4M3>(bench, &words.iter().map(|&w| F8E4M3(w as u8)).collect::<Vec<_>>())?;
    bytes += round_trip::<i32>(bench, &words.iter().map(|&w| w as i32).collect::<Vec<_>>())?;
    bytes += round_trip::<u64>(bench, &words.iter().map(|&w| u64::from(w) << 17).collect::<Vec<_>>())?;
    bytes += round_trip::<i64>(bench, &words.iter().map(|&w| -i64::from(w)).collect::<Vec<_>>())?;
    bytes += round_trip::<i16>(bench, &words.iter().map(|&w| w as i16).collect::<Vec<_>>())?;
    bytes += round_trip::<u16>(bench, &words.iter().map(|&w| w as u16).collect::<Vec<_>>())?;
    bytes += round_trip::<i8>(bench, &words.iter().map(|&w| w as i8).collect::<Vec<_>>())?;
    bytes += round_trip::<u8>(bench, &words.iter().map(|&w| w as u8).collect::<Vec<_>>())?;

    let buffer = Buffer::from_slice(&bench.device, &words, "words")?;
    let middle = buffer.slice(100..300)?;
    bench.stream.write(&middle.slice(50..=60)?, &[7; 11])?;
    let other = Buffer::<u32>::new(&bench.device, 200, "other")?;
    bench.stream.copy(&other, &middle)?;
    bench.stream.fill(&other.slice(190..)?, 0xab)?;
    let mut expected = words[100..300].to_vec();
    expected[50..61].fill(7);
    expected[190..].fill(0xabab_abab);
    let mut back = vec![0; 200];
    bench.stream.read(&other, &mut back)?;
    ensure!(back == expected, "slices, copy and fill gave other values than on the host");
    let as_bytes = other.cast::<u8>()?.to_vec()?;
    ensure!(as_bytes[190 * 4..] == [0xab; 40], "the bytes of a cast buffer differ");
    ensure!(other.slice(1..)?.cast::<u64>().is_err(), "a cast to a type of other alignment was accepted");

    let host = HostBuffer::<u32>::new(&bench.device, 200, "host")?;
    (0..200).for_each(|i| host.set(i, i as u32 * 3));
    bench.stream.write_pinned(&other, &host)?;
    bench.stream.fill(&other.slice(..1)?, 0xff)?;
    bench.stream.read_pinned(&other, &host)?;
    bench.stream.synchronize()?;
    let due = |i: usize| if i == 0 { u32::MAX } else { i as u32 * 3 };
    ensure!(
        (0..200).all(|i| host.get(i) == due(i)),
        "page-locked memory did not come back: {:?}",
        host.to_vec()
    );
    Ok(format!("{bytes} bytes of 13 types, slices, copy, fill, page-locked memory"))
}

/// What is done is counted, each kind for itself.
pub(super) fn everything_counted(bench: &Bench) -> Checked {
    let before = bench.device.counters();
    let buffer = Buffer::from_slice(&bench.device, &numbers(N, 2), "counted")?;
    let twin = Buffer::<u32>::new(&bench.device, N, "twin")?;
    bench.stream.copy(&twin, &buffer)?;
    bench.stream.fill(&twin, 0)?;
    bench.add(&bench.stream, buffer.address(), N, 1)?;
    bench.add(&bench.stream, buffer.address(), N, 1)?;
    bench.stream.read(&buffer.slice(..10)?, &mut [0; 10])?;
    buffer.slice(..5)?.to_vec()?;
    bench.stream.write(&buffer.slice(..7)?, &[0; 7])?;
    let host = HostBuffer::<u32>::new(&bench.device, 1, "one")?;
    bench.stream.read_pinned(&buffer.slice(..1)?, &host)?;
    bench.stream.write_pinned(&buffer.slice(..1)?, &host)?;
    bench.stream.synchronize()?;
    drop(twin);
    let counted = bench.device.counters().since(before);
    let due = DeviceCounters {
        host_to_device: Copies { count: 3, bytes: 4 * N as u64 + 28 + 4 },
        device_to_host: Copies { count: 3, bytes: 40 + 20 + 4 },
        allocations: 2,
        frees: 1,
        kernel_launches: 2,
        ..DeviceCounters::default()
    };
    ensure!(counted == due, "{counted}, {due} was due");
    Ok(due.to_string())
}

/// Lengths that do not agree, empty and overflowing sizes, slices outside.
pub(super) fn lengths_refused(bench: &Bench) -> Checked {
    let (stream, device) = (&bench.stream, &bench.device);
    let buffer = Buffer::<u32>::new(device, 10, "ten")?;
    let nine = Buffer::<u32>::new(device, 9, "nine")?;
    ensure!(
        matches!(stream.write(&buffer, &[0; 9]), Err(DeviceError::LengthMismatch { .. })),
        "a short write"
    );
    ensure!(
        matches!(stream.read(&buffer, &mut [0; 11]), Err(DeviceError::LengthMismatch { .. })),
        "a long read"
    );
    ensure!(matches!(stream.copy(&buffer, &nine), Err(DeviceError::LengthMismatch { .. })), "an uneven copy");
    ensure!(matches!(buffer.slice(4..11), Err(DeviceError::BadSlice { .. })), "a slice outside");
    ensure!(matches!(buffer.slice(4..4), Err(DeviceError::BadSlice { .. })), "an empty slice");
    ensure!(
        matches!(Buffer::<u32>::new(device, 0, "no"), Err(DeviceError::BadLength { .. })),
        "an empty buffer"
    );
    let huge = Buffer::<u64>::new(device, usize::MAX / 4, "huge");
    ensure!(matches!(huge, Err(DeviceError::BadLength { .. })), "an overflowing buffer");
    Ok("7 refused".to_owned())
}

/// An allocation larger than what is free: both figures in the error, and the device goes on.
pub(super) fn out_of_memory(bench: &Bench) -> Checked {
    let (_, total) = bench.device.memory_info()?;
    let asked = total + (1 << 30);
    match bench.device.alloc(asked as usize, "far too much") {
        Err(DeviceError::OutOfMemory { name, asked: told, free, .. }) => {
            ensure!(
                name == "far too much" && told == asked && free <= total,
                "{name}: asked {told}, free {free}"
            );
        }
        other => return Err(Stop::Failed(format!("{asked} bytes of {total}: {other:?}"))),
    }
    Buffer::from_slice(&bench.device, &[1u8; 100], "after")?;
    Ok(format!("{asked} bytes asked for of {total}"))
}

/// Memory comes back when the last owner is gone, once, whatever the order.
pub(super) fn memory_freed_once(bench: &Bench) -> Checked {
    let before = bench.device.bytes_in_use();
    let buffer = Buffer::<u8>::new(&bench.device, 1 << 20, "mebibyte")?;
    let (clone, slice, held) = (buffer.clone(), buffer.slice(5..10)?, buffer.allocation());
    drop(buffer);
    drop(clone);
    let during = bench.device.bytes_in_use() - before;
    ensure!(during == 1 << 20, "{during} bytes in use while a slice lives");
    drop(slice);
    ensure!(
        bench.device.bytes_in_use() - before == 1 << 20,
        "an allocation held apart was freed with its buffer"
    );
    drop(held);
    ensure!(bench.device.bytes_in_use() == before, "memory was not freed with its last owner");
    Ok("1048576 bytes in use, then none".to_owned())
}

/// A re-seat is seen by clones and slices; the id stays, the generation rises.
pub(super) fn reseat(bench: &Bench) -> Checked {
    let buffer = Buffer::from_slice(&bench.device, &numbers(N, 3), "seat")?;
    let (clone, slice) = (buffer.clone(), buffer.slice(10..20)?);
    let before = slice.place();
    let new = bench.device.alloc(buffer.bytes(), "new seat")?;
    let address = new.address();
    let old = buffer.reseat(new)?;
    let after = slice.place();
    ensure!(old.address() + 40 == before.address, "the old allocation did not come back");
    ensure!(
        after.id == before.id && after.generation == before.generation + 1,
        "{before:?} became {after:?}"
    );
    ensure!(
        after.address == address + 40 && clone.address() == address,
        "a clone or slice kept the old address"
    );
    bench.stream.write(&clone, &numbers(N, 4))?;
    ensure!(slice.to_vec()? == numbers(N, 4)[10..20], "a slice did not see what was written through a clone");
    ensure!(
        Buffer::<u32>::from_allocation(old)?.to_vec()? == numbers(N, 3),
        "the old allocation was written to"
    );
    let small = bench.device.alloc(4, "small")?;
    ensure!(matches!(buffer.reseat(small), Err(DeviceError::BadReseat { .. })), "another size was accepted");
    ensure!(buffer.generation() == after.generation, "a refused re-seat counted");
    Ok(format!("generation {} to {}", before.generation, after.generation))
}

/// What a module can be refused for, and what is known of a loaded one.
pub(super) fn module_errors(bench: &Bench) -> Checked {
    let bad = bench.device.load_module("bad", ".version 8.0\n.target sm_80\n.address_size 64\n.entry oops {");
    ensure!(matches!(bad, Err(DeviceError::ModuleLoad { .. })), "PTX that does not parse: {bad:?}");
    let none = bench.module.function("no_such_entry");
    let Err(DeviceError::NoEntry { available, .. }) = &none else {
        return Err(Stop::Failed(format!("an entry that is not there: {none:?}")));
    };
    ensure!(available.len() == 2, "{available:?}");
    let info = bench.add.info();
    let offsets: Vec<_> = info.params.iter().map(|param| (param.offset, param.size)).collect();
    ensure!(offsets == [(0, 8), (8, 4), (12, 4)] && info.param_bytes == 16, "{info:?}");
    let info = bench.scale.info();
    let offsets: Vec<_> = info.params.iter().map(|param| (param.offset, param.size)).collect();
    ensure!(offsets == [(0, 4), (8, 8), (16, 8), (24, 4)] && info.param_bytes == 28, "{info:?}");
    ensure!(bench.add.info().max_threads == 256, "{:?}", bench.add.info());
    let by_driver = bench.add.info().params_checked_by_driver + bench.scale.info().params_checked_by_driver;
    Ok(format!("2 refused, 7 parameters as declared, {by_driver} of them compared with the driver's"))
}

/// Pieces of many sizes, each made while the one before is being copied.
pub(super) fn uploads_in_pieces(bench: &Bench) -> Checked {
    const SIZES: [(usize, usize); 9] = [
        (1, 1),
        (4 << 20, 300),
        (1 << 20, 1 << 18),
        (257, 3 << 20),
        (255, 256),
        (1 << 20, 1),
        (7, 1 << 20),
        (2 << 20, 2 << 20),
        (100, 9),
    ];
    let totals = SIZES.iter().fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
    let pattern = |len: usize, seed: usize| -> Vec<u8> {
        (0..len).map(|i| (((i + seed) as u32).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    };
    let due = (pattern(totals.0, 1), pattern(totals.1, 99));
    let (a, b) = (
        Buffer::<u8>::new(&bench.device, totals.0, "first plane")?,
        Buffer::<u8>::new(&bench.device, totals.1, "second plane")?,
    );
    bench.stream.fill(&a, 0xee)?;
    bench.stream.fill(&b, 0xee)?;
    bench.stream.synchronize()?;
    let before = bench.device.counters();
    let mut uploader = Uploader::new(&bench.device)?;
    let mut at = (0, 0);
    for (piece, size) in SIZES.into_iter().enumerate() {
        let ranges = (at.0..at.0 + size.0, at.1..at.1 + size.1);
        let to = [a.slice(ranges.0.clone())?, b.slice(ranges.1.clone())?];
        uploader.upload(&to, |planes| match planes {
            [first, second] => {
                first.copy_from_slice(&due.0[ranges.0]);
                second.copy_from_slice(&due.1[ranges.1]);
                Ok::<(), Stop>(())
            }
            _ => Err(Stop::Failed(format!("piece {piece}: {} slices for 2 buffers", planes.len()))),
        })?;
        at = (at.0 + size.0, at.1 + size.1);
        // One that fails leaves no trace.
        let refused = uploader.upload(&to, |planes| {
            planes.iter_mut().for_each(|plane| plane.fill(0x11));
            Err(Stop::Skipped("on purpose".to_owned()))
        });
        ensure!(matches!(refused, Err(Stop::Skipped(_))), "piece {piece}: the error of the maker was lost");
    }
    uploader.finish()?;
    ensure!(a.to_vec()? == due.0 && b.to_vec()? == due.1, "the pieces together are not what was made");
    let copied = bench.device.counters().since(before).host_to_device;
    let wanted = Copies { count: 2 * SIZES.len() as u64, bytes: (totals.0 + totals.1) as u64 };
    ensure!(copied == wanted, "{copied} were counted, {wanted} due");
    let pinned = uploader.pinned_bytes();
    ensure!(
        pinned > 0 && pinned <= 2 * (8 << 20),
        "{pinned} bytes of page-locked memory for pieces of 4 MiB"
    );
    let graph = bench.stream.capture(|_| uploader.upload(&[a.slice(..4)?], |_| Ok::<(), DeviceError>(())));
    ensure!(graph.is_err(), "an upload in pieces was captured");
    Ok(format!("{} bytes in {} pieces", totals.0 + totals.1, SIZES.len()))
}

/// Kernels compute what they are for.
pub(super) fn launch(bench: &Bench) -> Checked {
    let x = Buffer::from_slice(&bench.device, &numbers(N, 6), "x")?;
    let out = Buffer::from_slice(&bench.device, &[7; N], "out")?;
    bench.add(&bench.stream, x.address(), N, 5)?;
    bench.scale(&bench.stream, out.address(), x.address(), N - 1, 3)?;
    let (mut got_x, mut got_out) = (vec![0; N], vec![0; N]);
    bench.stream.read(&x, &mut got_x)?;
    bench.stream.read(&out, &mut got_out)?;
    for (i, start) in numbers(N, 6).into_iter().enumerate() {
        let x = start.wrapping_add(5);
        let out = if i == N - 1 { 7 } else { x.wrapping_mul(3).wrapping_add(1) };
        ensure!(
            (got_x[i], got_out[i]) == (x, out),
            "element {i}: {} and {}, {x} and {out} due",
            got_x[i],
            got_out[i]
        );
    }
    let args = add_args(x.address(), N, 1);
    let all_resident = LaunchParams { cooperative: true, ..params([4, 1, 1], 256, &args) };
    bench.stream.launch(&bench.add, &all_resident)?;
    bench.stream.read(&x, &mut got_x)?;
    let due: Vec<u32> = numbers(N, 6).iter().map(|x| x.wrapping_add(6)).collect();
    ensure!(got_x == due, "a cooperative launch gave other values");
    Ok(format!("{} elements of 2 kernels", 3 * N))
}

/// Launch configurations that cannot be, each named after its kernel.
pub(super) fn launch_refused(bench: &Bench) -> Checked {
    let x = Buffer::from_slice(&bench.device, &[1u32; 4], "x")?;
    let args = add_args(x.address(), 4, 1);
    let short = params([1, 1, 1], 32, &args[..12]);
    let cases = [
        ("short arguments", short),
        ("no blocks", params([0, 1, 1], 32, &args)),
        ("no threads", params([1, 1, 1], 0, &args)),
        ("too many threads", params([1, 1, 1], 257, &args)),
        ("a grid that is too high", params([1, 65_536, 1], 32, &args)),
        ("too much shared memory", LaunchParams { shared: 300 << 10, ..params([1, 1, 1], 32, &args) }),
    ];
    for (what, case) in &cases {
        match bench.stream.launch(&bench.add, case) {
            Err(DeviceError::BadLaunch { kernel, .. } | DeviceError::LaunchFailed { kernel, .. }) => {
                ensure!(kernel == "add_u32", "{what}: the error names `{kernel}`");
            }
            other => return Err(Stop::Failed(format!("{what}: {other:?}"))),
        }
    }
    ensure!(x.to_vec()? == [1; 4], "a refused launch ran");
    Ok(format!("{} refused", cases.len()))
}

/// Events order streams and take the time.
pub(super) fn events(bench: &Bench) -> Checked {
    let (start, end) = (bench.device.event()?, bench.device.event()?);
    ensure!(end.elapsed_ms(&start).is_err(), "the time between events that were not recorded");
    let other = bench.device.stream()?;
    let x = Buffer::from_slice(&bench.device, &[0u32; N], "x")?;
    bench.stream.record(&start)?;
    for round in 0..50 {
        bench.add(if round % 2 == 0 { &bench.stream } else { &other }, x.address(), N, round)?;
        if round % 2 == 0 {
            bench.stream.record(&end)?;
            other.wait(&end)?;
        } else {
            other.record(&end)?;
            bench.stream.wait(&end)?;
        }
    }
    bench.stream.record(&end)?;
    let elapsed = end.elapsed_ms(&start)?;
    ensure!(elapsed.is_finite() && elapsed >= 0.0, "{elapsed} ms");
    let due = (0..50).sum::<u32>();
    ensure!(x.to_vec()? == vec![due; N], "two streams taking turns through events gave other values");
    Ok("50 launches of 2 streams in turn".to_owned())
}
