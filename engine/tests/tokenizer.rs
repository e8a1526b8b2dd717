//! The tokenizer against ids that other implementations gave, and against itself.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bitwalk::format::DType;
use bitwalk::format::gguf::{GgufFile, GgufWriter};
use bitwalk::tokenizer::{ChatTemplate, Message, TextStream, TokenKind, Tokenizer};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn tokenizer(file: &GgufFile) -> Tokenizer {
    Tokenizer::from_metadata(file.metadata()).unwrap()
}

/// SmolLM2's special tokens, its first.
const SPECIAL: [&str; 17] = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<repo_name>",
    "<reponame>",
    "<file_sep>",
    "<filename>",
    "<gh_stars>",
    "<issue_start>",
    "<issue_comment>",
    "<issue_closed>",
    "<jupyter_start>",
    "<jupyter_text>",
    "<jupyter_code>",
    "<jupyter_output>",
    "<jupyter_script>",
    "<empty_output>",
];

/// Bytes that SmolLM2's vocabulary cannot write. Of those that occur in UTF-8: six controls, and what begins U+40000 to
/// U+BFFFF.
const LOST: [u8; 21] = [
    0x04, 0x06, 0x13, 0x14, 0x16, 0x1d, 0xc0, 0xc1, 0xf1, 0xf2, 0xf5, 0xf6, 0xf7, 0xf8, 0xf9, 0xfa, 0xfb,
    0xfc, 0xfd, 0xfe, 0xff,
];

const TEMPLATE: &str = "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}\
    {{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}\
    {% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}\
    {% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

/// SmolLM2's tokenizer as its file has it: special tokens, byte symbols in order, what the merges make.
fn smollm2_file() -> &'static GgufFile {
    static FILE: OnceLock<GgufFile> = OnceLock::new();
    FILE.get_or_init(|| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/smollm2-merges.txt");
        let text = std::fs::read_to_string(path).unwrap();
        let merges: Vec<&str> = text.lines().collect();
        let mut symbols: Vec<(u8, char)> = (0..=255).zip(tokenizer_symbols()).collect();
        symbols.retain(|(byte, _)| !LOST.contains(byte));
        symbols.sort_by_key(|(_, symbol)| *symbol);
        let symbols = symbols.iter().map(|(_, symbol)| symbol.to_string());
        let merged = merges.iter().map(|merge| merge.replace(' ', ""));
        let tokens: Vec<String> =
            SPECIAL.map(String::from).into_iter().chain(symbols).chain(merged).collect();
        let types: Vec<i32> = (0..tokens.len()).map(|id| if id < SPECIAL.len() { 3 } else { 1 }).collect();
        assert_eq!(tokens.len(), 49152);

        let mut writer = GgufWriter::new();
        writer.str("tokenizer.ggml.model", "gpt2");
        writer.str("tokenizer.ggml.pre", "smollm");
        writer.strings("tokenizer.ggml.tokens", &tokens);
        writer.i32s("tokenizer.ggml.token_type", &types);
        writer.strings("tokenizer.ggml.merges", &merges);
        writer.u32("tokenizer.ggml.bos_token_id", 1);
        writer.u32("tokenizer.ggml.eos_token_id", 2);
        writer.bool("tokenizer.ggml.add_bos_token", false);
        writer.str("tokenizer.chat_template", TEMPLATE);
        GgufFile::from_bytes("smollm2-vocabulary.gguf", writer.finish()).unwrap()
    })
}

/// Where the model has been fetched (`cargo xtask model smollm2`), its metadata is what is rebuilt above.
#[test]
fn the_rebuilt_vocabulary_is_the_models() {
    let path = repository().join("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    if !path.exists() {
        println!("SKIPPED: {} is absent; `cargo xtask model smollm2` fetches it", path.display());
        return;
    }
    let model = GgufFile::open(path).unwrap();
    for (key, _) in smollm2_file().metadata().iter() {
        let [model, rebuilt] = [model.metadata(), smollm2_file().metadata()];
        match rebuilt.strings(key) {
            Ok(strings) => assert_eq!(model.strings(key).unwrap(), strings, "{key}"),
            Err(_) => assert_eq!(model.get(key), rebuilt.get(key), "{key}"),
        }
    }
}

