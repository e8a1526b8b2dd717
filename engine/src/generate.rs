//! From text to text: how a prompt is written for a model, and what ends its reply.

use crate::format::FormatError;
use crate::format::gguf::Metadata;
use crate::tokenizer::{ChatTemplate, Message, TokenKind, Tokenizer, TokenizerError};

/// Control tokens that end a turn in the models that have them, whatever the metadata calls the end of text.
const TURN_ENDS: [&str; 6] =
    ["<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "<|end_of_text|>"];

/// What a model's file says about text.
pub struct TextModel {
    /// Text to ids and back.
    pub tokenizer: Tokenizer,
    /// How a conversation is written; an instruct model has one.
    pub template: Option<ChatTemplate>,
    /// The tokens that end a reply.
    pub stop: Vec<u32>,
}

impl TextModel {
    /// Reads tokenizer, template and end tokens from GGUF metadata.
    ///
    /// # Errors
    /// [`FormatError::Metadata`] naming the key at fault.
    pub fn from_metadata(metadata: &Metadata) -> Result<TextModel, FormatError> {
        let tokenizer = Tokenizer::from_metadata(metadata)?;
        let template = ChatTemplate::from_metadata(metadata, &tokenizer)?;
        let stop = end_tokens(metadata, &tokenizer)?;
        Ok(TextModel { tokenizer, template, stop })
    }

    /// The ids of a conversation up to where the reply begins.
    ///
    /// # Errors
    /// A template that fails; a model without one.
    pub fn conversation(&self, messages: &[Message]) -> Result<Vec<u32>, TokenizerError> {
        let Some(template) = &self.template else {
            let reason = "the model's file has none: it is no instruct model".to_owned();
            return Err(TokenizerError::Template { reason });
        };
        Ok(self.tokenizer.encode_prompt(&template.render(messages, true)?))
    }

    /// The ids of a prompt: written as a user's message where the model has a template, unless `raw`.
    ///
    /// # Errors
    /// A template that fails.
    pub fn prompt(&self, text: &str, raw: bool) -> Result<Vec<u32>, TokenizerError> {
        if raw || self.template.is_none() {
            return Ok(self.tokenizer.encode_prompt(text));
        }
        self.conversation(&[Message { role: "user".to_owned(), content: text.to_owned() }])
    }
}

fn end_tokens(metadata: &Metadata, tokenizer: &Tokenizer) -> Result<Vec<u32>, FormatError> {
    let mut stop = Vec::new();
    for key in ["eos", "eot", "eom"] {
        stop.extend(metadata.u32(&format!("tokenizer.ggml.{key}_token_id"))?);
    }
    for id in 0..tokenizer.vocab() as u32 {
        let control = tokenizer.kind(id).is_ok_and(|kind| kind == TokenKind::Control);
        if control && tokenizer.bytes(id).is_ok_and(|name| TURN_ENDS.iter().any(|end| end.as_bytes() == name))
        {
            stop.push(id);
        }
    }
    stop.sort_unstable();
    stop.dedup();
    Ok(stop)
}
