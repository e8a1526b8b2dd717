//! Ends that come from outside: a reader that leaves, a full disk, Ctrl-C.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileTypeExt;
use std::process::{Child, Command, Output, Stdio};

use super::{FIXTURE, bitwalk, on_fixture, run, stderr};

/// Every command that prints, with words that make it print.
fn printing() -> Vec<Command> {
    vec![
        on_fixture("generate", &["--raw", "--prompt", "c", "--max-tokens", "4"]),
        on_fixture("generate", &["--raw", "--prompt", "c", "--max-tokens", "4", "--json"]),
        on_fixture("plan", &[]),
        on_fixture("plan", &["--json"]),
        on_fixture("bench", &["--prompt-tokens", "1", "--tokens", "2"]),
        on_fixture("bench", &["--prompt-tokens", "1", "--tokens", "2", "--json"]),
        on_fixture("logits", &["--ids", "1", "--out", "/dev/null"]),
        on_fixture("logits", &["--ids", "1", "--out", "/dev/null", "--json"]),
        bitwalk(&["inspect", FIXTURE]),
        bitwalk(&["inspect", FIXTURE, "--json"]),
        bitwalk(&["completions", "bash"]),
    ]
}

/// As in `bitwalk … | head -c 0`.
#[test]
fn a_reader_that_leaves_is_no_failure() {
    for mut command in printing() {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(0), "{command:?}: {said}");
        assert!(!said.contains("panicked") && !said.contains("roken pipe"), "{command:?}: {said}");
    }
}

/// As in `bitwalk … 2>&1 | head -c 0`: messages that nobody reads do not end a run in a panic.
#[test]
fn nobody_reading_messages_is_no_panic() {
    for mut command in printing() {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stderr.take());
        assert_eq!(child.wait().unwrap().code(), Some(0), "{command:?}");
    }
    let mut failing = bitwalk(&["inspect", "/nowhere.gguf"]);
    let mut child = failing.stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_full_disk_is_an_error() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for mut command in printing() {
        let output = command.stdout(full()).stderr(Stdio::piped()).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
        let words = "bitwalk: writing to standard output: No space left on device";
        assert!(said.lines().last().unwrap().starts_with(words), "{command:?}: {said}");
    }
    for (out, words) in [
        ("/nowhere/x", "writing /nowhere/x: No such file"),
        ("/dev/full", "writing /dev/full: No space left"),
    ] {
        let output = run(&mut on_fixture("logits", &["--ids", "1", "--out", out]));
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(words), "{}", stderr(&output));
    }
    // Written to, not replaced by a file.
    let device = |path| std::fs::metadata(path).unwrap().file_type().is_char_device();
    assert!(device("/dev/full") && device("/dev/null"));
}

/// What a terminal sends at Ctrl-C.
fn interrupt(child: &Child) {
    let kill = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

/// What `child` prints after `begun` was read of it, and how it ends.
fn rest(mut child: Child, begun: impl Read) -> (String, Output) {
    let mut text = String::new();
    BufReader::new(begun).read_to_string(&mut text).unwrap();
    child.stdin.take();
    let output = child.wait_with_output().unwrap();
    (text, output)
}

/// The fixture would go on for 2000 tokens, which take it seconds.
#[test]
fn ctrl_c_finishes_the_line_and_exits_with_130() {
    for words in [&["--graph"][..], &["--eager"], &["--temp", "0.5"]] {
        let all = [&["--raw", "--prompt", "c", "--max-tokens", "2000"], words].concat();
        let mut command = on_fixture("generate", &all);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut out = child.stdout.take().unwrap();
        // The reply has begun.
        out.read_exact(&mut [0; 8]).unwrap();
        interrupt(&child);
        let (text, output) = rest(child, out);
        assert_eq!(output.status.code(), Some(130), "{words:?}: {}", stderr(&output));
        assert!(text.ends_with('\n') && text.matches('\n').count() >= 1, "{words:?}: {text:?}");
        assert!(!stderr(&output).contains("panicked"));
    }
}

/// An object that is cut short would be none.
#[test]
fn ctrl_c_leaves_whole_json() {
    let words = ["--raw", "--prompt", "c", "--max-tokens", "2000", "--json"];
    let mut command = on_fixture("generate", &words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let out = child.stdout.take().unwrap();
    // Nothing is printed while it decodes; the line about the model comes when loading begins.
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    interrupt(&child);
    let (text, output) = rest(child, out);
    assert_eq!(output.status.code(), Some(130));
    // Interrupted while it was loading still, it has nothing to say.
    if !text.is_empty() {
        let object: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(object["finish"], "interrupted");
    }
}

#[test]
fn ctrl_c_while_a_line_is_awaited_exits_with_130() {
    let mut command = on_fixture("chat", &["--max-tokens", "3"]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"hi\n").unwrap();
    let mut line = String::new();
    out.read_line(&mut line).unwrap();
    assert!(line.len() > 1);
    interrupt(&child);
    let (text, output) = rest(child, out);
    assert_eq!((output.status.code(), text), (Some(130), String::new()));
}
