//! Text as tokens arrive, never half a character.

use super::{TokenKind, Tokenizer, TokenizerError};

/// Turns bytes that arrive in pieces into text. A character whose bytes have not all arrived is held back.
#[derive(Debug, Default)]
pub struct Utf8Stream {
    /// The beginning of a character: at most three bytes.
    pending: Vec<u8>,
}

impl Utf8Stream {
    /// Takes bytes and returns the text that is complete with them. Bytes that cannot become a character give U+FFFD.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.pending.extend(bytes);
        let mut text = String::new();
        let mut rest = &self.pending[..];
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text += valid;
                    rest = &[];
                    break;
                }
                Err(error) => {
                    let (valid, bad) = rest.split_at(error.valid_up_to());
                    text += std::str::from_utf8(valid).expect("valid up to here");
                    // No length: the bytes are the beginning of a character.
                    let Some(len) = error.error_len() else {
                        rest = bad;
                        break;
                    };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &bad[len..];
                }
            }
        }
        self.pending = rest.to_vec();
        text
    }

    /// What is left when no more bytes come: U+FFFD for a character cut short, else nothing.
    pub fn finish(&mut self) -> String {
        let cut = !std::mem::take(&mut self.pending).is_empty();
        if cut { char::REPLACEMENT_CHARACTER.into() } else { String::new() }
    }
}

/// The text of generated tokens, one at a time. Control tokens give no text.
pub struct TextStream<'a> {
    tokenizer: &'a Tokenizer,
    utf8: Utf8Stream,
}

impl<'a> TextStream<'a> {
    /// A stream at its beginning.
    pub fn new(tokenizer: &'a Tokenizer) -> TextStream<'a> {
        TextStream { tokenizer, utf8: Utf8Stream::default() }
    }

    /// Takes a token and returns the text that is complete with it.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn push(&mut self, id: u32) -> Result<String, TokenizerError> {
        if self.tokenizer.kind(id)? == TokenKind::Control {
            // No character spans a control token.
            return Ok(self.utf8.finish());
        }
        Ok(self.utf8.push(self.tokenizer.bytes(id)?))
    }

    /// What is left when no more tokens come.
    pub fn finish(&mut self) -> String {
        self.utf8.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_come_whole_whatever_the_cuts() {
        let text = "aé日😀\u{301}z";
        for size in 1..=text.len() {
            let mut stream = Utf8Stream::default();
            let pieces: Vec<String> = text.as_bytes().chunks(size).map(|chunk| stream.push(chunk)).collect();
            assert_eq!(pieces.concat(), text, "in pieces of {size}");
            assert_eq!(stream.finish(), "");
        }
        let mut stream = Utf8Stream::default();
        let bytes = "😀".as_bytes();
        assert_eq!(
            [&bytes[..1], &bytes[1..2], &bytes[2..3], &bytes[3..]].map(|b| stream.push(b)),
            ["", "", "", "😀"]
        );
    }

    #[test]
    fn what_is_no_character_is_replaced_at_once() {
        let mut stream = Utf8Stream::default();
        assert_eq!(stream.push(b"a\xffb"), "a\u{fffd}b");
        // E2 82 could begin U+20AC; the letter shows that it does not.
        assert_eq!(stream.push(b"\xe2\x82"), "");
        assert_eq!(stream.push(b"x\x80"), "\u{fffd}x\u{fffd}");
        assert_eq!(stream.push(b"\xf0\x9f"), "");
        assert_eq!((stream.finish(), stream.finish()), ("\u{fffd}".to_string(), String::new()));
    }

    /// The same replacements as the standard library's, which follows the Unicode recommendation.
    #[test]
    fn replacements_agree_with_lossy_conversion() {
        let bytes: Vec<u8> = (0..4000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut stream = Utf8Stream::default();
        let text: String =
            bytes.chunks(3).map(|chunk| stream.push(chunk)).collect::<String>() + &stream.finish();
        assert_eq!(text, String::from_utf8_lossy(&bytes));
    }
}
