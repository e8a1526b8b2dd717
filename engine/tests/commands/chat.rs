//! `bitwalk chat` over a pipe.

use super::{fails, on_fixture, run_with, stderr, stdout};

fn chat(words: &[&str], input: &str) -> String {
    let output = run_with(&mut on_fixture("chat", &[words, &["--max-tokens", "6"]].concat()), input);
    assert!(output.status.success(), "{}", stderr(&output));
    // Nobody is there to be asked.
    assert!(!stderr(&output).contains("> "), "{}", stderr(&output));
    stdout(&output)
}

fn lines(words: &[&str], input: &str) -> Vec<serde_json::Value> {
    let out = chat(&[words, &["--json"]].concat(), input);
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn each_line_gets_a_reply() {
    let said = chat(&[], "hi\nthere\n");
    let replies: Vec<&str> = said.lines().collect();
    let object = lines(&[], "hi\n\nthere");
    assert_eq!(object.len(), 2);
    for (reply, object) in replies.iter().zip(&object) {
        assert_eq!(object["reply"].as_str(), Some(*reply));
    }
    assert_eq!(chat(&["--eager"], "hi\nthere\n"), said);
}

/// The second turn reads only what was not there yet; what it says is what a conversation read anew says.
#[test]
fn the_cache_is_kept_from_turn_to_turn() {
    let turns = lines(&[], "hi\nthere\n");
    let numbers = |turn: &serde_json::Value| ["read", "reused"].map(|key| turn[key].as_u64().unwrap());
    let [first, second] = [&turns[0], &turns[1]].map(numbers);
    assert_eq!(first[1], 0);
    // All that was read, and the reply but for its last token, which no walk has read.
    assert_eq!(second[1], first[0] + turns[0]["tokens"].as_u64().unwrap() - 1, "{turns:?}");
    assert!(second[0] < second[1], "{turns:?}");

    // The whole conversation as one prompt.
    let reply = turns[0]["reply"].as_str().unwrap();
    let prompt = format!(
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n{reply}<|im_end|>\n\
         <|im_start|>user\nthere<|im_end|>\n<|im_start|>assistant\n"
    );
    let words = ["--raw", "--prompt", &prompt, "--max-tokens", "6"];
    let whole = super::text(&mut on_fixture("generate", &words));
    assert_eq!(whole.trim_end_matches('\n'), turns[1]["reply"].as_str().unwrap());
}

#[test]
fn clear_begins_anew_and_exit_ends() {
    let replies = lines(&[], "hi\nthere\n/clear\nhi\n/exit\nnever read\n");
    assert_eq!(replies.len(), 3);
    assert_eq!(replies[2]["reply"], replies[0]["reply"]);
    let with_system = lines(&["--system", "be brief"], "hi\n/clear\nhi\n");
    assert_eq!(with_system[0]["reply"], with_system[1]["reply"]);
    assert!(with_system[0]["read"].as_u64() > replies[0]["read"].as_u64());
}

#[test]
fn a_conversation_without_room_says_so_and_goes_on() {
    let long = "x ".repeat(40);
    let input = format!("{long}\n/clear\nhi\n");
    let replies = lines(&["--context", "48"], &input);
    assert_eq!(replies.len(), 2);
    let error = replies[0]["error"].as_str().unwrap();
    assert!(error.contains("there is room for 48: /clear begins anew"), "{error}");
    assert_eq!(replies[1]["tokens"], 6);
    let output = run_with(&mut on_fixture("chat", &["--context", "48"]), &format!("{long}\n"));
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), String::new()));
    assert!(stderr(&output).contains("/clear begins anew"));
}

#[test]
fn no_input_is_no_failure_and_no_text_is_one() {
    assert_eq!(chat(&[], ""), "");
    let mut child = on_fixture("chat", &[]);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, b"\xff\xff\n").unwrap();
    fails(child.stdin(std::fs::File::open(file.path()).unwrap()), 1, "reading standard input");
}
