//! What a declaration expands to: the descriptor, the prototype, argument tables and the errors of a constructor.

use half::f16;
use ptx_sim::system::{System, SystemConfig};

use super::{
    Case, Cost, Counter, EagerLaunch, HostArg, HostTensor, KERNELS, Kernel, Launch, ParamKind, ParamShape,
    Q4_1, Q8_0, QTensor, RawTensor, ScalarType, ScalarValue, Scalars, SlotClass, TensorFormat, by_name,
    kernel,
};
use crate::device::{Access, Buffer, Device};

fn no_cases() -> Vec<Case> {
    Vec::new()
}

fn scale_reference(
    w: &HostTensor,
    x: &[f32],
    bias: Option<&[f16]>,
    y: &mut [f64],
    count: &mut [u32],
    position: u32,
    rows: u32,
    eps: f32,
    stride: u64,
    cols: u32,
) {
    let bias = bias.map_or(0.0, |bias| bias[0].to_f64());
    for (r, y) in y.iter_mut().enumerate().take(rows as usize) {
        *y = f64::from(w.row(r)[0]) * f64::from(x[0]) + bias + f64::from(eps) + f64::from(position);
    }
    count[0] += cols + stride as u32;
}

/// Scales.
///
/// Second paragraph.
#[kernel(module = "test_scale", entry = "test_scale_q8", reference = scale_reference, cases = no_cases, tol = 2.5e-6)]
#[launch(grid = (rows.div_ceil(4), 1, 1), block = (32, 4, 1), shared = 4 * (cols + 1), cooperative)]
#[cost(read = w.bytes() + x.bytes() + bias.bytes(), write = y.bytes(), flops = 2 * rows * cols)]
pub fn test_scale(
    #[shape(rows, cols)] w: &QTensor<Q8_0>,
    #[len(cols)] x: &[f32],
    #[len(rows)] bias: Option<&[f16]>,
    #[out]
    #[len(rows)]
    y: &mut [f32],
    #[len(1)] count: &mut [u32],
    position: &Counter,
    rows: u32,
    eps: f32,
    stride: u64,
    cols: u32,
);

fn step_reference(position: &mut u32, _n: u32, _m: i32) {
    *position += 1;
}

