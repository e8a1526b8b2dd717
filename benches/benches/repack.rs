//! What loading does to each byte of a model: blocks taken apart into the planes that kernels read, on one core, of memory that
//! no cache holds. Throughput is bytes of the file a second.

use bitwalk::format::DType;
use bitwalk::quant;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Bytes of blocks: more than caches hold.
const BYTES: usize = 64 << 20;

/// Bytes that loading takes apart at a time; in between they stay in the core's cache.
const PIECE: usize = 256 << 10;

fn repack(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("repack");
    group.sample_size(10);
    for dtype in DType::all() {
        let Some(sizes) = quant::plane_block_bytes(dtype) else { continue };
        let size = dtype.block_bytes();
        let blocks = BYTES / size;
        let bytes: Vec<u8> =
            (0..blocks * size).map(|i| (i as u32).wrapping_mul(2_654_435_761) as u8).collect();
        let mut planes: Vec<Vec<u8>> = sizes.iter().map(|size| vec![1; blocks * size]).collect();
        let step = PIECE / size;
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function(dtype.name(), |b| {
            b.iter(|| {
                for at in (0..blocks).step_by(step) {
                    let end = blocks.min(at + step);
                    let mut slices: Vec<&mut [u8]> = planes
                        .iter_mut()
                        .zip(sizes)
                        .map(|(plane, size)| &mut plane[at * size..end * size])
                        .collect();
                    quant::split(dtype, &bytes[at * size..end * size], &mut slices).expect("the lengths fit");
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, repack);
criterion_main!(benches);
