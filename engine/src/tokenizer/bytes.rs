//! How byte-level byte-pair encoding writes bytes as characters.
//!
//! Printable characters of Latin-1 stand for themselves. The 68 others (controls, space, delete, no-break space, soft
//! hyphen) are moved, in order, to U+0100 and on, so that every byte has a visible symbol. The table is that of GPT-2's
//! `bytes_to_unicode`.

const fn is_printable(byte: u8) -> bool {
    matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff)
}

const SYMBOLS: [char; 256] = {
    let mut table = ['\0'; 256];
    let (mut byte, mut moved) = (0, 0x100);
    while byte < 256 {
        table[byte] = if is_printable(byte as u8) {
            byte as u8 as char
        } else {
            moved += 1;
            char::from_u32(moved - 1).expect("no surrogate below U+0200")
        };
        byte += 1;
    }
    table
};

/// Bytes by symbol, for symbols below U+0144; −1 for characters that are no symbol.
const BYTES: [i16; 0x144] = {
    let mut table = [-1; 0x144];
    let mut byte = 0;
    while byte < 256 {
        table[SYMBOLS[byte] as usize] = byte as i16;
        byte += 1;
    }
    table
};

/// The character that stands for a byte.
pub(super) fn symbol(byte: u8) -> char {
    SYMBOLS[byte as usize]
}

/// The byte that a character stands for, if it stands for one.
pub(super) fn byte(symbol: char) -> Option<u8> {
    BYTES.get(symbol as usize).and_then(|&byte| u8::try_from(byte).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_symbols() {
        for (byte_, symbol_) in [(b'a', 'a'), (b' ', 'Ġ'), (b'\n', 'Ċ'), (b'\t', 'ĉ'), (0, 'Ā'), (0x7f, 'ġ')]
        {
            assert_eq!((symbol(byte_), byte(symbol_)), (symbol_, Some(byte_)));
        }
        for (byte_, symbol_) in [(0xa0, 'ł'), (0xad, 'Ń'), (0xe9, 'é'), (0xff, 'ÿ')] {
            assert_eq!((symbol(byte_), byte(symbol_)), (symbol_, Some(byte_)));
        }
    }

    #[test]
    fn every_byte_has_its_own() {
        for b in 0..=255 {
            assert_eq!(byte(symbol(b)), Some(b));
        }
        assert_eq!(byte(' '), None);
        assert_eq!(byte('ń'), None, "one past the last");
        assert_eq!(byte('日'), None);
    }
}
