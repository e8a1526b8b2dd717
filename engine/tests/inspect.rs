//! `bitwalk inspect` on the fixture and on what is no model.

use std::process::{Command, Output, Stdio};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gates/fixtures/tiny-llama.gguf");

fn inspect(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bitwalk")).arg("inspect").args(args).output().unwrap()
}

#[test]
fn json_holds_what_the_fixture_was_made_with() {
    let output = inspect(&[FIXTURE, "--json"]);
    assert!(output.status.success());
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let config = &summary["config"];
    for (key, value) in
        [("layers", 3), ("hidden", 96), ("ff", 352), ("heads", 6), ("kv_heads", 2), ("head_dim", 64)]
    {
        assert_eq!(config[key], value, "{key}");
    }
    // Embedding 1024 × 96; a layer's q and output 384 × 96, k and v 128 × 96, three of 352 × 96, two norms; a norm.
    let parameters = 1024 * 96 + 3 * (2 * 384 * 96 + 2 * 128 * 96 + 3 * 352 * 96 + 2 * 96) + 96;
    assert_eq!(summary["total"]["parameters"], parameters);
    // The head is tied: all weights are read for each token.
    assert_eq!(config["weight_bytes_a_token"], summary["total"]["bytes"]);
    assert_eq!(config["kv_elements_a_position"], 2 * 3 * 2 * 64);
    assert_eq!(summary["formats"]["Q4_0"]["bytes"], (384 * 96 + 128 * 96 + 96 * 384) / 32 * 18);
    assert_eq!(summary["tensors"][1]["name"], "blk.0.attn_norm.weight");
    assert_eq!(summary["metadata"]["tokenizer.ggml.tokens"], "an array of 1024 strings");
}

#[test]
fn tables_name_every_tensor() {
    let output = inspect(&[FIXTURE]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in [
        "attention        6 query heads, 2 KV heads, 64 wide",
        "parameters       698 016",
        "blk.2.ffn_down.weight     F32                96 × 352     135.2 kB",
        "general.architecture                    \"llama\"",
    ] {
        assert!(text.lines().any(|l| l == line), "no line {line:?} in\n{text}");
    }
}

#[test]
fn what_cannot_be_read_is_one_line_and_exit_code_1() {
    let output = inspect(&["/nowhere/model.gguf"]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.starts_with("bitwalk: /nowhere/model.gguf: cannot be opened: "), "{error}");
    assert_eq!(error.lines().count(), 1);
}

#[test]
fn wrong_usage_is_exit_code_2() {
    assert_eq!(inspect(&["--yaml", FIXTURE]).status.code(), Some(2));
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_bitwalk"))
        .args(["inspect", FIXTURE])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

const NVFP4: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gates/fixtures/glm5-next-tiny-nvfp4");

#[test]
fn checkpoints_are_counted_by_part() {
    let output = inspect(&[NVFP4, "--json", "--kv", "f32", "--context", "100"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["architecture"], "glm5_next");
    assert_eq!(summary["skipped"], serde_json::Value::Null);
    let part = |name: &str, what: &str| summary["by_part"][name][what].as_u64().unwrap();
    // Six routed layers of 16 experts of three 64 × 128: half a byte an element, a scale for 16, an f32 for each row.
    let experts = 6 * 16 * 3 * 64 * 128;
    assert_eq!(part("routed experts", "parameters"), experts);
    let bytes = experts / 2 + experts / 16 + 6 * 16 * 4 * (64 + 64 + 128);
    assert_eq!(part("routed experts", "device_bytes"), bytes);
    assert_eq!(part("routed experts", "read_a_token"), bytes / 4);
    assert_eq!(part("embedding", "device_bytes"), 512 * 128 * 2);
    assert_eq!(part("embedding", "read_a_token"), 128 * 2);
    assert_eq!(part("head", "read_a_token"), 512 * 128 * 2);
    // Seven recurrent layers: 4 heads of 32 × 32, and four taps of three projections; two latent ones: latents of 64 and, a
    // pool of 4, keys of 32, besides keys and gates of one pool.
    let recurrent = 7 * 4 * (4 * 32 * 32 + 4 * 3 * 128);
    let latent = 2 * 4 * (100 * 64 + 25 * 32 + 2 * 4 * 32);
    assert_eq!(summary["cache"]["bytes"], recurrent + latent);
    let last = summary["read_a_token"].as_array().unwrap().last().unwrap();
    assert_eq!(last["position"], 99);
    // 32 + 3 positions at most are attended to, of 25 pools' keys.
    assert_eq!(last["cache_bytes_read"], recurrent + 2 * 4 * (35 * 64 + 25 * 32));
    assert_eq!(summary["devices"][0]["stages"], serde_json::json!([9]));
}

#[test]
fn synthetic_models_are_known_by_name() {
    let output = inspect(&["glm-5.3-flash", "--json"]);
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(summary["total"]["parameters"], 313_326_811_966u64);
    // 42 layers of 288 experts: 9/16 of a byte an element, and the rows' scales.
    let elements = 42 * 288 * 3 * 2048 * 4096u64;
    let experts = elements / 16 * 9 + 42 * 288 * 4 * (2 * 2048 + 4096);
    assert_eq!(summary["by_part"]["routed experts"]["device_bytes"], experts);
    assert_eq!(summary["by_part"]["routed experts"]["read_a_token"], experts / 36);
    let h200 = &summary["devices"][3];
    assert_eq!((h200["device"].as_str(), h200["layers_on_one"].as_u64()), (Some("H200"), Some(34)));

    let output = inspect(&["synthetic:llama-1b,layers=2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for line in
        ["synthetic:llama-1b,layers=2", "layers           2", "H200         150.3 GB  all of it on one"]
    {
        assert!(text.lines().any(|l| l == line), "no line {line:?} in\n{text}");
    }
    for (name, code, words) in [
        ("synthetic:glm-6", 2, "there are glm-5.3-flash"),
        ("llama-1b,layers=99", 2, "1 to 16"),
        ("glm-6", 1, "cannot be opened"),
    ] {
        let output = inspect(&[name]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{error}");
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_broken_checkpoint_is_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let output = inspect(&[folder.path().to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("model.safetensors") && error.lines().count() == 1, "{error}");
}
