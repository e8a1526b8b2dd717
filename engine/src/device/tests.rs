//! Opening devices, and what needs no kernel. What must hold on any device is in `selftest`.

use super::*;
use ptx_sim::system::SystemConfig;

fn machine(devices: u32) -> Arc<System> {
    System::new(SystemConfig { devices, memory: 1 << 20, ..SystemConfig::default() })
}

#[test]
fn a_device_opened_twice_is_one_device() {
    let system = machine(2);
    let (one, two) = (Device::open_in(&system, 1).unwrap(), Device::open_in(&system, 1).unwrap());
    assert_eq!(one, two);
    assert_ne!(one, Device::open_in(&system, 0).unwrap());
    assert_ne!(one, Device::open_in(&machine(2), 1).unwrap(), "the same ordinal of another machine");
    let buffer = Buffer::from_slice(&one, &[1u8, 2, 3], "b").unwrap();
    assert_eq!((two.bytes_in_use(), two.counters().host_to_device.bytes), (3, 3));
    // Streams, events and functions of one opening serve the other.
    assert_eq!(two.stream().unwrap().read(&buffer, &mut [0; 3]).map_err(|e| e.to_string()), Ok(()));
    drop(one);
    assert_eq!(two.bytes_in_use(), 3);
}

#[test]
fn ordinals_past_the_last_device_are_told_with_the_range() {
    let text = Device::open_in(&machine(3), 3).unwrap_err().to_string();
    assert_eq!(text, "there is no device sim:3: 3 are available, ordinals 0 to 2");
    let text = Device::open_in(&machine(1), 9).unwrap_err().to_string();
    assert_eq!(text, "there is no device sim:9: 1 is available, ordinals 0 to 0");
    assert!(matches!(Device::open(DeviceSpec::Sim(4096)), Err(DeviceError::BadOrdinal { kind: "sim", .. })));
}

#[test]
fn siblings_are_of_the_same_machine() {
    let system = machine(2);
    let device = Device::open_in(&system, 0).unwrap();
    let sibling = device.sibling(1).unwrap();
    assert_eq!(sibling, Device::open_in(&system, 1).unwrap());
    assert!(device.peer_access(&sibling).unwrap());
    let stranger = Device::open_in(&machine(1), 0).unwrap();
    let text = device.peer_access(&stranger).unwrap_err().to_string();
    assert!(text.contains("sim:0"), "{text}");
    let (mine, theirs) = (Buffer::<u8>::new(&device, 4, "mine"), Buffer::<u8>::new(&stranger, 4, "theirs"));
    let copy = device.stream().unwrap().copy(&mine.unwrap(), &theirs.unwrap());
    assert!(matches!(copy, Err(DeviceError::WrongDevice { .. })), "{copy:?}");
}

#[test]
fn out_of_memory_names_what_was_asked_and_what_is_free() {
    let device = Device::open_in(&machine(1), 0).unwrap();
    let held = device.alloc(1 << 19, "half").unwrap();
    let text = device.alloc((1 << 19) + 1, "kv cache of layer 3").unwrap_err().to_string();
    for words in ["sim:0", "`kv cache of layer 3`", "524289 bytes", "524288 of 1048576 bytes are free"] {
        assert!(text.contains(words), "{text}");
    }
    drop(held);
    device.alloc(1 << 20, "all").unwrap();
}

#[test]
fn errors_without_a_device_say_what_to_do() {
    for (error, words) in [
        (DeviceError::NoDriver { reason: "x".into() }, "--device sim"),
        (DeviceError::NoDevice, "CUDA_VISIBLE_DEVICES"),
        (DeviceError::MissingSymbol { symbol: "cuLaunchKernelEx" }, "`cuLaunchKernelEx`"),
        (DeviceError::DriverTooOld { found: (12, 4), needed: (13, 0) }, "CUDA 12.4"),
        (DeviceError::DriverTooOld { found: (12, 4), needed: (13, 0) }, "CUDA 13.0"),
    ] {
        let text = error.to_string();
        assert!(text.contains(words), "{text}");
    }
}

/// Copies that are carried out as late as they may be show a buffer that is written to before it was copied.
#[test]
fn a_piece_is_made_where_no_copy_is_waiting() {
    let system = machine(1);
    system.set_schedule(ptx_sim::system::Schedule::Deferred);
    let device = Device::open_in(&system, 0).unwrap();
    let buffer = Buffer::<u8>::new(&device, 64, "b").unwrap();
    let mut uploader = Uploader::new(&device).unwrap();
    for piece in 0..16 {
        let to = [buffer.slice(4 * piece..4 * piece + 4).unwrap()];
        let made = uploader.upload(&to, |planes| {
            planes[0].fill(piece as u8);
            Ok::<(), DeviceError>(())
        });
        made.unwrap();
    }
    uploader.finish().unwrap();
    let due: Vec<u8> = (0..64).map(|i| i / 4).collect();
    assert_eq!(buffer.to_vec().unwrap(), due);
    assert_eq!(uploader.pinned_bytes(), 512);
}

