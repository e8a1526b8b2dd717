//! One launch of each declared kernel, timed to its end. Throughput is the declared cost's bytes a second, so on a GPU it
//! reads against the memory's rate; launches of a few microseconds are bound by the launch itself.
//!
//! On a GPU the cases of real models' sizes are timed, on the simulated device the largest of the small ones.

use bitwalk::device::DeviceKind;
use bitwalk::engine::{Engine, EngineError};
use bitwalk::kernel::check::PreparedCase;
use bitwalk::kernel::{Case, KERNELS};
use bitwalk::options::EngineOptions;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn kernels(criterion: &mut Criterion) {
    let device = bitwalk_benches::device();
    let engine = Engine::new(device.clone(), EngineOptions::default()).expect("the kernels load");
    let stream = device.stream().expect("a stream");
    let mut declared: Vec<_> = KERNELS.iter().copied().collect();
    declared.sort_by_key(|decl| decl.name);
    let mut group = criterion.benchmark_group("kernel");
    group.sample_size(10);
    for decl in declared {
        let function = match engine.function(decl) {
            Err(EngineError::NoEntry { .. }) => continue, // of a test
            function => function.expect("the kernel loads"),
        };
        let on_gpu = device.info().kind == DeviceKind::Cuda;
        let of_size = |case: &Case| case.is_representative() == on_gpu;
        let prepared = (decl.cases)()
            .into_iter()
            .filter(of_size)
            .filter_map(|case| {
                let prepared = PreparedCase::new(decl, &device, function, &case).ok()?;
                Some((case, prepared))
            })
            .max_by_key(|(_, prepared)| prepared.launch().cost.read + prepared.launch().cost.write);
        let Some((case, prepared)) = prepared else { continue };
        let cost = prepared.launch().cost;
        group.throughput(Throughput::Bytes(cost.read + cost.write));
        group.bench_function(format!("{}/{}", decl.name, case.label()), |b| {
            b.iter(|| {
                prepared.submit(&stream).expect("the launch is accepted");
                stream.synchronize().expect("the launch ends well");
            });
        });
    }
    group.finish();
}

criterion_group!(benches, kernels);
criterion_main!(benches);
