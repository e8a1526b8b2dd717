//! Nanoseconds a warp instruction, on the shipped matrix-vector and normalisation kernels with the shapes of SmolLM2.
//!
//! `cargo run --release -p ptx-sim --example interpreter_speed [THREADS [ENTRY [REPEATS]]]`; with `CHECKS=1` every checker
//! is on.

use ptx_sim::{Access, Checks, ExecOptions, LaunchConfig, Memory, Module, PointerAccess};
use std::time::Instant;

struct Case {
    file: &'static str,
    entry: &'static str,
    rows: u32,
    cols: u32,
    /// Bytes of each weight plane a row, by columns: numerator and denominator.
    planes: &'static [(u32, u32)],
    lanes: u32,
    int16: bool,
    swiglu: bool,
}

const CASES: [Case; 5] = [
    Case {
        file: "matvec",
        entry: "matvec_q4_1",
        rows: 960,
        cols: 576,
        planes: &[(1, 2), (4, 32)],
        lanes: 8,
        int16: false,
        swiglu: false,
    },
    Case {
        file: "matvec",
        entry: "matvec_swiglu_q4_1",
        rows: 1536,
        cols: 576,
        planes: &[(1, 2), (4, 32)],
        lanes: 8,
        int16: false,
        swiglu: true,
    },
    Case {
        file: "matvec",
        entry: "matvec_q8_0",
        rows: 8192,
        cols: 576,
        planes: &[(1, 1), (2, 32)],
        lanes: 16,
        int16: false,
        swiglu: false,
    },
    Case {
        file: "matvec",
        entry: "matvec_bf16",
        rows: 960,
        cols: 576,
        planes: &[(2, 1)],
        lanes: 32,
        int16: false,
        swiglu: false,
    },
    Case {
        file: "matvec_i16",
        entry: "matvec_i16_q4_1",
        rows: 960,
        cols: 576,
        planes: &[(1, 2), (4, 32)],
        lanes: 8,
        int16: true,
        swiglu: false,
    },
];

fn main() {
    let threads = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1);
    let only = std::env::args().nth(2);
    let repeats = std::env::args().nth(3).and_then(|n| n.parse().ok()).unwrap_or(50);
    for case in CASES {
        if only.as_ref().is_some_and(|only| !case.entry.contains(only)) {
            continue;
        }
        let path = format!("{}/../kernels-ptx/ptx/compute_80/{}.ptx", env!("CARGO_MANIFEST_DIR"), case.file);
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let module = Module::parse(case.file, &text).unwrap_or_else(|error| panic!("{error}"));
        let kernel = module.entry(case.entry).expect("the entry");
        let memory = Memory::new();
        memory.track_values();
        let all_rows = if case.swiglu { 2 * case.rows } else { case.rows };
        let mut params = Vec::new();
        let mut pointer = |bytes: u32, fill: u8, name: &str| {
            let address = memory.allocate(0, bytes.into(), name).unwrap();
            memory.fill(address, fill, bytes.into()).unwrap();
            params.extend(address.to_le_bytes());
        };
        for (i, (n, d)) in case.planes.iter().enumerate() {
            pointer(all_rows * (case.cols * n / d), if i == 0 { 0x35 } else { 0x2c }, "plane");
        }
        pointer(case.cols * if case.int16 { 2 } else { 4 }, 0x3c, "x");
        if case.int16 {
            pointer(case.cols / 8, 0x3c, "scales");
        }
        if !case.swiglu {
            pointer(4 * case.rows, 0x3c, "residual");
        }
        pointer(4 * case.rows, 0, "y");
        let pointers = params.len() as u16 / 8;
        params.extend(case.rows.to_le_bytes());
        params.extend(case.cols.to_le_bytes());
        if case.swiglu {
            params.extend(f32::INFINITY.to_le_bytes()); // no limit
        }
        params.extend(1u32.to_le_bytes()); // tokens
        params.extend(case.cols.to_le_bytes()); // between the tokens' inputs, where they may lie apart
        params.resize(kernel.param_bytes as usize, 0);
        let declared = |param| {
            let access = if param + 1 == pointers { Access::Write } else { Access::Read };
            PointerAccess { param, access, bytes: 0 }
        };
        let access: Vec<PointerAccess> = (0..pointers).map(declared).collect();
        let launch = LaunchConfig {
            kernel,
            grid: [1, case.rows.div_ceil(256 / case.lanes), 1],
            block: [256, 1, 1],
            dynamic_shared: case.cols.div_ceil(256) * 8 * 144,
            params: &params,
            device: 0,
            access: &access,
            cooperative: false,
            programmatic: false,
        };
        let checks = if std::env::var_os("CHECKS").is_some() { Checks::ALL } else { Checks::NONE };
        let options = ExecOptions { threads, checks, budget: None };
        let mut best = f64::INFINITY;
        let mut executed = 0;
        for _ in 0..repeats {
            let start = Instant::now();
            let stats =
                ptx_sim::exec::run(&memory, &launch, &options).unwrap_or_else(|fault| panic!("{fault}"));
            best = best.min(start.elapsed().as_secs_f64());
            executed = stats.warp_instructions;
        }
        println!(
            "{:20} {:5} x {:4}: {executed:7} warp instructions, frame {:5} bytes, {:7.1} us, {:5.2} ns each",
            case.entry,
            case.rows,
            case.cols,
            kernel.frame_bytes(),
            best * 1e6,
            best * 1e9 / executed as f64
        );
    }
}
