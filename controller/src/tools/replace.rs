//! Replacing a text within the bytes of a file.
//!
//! Invariant: pure; bytes outside the replaced text are kept as they are. A text from a model has line feeds where the
//! file may have CRLF: it is tried as it is and in the file's way, and what is put in follows the file.

use memchr::memmem;

/// Places that are named when there are several.
const NAMED_PLACES: usize = 5;

/// Why nothing was replaced.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Mismatch {
    /// The text is not there.
    Nowhere {
        /// First line of a text that is the same but for white space.
        similar: Option<usize>,
    },
    /// It is not clear which one is meant.
    Several {
        /// How many there are.
        count: usize,
        /// On which lines the first ones begin.
        lines: Vec<usize>,
    },
}

/// The content with `old` replaced by `new`, once or everywhere, and how often.
pub(super) fn replace(content: &[u8], old: &str, new: &str, all: bool) -> Result<(Vec<u8>, usize), Mismatch> {
    let has_crlf = mostly_crlf(content);
    let (unix_old, unix_new) = (old.replace("\r\n", "\n"), new.replace("\r\n", "\n"));
    let (dos_old, dos_new) = (unix_old.replace('\n', "\r\n"), unix_new.replace('\n', "\r\n"));
    let in_way_of_file = if has_crlf { (&dos_old, &dos_new) } else { (&unix_old, &unix_new) };
    let in_other_way = if has_crlf { (&unix_old, &unix_new) } else { (&dos_old, &dos_new) };
    // A file of mixed line ends may have the text in either way, and, last, exactly as it was given.
    let given = (&old.to_owned(), &new.to_owned());
    for (old, new) in [in_way_of_file, in_other_way, given] {
        let places: Vec<usize> = memmem::find_iter(content, old.as_bytes()).collect();
        match places.len() {
            0 => {}
            count if count > 1 && !all => {
                let lines = places.iter().take(NAMED_PLACES).map(|place| line_of(content, *place)).collect();
                return Err(Mismatch::Several { count, lines });
            }
            count => return Ok((put_in(content, &places, old.len(), new.as_bytes()), count)),
        }
    }
    Err(Mismatch::Nowhere { similar: similar(content, &unix_old) })
}

/// Whether most lines end with CRLF.
pub(super) fn mostly_crlf(content: &[u8]) -> bool {
    let crlf = memmem::find_iter(content, b"\r\n").count();
    crlf * 2 > memchr::memchr_iter(b'\n', content).count()
}

fn put_in(content: &[u8], places: &[usize], length: usize, new: &[u8]) -> Vec<u8> {
    let mut result = Vec::with_capacity(content.len() + places.len() * new.len().saturating_sub(length));
    let mut from = 0;
    for place in places {
        result.extend_from_slice(&content[from..*place]);
        result.extend_from_slice(new);
        from = place + length;
    }
    result.extend_from_slice(&content[from..]);
    result
}

/// The number of the line of a byte.
fn line_of(content: &[u8], at: usize) -> usize {
    memchr::memchr_iter(b'\n', &content[..at]).count() + 1
}

/// The first line from which on the lines of the file are those of `old`, white space at their ends aside.
fn similar(content: &[u8], old: &str) -> Option<usize> {
    let wanted: Vec<&[u8]> = old.trim().lines().map(|line| line.as_bytes().trim_ascii()).collect();
    if wanted.iter().all(|line| line.is_empty()) {
        return None;
    }
    let lines: Vec<&[u8]> = content.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).collect();
    lines.windows(wanted.len()).position(|window| window == wanted).map(|index| index + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn replaced(content: &str, old: &str, new: &str) -> Result<String, Mismatch> {
        replace(content.as_bytes(), old, new, false).map(|(bytes, _)| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn one_place_is_replaced() {
        assert_eq!(replaced("a b c", "b", "x").unwrap(), "a x c");
        assert_eq!(replaced("no end", "no end", "").unwrap(), "");
    }

    #[test]
    fn line_ends_are_those_of_the_file() {
        assert_eq!(replaced("a\r\nb\r\nc\r\n", "a\nb", "x\ny\nz").unwrap(), "x\r\ny\r\nz\r\nc\r\n");
        assert_eq!(replaced("a\nb\n", "a\r\nb", "x\r\ny").unwrap(), "x\ny\n");
        assert_eq!(replaced("a\r\nb\r\n", "b", "x\ny").unwrap(), "a\r\nx\r\ny\r\n");
        // Mixed: the place decides, not the majority.
        assert_eq!(replaced("a\r\nb\r\nc\nd\n1\r\n", "c\nd", "x\ny").unwrap(), "a\r\nb\r\nx\ny\n1\r\n");
    }

    #[test]
    fn several_places_are_named() {
        assert_eq!(
            replaced("a\na\na\n", "a", "b"),
            Err(Mismatch::Several { count: 3, lines: vec![1, 2, 3] })
        );
        assert_eq!(replace(b"aXa", "a", "bb", true).unwrap(), (b"bbXbb".to_vec(), 2));
    }

    #[test]
    fn a_near_miss_is_pointed_at() {
        let content = "fn f() {\n\treturn 1;\n}\n";
        assert_eq!(
            replaced(content, "fn f() {\n    return 1;\n}", "x"),
            Err(Mismatch::Nowhere { similar: Some(1) })
        );
        assert_eq!(replaced(content, "return 2;", "x"), Err(Mismatch::Nowhere { similar: None }));
        assert_eq!(replaced(content, "  ", "x"), Err(Mismatch::Nowhere { similar: None }));
    }

    proptest! {
        #[test]
        fn bytes_around_are_kept(before in prop::collection::vec(any::<u8>(), 0..30), after in prop::collection::vec(any::<u8>(), 0..30)) {
            let content = [&before[..], b"<<here>>", &after].concat();
            let (result, count) = replace(&content, "<<here>>", "x", false).unwrap();
            prop_assert_eq!(count, 1);
            prop_assert_eq!(result, [&before[..], b"x", &after].concat());
        }
    }
}
