//! Cutting text into pieces that are encoded each for itself.
//!
//! The rules are those of llama.cpp's `llm_tokenizer_bpe` (and of the `tokenizer.json` files they stand for). They are
//! written there with the look-ahead `\s+(?!\S)`: white space before a word leaves its last character to the word. Here
//! that is a step after a plain match, so that matching is linear in the text whatever it holds.

use std::sync::LazyLock;

use regex::Regex;

use crate::format::FormatError;
use crate::format::gguf::Metadata;

/// A rule for cutting text into pieces, by `tokenizer.ggml.pre`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PreTokenizer {
    /// Words with the space before them; numbers; other characters (GPT-2).
    Gpt2,
    /// As GPT-2, but each digit for itself (SmolLM and others).
    SmolLm,
    /// Contractions in any case, at most three digits, line breaks kept with punctuation before them (Llama 3).
    LlamaBpe,
    /// As Llama 3, but each digit for itself (Qwen 2).
    Qwen2,
    /// What llama.cpp does when a file names no rule.
    Default,
}

/// GPT-2's, but for the last alternative, `\s+(?!\S)`.
const GPT2_WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+";
const LLAMA3: &str = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";
const QWEN2: &str = r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+";

/// One pass over a text: each match is a piece, and so is what lies between matches.
struct Pass {
    regex: LazyLock<Regex>,
    /// Whether a match of white space gives back its last character: never, always, or unless that ends a line.
    spaces: Spaces,
}

#[derive(Clone, Copy, PartialEq)]
enum Spaces {
    Keep,
    GiveBack,
    GiveBackUnlessLine,
}

macro_rules! pass {
    ($name:ident, $spaces:ident, $pattern:expr) => {
        static $name: Pass = Pass {
            regex: LazyLock::new(|| Regex::new($pattern).expect("the pattern is right")),
            spaces: Spaces::$spaces,
        };
    };
}
pass!(WORDS, GiveBack, GPT2_WORDS);
pass!(LLAMA_WORDS, GiveBackUnlessLine, LLAMA3);
pass!(QWEN_WORDS, GiveBackUnlessLine, QWEN2);
pass!(DIGIT, Keep, r"\p{N}");
pass!(PUNCTUATION, Keep, r"[\p{P}$+<=>^~|]+");
pass!(NUMBERS, Keep, r"\p{N}+");
pass!(THREE_DIGITS, Keep, r"[0-9][0-9][0-9]");

impl PreTokenizer {
    pub(super) fn from_metadata(metadata: &Metadata) -> Result<PreTokenizer, FormatError> {
        const KEY: &str = "tokenizer.ggml.pre";
        Ok(match metadata.str(KEY)? {
            None | Some("default") => PreTokenizer::Default,
            Some("gpt-2") => PreTokenizer::Gpt2,
            Some("smollm") => PreTokenizer::SmolLm,
            Some("llama-bpe" | "llama3" | "llama-v3") => PreTokenizer::LlamaBpe,
            Some("qwen2") => PreTokenizer::Qwen2,
            Some(other) => {
                let reason = format!("is {other:?}; supported are smollm, llama-bpe, qwen2, gpt-2, default");
                return Err(metadata.error(KEY, reason));
            }
        })
    }

    /// Whether a piece that is a token is that token, even where merging would not lead to it.
    pub(super) fn ignores_merges(self) -> bool {
        self == PreTokenizer::LlamaBpe
    }

    /// Whether texts begin with the model's first token when the file does not say.
    pub(super) fn adds_bos(self) -> bool {
        self == PreTokenizer::LlamaBpe
    }

    fn passes(self) -> &'static [&'static Pass] {
        static GPT2: [&Pass; 1] = [&WORDS];
        static SMOLLM: [&Pass; 2] = [&DIGIT, &WORDS];
        static LLAMA_BPE: [&Pass; 1] = [&LLAMA_WORDS];
        static QWEN2: [&Pass; 1] = [&QWEN_WORDS];
        static DEFAULT: [&Pass; 4] = [&PUNCTUATION, &WORDS, &NUMBERS, &THREE_DIGITS];
        match self {
            PreTokenizer::Gpt2 => &GPT2,
            PreTokenizer::SmolLm => &SMOLLM,
            PreTokenizer::LlamaBpe => &LLAMA_BPE,
            PreTokenizer::Qwen2 => &QWEN2,
            PreTokenizer::Default => &DEFAULT,
        }
    }

    /// Calls `piece` with each piece of `text` in order. Together the pieces are the text; none is empty.
    pub fn split<'a>(self, text: &'a str, mut piece: impl FnMut(&'a str)) {
        apply(self.passes(), text, &mut piece);
    }
}

