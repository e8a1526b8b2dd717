//! Chat templates: how a conversation is written as one text.
//!
//! A template is a program that comes with a file, so its time and memory are bounded: by the template engine's fuel, which
//! every instruction and every 64 bytes made cost one of, by [`bounds`], and at last by the clock: comparing, adding and
//! concatenating lists that are made of lists of themselves is work that the engine does not count.

mod bounds;

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, ErrorKind, Value, context};

use super::{Tokenizer, TokenizerError};
use crate::format::FormatError;
use crate::format::gguf::Metadata;

const KEY: &str = "tokenizer.chat_template";
const NAME: &str = "chat_template";

/// Fuel that a template may use: so much (1.3 MB of text, and what it takes to make it), …
const FUEL: u64 = 20_000;
/// … as much more for each message (real templates take some tens of steps for one), …
const FUEL_A_MESSAGE: u64 = 2_000;
/// … and one for each byte of the messages, which lets a template copy each of them 64 times.
const FUEL_A_BYTE: u64 = 1;
/// Time after which a template is given up. Real ones take less than a thousandth of it.
const DEADLINE: Duration = Duration::from_secs(5);

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
        // As the templates' authors render them (transformers: `trim_blocks`, `lstrip_blocks`, Python's methods).
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        environment.set_syntax(syntax.expect("the usual delimiters are valid"));
        bounds::set(&mut environment);
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
    /// [`TokenizerError::Template`] if the template refuses the messages, fails, or takes more time or memory than
    /// any real one takes.
    pub fn render(&self, messages: &[Message], reply: bool) -> Result<String, TokenizerError> {
        let message =
            |m: &Message| Value::from_pairs([("role", m.role.as_str()), ("content", m.content.as_str())]);
        let conversation: Value = messages.iter().map(message).collect();
        let bytes: usize = messages.iter().map(|m| m.role.len() + m.content.len()).sum();
        let fuel = FUEL + FUEL_A_MESSAGE * messages.len() as u64 + FUEL_A_BYTE * bytes as u64;
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(fuel));
        let context = context! {
            messages => conversation,
            add_generation_prompt => reply,
            bos_token => self.bos.as_str(),
            eos_token => self.eos.as_str(),
        };
        let refused = |reason: String| TokenizerError::Template { reason };
        let (send, receive) = mpsc::channel();
        // Dropped without being joined: after the deadline it is on its own.
        thread::Builder::new()
            .name("chat template".to_owned())
            .spawn(move || {
                send.send(environment.get_template(NAME).and_then(|template| template.render(context)))
            })
            .map_err(|error| refused(format!("no thread for it: {error}")))?;
        match receive.recv_timeout(DEADLINE) {
            Ok(Ok(text)) => Ok(text),
            Ok(Err(error)) if error.kind() == ErrorKind::OutOfFuel => {
                Err(refused(format!("it has not ended after {fuel} steps or {} bytes", 64 * fuel)))
            }
            Ok(Err(error)) => Err(refused(error.to_string())),
            Err(RecvTimeoutError::Timeout) => Err(refused(format!("it has not ended after {DEADLINE:?}"))),
            Err(RecvTimeoutError::Disconnected) => Err(refused("it broke the template engine".to_owned())),
        }
    }
}
