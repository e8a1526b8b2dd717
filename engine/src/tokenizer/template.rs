//! Chat templates: how a conversation is written as one text.

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, ErrorKind, Value, context};

use super::{Tokenizer, TokenizerError};
use crate::format::FormatError;
use crate::format::gguf::Metadata;

const KEY: &str = "tokenizer.chat_template";
const NAME: &str = "chat_template";

/// Steps a template may take. Real ones take some tens a message.
const FUEL: u64 = 2_000_000;

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Who says it: `system`, `user` or `assistant`.
    pub role: String,
    /// What is said.
    pub content: String,
}

/// A model's chat template, in Jinja.
pub struct ChatTemplate {
    environment: Environment<'static>,
    bos: String,
    eos: String,
}

impl ChatTemplate {
    /// The template in the metadata; `None` if it has none.
    ///
    /// # Errors
    /// [`FormatError::Metadata`] if it is no text or does not parse.
    pub fn from_metadata(
        metadata: &Metadata,
        tokenizer: &Tokenizer,
    ) -> Result<Option<ChatTemplate>, FormatError> {
        let Some(source) = metadata.str(KEY)? else { return Ok(None) };
        let mut environment = Environment::new();
        environment.set_fuel(Some(FUEL));
        // As the templates' authors render them (transformers: `trim_blocks`, `lstrip_blocks`, Python's methods).
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.expect("the usual delimiters are valid"));
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<String, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        environment
            .add_template_owned(NAME, source.to_string())
            .map_err(|error| metadata.error(KEY, format!("does not parse: {error}")))?;
        let token = |key| -> Result<String, FormatError> {
            let bytes = metadata.u32(key)?.and_then(|id| tokenizer.bytes(id).ok());
            Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default())
        };
        let (bos, eos) = (token("tokenizer.ggml.bos_token_id")?, token("tokenizer.ggml.eos_token_id")?);
        Ok(Some(ChatTemplate { environment, bos, eos }))
    }

    /// Writes a conversation as text; with `reply`, up to where the assistant's next message begins.
    ///
    /// # Errors
    /// [`TokenizerError::Template`] if the template refuses the messages, fails, or takes more than two million steps.
    pub fn render(&self, messages: &[Message], reply: bool) -> Result<String, TokenizerError> {
        let message =
            |m: &Message| Value::from_pairs([("role", m.role.as_str()), ("content", m.content.as_str())]);
        let conversation: Value = messages.iter().map(message).collect();
        let render = || {
            self.environment.get_template(NAME)?.render(context! {
                messages => conversation.clone(),
                add_generation_prompt => reply,
                bos_token => self.bos.as_str(),
                eos_token => self.eos.as_str(),
            })
        };
        render().map_err(|error| {
            let reason = match error.kind() {
                ErrorKind::OutOfFuel => format!("it has not ended after {FUEL} steps"),
                _ => error.to_string(),
            };
            TokenizerError::Template { reason }
        })
    }
}
