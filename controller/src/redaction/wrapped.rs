//! Base64 and hexadecimal digits in lines, as `base64`, `openssl` and `xxd -p` print them: the text without its line
//! breaks. Pure.

use crate::limits::MIN_WRAPPED_LINE;

/// A text some of whose line breaks were taken out.
pub struct Joined {
    /// What is left.
    pub text: Vec<u8>,
    /// Where breaks were: the place in `text`, and how many bytes were taken out up to and with this one.
    breaks: Vec<(usize, usize)>,
}

impl Joined {
    /// Takes out the breaks between full lines of digits and what goes on with one; `None` when there are none. `before` is
    /// the number of digits right before `bytes`.
    pub fn of(bytes: &[u8], before: usize) -> Option<Self> {
        let mut joined: Option<Self> = None;
        let mut kept = 0;
        let mut line = 0;
        // A carriage return at the end may be half of a break.
        let half = bytes.last().filter(|last| **last == b'\r').map(|_| bytes.len());
        for feed in memchr::memchr_iter(b'\n', bytes).chain(half) {
            let end = if feed < bytes.len() {
                feed - usize::from(bytes[line..feed].ends_with(b"\r"))
            } else {
                feed - 1
            };
            let next = (feed + 1).min(bytes.len());
            let before = if line == 0 { before } else { 0 };
            let is_full = digits_at_end(&bytes[line..end], before) >= MIN_WRAPPED_LINE;
            line = next;
            if !is_full || bytes.get(next).is_some_and(|byte| !is_digit(*byte)) {
                continue;
            }
            let joined = joined.get_or_insert_with(|| Self { text: Vec::new(), breaks: Vec::new() });
            joined.text.extend_from_slice(&bytes[kept..end]);
            joined.breaks.push((joined.text.len(), next - joined.text.len()));
            kept = next;
        }
        let mut joined = joined?;
        joined.text.extend_from_slice(&bytes[kept..]);
        Some(joined)
    }

    /// Whether a break was between these two places.
    pub fn is_broken(&self, start: usize, end: usize) -> bool {
        self.breaks.iter().any(|(place, _)| start < *place && *place < end)
    }

    /// Where what begins at `place` was.
    pub fn begin(&self, place: usize) -> usize {
        place + self.taken_out(|at| at <= place)
    }

    /// Where what ends at `place` was.
    pub fn end(&self, place: usize) -> usize {
        place + self.taken_out(|at| at < place)
    }

    fn taken_out(&self, is_before: impl Fn(usize) -> bool) -> usize {
        let count = self.breaks.partition_point(|(place, _)| is_before(*place));
        count.checked_sub(1).map_or(0, |last| self.breaks[last].1)
    }
}

/// The number of digits at the end of `bytes`, which `before` others precede; no more than matter.
pub fn digits_at_end(bytes: &[u8], before: usize) -> usize {
    let count = bytes.iter().rev().take(MIN_WRAPPED_LINE).take_while(|byte| is_digit(**byte)).count();
    if count == bytes.len() { (count + before).min(MIN_WRAPPED_LINE) } else { count }
}

fn is_digit(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_breaks_after_full_lines_of_digits_are_taken_out() {
        let line = "A".repeat(MIN_WRAPPED_LINE);
        let joined = |text: &str, before: usize| {
            Joined::of(text.as_bytes(), before).map(|joined| String::from_utf8(joined.text).unwrap())
        };
        assert_eq!(joined("short\nlines\nof text", 0), None);
        assert_eq!(joined(&format!("{line}\n then"), 0), None);
        assert_eq!(joined(&format!("x {line}\nB"), 0), Some(format!("x {line}B")));
        assert_eq!(joined(&format!("{line}\r\n{line}\nB\nC"), 0), Some(format!("{line}{line}B\nC")));
        assert_eq!(joined(&format!("{line}\n"), 0), Some(line.clone()));
        assert_eq!(joined(&format!("{line}\r"), 0), Some(line.clone()));
        assert_eq!(joined("AAAA\nB", MIN_WRAPPED_LINE - 4), Some("AAAAB".to_owned()));
        assert_eq!(joined("AAAA\nB\nC", MIN_WRAPPED_LINE - 5), None);
    }

    #[test]
    fn places_are_found_again() {
        let line = "A".repeat(MIN_WRAPPED_LINE);
        let text = format!("{line}\r\n{line}\nB");
        let joined = Joined::of(text.as_bytes(), 0).unwrap();
        let length = MIN_WRAPPED_LINE;
        assert_eq!((joined.end(length), joined.begin(length)), (length, length + 2));
        assert_eq!((joined.end(2 * length), joined.begin(2 * length)), (2 * length + 2, 2 * length + 3));
        assert_eq!(joined.end(2 * length + 1), text.len());
        assert!(
            joined.is_broken(0, length + 1)
                && !joined.is_broken(0, length)
                && !joined.is_broken(length, length + 9)
        );
    }
}
