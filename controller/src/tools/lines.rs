//! Some lines out of a text that comes in pieces.
//!
//! Invariant: pure; what is kept is bounded in lines, in characters a line and in bytes, whatever the text is. Lines are
//! counted as editors count them: a line feed ends one.

use memchr::memchr;

use super::text::shortened;
use crate::limits::{MAX_LINE_CHARS, MAX_TOOL_OUTPUT_BYTES};

/// Bytes of one line that are kept: enough for [`MAX_LINE_CHARS`] of any kind, and to see that there are more.
const KEPT_LINE_BYTES: usize = (MAX_LINE_CHARS + 1) * 4;

/// Whether more of the text is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    Yes,
    No,
}

/// The lines from `first` on, `count` at most.
pub(super) struct Lines {
    first: u64,
    count: u64,
    taken: Vec<String>,
    taken_bytes: usize,
    /// Lines that have ended.
    seen: u64,
    current: Vec<u8>,
    /// Whether the current line has begun.
    open: bool,
    /// A line was left out because of a bound.
    full: bool,
    ended: bool,
    crlf: bool,
    not_utf8: bool,
    unfinished: bool,
}

impl Lines {
    pub(super) fn new(first: u64, count: u64) -> Self {
        Self {
            first,
            count,
            taken: Vec::new(),
            taken_bytes: 0,
            seen: 0,
            current: Vec::new(),
            open: false,
            full: false,
            ended: false,
            crlf: false,
            not_utf8: false,
            unfinished: false,
        }
    }

