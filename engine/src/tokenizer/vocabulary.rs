//! The tokens: their bytes, their kinds, and the merges between them.

use std::borrow::Cow;
use std::collections::HashSet;

use tokenizers::models::bpe::{BPE, Vocab};

use super::bytes;
use crate::format::FormatError;
use crate::format::gguf::Metadata;

const MODEL: &str = "tokenizer.ggml.model";
pub(super) const TOKENS: &str = "tokenizer.ggml.tokens";
const TYPES: &str = "tokenizer.ggml.token_type";
const MERGES: &str = "tokenizer.ggml.merges";

/// What sort of token it is (llama.cpp's `llama_token_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenKind {
    /// A piece of text.
    Normal,
    /// What stands for text that cannot be encoded.
    Unknown,
    /// Structure rather than text, such as the end of a turn. Not printed.
    Control,
    /// Text that is always one token.
    UserDefined,
    /// A place that no text leads to.
    Unused,
    /// A single byte, written `<0xNN>`.
    Byte,
}

const KINDS: [TokenKind; 6] = [
    TokenKind::Normal,
    TokenKind::Unknown,
    TokenKind::Control,
    TokenKind::UserDefined,
    TokenKind::Unused,
    TokenKind::Byte,
];

/// How a byte is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    /// Its symbol is a token, which merges with others.
    Symbol,
    /// By a token of its own, which does not merge.
    Fallback(u32),
    /// Not at all: the vocabulary was made from text in which the byte does not occur.
    None,
}

pub(super) struct Vocabulary {
    /// The bytes of all tokens, one after another.
    bytes: Vec<u8>,
    /// Where each token begins in `bytes`, and a last entry where the last ends.
    starts: Vec<u32>,
    kinds: Vec<TokenKind>,
    /// How each byte is encoded.
    routes: Box<[Route; 256]>,
}

impl Vocabulary {
    pub(super) fn from_metadata(metadata: &Metadata) -> Result<Vocabulary, FormatError> {
        let model = metadata.require_str(MODEL)?;
        if model != "gpt2" {
            let reason = format!("is {model:?}; supported is gpt2 (byte-level byte-pair encoding)");
            return Err(metadata.error(MODEL, reason));
        }
        let tokens = metadata.require_strings(TOKENS)?;
        let kinds = kinds(metadata, tokens.len())?;

        let mut vocabulary =
            Vocabulary { bytes: Vec::new(), starts: vec![0], kinds, routes: Box::new([Route::None; 256]) };
        for (id, token) in tokens.iter().enumerate() {
            if token.is_empty() {
                return Err(metadata.error(TOKENS, format!("entry {id} is empty")));
            }
            vocabulary.push(id, token);
            if vocabulary.bytes.len() > u32::MAX as usize {
                return Err(metadata.error(TOKENS, "holds more than 4 GiB of text"));
            }
            vocabulary.starts.push(vocabulary.bytes.len() as u32);
        }
        vocabulary.find_routes(metadata, &tokens)?;
        Ok(vocabulary)
    }

    /// Appends a token's bytes.
    fn push(&mut self, id: usize, token: &str) {
        match self.kinds[id] {
            TokenKind::Normal | TokenKind::Unused => {
                // A character that is no symbol cannot come from text; shown as it is.
                let mut utf8 = [0; 4];
                for c in token.chars() {
                    match bytes::byte(c) {
                        Some(byte) => self.bytes.push(byte),
                        None => self.bytes.extend(c.encode_utf8(&mut utf8).as_bytes()),
                    }
                }
            }
            TokenKind::Byte => match byte_token(token) {
                Some(byte) => self.bytes.push(byte),
                None => self.bytes.extend(token.as_bytes()),
            },
            TokenKind::Unknown | TokenKind::Control | TokenKind::UserDefined => {
                self.bytes.extend(token.as_bytes());
            }
        }
    }

    /// Finds how bytes are encoded. U+FFFD must be encodable, since it stands for what is not.
    fn find_routes(&mut self, metadata: &Metadata, tokens: &[&str]) -> Result<(), FormatError> {
        for (id, token) in tokens.iter().enumerate() {
            let mut chars = token.chars();
            if self.kinds[id] == TokenKind::Byte {
                if let Some(byte) = byte_token(token)
                    && self.routes[byte as usize] == Route::None
                {
                    self.routes[byte as usize] = Route::Fallback(id as u32);
                }
            } else if let (Some(symbol), None) = (chars.next(), chars.next())
                && let Some(byte) = bytes::byte(symbol)
            {
                self.routes[byte as usize] = Route::Symbol;
            }
        }
        let replacement = char::REPLACEMENT_CHARACTER.to_string();
        match replacement.bytes().find(|&byte| self.routes[byte as usize] == Route::None) {
            None => Ok(()),
            Some(byte) => {
                let symbol = bytes::symbol(byte);
                let reason =
                    format!("has neither `{symbol}` nor `<0x{byte:02X}>`: not even U+FFFD can be encoded");
                Err(metadata.error(TOKENS, reason))
            }
        }
    }

