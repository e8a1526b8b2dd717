//! The `bitwalk` command as people and programs use it: what it prints where, and how it exits. All on the fixture and
//! the simulated device.

mod chat;
mod dump;
mod endings;
mod generate;
mod instruments;
mod machine;
mod options;
mod stages;
mod usage;

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// A small model with random weights, a tokenizer and a chat template.
const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../gates/fixtures/tiny-llama.gguf");
/// What the float64 oracle says of it.
const GOLDEN: &str = include_str!("../../../gates/fixtures/tiny-llama.json");

/// `bitwalk WORDS… ` without anything from the environment of the test.
fn bitwalk(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bitwalk"));
    bitwalk::options::VARIABLES.iter().for_each(|variable| {
        command.env_remove(variable.name);
    });
    command.args(words).env("BITWALK_DEVICE", "sim").stdin(Stdio::null());
    command
}

/// `bitwalk VERB --model FIXTURE WORDS…`.
fn on_fixture(verb: &str, words: &[&str]) -> Command {
    bitwalk(&[&[verb, "--model", FIXTURE], words].concat())
}

/// Runs it; `input` is its standard input.
#[track_caller]
fn run_with(command: &mut Command, input: &str) -> Output {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A program that fails early does not read it; that is no matter here.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

#[track_caller]
fn run(command: &mut Command) -> Output {
    command.output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// What a run that must succeed printed.
#[track_caller]
fn text(command: &mut Command) -> String {
    let output = run(command);
    assert!(output.status.success(), "{:?}: {}", output.status, stderr(&output));
    stdout(&output)
}

/// The one JSON object that a run printed.
#[track_caller]
fn json(command: &mut Command) -> serde_json::Value {
    serde_json::from_str(&text(command)).unwrap()
}

/// A run that must fail with `code` and one line, which begins with `bitwalk: ` and contains `words`, and nothing on
/// standard output.
#[track_caller]
fn fails(command: &mut Command, code: i32, words: &str) {
    let output = run(command);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    let last = said.lines().last().unwrap_or_default();
    assert!(last.starts_with("bitwalk: ") && last.contains(words), "`{words}` expected: {said}");
    assert!(!said.contains("panicked"), "{said}");
    assert_eq!(stdout(&output), "");
}

fn ids(array: &serde_json::Value) -> Vec<u64> {
    array.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

/// The greedy ids of the golden case whose prompt is the single token 0.
fn golden_ids() -> Vec<u64> {
    let golden: serde_json::Value = serde_json::from_str(GOLDEN).unwrap();
    let cases = golden["cases"].as_array().unwrap();
    let case = cases.iter().find(|case| case["prompt_ids"] == serde_json::json!([0])).unwrap();
    ids(&case["greedy_ids"])
}