    /// The next piece of the text.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Stopped {
        while !bytes.is_empty() {
            let end = memchr(b'\n', bytes);
            self.part(&bytes[..end.unwrap_or(bytes.len())]);
            match end {
                Some(end) => {
                    self.finish_line();
                    bytes = &bytes[end + 1..];
                }
                None => break,
            }
        }
        if self.full { Stopped::Yes } else { Stopped::No }
    }

    /// There is no more text.
    pub(super) fn end(&mut self) {
        if self.open {
            self.unfinished = true;
            self.finish_line();
        }
        self.ended = true;
    }

    fn part(&mut self, part: &[u8]) {
        self.open = true;
        if self.wants_current() {
            let room = KEPT_LINE_BYTES.saturating_sub(self.current.len());
            self.current.extend_from_slice(&part[..part.len().min(room)]);
        }
    }

    /// Whether the current line is one of those asked for; notes that one is left out.
    fn wants_current(&mut self) -> bool {
        let number = self.seen + 1;
        let wanted = number >= self.first && !self.full;
        if wanted && self.taken.len() as u64 >= self.count {
            self.full = true;
        }
        wanted && !self.full
    }

    fn finish_line(&mut self) {
        if self.wants_current() {
            let mut line = std::mem::take(&mut self.current);
            if line.last() == Some(&b'\r') {
                line.pop();
                self.crlf = true;
            }
            if self.seen == 0 && line.starts_with(b"\xEF\xBB\xBF") {
                line.drain(..3);
            }
            // A line that was cut may end in the middle of a character.
            let was_cut = line.len() >= KEPT_LINE_BYTES;
            let bad = |error: std::str::Utf8Error| error.error_len().is_some() || !was_cut;
            self.not_utf8 |= std::str::from_utf8(&line).is_err_and(bad);
            let line = shortened(&String::from_utf8_lossy(&line), MAX_LINE_CHARS);
            if self.taken_bytes + line.len() > MAX_TOOL_OUTPUT_BYTES && !self.taken.is_empty() {
                self.full = true;
            } else {
                self.taken_bytes += line.len() + 1;
                self.taken.push(line);
            }
        }
        self.current.clear();
        self.seen += 1;
        self.open = false;
    }

    /// How many lines are kept.
    pub(super) fn taken(&self) -> u64 {
        self.taken.len() as u64
    }

    /// Whether the kept lines are the whole text.
    pub(super) fn is_whole(&self) -> bool {
        self.ended && self.seen == self.taken()
    }

    /// The lines with their numbers, as `12: text`.
    pub(super) fn numbered(&self) -> String {
        let lines = (self.first..).zip(&self.taken).map(|(number, line)| format!("{number}: {line}"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// The lines as they are.
    pub(super) fn bare(&self) -> String {
        self.taken.join("\n")
    }

    /// What there is besides the kept lines, and what is not seen in them.
    pub(super) fn note(&self, unit: &str) -> String {
        let last = self.first + self.taken().saturating_sub(1);
        let mut note = match self.taken() {
            _ if self.is_whole() => format!("the end: {} {unit}", self.seen),
            0 => format!("it has {} {unit}", self.seen),
            _ if self.ended && last >= self.seen => format!("the end: {} {unit}", self.seen),
            _ if self.ended => {
                format!("{unit} {} to {last} of {}; go on with offset={}", self.first, self.seen, last + 1)
            }
            _ => format!("{unit} {} to {last}; there are more: go on with offset={}", self.first, last + 1),
        };
        if self.crlf {
            note += "; lines end with CRLF";
        }
        if self.unfinished && last >= self.seen {
            note += "; the last line has no line end";
        }
        if self.not_utf8 {
            note += "; bytes that are not UTF-8 are shown as \u{FFFD}";
        }
        note
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(text: &[u8], first: u64, count: u64) -> Lines {
        let mut lines = Lines::new(first, count);
        lines.push(text);
        lines.end();
        lines
    }

    #[test]
    fn lines_are_numbered_from_one() {
        let lines = of(b"a\nb\n\nd", 1, 9);
        assert_eq!(lines.numbered(), "1: a\n2: b\n3: \n4: d");
        assert_eq!(lines.note("lines"), "the end: 4 lines; the last line has no line end");
        assert!(lines.is_whole());
        assert_eq!(of(b"", 1, 9).note("lines"), "the end: 0 lines");
    }

    #[test]
    fn a_part_says_how_to_go_on() {
        let lines = of(b"a\nb\nc\nd\n", 2, 2);
        assert_eq!(lines.numbered(), "2: b\n3: c");
        assert_eq!(lines.note("lines"), "lines 2 to 3 of 4; go on with offset=4");
        assert_eq!(of(b"a\nb\n", 2, 2).note("lines"), "the end: 2 lines");
        assert_eq!(of(b"a\nb\n", 5, 2).note("lines"), "it has 2 lines");
        let mut endless = Lines::new(1, 1);
        assert_eq!(endless.push(b"a\n"), Stopped::No);
        assert_eq!(endless.push(b"b"), Stopped::Yes);
        assert_eq!(endless.note("lines"), "lines 1 to 1; there are more: go on with offset=2");
    }

    #[test]
    fn what_cannot_be_seen_is_said() {
        let lines = of(b"\xEF\xBB\xBFa\r\ncaf\xE9\r\n", 1, 9);
        assert_eq!(lines.numbered(), "1: a\n2: caf\u{FFFD}");
        assert!(lines.note("lines").contains("CRLF") && lines.note("lines").contains("not UTF-8"));
    }

    #[test]
    fn everything_is_bounded() {
        let lines = of("\u{20AC}".repeat(100_000).as_bytes(), 1, 9);
        assert!(lines.numbered().chars().count() < MAX_LINE_CHARS + 100);
        assert!(!lines.note("lines").contains("UTF-8"), "{}", lines.note("lines"));
        let lines = of("0123456789\n".repeat(100_000).as_bytes(), 1, 1_000_000);
        assert!(lines.bare().len() <= MAX_TOOL_OUTPUT_BYTES && !lines.is_whole());
        assert!(lines.note("lines").contains("of 100000; go on with offset="));
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in "[ab\n\r\u{e9}]{0,60}", at in 0usize..60, first in 1u64..5, count in 1u64..5) {
            let bytes = text.as_bytes();
            let mut lines = Lines::new(first, count);
            let at = at.min(bytes.len());
            lines.push(&bytes[..at]);
            lines.push(&bytes[at..]);
            lines.end();
            let whole = of(bytes, first, count);
            prop_assert_eq!(lines.numbered(), whole.numbered());
            prop_assert_eq!(lines.note("lines"), whole.note("lines"));
        }
    }
}