fn apply<'a>(passes: &[&Pass], text: &'a str, piece: &mut dyn FnMut(&'a str)) {
    let Some((pass, rest)) = passes.split_first() else {
        if !text.is_empty() {
            piece(text);
        }
        return;
    };
    let mut done = 0;
    while let Some(found) = pass.regex.find_at(text, done) {
        let matched = give_back(found.as_str(), found.end() == text.len(), pass.spaces);
        apply(rest, &text[done..found.start()], piece);
        apply(rest, matched, piece);
        done = found.start() + matched.len();
    }
    apply(rest, &text[done..], piece);
}

/// The match, without its last character if it is white space in front of something else.
fn give_back(found: &str, at_end: bool, spaces: Spaces) -> &str {
    let mut chars = found.chars();
    let last = chars.next_back().expect("no pattern matches nothing");
    // White space is matched only by alternatives for it, so one end tells for the whole match.
    let keep = spaces == Spaces::Keep
        || at_end
        || !last.is_whitespace()
        || !found.starts_with(char::is_whitespace)
        || !found.trim_start().is_empty()
        || (spaces == Spaces::GiveBackUnlessLine && matches!(last, '\r' | '\n'));
    let shorter = chars.as_str();
    if keep || shorter.is_empty() { found } else { shorter }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(pre: PreTokenizer, text: &str) -> Vec<&str> {
        let mut pieces = Vec::new();
        pre.split(text, |piece| pieces.push(piece));
        assert_eq!(pieces.concat(), text);
        pieces
    }

    #[test]
    fn gpt2_words_take_the_space_before_them() {
        let found = pieces(PreTokenizer::Gpt2, "Hello  world's 123abc!?\n\n x \t");
        assert_eq!(found, ["Hello", " ", " world", "'s", " 123", "abc", "!?", "\n\n", " x", " \t"]);
        assert_eq!(pieces(PreTokenizer::Gpt2, "a\n\nb"), ["a", "\n", "\n", "b"]);
        assert_eq!(pieces(PreTokenizer::Gpt2, ""), Vec::<&str>::new());
    }

    #[test]
    fn smollm_digits_stand_alone() {
        assert_eq!(
            pieces(PreTokenizer::SmolLm, "in 2024, x²"),
            ["in", " ", "2", "0", "2", "4", ",", " x", "²"]
        );
    }

    #[test]
    fn llama_keeps_line_breaks_together() {
        let found = pieces(PreTokenizer::LlamaBpe, "I'M 12345\n\n  (x)\r\n  y   z  ");
        assert_eq!(
            found,
            ["I", "'M", " ", "123", "45", "\n\n", " ", " (", "x", ")\r\n", " ", " y", "  ", " z", "  "]
        );
        assert_eq!(pieces(PreTokenizer::LlamaBpe, " \n \n  a"), [" \n \n", " ", " a"]);
        assert_eq!(pieces(PreTokenizer::Qwen2, "12 a"), ["1", "2", " a"]);
    }

    #[test]
    fn default_cuts_punctuation_and_threes() {
        let found = pieces(PreTokenizer::Default, "a-b 12345 ==> ok");
        assert_eq!(found, ["a", "-", "b", " ", "123", "45", " ", "==>", " ok"]);
    }

    /// Where the look-ahead of the original pattern would backtrack over everything.
    #[test]
    fn a_million_spaces_take_no_time() {
        let text = format!("{}x", " ".repeat(1 << 20));
        assert_eq!(pieces(PreTokenizer::Gpt2, &text).len(), 2);
        assert_eq!(pieces(PreTokenizer::LlamaBpe, &text).len(), 2);
    }
}
