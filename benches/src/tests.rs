use std::time::Duration;

use bitwalk::device::{Device, DeviceSpec};
use bitwalk::engine::Engine;
use bitwalk::kernel::by_name;
use bitwalk::kernel::check::PreparedCase;
use bitwalk::options::EngineOptions;
use criterion::Criterion;

use crate::kernels::{Measured, Results, SAMPLES, run, table};
use crate::roofline::svg;
use crate::rotation::Rotation;

fn engine() -> Engine {
    let device = Device::open(DeviceSpec::Sim(0)).unwrap();
    Engine::new(device, EngineOptions::default()).unwrap()
}

/// A kernel that advances a counter is launched from the same state each time: hundreds of launches over a buffer of a few
/// tokens stay within it, which the simulated device checks.
#[test]
fn state_is_restored_between_passes() {
    let engine = engine();
    let decl = by_name("argmax_advance").unwrap();
    let case = (decl.cases)().into_iter().find(|case| !case.is_representative()).unwrap();
    let function = engine.function(decl).unwrap();
    let prepared = PreparedCase::new(decl, engine.device(), function, &case).unwrap();
    assert!(prepared.has_state());
    let rotation = Rotation::new(prepared, engine.stream()).unwrap();
    let time = rotation.time(300).unwrap();
    assert!(time > Duration::ZERO && rotation.time(600).unwrap() > Duration::ZERO);
}

#[test]
fn every_sample_is_of_the_kernel_and_the_result_has_its_cost() {
    let engine = engine();
    let folder = tempfile::tempdir().unwrap();
    let mut criterion = Criterion::default()
        .without_plots()
        .output_directory(folder.path())
        .warm_up_time(Duration::from_millis(1))
        .measurement_time(Duration::from_millis(SAMPLES as u64));
    let results = run(&mut criterion, &engine, Some("read_only/")).unwrap();
    assert!(results.failures.is_empty(), "{results:?}");
    let [measured] = &results.kernels[..] else { panic!("{results:?}") };
    // The largest case that is not of a real model's size: 12,345 quads of 16 bytes, folded by 7 blocks.
    assert_eq!(
        (measured.kernel, measured.read_bytes, measured.write_bytes),
        ("read_only", 12_345 * 16, 7 * 4)
    );
    assert!(measured.opcodes.is_some_and(|opcodes| opcodes > 12_345 / 32) && measured.seconds > 0.0);
    assert!(results.simulated && results.fma_flops_s.is_none() && results.read_only_bytes_s > 0.0);
    let lines = table(&results);
    assert!(
        lines.len() == 2 && lines[0].contains("Mopcodes/s") && lines[1].contains("read_only/12345 quads")
    );
}

fn results() -> Results {
    let measured = |kernel, family, flops, seconds| Measured {
        kernel,
        family,
        case: "a < b & c".to_owned(),
        seconds,
        read_bytes: 1 << 30,
        write_bytes: 0,
        flops,
        copies: 1,
        opcodes: None,
    };
    Results {
        device: "a GPU <1>".to_owned(),
        simulated: false,
        read_only_bytes_s: 4.6e12,
        fma_flops_s: Some(66.9e12),
        kernels: vec![
            measured("matvec_a", "matvec", 1 << 31, 3e-4),
            measured("matvec_b", "matvec", 1 << 31, 3e-4),
            measured("norm_a", "norm", 1 << 28, 1e-3),
            measured("copy", "fill", 0, 1e-3),
        ],
        failures: Vec::new(),
    }
}

/// Points lie where the axes say, and below the ceiling; what computes nothing has none.
#[test]
fn a_roofline_has_a_point_a_kernel_and_both_ceilings() {
    let text = svg(&results());
    assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
    assert_eq!(text.matches("<g>").count(), 3);
    assert!(text.contains("measured: 4.600 TB/s") && text.contains("computed: 66.900 Tflop/s"), "{text}");
    assert!(text.contains("a GPU &lt;1&gt;") && !text.contains("a < b & c"));
    // Two kernels at one place: both are marked, and their names do not lie on each other.
    let label = |name: &str| text.lines().find(|line| line.ends_with(&format!(">{name}</text>"))).unwrap();
    assert_ne!(label("matvec_a").split("fill").next(), label("matvec_b").split("fill").next());
    let tags = |open: &str, close: &str| (text.matches(open).count(), text.matches(close).count());
    assert_eq!(tags("<text", "</text>").0, tags("<text", "</text>").1);
    // Nothing measured is an empty picture, no panic.
    let empty = Results { kernels: Vec::new(), fma_flops_s: None, ..results() };
    assert!(svg(&empty).contains("</svg>"));
}

#[test]
fn a_table_has_the_best_of_a_family_first() {
    let lines = table(&results());
    let kernels: Vec<&str> = lines[1..].iter().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(kernels, ["copy/a", "matvec_a/a", "matvec_b/a", "norm_a/a"]);
    // 2³⁰ bytes in 0.3 ms are 3.58 TB/s, 77.8 % of the ceiling.
    assert!(lines[2].contains("3579.1") && lines[2].ends_with("77.8 %"), "{}", lines[2]);
}
