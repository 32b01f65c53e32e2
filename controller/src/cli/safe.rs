//! Showing somebody else's output on our terminal: colours and cursor movements pass, what could program the terminal or
//! make it answer does not. Pure.

/// Takes strings for the terminal itself (titles, clipboard, device control) and requests for answers out of output. State
/// is kept from piece to piece.
#[derive(Debug, Default)]
pub struct Safe(State);

#[derive(Debug, Default, Clone)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// In a control sequence, what there was of it.
    Sequence(Vec<u8>),
    /// In a string up to its end.
    String,
    /// In a string after ESC.
    StringEscape,
}

/// Longest control sequence that passes.
const MAX_SEQUENCE: usize = 64;

/// Ends of sequences that only change what is shown: cursor, erasing, scrolling, colours.
const SHOWN: &[u8] = b"@ABCDEFGHIJKLMPSTXZ`adefmru";

impl Safe {
    /// What of the bytes is shown.
    pub fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut shown = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            self.0 = match std::mem::take(&mut self.0) {
                State::Text => match byte {
                    0x1b => State::Escape,
                    b'\n' | b'\r' | b'\t' | 0x08 | 0x07 | 0x20..=0x7e | 0x80.. => {
                        shown.push(byte);
                        State::Text
                    }
                    _ => State::Text,
                },
                State::Escape => match byte {
                    b'[' => State::Sequence(Vec::new()),
                    b']' | b'P' | b'X' | b'^' | b'_' => State::String,
                    // Save, restore, index: the rest sets modes.
                    b'7' | b'8' | b'D' | b'E' | b'M' => {
                        shown.extend([0x1b, byte]);
                        State::Text
                    }
                    0x1b | 0x20..=0x2f => State::Escape,
                    _ => State::Text,
                },
                State::Sequence(mut sequence) => match byte {
                    0x20..=0x3f if sequence.len() < MAX_SEQUENCE => {
                        sequence.push(byte);
                        State::Sequence(sequence)
                    }
                    0x40..=0x7e => {
                        let is_plain =
                            sequence.iter().all(|byte| byte.is_ascii_digit() || b";:".contains(byte));
                        if is_plain && SHOWN.contains(&byte) || is_screen(&sequence, byte) {
                            shown.extend_from_slice(b"\x1b[");
                            shown.extend_from_slice(&sequence);
                            shown.push(byte);
                        }
                        State::Text
                    }
                    0x1b => State::Escape,
                    _ => State::Text,
                },
                State::String => match byte {
                    0x07 | 0x18 | 0x1a => State::Text,
                    0x1b => State::StringEscape,
                    _ => State::String,
                },
                State::StringEscape => match byte {
                    b'\\' => State::Text,
                    0x1b => State::StringEscape,
                    _ => State::String,
                },
            };
        }
        shown
    }
}

/// Showing the cursor and switching to the other screen, which full-screen programs need.
fn is_screen(sequence: &[u8], end: u8) -> bool {
    matches!(sequence, b"?25" | b"?47" | b"?1047" | b"?1049" | b"?7") && matches!(end, b'h' | b'l')
}

/// What brings a terminal back from whatever was shown: colours, cursor, the usual screen.
pub const RESTORE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l\x1b[?7h";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_passes_and_what_programs_does_not() {
        for (given, shown) in [
            ("plain é\r\n", "plain é\r\n"),
            ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m"),
            ("\x1b[2J\x1b[H\x1b[?1049h", "\x1b[2J\x1b[H\x1b[?1049h"),
            ("a\x1b]52;c;ZXZpbA==\x07b", "ab"),
            ("a\x1b]0;title\x1b\\b", "ab"),
            ("a\x1bP+q544e\x1b\\b", "ab"),
            ("a\x1b[6nb\x1b[cb\x1b[>q", "abb"),
            ("a\x1b[?2004hb\x1bcb\x1b(0b", "abbb"),
            ("a\0\x05b", "ab"),
        ] {
            let mut whole = Safe::default();
            assert_eq!(String::from_utf8(whole.pass(given.as_bytes())).unwrap(), shown, "{given:?}");
            let mut safe = Safe::default();
            let pieces: Vec<u8> = given.bytes().flat_map(|byte| safe.pass(&[byte])).collect();
            assert_eq!(String::from_utf8(pieces).unwrap(), shown, "{given:?} in pieces");
        }
    }
}
