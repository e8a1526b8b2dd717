//! The simulated device with every module loaded, and inputs that are the same everywhere.

use std::collections::HashMap;

use bitwalk::device::{Buffer, Device, DeviceSpec, Element, Module, Stream};
use bitwalk::kernel::{Launch, LaunchError, QTensor, QuantFormat, RawTensor, TensorFormat};
use bitwalk_kernels::Arch;

/// The simulated device with every module loaded.
pub struct Rig {
    device: Device,
    stream: Stream,
    modules: HashMap<&'static str, Module>,
}

impl Rig {
    pub fn new() -> Self {
        let device = Device::open(DeviceSpec::Sim(0)).unwrap();
        let load =
            |ptx: &bitwalk_kernels::PtxModule| (ptx.name, device.load_module(ptx.name, ptx.text).unwrap());
        let modules = bitwalk_kernels::modules(Arch::Compute90).iter().map(load).collect();
        let stream = device.stream().unwrap();
        Rig { device, stream, modules }
    }

    pub fn buffer<T: Element>(&self, data: &[T]) -> Buffer<T> {
        Buffer::from_slice(&self.device, data, "test").unwrap()
    }

    pub fn zeros<T: Element>(&self, len: usize) -> Buffer<T> {
        self.buffer(&vec![T::zeroed(); len])
    }

    pub fn run(&self, launch: Result<Launch, LaunchError>) {
        let launch = launch.unwrap();
        let function = self.modules[launch.decl.module].function(launch.decl.entry).unwrap();
        if launch.shared > 48 << 10 {
            function.allow_shared(launch.shared).unwrap();
        }
        launch.submit(&self.stream, &function).unwrap();
        self.stream.synchronize().unwrap();
    }

    pub fn tensor<Q: QuantFormat>(&self, rows: u64, cols: u64, planes: &[Vec<u8>]) -> QTensor<Q> {
        let planes: Vec<_> = planes.iter().map(|plane| self.buffer(plane).raw()).collect();
        RawTensor::new(Q::FORMAT, rows, cols, &planes).unwrap().typed().unwrap()
    }
}

/// A counter-based generator: splitmix64.
pub fn bits(seed: u64, i: u64) -> u64 {
    let mut z = (seed << 32).wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// In [−1, 1).
pub fn unit(seed: u64, i: u64) -> f32 {
    (bits(seed, i) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

pub fn floats(seed: u64, n: usize) -> Vec<f32> {
    (0..n as u64).map(|i| unit(seed, i)).collect()
}

/// The planes of a matrix of weights of order one: integers and codes are random, scales in a factor of four.
pub fn planes<Q: QuantFormat>(rows: u64, cols: u64) -> Vec<Vec<u8>> {
    let n = (rows * cols) as usize;
    let half = |i: u64| half::f16::from_f32(unit(7, i) / 32.0 + 0.0625).to_le_bytes();
    let scales = |count: u64| (0..count).flat_map(half).collect::<Vec<u8>>();
    // Of super-blocks, whose sub-blocks have integers of up to 63, or 127, as scales.
    let small = |count: u64| {
        (0..count).flat_map(|i| half::f16::from_f32(unit(7, i) / 512.0 + 0.004).to_le_bytes()).collect()
    };
    let sub_scales = |count: u64| (0..count).map(|i| bits(4, i) as u8 & 63).collect::<Vec<u8>>();
    let random = |count: usize| (0..count as u64).map(|i| bits(3, i) as u8).collect::<Vec<u8>>();
    let blocks = rows * cols / 32;
    match Q::FORMAT {
        TensorFormat::F32 => vec![floats(1, n).iter().flat_map(|v| v.to_le_bytes()).collect()],
        TensorFormat::F16 => {
            vec![floats(1, n).iter().flat_map(|&v| half::f16::from_f32(v).to_le_bytes()).collect()]
        }
        TensorFormat::BF16 => {
            vec![floats(1, n).iter().flat_map(|&v| half::bf16::from_f32(v).to_le_bytes()).collect()]
        }
        TensorFormat::Q8_0 => vec![random(n), scales(blocks)],
        TensorFormat::Q4_0 => vec![random(n / 2), scales(blocks)],
        TensorFormat::Q4_1 => vec![random(n / 2), scales(2 * blocks)],
        TensorFormat::Q5_0 => vec![random(n / 2), random(n / 8), scales(blocks)],
        TensorFormat::Q4_K => vec![random(n / 2), sub_scales(2 * blocks), small(blocks / 4)],
        TensorFormat::Q5_K => vec![random(n / 2), random(n / 8), sub_scales(2 * blocks), small(blocks / 4)],
        TensorFormat::Q6_K => vec![random(n / 2), random(n / 4), random(n / 16), small(blocks / 4)],
        TensorFormat::NVFP4 => {
            // e4m3 codes from 0.5 to 3.75, of either sign.
            let codes = (0..2 * blocks).map(|i| (0x30 + (bits(8, i) % 24) as u8) | (bits(9, i) as u8 & 0x80));
            let global = (0..rows).flat_map(|r| (0.1 + 0.05 * unit(10, r)).to_le_bytes());
            vec![random(n / 2), codes.collect(), global.collect()]
        }
    }
}

/// The `count` rows from `first` on of each plane of a matrix of `rows`.
pub fn plane_rows(planes: &[Vec<u8>], rows: usize, first: usize, count: usize) -> Vec<Vec<u8>> {
    let part = |plane: &Vec<u8>| {
        let row = plane.len() / rows;
        plane[first * row..][..count * row].to_vec()
    };
    planes.iter().map(part).collect()
}

/// What is compared where equality is meant.
pub fn bits_of(buffer: &Buffer<f32>) -> Vec<u32> {
    buffer.to_vec().unwrap().into_iter().map(f32::to_bits).collect()
}
