//! Tokenizer throughput: bytes of text a second, each way, on English, code and mixed scripts.
//!
//! Uses SmolLM2's vocabulary where the model has been fetched (`cargo xtask model smollm2`), else the fixture's.

use std::hint::black_box;
use std::path::Path;

use bitwalk::format::gguf::GgufFile;
use bitwalk::tokenizer::Tokenizer;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn texts() -> [(&'static str, String); 3] {
    let source = include_str!("tokenizer.rs");
    let readme = include_str!("../../README.md");
    let scripts: String = ["数字と日本語 ", "한국어 텍스트 ", "عربى ", "Ünïcödé ", "😀👩‍👩‍👧 "].concat();
    [("english", readme.repeat(40)), ("code", source.repeat(80)), ("scripts", scripts.repeat(2000))]
}

fn throughput(criterion: &mut Criterion) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let model = root.join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let path = if model.exists() { model } else { root.join("gates/fixtures/tiny-llama.gguf") };
    let file = GgufFile::open(path).expect("the file is a model");
    let tokenizer = Tokenizer::from_metadata(file.metadata()).expect("the model has a tokenizer");
    let mut group = criterion.benchmark_group("tokenizer");
    for (name, text) in texts() {
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(format!("encode/{name}"), |b| b.iter(|| tokenizer.encode(black_box(&text))));
        let ids = tokenizer.encode(&text);
        group.bench_function(format!("decode/{name}"), |b| b.iter(|| tokenizer.decode(black_box(&ids))));
    }
    group.finish();
}

criterion_group!(benches, throughput);
criterion_main!(benches);
