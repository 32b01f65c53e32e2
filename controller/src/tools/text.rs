//! Bytes of files and commands as text for a model.
//!
//! Invariant: pure; a character is never split, invalid UTF-8 is shown as U+FFFD.

/// Bytes looked at to tell text from anything else.
pub(super) const SAMPLE_BYTES: usize = 8 << 10;

/// Joins pieces of a stream to text, holding a character back until all of it is there.
#[derive(Default)]
pub(super) struct Pieces {
    carry: Vec<u8>,
}

impl Pieces {
    /// The text that is complete with this piece.
    pub(super) fn text(&mut self, bytes: &[u8]) -> String {
        self.carry.extend_from_slice(bytes);
        let end = self.carry.len() - incomplete(&self.carry);
        let text = String::from_utf8_lossy(&self.carry[..end]).into_owned();
        self.carry.drain(..end);
        text
    }
}

/// How many bytes at the end are the beginning of a character.
fn incomplete(bytes: &[u8]) -> usize {
    let start = bytes.len().saturating_sub(3);
    let lead = bytes[start..].iter().rposition(|byte| *byte >= 0xC0);
    lead.map(|at| &bytes[start + at..]).map_or(0, |tail| match std::str::from_utf8(tail) {
        Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => tail.len(),
        _ => 0,
    })
}

/// Whether a file that begins like this is no text.
pub(super) fn is_binary(sample: &[u8]) -> bool {
    let control = |byte: &u8| *byte < b' ' && !matches!(*byte, b'\t' | b'\n' | b'\r' | 0x08 | 0x0C | 0x1B);
    sample.contains(&0) || sample.iter().filter(|byte| control(byte)).count() * 10 > sample.len() * 3
}

/// The MIME type of an image that models take, by its first bytes.
pub(super) fn image_type(sample: &[u8]) -> Option<&'static str> {
    match sample {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1A, b'\n', ..] => Some("image/png"),
        [0xFF, 0xD8, 0xFF, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// At most `bound` characters, with a note when there are more.
pub(super) fn shortened(line: &str, bound: usize) -> String {
    match line.char_indices().nth(bound) {
        None => line.to_owned(),
        Some((end, _)) => {
            let left_out = line[end..].chars().count();
            format!("{}... ({left_out} more characters in this line)", &line[..end])
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn characters_are_never_split(text in "\\PC{0,40}", cuts in prop::collection::vec(0usize..160, 0..6)) {
            let bytes = text.as_bytes();
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut pieces = Pieces::default();
            let joined: String = cuts.windows(2).map(|cut| pieces.text(&bytes[cut[0]..cut[1]])).collect();
            prop_assert_eq!(joined, text);
        }

        #[test]
        fn no_bytes_are_held_back_for_ever(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let mut pieces = Pieces::default();
            pieces.text(&bytes);
            prop_assert!(pieces.carry.len() <= 3);
        }
    }

    #[test]
    fn text_is_told_from_other_things() {
        assert!(
            !is_binary(b"") && !is_binary(b"a\tb\r\n\x1b[1m") && !is_binary("h\u{e9}llo \u{4e16}".as_bytes())
        );
        assert!(!is_binary(b"caf\xe9 latin-1\n"));
        assert!(is_binary(b"\x7fELF\x02\x01\x01\0") && is_binary(b"\x01\x02\x03\x04abc"));
        assert_eq!(image_type(b"\x89PNG\r\n\x1a\n...."), Some("image/png"));
        assert_eq!(image_type(b"RIFF....WAVE"), None);
    }

    #[test]
    fn long_lines_are_shortened() {
        assert_eq!(shortened("\u{e9}\u{e9}", 2), "\u{e9}\u{e9}");
        assert_eq!(shortened("\u{e9}\u{e9}\u{e9}", 2), "\u{e9}\u{e9}... (1 more characters in this line)");
    }
}
