//! Text to token ids and back, from the vocabulary in GGUF metadata.
//!
//! A text is cut at special tokens, then into *pieces* by the model's pre-tokenizer ([`PreTokenizer`]); the bytes of each
//! piece are written as symbols ([`bytes`]), which byte-pair encoding merges into tokens. Merging is the `tokenizers`
//! crate's; what surrounds it is here, since that crate cannot read GGUF and its regular expressions backtrack.

mod bytes;
mod pre;
mod stream;
mod template;
mod vocabulary;

use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind, StartKind};
use tokenizers::Model;
use tokenizers::models::bpe::BPE;

use crate::format::FormatError;
use crate::format::gguf::Metadata;
use vocabulary::Vocabulary;

pub use pre::PreTokenizer;
pub use stream::{TextStream, Utf8Stream};
pub use template::{ChatTemplate, Message};
pub use vocabulary::TokenKind;

/// What can go wrong when text or ids are converted.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The metadata is missing something, or something in it makes no sense or is not supported.
    #[error(transparent)]
    Metadata(#[from] FormatError),
    /// An id that the vocabulary does not have.
    #[error("token id {id} does not exist: the vocabulary has {vocab} tokens")]
    UnknownId {
        /// The id.
        id: u32,
        /// The number of tokens.
        vocab: usize,
    },
    /// The chat template failed on these messages, or did not end.
    #[error("the chat template cannot be applied: {reason}")]
    Template {
        /// What the template engine said.
        reason: String,
    },
}

/// A model's tokenizer.
pub struct Tokenizer {
    vocabulary: Vocabulary,
    pre: PreTokenizer,
    bpe: BPE,
    /// Finds special tokens in text; pattern `i` is the token `special[i]`. `None` if there are none.
    finder: Option<AhoCorasick>,
    special: Vec<u32>,
    bos: Option<u32>,
}

impl Tokenizer {
    /// Reads the tokenizer from GGUF metadata.
    ///
    /// # Errors
    /// [`FormatError::Metadata`] naming the key that is missing, inconsistent or of a kind that is not supported.
    pub fn from_metadata(metadata: &Metadata) -> Result<Tokenizer, FormatError> {
        let vocabulary = Vocabulary::from_metadata(metadata)?;
        let pre = PreTokenizer::from_metadata(metadata)?;
        let bpe = vocabulary.merges(metadata, pre.ignores_merges())?;
        let special: Vec<u32> = vocabulary.special().collect();
        let finder = if special.is_empty() {
            None
        } else {
            let texts = special.iter().map(|&id| vocabulary.bytes(id).expect("a token of the vocabulary"));
            // Of special tokens that begin at one place the longest is meant.
            let finder = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .start_kind(StartKind::Unanchored)
                .build(texts)
                .map_err(|e| {
                    metadata.error(vocabulary::TOKENS, format!("has special tokens too large: {e}"))
                })?;
            Some(finder)
        };
        let bos = add_bos(metadata, pre, vocabulary.len())?;
        Ok(Tokenizer { vocabulary, pre, bpe, finder, special, bos })
    }

    /// Number of tokens.
    pub fn vocab(&self) -> usize {
        self.vocabulary.len()
    }

    /// Bytes of the longest token: no text of `n` tokens has more than `n` times as many.
    pub fn longest(&self) -> usize {
        self.vocabulary.longest()
    }

    /// The token that the model expects in front of every text, if it expects one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// The ids of a text. Special tokens written out in it, such as `<|im_start|>`, become those tokens.
    /// A character that the vocabulary cannot write becomes U+FFFD.
    ///
    /// Nothing is added in front; see [`encode_prompt`](Self::encode_prompt).
    pub fn encode(&self, text: &str) -> Vec<u32> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut start = 0;
        if let Some(finder) = &self.finder {
            for found in finder.find_iter(Input::new(text).anchored(Anchored::No)) {
                self.encode_plain(&text[start..found.start()], &mut ids);
                ids.push(self.special[found.pattern().as_usize()]);
                start = found.end();
            }
        }
        self.encode_plain(&text[start..], &mut ids);
        ids
    }

    /// The ids of a prompt: [`encode`](Self::encode), with the model's first token in front unless the text has it.
    pub fn encode_prompt(&self, text: &str) -> Vec<u32> {
        let mut ids = self.encode(text);
        if let Some(bos) = self.bos
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        ids
    }

    /// The bytes that a token stands for; of special tokens the text they are written as.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn bytes(&self, id: u32) -> Result<&[u8], TokenizerError> {
        self.vocabulary.bytes(id).ok_or(TokenizerError::UnknownId { id, vocab: self.vocab() })
    }

    /// What sort of token an id is.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn kind(&self, id: u32) -> Result<TokenKind, TokenizerError> {
        self.vocabulary.kind(id).ok_or(TokenizerError::UnknownId { id, vocab: self.vocab() })
    }

    /// The text of some ids, special tokens written out, bytes that are no UTF-8 as U+FFFD.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        let mut stream = Utf8Stream::default();
        let mut text = String::new();
        for &id in ids {
            text += &stream.push(self.bytes(id)?);
        }
        text += &stream.finish();
        Ok(text)
    }

    /// Encodes text in which special tokens have no meaning.
    fn encode_plain(&self, text: &str, ids: &mut Vec<u32>) {
        let text = self.vocabulary.encodable(text);
        let mut symbols = String::new();
        self.pre.split(&text, |piece| {
            for run in self.vocabulary.runs(piece.as_bytes()) {
                match run {
                    Ok(bytes) => {
                        symbols.clear();
                        symbols.extend(bytes.iter().map(|&byte| bytes::symbol(byte)));
                        // Fails only for symbols outside the vocabulary; those were replaced or fall back.
                        let tokens = self.bpe.tokenize(&symbols).expect("all symbols are in the vocabulary");
                        ids.extend(tokens.iter().map(|token| token.id));
                    }
                    Err(fallback) => ids.push(fallback),
                }
            }
        });
    }
}

/// The token in front of every text, if the metadata (or, without a word in it, the pre-tokenizer) asks for one.
fn add_bos(metadata: &Metadata, pre: PreTokenizer, vocab: usize) -> Result<Option<u32>, FormatError> {
    const ADD: &str = "tokenizer.ggml.add_bos_token";
    const BOS: &str = "tokenizer.ggml.bos_token_id";
    if !metadata.bool(ADD)?.unwrap_or(pre.adds_bos()) {
        return Ok(None);
    }
    let id = metadata.u32(BOS)?;
    match id {
        Some(id) if id as usize >= vocab => {
            Err(metadata.error(BOS, format!("is {id}, but there are only {vocab} tokens")))
        }
        None if metadata.bool(ADD)? == Some(true) => {
            Err(metadata.error(BOS, format!("is missing, but `{ADD}` asks for the token")))
        }
        id => Ok(id),
    }
}
