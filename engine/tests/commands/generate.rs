//! `bitwalk generate`: where the prompt comes from, what is printed, what is counted.

use std::fs;

use super::{
    FIXTURE, bitwalk, fails, golden_ids, ids, json, on_fixture, run, run_with, stderr, stdout, text,
};

/// The words of a run whose ids the oracle gives: the prompt is the one token 0, keys and values are kept in float32.
const GOLDEN: [&str; 7] = ["--raw", "--prompt", "<|endoftext|>", "--kv", "f32", "--max-tokens", "32"];

/// The reply that the fixture gives to a user's message `a b`.
fn reply(words: &[&str], input: &str) -> String {
    let output = run_with(&mut on_fixture("generate", &[words, &["--max-tokens", "6"]].concat()), input);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

#[test]
fn ids_are_the_oracles_eager_and_replayed_however_queued() {
    let golden = golden_ids();
    for words in [&["--eager"][..], &["--graph"], &["--queue", "4"], &["--eager", "--queue", "16"]] {
        let object = json(&mut on_fixture("generate", &[&GOLDEN, words, &["--json"]].concat()));
        assert_eq!(ids(&object["ids"]), golden, "{words:?}");
        assert_eq!(ids(&object["prompt_ids"]), [0]);
        let replays = if words.contains(&"--eager") { 0 } else { golden.len() as u64 - 1 };
        assert_eq!(object["replays"], replays, "{words:?}");
    }
}

/// Text comes in whole characters, and is that of the JSON object.
#[test]
fn streamed_text_is_the_text() {
    let streamed = text(&mut on_fixture("generate", &GOLDEN));
    let object = json(&mut on_fixture("generate", &[&GOLDEN[..], &["--json"]].concat()));
    assert_eq!(streamed, format!("{}\n", object["text"].as_str().unwrap()));
}

#[test]
fn a_prompt_comes_from_an_option_a_file_or_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prompt.txt");
    fs::write(&file, "a b\n").unwrap();
    let from_option = reply(&["--prompt", "a b"], "not read");
    assert!(from_option.len() > 1);
    assert_eq!(reply(&["--prompt-file", file.to_str().unwrap()], "not read"), from_option);
    assert_eq!(reply(&[], "a b\n"), from_option);
    assert_eq!(reply(&[], "a b"), from_option);
    // Only the last line end is left off.
    assert_ne!(reply(&[], "a b\n\n"), from_option);
}

#[test]
fn without_raw_the_prompt_is_a_users_message() {
    let prompt_ids = |words: &[&str]| {
        let words = [words, &["--max-tokens", "0", "--json"]].concat();
        ids(&json(&mut on_fixture("generate", &words))["prompt_ids"])
    };
    let templated = "<|im_start|>user\na b<|im_end|>\n<|im_start|>assistant\n";
    let chat = prompt_ids(&["--prompt", "a b"]);
    assert_eq!(chat, prompt_ids(&["--raw", "--prompt", templated]));
    assert_eq!((chat[0], chat.iter().filter(|&&id| id == 2).count()), (1, 1));
    let raw = prompt_ids(&["--raw", "--prompt", "a b"]);
    assert!(raw.len() < chat.len() && !raw.contains(&1), "{raw:?}");
}

#[test]
fn no_tokens_only_read_the_prompt() {
    let output =
        run(&mut on_fixture("generate", &["--raw", "--prompt", "abc", "--max-tokens", "0", "--stats"]));
    assert_eq!((output.status.code(), stdout(&output)), (Some(0), String::new()));
    let said = stderr(&output);
    assert!(said.contains("reply: 0 tokens, 0 walks") && said.contains("0 captures, 0 replays"), "{said}");
    let object =
        json(&mut on_fixture("generate", &["--raw", "--prompt", "abc", "--max-tokens", "0", "--json"]));
    let prompt = ids(&object["prompt_ids"]).len();
    assert_eq!((&object["ids"], &object["text"]), (&serde_json::json!([]), &serde_json::json!("")));
    assert_eq!((&object["cached"], &object["walks"]), (&prompt.into(), &0.into()));
}

/// `n` tokens take `n − 1` walks: priming chooses the first.
#[test]
fn stats_count_tokens_walks_and_replays() {
    let output = run(&mut on_fixture("generate", &[&GOLDEN[..], &["--stats", "--queue", "4"]].concat()));
    let said = stderr(&output);
    for words in [
        "prompt: 1 tokens in ",
        "reply: 32 tokens, 31 walks in ",
        "; ended by length",
        "graph: 1 captures, 31 replays, 8 synchronisations",
    ] {
        assert!(said.contains(words), "`{words}` expected: {said}");
    }
}

/// The fixture answers `d` with ten tokens and then ends its turn.
#[test]
fn a_stop_token_ends_the_reply_and_is_not_printed() {
    for queue in ["1", "16"] {
        let words = ["--raw", "--prompt", "d", "--queue", queue, "--json"];
        let object = json(&mut on_fixture("generate", &words));
        assert_eq!(object["finish"], "stop");
        let produced = ids(&object["ids"]);
        assert!(produced.len() < 256 && !produced.iter().any(|&id| id == 0 || id == 2), "{produced:?}");
        assert!(!object["text"].as_str().unwrap().contains("<|"));
    }
}