fn smollm2() -> &'static Tokenizer {
    static TOKENIZER: OnceLock<Tokenizer> = OnceLock::new();
    TOKENIZER.get_or_init(|| tokenizer(smollm2_file()))
}

fn fixture_file() -> GgufFile {
    GgufFile::open(repository().join("gates/fixtures/tiny-llama.gguf")).unwrap()
}

#[derive(serde::Deserialize)]
struct Tokenised {
    text: String,
    ids: Vec<u32>,
}

fn data(name: &str) -> serde_json::Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn ids_are_those_of_other_implementations() {
    let transformers: Vec<Tokenised> = serde_json::from_value(data("smollm2-tokenizer.json")).unwrap();
    let llama_cpp: Vec<Tokenised> =
        serde_json::from_value(data("llamacpp-smollm2.json")["tokenise"].clone()).unwrap();
    assert_eq!((transformers.len(), llama_cpp.len()), (10, 22));
    for case in transformers.iter().chain(&llama_cpp) {
        assert_eq!(smollm2().encode(&case.text), case.ids, "{:?}", case.text);
        assert_eq!(smollm2().decode(&case.ids).unwrap(), case.text);
    }
}

/// Strings of characters from all over Unicode, of words, spaces and digits, and of special tokens.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => any::<char>().prop_map(String::from),
        4 => "[a-z]{1,8}",
        2 => "[ \t\r\n\u{a0}]{1,4}",
        1 => "[0-9]{1,5}",
        1 => "['’][a-zA-Z]{1,2}",
        1 => "[!-/:-@]{1,4}",
        1 => Just("<|im_end|>".to_string()),
        1 => Just("<|im_".to_string()),
    ];
    prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

