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