#[test]
fn equal_seeds_give_equal_text_and_others_another() {
    let drawn = |words: &[&str]| {
        let words = [&["--raw", "--prompt", "c", "--max-tokens", "12", "--temp", "1.5"], words].concat();
        text(&mut on_fixture("generate", &words))
    };
    let first = drawn(&["--seed", "3"]);
    assert_eq!(drawn(&["--seed", "3", "--eager"]), first);
    assert_eq!(drawn(&["--seed", "3", "--queue", "16"]), first);
    assert_ne!(drawn(&["--seed", "4"]), first);
    let greedy = text(&mut on_fixture("generate", &["--raw", "--prompt", "c", "--max-tokens", "12"]));
    assert_eq!(drawn(&["--top-k", "1"]), greedy);
    assert_ne!(first, greedy);
}

/// The fixture's context is 2048 tokens. What does not fit is refused before anything is loaded.
#[test]
fn a_prompt_longer_than_the_context_is_refused() {
    let long = "x ".repeat(2048);
    let output = run_with(&mut on_fixture("generate", &["--raw"]), &long);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said, "bitwalk: the prompt has 2049 tokens, and the model's context is 2048: shorten it\n");

    // Without end: not even read.
    let mut endless = on_fixture("generate", &["--raw", "--prompt-file", "/dev/zero"]);
    fails(&mut endless, 1, "/dev/zero: a prompt of more than 65536 bytes cannot fit the model's context");

    let ids: Vec<String> = (0..2049).map(|_| "1".to_owned()).collect();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.safetensors");
    let words = ["--ids", &ids.join(","), "--out", out.to_str().unwrap()];
    fails(&mut on_fixture("logits", &words), 1, "2049 ids and 0 steps, and the model's context is 2048");
}

/// A context that is used up ends the reply.
#[test]
fn a_full_context_ends_the_reply() {
    // The fixture with a context of 32 tokens.
    let file = patched("llama.context_length", 4, &32u32.to_le_bytes());
    for queue in ["1", "16"] {
        let prompt = "x ".repeat(10);
        let words = [
            "generate",
            "--raw",
            "--prompt",
            &prompt,
            "--max-tokens",
            "999999999",
            "--json",
            "--queue",
            queue,
        ];
        let object = json(bitwalk(&words).env("BITWALK_MODEL", file.path()));
        let (prompt, produced) = (ids(&object["prompt_ids"]).len(), ids(&object["ids"]).len());
        assert_eq!((&object["finish"], prompt), (&"context".into(), 11));
        // The last token is produced, but there is no position at which it could be read.
        assert_eq!((prompt + produced, &object["cached"]), (33, &32.into()));
    }
}

#[test]
fn a_token_that_does_not_exist_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.safetensors");
    for (list, words) in [
        ("5,1024", "token id 1024 at prompt position 1: the vocabulary has 1024"),
        ("4294967295", "token id 4294967295 at prompt position 0"),
    ] {
        let mut command = on_fixture("logits", &["--ids", list, "--out", out.to_str().unwrap()]);
        fails(&mut command, 1, words);
        assert!(!out.exists());
    }
}

#[test]
fn prompts_that_are_no_text_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("prompt.txt");
    fs::write(&file, b"a\xff\xfe").unwrap();
    let path = file.to_str().unwrap();
    fails(&mut on_fixture("generate", &["--prompt-file", path]), 1, "prompt.txt: invalid utf-8 sequence");
    let none = ["generate", "--model", FIXTURE, "--prompt-file", "/nowhere.txt"];
    fails(&mut bitwalk(&none), 1, "reading /nowhere.txt: No such file");
    fails(&mut on_fixture("generate", &["--raw", "--prompt", ""]), 1, "the prompt is empty");
    // Standard input is empty.
    fails(&mut on_fixture("generate", &["--raw"]), 1, "the prompt is empty");
}

/// The fixture with `bytes` written `skip` bytes behind a metadata key.
fn patched(key: &str, skip: usize, new: &[u8]) -> tempfile::NamedTempFile {
    let mut bytes = fs::read(FIXTURE).unwrap();
    let at = bytes.windows(key.len()).position(|window| window == key.as_bytes()).unwrap() + key.len() + skip;
    bytes[at..at + new.len()].copy_from_slice(new);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    file
}

/// Comparing lists that are made of lists of themselves is work that no fuel is asked for. Here and not beside the other
/// hostile templates: the thread that compares runs on for as long as the process.
#[test]
fn a_template_without_end_is_given_up() {
    let source = "{% set n = namespace(s=[1], t=[1]) %}{% for i in range(48) %}\
        {% set n.s = [n.s, n.s] %}{% set n.t = [n.t, n.t] %}{% endfor %}{{ n.s == n.t }}";
    // Behind the key: a type and a length, then the text, of which the rest becomes a comment.
    let fixture = bitwalk::format::gguf::GgufFile::open(FIXTURE).unwrap();
    let was = fixture.metadata().str("tokenizer.chat_template").unwrap().unwrap().len();
    let source = format!("{source}{{#{}#}}", " ".repeat(was - source.len() - 4));
    let file = patched("tokenizer.chat_template", 4 + 8, source.as_bytes());
    let mut command = bitwalk(&["generate", "--prompt", "a"]);
    let words = "the chat template cannot be applied: it has not ended after 5s";
    fails(command.env("BITWALK_MODEL", file.path()), 1, words);
}
