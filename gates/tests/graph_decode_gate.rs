//! The `graph-decode-gate` binary: arguments that do not parse are exit code 2.

use std::process::Command;

#[test]
fn arguments_that_do_not_parse_are_wrong_usage() {
    for args in [
        &[][..],
        &["model.gguf", "sixty"],
        &["model.gguf", "0"],
        &["model.gguf", "64", "256", "7"],
        &["model.gguf", "--fast"],
        &["model.gguf", "--device"],
        &["model.gguf", "--device", "gpu"],
        &["no-such-model"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_graph-decode-gate")).args(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.starts_with("graph-decode-gate: "), "{args:?}: {stderr}");
    }
}
