//! Splits PTX text into tokens.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// An identifier, opcode with modifiers, register, special register or directive.
    Word(&'a str),
    /// A number as written: integer, `0f…`, `0d…` or decimal float.
    Number(&'a str),
    /// A string, without its quotes.
    Text(&'a str),
    /// A single character of punctuation.
    Punct(u8),
}

/// Splits `text`; each token comes with its 1-based line.
///
/// # Errors
/// The line and description of a character that starts no token, or of an unterminated comment or string.
pub(crate) fn lex(text: &str) -> Result<Vec<(Token<'_>, u32)>, (u32, String)> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::with_capacity(text.len() / 4);
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'\n' => {
                line += 1;
                at += 1;
            }
            b' ' | b'\t' | b'\r' => at += 1,
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    at += 1;
                }
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let end = text[at + 2..].find("*/").ok_or((line, "comment without an end".to_string()))?;
                line += text[at..at + 2 + end].matches('\n').count() as u32;
                at += end + 4;
            }
            b'"' => {
                let end = text[at + 1..].find('"').ok_or((line, "string without an end".to_string()))?;
                tokens.push((Token::Text(&text[at + 1..at + 1 + end]), line));
                line += text[at..at + 1 + end].matches('\n').count() as u32;
                at += end + 2;
            }
            b'0'..=b'9' => {
                at = number_end(bytes, at);
                tokens.push((Token::Number(&text[start..at]), line));
            }
            c if word_byte(c) || c == b'.' => {
                at = word_end(bytes, at);
                tokens.push((Token::Word(&text[start..at]), line));
            }
            c if c.is_ascii_punctuation() => {
                tokens.push((Token::Punct(c), line));
                at += 1;
            }
            _ => {
                let c = text[at..].chars().next().unwrap_or('?');
                return Err((line, format!("unexpected character {c:?}")));
            }
        }
    }
    Ok(tokens)
}

fn word_byte(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$' | b'%')
}

/// A word goes on over dots, and over the double colons of opcodes such as `ld.global.L2::128B`.
fn word_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    loop {
        let follows = |n: usize| bytes.get(at + n).is_some_and(|&c| word_byte(c));
        match bytes.get(at) {
            Some(&c) if word_byte(c) => at += 1,
            Some(b'.') if follows(1) => at += 1,
            Some(b':') if bytes.get(at + 1) == Some(&b':') && follows(2) => at += 2,
            _ => return at,
        }
    }
}

fn number_end(bytes: &[u8], start: usize) -> usize {
    let radix_prefix = bytes[start] == b'0'
        && matches!(bytes.get(start + 1), Some(b'x' | b'X' | b'f' | b'F' | b'd' | b'D' | b'b' | b'B'));
    let mut at = start + 1;
    while let Some(&c) = bytes.get(at) {
        let exponent_sign = !radix_prefix && matches!(c, b'+' | b'-') && matches!(bytes[at - 1], b'e' | b'E');
        if !(c.is_ascii_alphanumeric() || c == b'.' || exponent_sign) {
            break;
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_numbers_and_lines() {
        let tokens =
            lex("a.b::c.v2 %tid.x, [%rd1+-8];\n$L_1: // note\n/* x\n */ 0f3F800000 1.5e-3 \"s\" .reg")
                .unwrap();
        let expected = [
            (Token::Word("a.b::c.v2"), 1),
            (Token::Word("%tid.x"), 1),
            (Token::Punct(b','), 1),
            (Token::Punct(b'['), 1),
            (Token::Word("%rd1"), 1),
            (Token::Punct(b'+'), 1),
            (Token::Punct(b'-'), 1),
            (Token::Number("8"), 1),
            (Token::Punct(b']'), 1),
            (Token::Punct(b';'), 1),
            (Token::Word("$L_1"), 2),
            (Token::Punct(b':'), 2),
            (Token::Number("0f3F800000"), 4),
            (Token::Number("1.5e-3"), 4),
            (Token::Text("s"), 4),
            (Token::Word(".reg"), 4),
        ];
        assert_eq!(tokens, expected);
    }

    #[test]
    fn bad_text_is_an_error_with_its_line() {
        assert_eq!(lex("\n\u{e9}").unwrap_err().0, 2);
        assert_eq!(lex("\n\n/* x").unwrap_err().0, 3);
        assert_eq!(lex("\"x").unwrap_err().0, 1);
    }
}