#[kernel(module = "test_step", entry = "test_step", reference = step_reference, cases = no_cases, tol = 0)]
#[launch(grid = (1, 1, 1), block = (m, 1, 1), dependent)]
#[cost(read = 4, write = 4, flops = n)]
fn test_step(position: &mut Counter, #[node] n: u32, #[step] m: i32);

fn device() -> Device {
    Device::open_in(&System::new(SystemConfig::default()), 0).unwrap()
}

fn tensor(device: &Device, rows: u64, cols: u64) -> QTensor<Q8_0> {
    let planes = [("qs", 32), ("d", 2)].map(|(name, bytes)| {
        Buffer::<u8>::new(device, (rows * cols / 32 * bytes) as usize, name).unwrap().raw()
    });
    RawTensor::new(TensorFormat::Q8_0, rows, cols, &planes).unwrap().typed().unwrap()
}

struct Arguments {
    w: QTensor<Q8_0>,
    x: Buffer<f32>,
    bias: Buffer<f16>,
    y: Buffer<f32>,
    count: Buffer<u32>,
    position: Counter,
}

impl Arguments {
    fn new(device: &Device) -> Self {
        Arguments {
            w: tensor(device, 6, 64),
            x: Buffer::new(device, 64, "x").unwrap(),
            bias: Buffer::new(device, 6, "bias").unwrap(),
            y: Buffer::new(device, 8, "y").unwrap(),
            count: Buffer::new(device, 1, "count").unwrap(),
            position: Buffer::new(device, 1, "position").unwrap(),
        }
    }

    fn launch(&self, rows: u32, cols: u32) -> Result<Launch, String> {
        let Arguments { w, x, bias, y, count, position } = self;
        test_scale(w, x, Some(bias), y, count, position, rows, 0.5, 7, cols)
            .map_err(|error| error.to_string())
    }
}

#[test]
fn the_descriptor_says_what_the_signature_says() {
    let decl = TestScale::DECL;
    assert!(std::ptr::eq(by_name("test_scale").unwrap(), decl));
    assert_eq!((decl.name, decl.module, decl.entry), ("test_scale", "test_scale", "test_scale_q8"));
    assert_eq!(decl.doc, "Scales.\n\nSecond paragraph.\n");
    assert!(decl.file.ends_with("tests.rs") && decl.line > 30, "{}:{}", decl.file, decl.line);
    assert_eq!((decl.block, decl.tolerance), (Some([32, 4, 1]), 2.5e-6));
    assert_eq!((decl.cooperative, decl.dependent, decl.eager_only), (true, false, false));
    assert_eq!(decl.params.len(), 10);
    let slots: Vec<(String, u32, Option<Access>)> =
        decl.slots().map(|(name, slot)| (name, slot.size, slot.access)).collect();
    let (read, write, both) = (Some(Access::Read), Some(Access::Write), Some(Access::ReadWrite));
    let wanted = [
        ("w_qs", 8, read),
        ("w_d", 8, read),
        ("x", 8, read),
        ("bias", 8, read),
        ("y", 8, write),
        ("count", 8, both),
        ("position", 8, read),
        ("rows", 4, None),
        ("eps", 4, None),
        ("stride", 8, None),
        ("cols", 4, None),
    ];
    assert_eq!(slots, wanted.map(|(name, size, access)| (name.to_owned(), size, access)));
    let buffer = |element, element_bytes, access, optional| ParamKind::Buffer {
        element,
        element_bytes,
        access,
        optional,
    };
    assert_eq!(decl.params[0].kind, ParamKind::Tensor(TensorFormat::Q8_0));
    assert_eq!(decl.params[2].kind, buffer("f16", 2, Access::Read, true));
    assert_eq!(decl.params[3].kind, buffer("f32", 4, Access::Write, false));
    assert_eq!(decl.params[5].kind, ParamKind::Counter(Access::Read));
    assert_eq!(
        decl.prototype(),
        "extern \"C\" __global__ void test_scale_q8(const int8_t* w_qs, const uint16_t* w_d, const float* x, \
         const uint16_t* bias, float* y, uint32_t* count, const uint32_t* position, uint32_t rows, float eps, \
         uint64_t stride, uint32_t cols);"
    );
}

#[test]
fn scalars_have_classes() {
    let decl = TestStep::DECL;
    assert_eq!((decl.block, decl.tolerance), (None, 0.0));
    assert_eq!((decl.cooperative, decl.dependent, decl.eager_only), (false, true, true));
    assert_eq!(decl.params[0].kind, ParamKind::Counter(Access::ReadWrite));
    assert_eq!(decl.params[1].kind, ParamKind::Scalar { ty: ScalarType::U32, class: SlotClass::Node });
    assert_eq!(decl.params[2].kind, ParamKind::Scalar { ty: ScalarType::I32, class: SlotClass::Step });
    assert_eq!(
        decl.prototype(),
        "extern \"C\" __global__ void test_step(uint32_t* position, uint32_t n, int32_t m);"
    );
}

#[test]
fn shapes_follow_the_scalars() {
    let scalars = [(6, 6), (8, 7), (9, 64)];
    let mut values = [None; 10];
    for (index, value) in scalars {
        values[index] = Some(ScalarValue::U32(value));
    }
    let shapes = (TestScale::DECL.shapes)(&Scalars(&values));
    let none = [ParamShape::None; 5];
    let mut wanted = vec![
        ParamShape::Tensor { rows: 6, cols: 64 },
        ParamShape::Len(64),
        ParamShape::Len(6),
        ParamShape::Len(6),
        ParamShape::Len(1),
    ];
    wanted.extend(none);
    assert_eq!(shapes, wanted);
}

#[test]
fn a_launch_holds_geometry_cost_and_arguments_in_ptx_order() {
    let device = device();
    let arguments = Arguments::new(&device);
    let launch = arguments.launch(6, 64).unwrap();
    assert_eq!((launch.grid, launch.block, launch.shared), ([2, 1, 1], [32, 4, 1], 260));
    // 6 rows of two blocks of 34 bytes; x; bias. y.
    assert_eq!(launch.cost, Cost { read: 6 * 2 * 34 + 256 + 12, write: 24, flops: 768 });
    let mut wanted = Vec::new();
    for plane in arguments.w.raw().planes() {
        wanted.extend(plane.address().to_le_bytes());
    }
    wanted.extend(arguments.x.address().to_le_bytes());
    wanted.extend(arguments.bias.address().to_le_bytes());
    wanted.extend(arguments.y.address().to_le_bytes());
    wanted.extend(arguments.count.address().to_le_bytes());
    wanted.extend(arguments.position.address().to_le_bytes());
    wanted.extend([6, 0, 0, 0]); // rows, at 56
    wanted.extend([0, 0, 0, 0x3f]); // eps = 0.5
    wanted.extend([7, 0, 0, 0, 0, 0, 0, 0]); // stride, at 64
    wanted.extend([64, 0, 0, 0]); // cols, at 72, with nothing after it
    assert_eq!(launch.args.encode().as_slice(), wanted);
}

#[test]
fn an_8_byte_value_after_a_4_byte_one_is_aligned() {
    let device = device();
    let position = Counter::new(&device, 1, "position").unwrap();
    let x = Buffer::<f32>::new(&device, 1, "x").unwrap();
    let launch = mixed(3, &x, -1, 5, &position).unwrap();
    let mut wanted = vec![3, 0, 0, 0, 0, 0, 0, 0];
    wanted.extend(x.address().to_le_bytes());
    wanted.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    wanted.extend(5u64.to_le_bytes());
    wanted.extend(position.address().to_le_bytes());
    assert_eq!(launch.args.encode().as_slice(), wanted);
}

fn mixed_reference(_: u32, _: &[f32], _: i32, _: u64, _: u32) {}

#[kernel(module = "test_mixed", entry = "test_mixed", reference = mixed_reference, cases = no_cases, tol = 0)]
#[launch(grid = (1, 1, 1), block = (32, 1, 1))]
#[cost(read = 4, write = 0, flops = 0)]
fn mixed(a: u32, #[len(1)] x: &[f32], b: i32, c: u64, position: &Counter);

#[test]
fn an_absent_buffer_is_a_null_pointer_and_costs_nothing() {
    let device = device();
    let Arguments { w, x, y, count, position, .. } = Arguments::new(&device);
    let launch = test_scale(&w, &x, None, &y, &count, &position, 6, 0.5, 7, 64).unwrap();
    assert_eq!(launch.args.encode()[24..32], [0; 8]);
    assert_eq!(launch.cost.read, 6 * 2 * 34 + 256);
}

#[test]
fn arguments_that_do_not_fit_are_named() {
    let device = device();
    let mut arguments = Arguments::new(&device);
    let error = |arguments: &Arguments, rows, cols| arguments.launch(rows, cols).unwrap_err();
    assert_eq!(
        error(&arguments, 5, 64),
        "kernel test_scale, argument `w`: shape [6, 64], but the scalars say [5, 64]"
    );
    arguments.bias = Buffer::new(&device, 5, "bias").unwrap();
    assert_eq!(
        error(&arguments, 6, 64),
        "kernel test_scale, argument `bias`: 5 elements, but the kernel touches 6"
    );
    arguments.x = Buffer::new(&device, 63, "x").unwrap();
    assert_eq!(
        error(&arguments, 6, 64),
        "kernel test_scale, argument `x`: 63 elements, but the kernel touches 64"
    );
}

#[test]
fn geometry_that_no_device_takes_is_an_error() {
    let position = Counter::new(&device(), 1, "position").unwrap();
    let error = |m| test_step(&position, 0, m).unwrap_err().to_string();
    assert!(error(0).contains("kernel test_step, argument `block`: [0, 1, 1] is empty"), "{}", error(0));
    assert!(error(-3).contains("is empty"), "{}", error(-3));
    assert!(error(1025).contains("[1025, 1, 1] is empty or larger than [1024, 1024, 64]"), "{}", error(1025));
    let EagerLaunch(launch) = test_step(&position, 9, 1024).unwrap();
    assert_eq!((launch.block, launch.cost.flops), ([1024, 1, 1], 9));
}

#[test]
fn the_reference_is_called_with_the_declared_types() {
    let mut args = vec![
        HostArg::Tensor(HostTensor { rows: 1, cols: 32, values: vec![2.0; 32] }),
        HostArg::Input(Box::new(vec![3.0f32])),
        HostArg::Null,
        HostArg::Output(Box::new(vec![f64::NAN])),
        HostArg::Output(Box::new(vec![10u32])),
        HostArg::Counter(4),
        HostArg::Scalar(ScalarValue::U32(1)),
        HostArg::Scalar(ScalarValue::F32(0.25)),
        HostArg::Scalar(ScalarValue::U64(5)),
        HostArg::Scalar(ScalarValue::U32(32)),
    ];
    (TestScale::DECL.reference)(&mut args);
    assert_eq!(args[3].output::<f32>(), [10.25]);
    assert_eq!(args[4].output::<u32>(), [47]);
}

// One declaration for several types: `macro_rules!` wraps what it substitutes in groups that cannot be seen.
macro_rules! copies {
    ($($name:ident $entry:literal $tensor:ty, $element:ty, $reference:path;)*) => {$(
        #[doc = concat!("Copies ", stringify!($element), ".")]
        #[kernel(module = "test_copy", entry = $entry, reference = $reference, cases = no_cases, tol = 0.0)]
        #[launch(grid = (n, 1, 1), block = (BLOCK, 1, 1))]
        #[cost(read = x.bytes() + w.row_bytes(), write = y.bytes(), flops = 0)]
        fn $name(
            #[shape(1, 32 * n)] w: &QTensor<$tensor>,
            #[len(n)] x: &[$element],
            #[out] #[len(n)] y: &mut [$element],
            n: u32,
        );
    )*};
}

const BLOCK: u64 = 96;

copies! {
    copy_f32 "copy_f32" Q8_0, f32, copy_reference;
    copy_f16_q4_1 "copy_f16" Q4_1, f16, copy_reference;
}

fn copy_reference<T>(_: &HostTensor, _: &[T], _: &mut [f64], _: u32) {}

#[test]
fn declarations_can_be_stamped_out() {
    assert_eq!(CopyF32::DECL.block, Some([96, 1, 1]));
    assert_eq!(CopyF16Q4_1::DECL.doc, "Copies f16.\n");
    assert_eq!(
        CopyF16Q4_1::DECL.prototype(),
        "extern \"C\" __global__ void copy_f16(const uint8_t* w_qs, const uint16_t* w_dm, const uint16_t* x, \
         uint16_t* y, uint32_t n);"
    );
    let (device, n) = (device(), 2);
    let w = tensor(&device, 1, 64);
    let (x, y) = (Buffer::new(&device, 2, "x").unwrap(), Buffer::new(&device, 2, "y").unwrap());
    assert_eq!(copy_f32(&w, &x, &y, n).unwrap().grid, [2, 1, 1]);
    // 64 bytes of quants are enough for two rows of Q4_1, 4 bytes of scales are not.
    let error = RawTensor::new(TensorFormat::Q4_1, 2, 64, w.raw().planes()).unwrap_err();
    assert_eq!(error, "plane dm holds 4 bytes, not 16");
    let _ = copy_f16_q4_1;
}

/// Two declarations of one entry in one crate do not compile; this one sees all crates that are linked here, and names
/// too, by which reports and `by_name` find a kernel.
#[test]
fn names_and_entries_are_unique() {
    let mut names: Vec<&str> = KERNELS.iter().map(|decl| decl.name).collect();
    let mut entries: Vec<(&str, &str)> = KERNELS.iter().map(|decl| (decl.module, decl.entry)).collect();
    let count = names.len();
    assert!(count > 4, "{count} kernels are registered");
    names.sort_unstable();
    names.dedup();
    entries.sort_unstable();
    entries.dedup();
    assert_eq!((names.len(), entries.len()), (count, count));
}