#[test]
fn text_survives_and_ids_are_stable() {
    let fixture = fixture_file();
    let fixture = tokenizer(&fixture);
    let config = Config { cases: 10_000, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let outcome = runner.run(&text(), |text| {
        let lost = |c: char| c.to_string().bytes().any(|byte| LOST.contains(&byte));
        let written = text.chars().map(|c| if lost(c) { '\u{fffd}' } else { c }).collect();
        for (tokenizer, wanted) in [(smollm2(), &written), (&fixture, &text)] {
            let ids = tokenizer.encode(&text);
            prop_assert_eq!(&tokenizer.decode(&ids).unwrap(), wanted);
            prop_assert_eq!(&tokenizer.encode(&tokenizer.decode(&ids).unwrap()), &ids);
            // Streamed token by token it is the same text, but for control tokens.
            let mut stream = TextStream::new(tokenizer);
            let streamed: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
            let streamed = streamed + &stream.finish();
            prop_assert_eq!(streamed, wanted.replace("<|im_end|>", ""));
        }
        Ok(())
    });
    outcome.unwrap();
}

#[test]
fn fixture_words_are_single_tokens() {
    let file = fixture_file();
    let tokenizer = tokenizer(&file);
    for word in ["the", " the", " and", "ing", "that"] {
        assert_eq!(tokenizer.encode(word).len(), 1, "{word:?}");
    }
    assert_eq!(tokenizer.encode("<|im_end|>"), [2]);
    assert_eq!(tokenizer.kind(2).unwrap(), TokenKind::Control);
    assert_eq!(tokenizer.encode("a\0ü"), [3 + 97, 3, 3 + 0xc3, 3 + 0xbc]);
    assert_eq!((tokenizer.vocab(), tokenizer.bos()), (1024, None));
    let error = tokenizer.decode(&[1024]).unwrap_err().to_string();
    assert_eq!(error, "token id 1024 does not exist: the vocabulary has 1024 tokens");
}

/// A vocabulary of all byte symbols but `without`, and what `change` adds.
fn vocabulary(without: &[char], more: &[(&str, i32)], change: impl FnOnce(&mut GgufWriter)) -> GgufFile {
    let symbols =
        tokenizer_symbols().into_iter().filter(|symbol| !without.contains(symbol)).map(String::from);
    let mut tokens: Vec<String> = symbols.collect();
    let mut types = vec![1; tokens.len()];
    for (token, kind) in more {
        tokens.push(token.to_string());
        types.push(*kind);
    }
    let mut writer = GgufWriter::new();
    writer.str("tokenizer.ggml.model", "gpt2");
    writer.strings("tokenizer.ggml.tokens", &tokens);
    writer.i32s("tokenizer.ggml.token_type", &types);
    change(&mut writer);
    writer.tensor("none", &[8], DType::I8, &[0; 8]);
    GgufFile::from_bytes("vocabulary.gguf", writer.finish()).unwrap()
}

/// The 256 symbols, from the vocabulary of the fixture, whose tokens 3 to 258 they are.
fn tokenizer_symbols() -> Vec<char> {
    let file = fixture_file();
    let tokens = file.metadata().require_strings("tokenizer.ggml.tokens").unwrap();
    tokens[3..259].iter().map(|token| token.chars().next().unwrap()).collect()
}

#[test]
fn bytes_without_a_symbol_fall_back() {
    let file = vocabulary(&['Ġ'], &[("<0x20>", 6)], |w| w.strings::<&str>("tokenizer.ggml.merges", &[]));
    let tokenizer = tokenizer(&file);
    let ids = tokenizer.encode("a b");
    assert_eq!(ids[1], 255);
    assert_eq!(tokenizer.decode(&ids).unwrap(), "a b");
}

#[test]
fn the_first_token_is_put_in_front_once() {
    let file = vocabulary(&[], &[("<s>", 3)], |w| {
        w.strings::<&str>("tokenizer.ggml.merges", &[]);
        w.bool("tokenizer.ggml.add_bos_token", true);
        w.u32("tokenizer.ggml.bos_token_id", 256);
    });
    let tokenizer = tokenizer(&file);
    assert_eq!(tokenizer.encode_prompt("a")[..], [256, 97]);
    assert_eq!(tokenizer.encode_prompt("<s>a")[..], [256, 97]);
    assert_eq!(tokenizer.encode("a"), [97]);
}

#[test]
fn each_wrong_vocabulary_is_named_with_its_reason() {
    // Symbols left out, tokens added, other changes; the key at fault and why.
    type Case =
        (&'static [char], &'static [(&'static str, i32)], fn(&mut GgufWriter), &'static str, &'static str);
    let cases: [Case; 9] = [
        (&['½'], &[], |_| {}, "tokens", "has neither `½` nor `<0xBD>`: not even U+FFFD can be encoded"),
        (&[], &[("", 1)], |_| {}, "tokens", "entry 256 is empty"),
        (&[], &[("x", 9)], |_| {}, "token_type", "entry 256 is 9; kinds are numbered from 1 to 6"),
        (&[], &[], |_| {}, "merges", "is missing"),
        (
            &[],
            &[],
            |w| w.strings("tokenizer.ggml.merges", &["a b"]),
            "merges",
            "entry 0, \"a b\", joins or makes what",
        ),
        (
            &[],
            &[],
            |w| w.strings("tokenizer.ggml.merges", &["ab"]),
            "merges",
            "entry 0, \"ab\", is not two tokens",
        ),
        (&[], &[], |w| w.str("tokenizer.ggml.pre", "rwkv"), "pre", "is \"rwkv\"; supported are smollm"),
        (
            &[],
            &[],
            |w| {
                w.strings::<&str>("tokenizer.ggml.merges", &[]);
                w.bool("tokenizer.ggml.add_bos_token", true);
            },
            "bos_token_id",
            "is missing, but `tokenizer.ggml.add_bos_token` asks for the token",
        ),
        (
            &[],
            &[],
            |w| {
                w.strings::<&str>("tokenizer.ggml.merges", &[]);
                w.bool("tokenizer.ggml.add_bos_token", true);
                w.u32("tokenizer.ggml.bos_token_id", 256);
            },
            "bos_token_id",
            "is 256, but there are only 256 tokens",
        ),
    ];
    for (without, more, change, key, reason) in cases {
        let file = vocabulary(without, more, change);
        let error = Tokenizer::from_metadata(file.metadata()).err().expect(reason).to_string();
        let start = format!("vocabulary.gguf: metadata key `tokenizer.ggml.{key}`: {reason}");
        assert!(error.starts_with(&start), "{error}");
    }
    let mut writer = GgufWriter::new();
    writer.str("tokenizer.ggml.model", "llama");
    let file = GgufFile::from_bytes("v", writer.finish()).unwrap();
    let error = Tokenizer::from_metadata(file.metadata()).err().unwrap().to_string();
    assert_eq!(
        error,
        "v: metadata key `tokenizer.ggml.model`: is \"llama\"; supported is gpt2 (byte-level byte-pair encoding)"
    );
}

fn message(role: &str, content: &str) -> Message {
    Message { role: role.into(), content: content.into() }
}

/// The text and ids that transformers made of this conversation (`smollm2-q4_1.json`, first chat case).
#[test]
fn smollm2_chat_is_written_as_transformers_writes_it() {
    let path = repository().join("gates/fixtures/smollm2-q4_1.json");
    let golden: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let template = ChatTemplate::from_metadata(smollm2_file().metadata(), smollm2()).unwrap().unwrap();
    let chats = golden["cases"].as_array().unwrap().iter().filter(|case| case["name"] == "chat");
    let mut compared = 0;
    for case in chats {
        let text = template.render(&[message("user", case["prompt"].as_str().unwrap())], true).unwrap();
        assert_eq!(text, case["templated"].as_str().unwrap());
        let ids: Vec<u32> = serde_json::from_value(case["prompt_ids"].clone()).unwrap();
        assert_eq!(smollm2().encode_prompt(&text), ids);
        compared += 1;
    }
    assert_eq!(compared, 2);
}

fn template(source: &str) -> Result<ChatTemplate, String> {
    let file = vocabulary(&[], &[("<s>", 3)], |w| {
        w.strings::<&str>("tokenizer.ggml.merges", &[]);
        w.u32("tokenizer.ggml.bos_token_id", 256);
        w.str("tokenizer.chat_template", source);
    });
    let template = ChatTemplate::from_metadata(file.metadata(), &tokenizer(&file));
    template.map(|template| template.expect("there is one")).map_err(|error| error.to_string())
}

#[test]
fn templates_have_what_real_ones_use() {
    let source = "{{ bos_token }}{% for m in messages %}\n  {%- if m.role == 'system' %}\n{{ raise_exception('no ' ~ m.role) }}\n  \
        {% else %}\n[{{ m['role'].upper() }}] {{ m.content | trim }}{{ m | tojson }}\n  {% endif %}\n{% endfor %}";
    let template = template(source).unwrap();
    let text = template.render(&[message("user", " hi ")], false).unwrap();
    assert_eq!(text, "<s>[USER] hi{\"role\": \"user\", \"content\": \" hi \"}\n");
    let error = template.render(&[message("system", "x")], false).unwrap_err().to_string();
    assert!(
        error.starts_with("the chat template cannot be applied: ") && error.contains("no system"),
        "{error}"
    );
}

#[test]
fn templates_that_do_not_parse_or_end_are_refused() {
    let error = template("{% for %}").err().unwrap();
    let start = "vocabulary.gguf: metadata key `tokenizer.chat_template`: does not parse: ";
    assert!(error.starts_with(start), "{error}");

    let nested = "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(9999) %}{% endfor %}{% endfor %}{% endfor %}";
    let recursive = "{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}";
    for endless in [nested, recursive] {
        let error = template(endless).unwrap().render(&[], true).unwrap_err().to_string();
        assert!(error.starts_with("the chat template cannot be applied: "), "{error}");
    }
    let error = template(nested).unwrap().render(&[], true).unwrap_err().to_string();
    assert!(error.ends_with("it has not ended after 20000 steps or 1280000 bytes"), "{error}");
}
