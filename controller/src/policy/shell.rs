//! Words of a shell: which are plain, and which substitutions the others hold.
//!
//! Invariant: [`literal`] returns a text only if every shell makes exactly that one word of it.

/// What a word stands for; `None` when the shell would compute it.
pub fn literal(word: &str) -> Option<String> {
    let mut text = String::with_capacity(word.len());
    let mut rest = word.chars().peekable();
    if matches!(rest.peek(), Some('~' | '=')) {
        return None;
    }
    while let Some(c) = rest.next() {
        match c {
            '\'' => loop {
                match rest.next()? {
                    '\'' => break,
                    c => text.push(c),
                }
            },
            '"' => quoted(&mut rest, &mut text)?,
            '\\' => match rest.next() {
                Some('\n') => {}
                Some(c) => text.push(c),
                None => return None,
            },
            '{' if rest.peek() == Some(&'}') => {
                text.push_str("{}");
                rest.next();
            }
            '$' | '`' | '*' | '?' | '[' | '{' | '(' | ')' | '<' | '>' | '|' | '&' | ';' | '\n' => {
                return None;
            }
            c => text.push(c),
        }
    }
    Some(text)
}

/// The rest of a double-quoted text.
fn quoted(rest: &mut std::iter::Peekable<std::str::Chars<'_>>, text: &mut String) -> Option<()> {
    loop {
        match rest.next()? {
            '"' => return Some(()),
            '$' | '`' => return None,
            '\\' => match rest.next()? {
                '\n' => {}
                c @ ('$' | '`' | '"' | '\\') => text.push(c),
                c => text.extend(['\\', c]),
            },
            c => text.push(c),
        }
    }
}

/// The scripts inside `$(…)` and backquotes, roughly: only deny and ask rules look at them, and the word is opaque anyway.
pub fn substitutions(word: &str) -> Vec<String> {
    let bytes = word.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'\'' if !in_double_quotes(&bytes[..at]) => {
                at +=
                    bytes[at + 1..].iter().position(|byte| *byte == b'\'').map_or(bytes.len(), |end| end + 1);
            }
            b'$' if bytes.get(at + 1) == Some(&b'(') => {
                let end = closing(&bytes[at + 2..]);
                found.push(String::from_utf8_lossy(&bytes[at + 2..at + 2 + end]).into_owned());
                at += 2 + end;
            }
            b'`' => {
                let inside = &bytes[at + 1..];
                let end = (0..inside.len())
                    .find(|end| inside[*end] == b'`' && (*end == 0 || inside[end - 1] != b'\\'));
                let end = end.unwrap_or(inside.len());
                found.push(String::from_utf8_lossy(&inside[..end]).replace("\\`", "`"));
                at += 1 + end;
            }
            _ => {}
        }
        at += 1;
    }
    found
}

fn in_double_quotes(before: &[u8]) -> bool {
    before.iter().fold(false, |quoted, byte| quoted != (*byte == b'"'))
}

/// Where the parenthesis that was opened before is closed again.
fn closing(bytes: &[u8]) -> usize {
    let mut depth = 1usize;
    let mut quote = None;
    let mut escaped = false;
    for (index, byte) in bytes.iter().enumerate() {
        match (quote, byte) {
            _ if escaped => escaped = false,
            (None | Some(b'"'), b'\\') => escaped = true,
            (Some(open), byte) if open == *byte => quote = None,
            (None, b'\'' | b'"') => quote = Some(*byte),
            (None, b'(') => depth += 1,
            (None, b')') => {
                depth -= 1;
                if depth == 0 {
                    return index;
                }
            }
            _ => {}
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_every_shell_reads_alike_is_a_literal() {
        for (word, text) in [
            ("git", "git"),
            ("\\g\\i\\t", "git"),
            ("'a b'\"c d\"e", "a bc de"),
            ("\"\\$x\\n\"", "$x\\n"),
            ("a\\\nb", "ab"),
            ("{}", "{}"),
            ("a=~/x", "a=~/x"),
            ("''", ""),
            ("--a=b", "--a=b"),
        ] {
            assert_eq!(literal(word).as_deref(), Some(text), "{word}");
        }
        for word in [
            "$x", "${x}", "`x`", "\"$x\"", "a*", "a?", "[a]", "{a,b}", "~", "~x/y", "$'git'", "$\"git\"",
            "a(b)", "'a", "\"a", "a\\", "=ls",
        ] {
            assert_eq!(literal(word), None, "{word}");
        }
    }

    #[test]
    fn scripts_inside_words_are_found() {
        assert_eq!(substitutions("a$(git push)b"), ["git push"]);
        assert_eq!(substitutions("\"it's $(a \")\" $(b))\""), ["a \")\" $(b)"]);
        assert_eq!(substitutions("`a \\`b\\``"), ["a `b`"]);
        assert_eq!(substitutions("'$(a)'"), Vec::<String>::new());
        assert_eq!(substitutions("$(a"), ["a"]);
    }
}
