//! One token of the fixture model: launch by launch, and as the replay of a captured graph.

use std::path::Path;
use std::sync::Arc;

use bitwalk::decode::{GraphDecodeState, Session};
use bitwalk::engine::Engine;
use bitwalk::format::gguf::GgufFile;
use bitwalk::models::HybridModel;
use bitwalk::options::EngineOptions;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

/// Room for so many tokens; a measurement that runs past it starts over.
const CAPACITY: u32 = 1024;

fn decode(criterion: &mut Criterion) {
    let device = bitwalk_benches::device();
    let engine = Arc::new(Engine::new(device, EngineOptions::default()).expect("the kernels load"));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gates/fixtures/tiny-llama.gguf");
    let file = GgufFile::open(path).expect("the fixture is a model");
    let model = Arc::new(HybridModel::load(&engine, &file, &mut |_, _| {}).expect("the fixture loads"));
    let mut session = Session::new(&engine, &model, CAPACITY).expect("a session");
    let mut graphs = GraphDecodeState::new();
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(1));
    for replayed in [false, true] {
        let name = if replayed { "replayed" } else { "eager" };
        session.clear().expect("cleared");
        session.prime(&[1, 2, 3]).expect("primed");
        group.bench_function(format!("fixture/{name}"), |b| {
            b.iter_batched(
                || (),
                |()| {
                    if session.cache().held() == CAPACITY {
                        session.clear().expect("cleared");
                        session.prime(&[1, 2, 3]).expect("primed");
                    }
                    if replayed {
                        session.decode_step_graph(&mut graphs).expect("a step");
                    } else {
                        session.decode_step().expect("a step");
                    }
                    session.next_token().expect("a token")
                },
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);
