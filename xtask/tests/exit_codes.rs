//! Exit codes of `xtask gate`: wrong usage is 2, apart from a gate that failed.

use std::process::Command;

fn code(args: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(args).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn wrong_usage_is_two_and_says_what_is_wrong() {
    for (args, words) in [
        (&["gate", "no-such-gate"][..], "no-such-gate"),
        (&["gate", "--device", "gpu"], "`gpu` names no device"),
        (&["gate", "--require", "luck"], "`cuda` or `model`"),
        (&["gate", "--", "model.gguf"], "name it before `--`"),
        (&["gate", "determinism", "--", "model.gguf"], "takes no arguments"),
        (&["gate", "graph-decode", "--device", "sim", "--", "no-such.gguf"], "no-such.gguf"),
        (&["gate", "graph-decode", "--device", "sim", "--", "m.gguf", "sixty"], "sixty"),
        (&["no-such-verb"], "no-such-verb"),
    ] {
        let (code, stderr) = code(args);
        assert_eq!(code, 2, "{args:?}: {stderr}");
        assert!(stderr.contains(words), "{args:?}: {stderr}");
    }
}

#[test]
fn the_list_names_every_gate_and_its_faults() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask")).args(["gate", "--list"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    for gate in bitwalk_gates::GATES {
        assert!(text.contains(gate.name) && text.contains(gate.teeth[0].fault), "{}: {text}", gate.name);
    }
}