    /// The merges, as the `tokenizers` crate's model.
    pub(super) fn merges(&self, metadata: &Metadata, ignore_merges: bool) -> Result<BPE, FormatError> {
        let tokens = metadata.require_strings(TOKENS)?;
        let known: HashSet<&str> = tokens.iter().copied().collect();
        let lines = metadata.require_strings(MERGES)?;
        let mut merges = Vec::with_capacity(lines.len());
        for (i, line) in lines.iter().enumerate() {
            let error = |reason| metadata.error(MERGES, format!("entry {i}, {line:?}, {reason}"));
            // Symbols are never spaces, so the one space parts the two sides.
            let (left, right) =
                line.split_once(' ').ok_or_else(|| error("is not two tokens with a space between"))?;
            let merged = format!("{left}{right}");
            if ![left, right, &merged].iter().all(|token| known.contains(token)) {
                return Err(error("joins or makes what is no token"));
            }
            merges.push((left.to_string(), right.to_string()));
        }
        // Of equal tokens the first counts: later ones go in before it.
        let vocab = tokens.iter().enumerate().rev().map(|(id, token)| (token.to_string(), id as u32));
        BPE::builder()
            .vocab_and_merges(vocab.collect::<Vocab>(), merges)
            .ignore_merges(ignore_merges)
            .build()
            .map_err(|e| metadata.error(MERGES, format!("cannot be used: {e}")))
    }

    pub(super) fn len(&self) -> usize {
        self.kinds.len()
    }

    pub(super) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    pub(super) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let end = *self.starts.get(id as usize + 1)?;
        Some(&self.bytes[self.starts[id as usize] as usize..end as usize])
    }

    /// Bytes of the longest token.
    pub(super) fn longest(&self) -> usize {
        self.starts.windows(2).map(|pair| (pair[1] - pair[0]) as usize).max().unwrap_or(0)
    }

    /// The tokens that are found in text as they are written.
    pub(super) fn special(&self) -> impl Iterator<Item = u32> {
        let kinds = (0..).zip(&self.kinds);
        let special = [TokenKind::Control, TokenKind::UserDefined, TokenKind::Unknown];
        kinds.filter(move |(_, kind)| special.contains(kind)).map(|(id, _)| id)
    }

    /// The text with U+FFFD for every character that has a byte which cannot be encoded.
    ///
    /// (llama.cpp and transformers leave such bytes out, and with them the sense of what remains of the character.)
    pub(super) fn encodable<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let lost = |byte: u8| self.routes[byte as usize] == Route::None;
        if !text.bytes().any(lost) {
            return text.into();
        }
        let mut utf8 = [0; 4];
        let mut replace = |c: char| {
            if c.encode_utf8(&mut utf8).bytes().any(lost) { char::REPLACEMENT_CHARACTER } else { c }
        };
        text.chars().map(&mut replace).collect()
    }

    /// Cuts bytes into runs that have symbols (`Ok`) and tokens of single bytes that have none (`Err`).
    pub(super) fn runs<'a>(&'a self, bytes: &'a [u8]) -> impl Iterator<Item = Result<&'a [u8], u32>> {
        let fallback =
            |byte: u8| if let Route::Fallback(id) = self.routes[byte as usize] { Some(id) } else { None };
        let merges = move |a: &u8, b: &u8| fallback(*a).is_none() && fallback(*b).is_none();
        bytes.chunk_by(merges).map(move |run| match fallback(run[0]) {
            Some(id) => Err(id),
            None => Ok(run),
        })
    }
}

/// The byte of a token written `<0xNN>`.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    if digits.len() != 2 {
        return None;
    }
    u8::from_str_radix(digits, 16).ok()
}

fn kinds(metadata: &Metadata, count: usize) -> Result<Vec<TokenKind>, FormatError> {
    let Some(types) = metadata.integers(TYPES)? else { return Ok(vec![TokenKind::Normal; count]) };
    if types.len() != count {
        let reason = format!("has {} entries, but `{TOKENS}` has {count}", types.len());
        return Err(metadata.error(TYPES, reason));
    }
    let kind = |(id, number): (usize, i64)| {
        // Numbered from 1.
        let kind = usize::try_from(number - 1).ok().and_then(|i| KINDS.get(i).copied());
        kind.ok_or_else(|| {
            metadata.error(TYPES, format!("entry {id} is {number}; kinds are numbered from 1 to 6"))
        })
    };
    types.into_iter().enumerate().map(kind).collect()
}