#[test]
fn allocations_have_ids_of_their_own() {
    let device = Device::open_in(&machine(1), 0).unwrap();
    let mut ids: Vec<u64> = (0..10).map(|_| device.alloc(1, "a").unwrap().id()).collect();
    let slots: Vec<u64> = (0..10).map(|_| Buffer::<u8>::new(&device, 1, "b").unwrap().id()).collect();
    ids.extend(slots);
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 20);
}

#[test]
fn a_device_in_use_by_several_threads() {
    let device = Device::open_in(&machine(1), 0).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u32 {
            let device = &device;
            scope.spawn(move || {
                let stream = device.stream().unwrap();
                for round in 0..50u32 {
                    let data = [thread, round, thread ^ round];
                    let buffer = Buffer::from_slice(device, &data, "t").unwrap();
                    let copy = Buffer::<u32>::new(device, 3, "c").unwrap();
                    stream.copy(&copy, &buffer).unwrap();
                    assert_eq!(copy.to_vec().unwrap(), data);
                }
            });
        }
    });
    assert_eq!(device.bytes_in_use(), 0);
    let moved = Copies { count: 200, bytes: 200 * 12 };
    let due = DeviceCounters {
        host_to_device: moved,
        device_to_host: moved,
        allocations: 400,
        frees: 400,
        ..DeviceCounters::default()
    };
    assert_eq!(device.counters(), due);
}

const STORE: &str = r"
.version 8.0
.target sm_80
.address_size 64

.visible .entry store_7(
	.param .u64 store_7_param_0
)
{
	.reg .b32 	%r<2>;
	.reg .b64 	%rd<3>;
	ld.param.u64 	%rd1, [store_7_param_0];
	cvta.to.global.u64 	%rd2, %rd1;
	mov.u32 	%r1, 7;
	st.global.u32 	[%rd2], %r1;
	ret;
}
";

/// On CUDA this is undefined, so it is no part of the self-test.
#[test]
fn a_kernel_in_another_device_s_memory_faults_without_peer_access() {
    let system = machine(2);
    let (device, other) = (Device::open_in(&system, 0).unwrap(), Device::open_in(&system, 1).unwrap());
    let theirs = Buffer::from_slice(&other, &[1u32], "their word").unwrap();
    let module = device.load_module("store", STORE).unwrap();
    let (store, stream) = (module.function("store_7").unwrap(), device.stream().unwrap());
    let args = theirs.address().to_le_bytes();
    let params = LaunchParams {
        grid: [1; 3],
        block: [1; 3],
        shared: 0,
        args: &args,
        access: &[],
        cooperative: false,
        programmatic: false,
    };
    let text = stream.launch(&store, &params).unwrap_err().to_string();
    for words in ["store_7", "device 0", "memory of device 1", "no peer access", "`their word`"] {
        assert!(text.contains(words), "{text}");
    }
    assert_eq!(theirs.to_vec().unwrap(), [1]);
    assert!(device.peer_access(&other).unwrap());
    stream.launch(&store, &params).unwrap();
    assert_eq!(theirs.to_vec().unwrap(), [7]);
    // The way back is another matter.
    let mine = Buffer::from_slice(&device, &[1u32], "my word").unwrap();
    let module = other.load_module("store", STORE).unwrap();
    let args = mine.address().to_le_bytes();
    let params = LaunchParams { args: &args, ..params };
    let refused = other.stream().unwrap().launch(&module.function("store_7").unwrap(), &params);
    assert!(matches!(refused, Err(DeviceError::LaunchFailed { .. })), "{refused:?}");
}

#[test]
fn a_machine_without_peer_access_says_so_and_copies_through_the_host() {
    let config = SystemConfig { devices: 2, memory: 1 << 30, peer_access: false, ..SystemConfig::default() };
    let system = System::new(config);
    let (device, other) = (Device::open_in(&system, 0).unwrap(), Device::open_in(&system, 1).unwrap());
    assert!(!device.peer_access(&other).unwrap());
    assert!(!device.set_peer_access(&other, true).unwrap());
    let stream = device.stream().unwrap();
    // More than goes through the host at once, in a size that no part divides.
    let data: Vec<u32> = (0..(5 << 20) + 17u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    let mine = Buffer::from_slice(&device, &data, "mine").unwrap();
    let theirs = Buffer::<u32>::new(&other, data.len(), "theirs").unwrap();
    let back = Buffer::<u32>::new(&device, data.len(), "back").unwrap();
    let before = (device.counters(), other.counters());
    stream.copy(&theirs, &mine).unwrap();
    stream.copy(&back, &theirs).unwrap();
    let (one, two) = (device.counters().since(before.0), other.counters().since(before.1));
    let parts = Copies { count: 2, bytes: 4 * data.len() as u64 };
    assert_eq!((one.host_to_device, one.device_to_host), (parts, parts));
    assert_eq!((two.host_to_device, two.device_to_host), (parts, parts));
    let whole = Copies { count: 2, bytes: 8 * data.len() as u64 };
    assert_eq!((one.staged, one.peer), (whole, Copies::default()));
    assert!(back.to_vec().unwrap() == data);
}
