//! Exit codes 0, 1 and 2, and what is said with them.

use std::fs;

use super::{FIXTURE, bitwalk, fails, on_fixture, run, stderr, stdout, text};

#[test]
fn wrong_usage_is_two() {
    for words in [
        &[][..],
        &["no-such-verb"],
        &["generate", "--no-such-option"],
        &["generate", "--prompt", "a", "--prompt-file", "b"],
        &["generate", "--eager", "--graph", "--prompt", "a"],
        &["generate", "--max-tokens", "many", "--prompt", "a"],
        &["generate", "--queue", "0", "--prompt", "a"],
        &["generate", "--device", "gpu", "--prompt", "a"],
        &["generate", "--act", "int3", "--prompt", "a"],
        &["generate", "--kv", "f12", "--prompt", "a"],
        // Without a temperature there is no draw for these to shape.
        &["generate", "--top-k", "4", "--prompt", "a"],
        &["generate", "--seed", "4", "--prompt", "a"],
        &["bench", "--repetitions", "0"],
        &["bench", "--compare", "exact,int3"],
        &["bench", "--compare", "exact,exact", "--model", FIXTURE],
        &["bench", "--rows", "8B"],
        &["trace", "--quant", "q8_0"],
        &["logits", "--out", "x"],
        &["completions", "tcsh"],
        &["inspect", "a", "b"],
    ] {
        let output = run(&mut bitwalk(words));
        assert_eq!(output.status.code(), Some(2), "{words:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{words:?}");
    }
}

#[test]
fn sampling_options_out_of_range_are_wrong_usage() {
    for (option, value, words) in [
        ("--temp", "0", "--temp is 0: it must be a number above 0"),
        ("--temp", "-1", "--temp is -1"),
        ("--temp", "NaN", "--temp is NaN"),
        ("--top-k", "0", "--top-k is 0: it must be at least 1"),
        ("--top-p", "1.5", "--top-p is 1.5: it must be above 0 and at most 1"),
        ("--min-p", "-0.1", "--min-p is -0.1"),
        ("--repeat-penalty", "0", "--repeat-penalty is 0"),
    ] {
        let temp = if option == "--temp" { &[][..] } else { &["--temp", "1"] };
        let words_of = [&["--prompt", "a", option, value], temp].concat();
        fails(&mut on_fixture("generate", &words_of), 2, words);
    }
}

/// Every verb that takes a model says how to get one, in one line.
#[test]
fn without_a_model_the_line_says_how_to_get_it() {
    let empty = tempfile::tempdir().unwrap();
    for words in [
        &["generate", "--prompt", "a"][..],
        &["chat"],
        &["inspect"],
        &["plan"],
        &["bench"],
        &["trace"],
        &["logits", "--ids", "1", "--out", "x"],
    ] {
        let mut command = bitwalk(words);
        fails(command.current_dir(&empty), 2, "`cargo xtask model smollm2` fetches it");
        assert_eq!(stderr(&run(command.current_dir(&empty))).lines().count(), 1);
    }
}

/// A model in `models/` of the working directory or of one above it is the one taken.
#[test]
fn a_fetched_model_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let inner = folder.path().join("a/b");
    fs::create_dir_all(&inner).unwrap();
    fs::create_dir(folder.path().join("models")).unwrap();
    fs::copy(FIXTURE, folder.path().join("models/SmolLM2-135M-Instruct.Q4_1.gguf")).unwrap();
    let said = text(bitwalk(&["inspect"]).current_dir(&inner));
    assert!(said.contains("bitwalk tiny llama"), "{said}");
}

#[test]
fn a_model_that_is_none_is_one_line() {
    for (verb, words) in
        [("generate", &["--prompt", "a"][..]), ("chat", &[]), ("plan", &[]), ("bench", &[]), ("trace", &[])]
    {
        let words = [&[verb, "--model", "/nowhere/model.gguf"], words].concat();
        let mut command = bitwalk(&words);
        fails(&mut command, 1, "/nowhere/model.gguf: cannot be opened: ");
        assert_eq!(stderr(&run(&mut command)).lines().count(), 1);
    }
}

/// `BITWALK_MODEL` and `BITWALK_DEVICE` stand for the options.
#[test]
fn the_environment_gives_model_and_device() {
    let mut command = bitwalk(&["plan", "--json"]);
    let object = super::json(command.env("BITWALK_MODEL", FIXTURE).env("BITWALK_DEVICE", "sim:1"));
    assert_eq!((object["model"].as_str(), object["device"].as_str()), (Some(FIXTURE), Some("sim:1")));
    fails(on_fixture("plan", &[]).env("BITWALK_DEVICE", "sim:99"), 1, "sim:99");
}

#[test]
fn help_names_every_command_and_version_is_one_line() {
    let help = text(&mut bitwalk(&["--help"]));
    for verb in ["generate", "chat", "inspect", "plan", "bench", "trace", "logits", "completions"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(verb)), "{verb}: {help}");
    }
    assert_eq!(text(&mut bitwalk(&["--version"])).trim(), concat!("bitwalk ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn completions_and_man_pages_know_the_options() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = text(&mut bitwalk(&["completions", shell]));
        assert!(script.contains("prompt-file") && script.contains("generate"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man");
    text(&mut bitwalk(&["man", pages.to_str().unwrap()]));
    let page = fs::read_to_string(pages.join("bitwalk-generate.1")).unwrap();
    assert!(page.contains(r"\-\-prompt\-file") && page.contains("likeliest"), "{page}");
}
