//! Output of any length in bounded memory: its beginning and its end, and how much between them is left out.
//!
//! Invariant: what is kept is at most the bound; the middle is cut at line ends where there are some.

use std::collections::VecDeque;

/// Collects output.
pub(super) struct Clip {
    /// The first bytes, half of the bound.
    head: Vec<u8>,
    /// The last bytes, the other half.
    tail: VecDeque<u8>,
    half: usize,
    total: u64,
}

impl Clip {
    pub(super) fn new(bound: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half: bound / 2, total: 0 }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (to_head, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(to_head);
        self.tail.extend(&rest[rest.len().saturating_sub(self.half)..]);
        let surplus = self.tail.len().saturating_sub(self.half);
        self.tail.drain(..surplus);
    }

    /// Bytes pushed.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Whether something is left out.
    pub(super) fn is_cut(&self) -> bool {
        self.total > (self.head.len() + self.tail.len()) as u64
    }

    /// The text, invalid UTF-8 replaced, with a line in place of what is left out.
    pub(super) fn text(&self) -> String {
        let tail: Vec<u8> = self.tail.iter().copied().collect();
        if !self.is_cut() {
            return String::from_utf8_lossy(&[&self.head[..], &tail].concat()).into_owned();
        }
        let head_end = self.head.iter().rposition(|byte| *byte == b'\n').map_or(self.head.len(), |at| at + 1);
        let tail_start = tail.iter().position(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let (head, tail) = (&self.head[..head_end], &tail[tail_start..]);
        let left_out = self.total - (head.len() + tail.len()) as u64;
        format!(
            "{}\n[... {left_out} of {} bytes are left out here; write the output to a file to see all of it ...]\n{}",
            String::from_utf8_lossy(head).trim_end_matches('\n'),
            self.total,
            String::from_utf8_lossy(tail)
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_middle_is_left_out_at_line_ends() {
        let mut clip = Clip::new(20);
        clip.push(b"one\ntwo\nthree\nfour\nfive\nsix\nseven\n");
        let text = clip.text();
        assert!(text.starts_with("one\ntwo\n[... ") && text.ends_with("...]\nseven\n"), "{text}");
        assert!(text.contains("20 of 34 bytes"), "{text}");
    }

    #[test]
    fn a_long_line_is_cut_anywhere() {
        let mut clip = Clip::new(8);
        clip.push(&[b'a'; 100]);
        let text = clip.text();
        assert!(text.starts_with("aaaa\n[") && text.ends_with("]\naaaa"), "{text}");
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10)) {
            let whole = pieces.concat();
            let (mut by_pieces, mut at_once) = (Clip::new(64), Clip::new(64));
            for piece in &pieces {
                by_pieces.push(piece);
            }
            at_once.push(&whole);
            prop_assert_eq!(by_pieces.text(), at_once.text());
            prop_assert_eq!(by_pieces.is_cut(), whole.len() > 64);
            if whole.len() <= 64 {
                prop_assert_eq!(by_pieces.text(), String::from_utf8_lossy(&whole));
            }
        }
    }
}
