//! Text of others as people are shown it.
//!
//! Invariant: what is shown has no character that moves a cursor, hides, or makes a line read as something else.

/// Text that a terminal only shows: control characters are written out.
pub fn printable(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() || is_invisible(c) {
            shown.extend(c.escape_unicode());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// Characters that show nothing, or make a line read as something else.
fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}'
            | '\u{ffa0}' | '\u{fff9}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hides_is_written_out() {
        for hidden in ['\u{202e}', '\u{200b}', '\u{2028}', '\u{feff}', '\u{e0041}', '\r', '\u{9b}'] {
            assert_eq!(printable(&format!("a{hidden}b")), format!("a{}b", hidden.escape_unicode()));
        }
        assert_eq!(printable("é ü 漢 \u{1f600}"), "é ü 漢 \u{1f600}");
    }
}
