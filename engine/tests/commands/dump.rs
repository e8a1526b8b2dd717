//! `bitwalk logits --dump` against the golden data of a glm5_next checkpoint, under its names.

use safetensors::{Dtype, SafeTensors};

use super::{bitwalk, run, stderr, text};

const CHECKPOINT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gates/fixtures/glm5-variant-unbounded");

fn floats(file: &SafeTensors<'_>, name: &str) -> (Vec<usize>, Vec<f32>) {
    let tensor = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
    let values = tensor.data().as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    (tensor.shape().to_vec(), values.collect())
}

fn indices(file: &SafeTensors<'_>, name: &str) -> (Vec<usize>, Vec<i32>) {
    let tensor = file.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(tensor.dtype(), Dtype::I32, "{name}");
    let values = tensor.data().as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes));
    (tensor.shape().to_vec(), values.collect())
}

#[test]
fn what_is_dumped_is_what_the_golden_data_holds() {
    const STEPS: usize = 5;
    let golden = std::fs::read(format!("{CHECKPOINT}/golden.safetensors")).unwrap();
    let golden = SafeTensors::deserialize(&golden).unwrap();
    let prompt: Vec<String> = indices(&golden, "prompt_ids").1.iter().map(i32::to_string).collect();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("dump.safetensors");
    let (steps, out_name) = (STEPS.to_string(), out.display().to_string());
    let ids = prompt.join(",");
    let words = [
        "logits", "--model", CHECKPOINT, "--kv", "f32", "--ids", &ids, "--steps", &steps, "--out", &out_name,
    ];
    text(bitwalk(&words).args(["--all-positions", "--dump", "routes,indexer,streams,hc"]));
    let bytes = std::fs::read(&out).unwrap();
    let dumped = SafeTensors::deserialize(&bytes).unwrap();

    // Of the steps the golden data has more.
    let head = |values: Vec<i32>, rows: usize, of: usize| values[..values.len() / of * rows].to_vec();
    for (phase, rows) in [("prefill", prompt.len()), ("decode", STEPS)] {
        let name = format!("{phase}_router_idx");
        let ((wanted_shape, wanted), (shape, found)) = (indices(&golden, &name), indices(&dumped, &name));
        assert_eq!((shape[0], &shape[1..]), (rows, &wanted_shape[1..]), "{name}");
        assert_eq!(found, head(wanted, rows, wanted_shape[0]), "{name}");

        // As sets: the golden order is by score.
        let name = format!("{phase}_indexer_idx");
        let ((wanted_shape, wanted), (shape, found)) = (indices(&golden, &name), indices(&dumped, &name));
        assert_eq!((shape[0], &shape[1..]), (rows, &wanted_shape[1..]), "{name}");
        let width = shape[2];
        for (row, (found, wanted)) in found.chunks(width).zip(wanted.chunks(width)).enumerate() {
            let set = |row: &[i32]| {
                let mut row: Vec<i32> = row.iter().copied().filter(|&at| at >= 0).collect();
                row.sort_unstable();
                row
            };
            assert_eq!(set(found), set(wanted), "{name}, row {row}");
        }
    }
    // float32 arithmetic in another order than the golden float64: weights and maps of order one, rows of some tens.
    for (name, bound) in [
        ("step0_attn_post", 2e-6),
        ("step0_attn_comb", 2e-6),
        ("step0_ffn_post", 2e-6),
        ("step0_ffn_comb", 2e-6),
        ("step0_attn_collapsed", 1e-4),
        ("step0_attn_out", 1e-4),
        ("step0_ffn_collapsed", 1e-4),
        ("step0_mlp_out", 1e-4),
        ("step0_streams", 1e-4),
        ("step0_final_norm", 1e-4),
    ] {
        let ((wanted_shape, wanted), (shape, found)) = (floats(&golden, name), floats(&dumped, name));
        assert_eq!(shape, wanted_shape, "{name}");
        let worst = found.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst <= bound, "{name}: off by {worst:e}");
    }
    let (shape, logits) = floats(&dumped, "prompt_logits");
    let (wanted_shape, wanted) = floats(&golden, "prefill_logits");
    assert_eq!(shape, wanted_shape);
    let worst = logits.iter().zip(&wanted).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= 2e-4, "prompt logits off by {worst:e}");
}

#[test]
fn only_models_that_have_it_are_dumped() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("dump.safetensors").display().to_string();
    let llama = ["logits", "--model", super::FIXTURE, "--ids", "1,2", "--out", &out, "--dump", "routes"];
    let output = run(&mut bitwalk(&llama));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("only glm5_next models"), "{}", stderr(&output));
    let no_step = ["logits", "--model", CHECKPOINT, "--ids", "1,2", "--out", &out, "--dump", "streams"];
    let output = run(&mut bitwalk(&no_step));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("--steps 1 or more"), "{}", stderr(&output));
    let graph = ["logits", "--model", CHECKPOINT, "--ids", "1,2", "--out", &out, "--dump", "hc", "--graph"];
    assert_eq!(run(&mut bitwalk(&graph)).status.code(), Some(2));
}
