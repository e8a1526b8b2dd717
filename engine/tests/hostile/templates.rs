//! Chat templates that would take all time or all memory.

use bitwalk::format::gguf::{GgufFile, GgufWriter};
use bitwalk::tokenizer::{ChatTemplate, Message, Tokenizer};

use super::{fixture, turn, within_limits};

/// What becomes of a template on a short conversation: its text, or why there is none. A second and 64 MiB are allowed.
#[track_caller]
fn rendered(source: &str) -> Result<String, String> {
    let fixture = GgufFile::from_bytes("fixture", fixture()).unwrap();
    let mut writer = GgufWriter::new();
    writer.str("tokenizer.ggml.model", "gpt2");
    let tokens = fixture.metadata().require_strings("tokenizer.ggml.tokens").unwrap();
    writer.strings("tokenizer.ggml.tokens", &tokens);
    writer.strings::<&str>("tokenizer.ggml.merges", &[]);
    writer.str("tokenizer.chat_template", source);
    let file = GgufFile::from_bytes("hostile.gguf", writer.finish()).unwrap();
    let tokenizer = Tokenizer::from_metadata(file.metadata()).unwrap();
    let messages = [Message { role: "user".into(), content: "text".into() }];
    let _turn = turn();
    within_limits(0, || {
        let template = ChatTemplate::from_metadata(file.metadata(), &tokenizer);
        let template = template.map_err(|error| error.to_string())?.expect("there is one");
        template.render(&messages, true).map_err(|error| error.to_string())
    })
}

/// A template that must be refused, for this reason.
#[track_caller]
fn refused(source: &str, reason: &str) {
    let error = rendered(source).expect_err(source);
    let start = "the chat template cannot be applied: ";
    assert!(error.starts_with(start) && error.contains(reason), "{source}: {error}");
}

const NO_END: &str = "it has not ended after 22008 steps or 1408512 bytes";

#[test]
fn strings_that_double() {
    const LOOP: &str = "{% set ns = namespace(s='abcdefgh') %}{% for i in range(64) %}";
    for step in [
        "{% set ns.s = ns.s ~ ns.s %}",
        "{% set ns.s = ns.s + ns.s %}",
        "{% set ns.s = ns.s * 2 %}",
        "{% set ns.s = ns.s.replace('a', 'aa') %}",
        "{% set ns.s = ns.s | replace('a', 'aa') %}",
        "{% set ns.s = [ns.s, ns.s] | join %}",
        "{% set ns.s = ''.join([ns.s, ns.s]) %}",
        "{% set ns.s = ns.s.join(['', '', '']) %}",
        "{% set ns.s = '%s%s' | format(ns.s, ns.s) %}",
        "{% set ns.s = '{}{}'.format(ns.s, ns.s) %}",
        "{% set ns.s = ns.s | tojson | tojson | tojson | tojson %}",
        "{% set ns.s = [ns.s, ns.s] | tojson %}",
        "{% set ns.s = [ns.s, ns.s] | string %}",
        "{% set ns.s = [ns.s, ns.s] | pprint %}",
        "{% set ns.s = ns.s.split('') | join(ns.s) %}",
        "{% set s %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = s %}",
    ] {
        refused(&format!("{LOOP}{step}{{% endfor %}}{{{{ ns.s | length }}}}"), NO_END);
    }
    // Without a loop.
    let straight = "{% set s = s ~ s %}".repeat(60);
    refused(&format!("{{% set s = 'abcdefgh' %}}{straight}{{{{ s | length }}}}"), NO_END);
    let recursive = "{% macro f(s) %}{{ f(s ~ s) }}{% endmacro %}{{ f('abcdefgh') }}";
    refused(recursive, NO_END);
}

#[test]
fn much_at_once() {
    const S: &str = "{% set s = 'ab' * 300000 %}";
    for source in [
        "{{ 'a' * 100000000 }}".to_owned(),
        "{% if 'a' * 99999999 %}{% endif %}".to_owned(),
        "{{ [1] * 99999999 }}".to_owned(),
        "{{ '%1000000000d' | format(1) }}".to_owned(),
        "{{ 'a' | indent(1000000000, true) }}".to_owned(),
        "{{ ('ab' * 10000).replace('', 'ab' * 10000) }}".to_owned(),
        "{{ ('ab' * 10000) | replace('', 'ab' * 10000) }}".to_owned(),
        // A thousand references to one string.
        format!("{S}{{{{ ''.join([s] * 10000) }}}}"),
        format!("{S}{{{{ ([s] * 10000) | join }}}}"),
        format!("{S}{{{{ ([s] * 10000) | tojson }}}}"),
        format!("{S}{{{{ ([s] * 10000) | string }}}}"),
        format!("{S}{{{{ [s] * 10000 }}}}"),
    ] {
        refused(&source, NO_END);
    }
    refused("{{ '{:>1000000000}'.format(1) }}", "a field of a format is wider than 999");
    refused("{{ [1] | tojson(indent=1000000000) }}", "tojson indents by more than 999");
    refused("{{ [1] | tojson(1000000000) }}", "tojson indents by more than 999");
    refused("{{ range(1000000000) | list }}", "range has too many elements");
}

#[test]
fn lists_of_lists_of_lists() {
    let nested = |depth: u32, end: &str| {
        format!(
            "{{% set ns = namespace(s=['x']) %}}{{% for i in range({depth}) %}}{{% set ns.s = [ns.s, ns.s] %}}{{% endfor %}}{end}"
        )
    };
    for end in [
        "{{ ns.s }}",
        "{{ ns.s | string }}",
        "{{ ns.s | tojson }}",
        "{{ ns.s | pprint }}",
        "{{ ns.s | join }}",
        "{{ ''.join(ns.s) }}",
        "{{ '%s' | format(ns.s) }}",
        "{{ '{}'.format(ns.s) }}",
        "{{ raise_exception(ns.s) }}",
    ] {
        refused(&nested(40, end), NO_END);
        refused(&nested(64, end), "lists and maps lie deeper in each other than 64");
    }
    let map = "{% set ns = namespace(s={}) %}{% for i in range(40) %}{% set ns.s = {'a': ns.s, 'b': ns.s} %}{% endfor %}{{ ns.s }}";
    refused(map, NO_END);
    assert_eq!(rendered("{{ [1, ['a', {'k': none}]] | tojson }}").unwrap(), r#"[1, ["a", {"k": null}]]"#);
}

/// Steps that are short each, over a long text, many times.
#[test]
fn loops_over_long_text() {
    for condition in [
        "s.count('c')",
        "s.isupper()",
        "s.strip()",
        "s is upper",
        "s is lower",
        "s | trim",
        "s | length == 3",
        "'c' in s",
        "s == t",
        "s[99999] == 'c'",
        "s.startswith(['c'] * 10000)",
    ] {
        let texts = "{% set s = ' ' * 200000 %}{% set t = ' ' * 200000 %}";
        let source = format!(
            "{texts}{{% for a in range(9999) %}}{{% for b in range(9999) %}}{{% if {condition} %}}{{% endif %}}{{% endfor %}}{{% endfor %}}"
        );
        refused(&source, NO_END);
    }
}

#[test]
fn loops_without_end() {
    let nested = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
    refused(nested, NO_END);
    refused("{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}", "recursion limit exceeded");
    let loops = "{% for a in [[1]] recursive %}{{ loop([a, a]) }}{{ loop([a, a]) }}{% endfor %}";
    assert!(rendered(loops).is_err());
}
