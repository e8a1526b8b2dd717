//! Criterion over every declared kernel; `cargo xtask bench` runs the same and draws the picture.

use std::time::Duration;

use bitwalk::engine::Engine;
use bitwalk::options::EngineOptions;
use criterion::Criterion;

fn main() {
    let engine = Engine::new(bitwalk_benches::device(), EngineOptions::default()).expect("an engine");
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(100))
        .measurement_time(Duration::from_millis(500))
        .configure_from_args();
    let results = bitwalk_benches::kernels::run(&mut criterion, &engine, None).expect("the device runs");
    assert!(results.failures.is_empty(), "{:#?}", results.failures);
    criterion.final_summary();
}
