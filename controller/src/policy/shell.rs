//! Words of a shell: which are plain, and which substitutions the others hold.
//!
//! Invariant: [`word`] says that a word is plain only if every shell that is taken apart makes exactly that one word of
//! it, and that nothing runs only if computing it cannot run anything in any of them.

use std::iter::Peekable;
use std::str::Chars;

use super::command::Word;

/// What a word stands for; `None` when computing it may run something, or shells would not agree on where it ends.
pub fn word(text: &str) -> Option<Word> {
    let mut lexer = Lexer {
        rest: text.chars().peekable(),
        plain: String::with_capacity(text.len()),
        is_unknown: false,
        splits: false,
        matches_files: false,
        begins_plainly: None,
    };
    if lexer.rest.peek() == Some(&'~') {
        // A home is an absolute path.
        lexer.begins_plainly = Some(true);
        lexer.is_unknown = true;
    }
    lexer.unquoted()?;
    if !lexer.is_unknown {
        return Some(Word::Plain(lexer.plain));
    }
    let may_split = lexer.splits || lexer.matches_files;
    if let Some(name) = assigned_name(text) {
        return Some(Word::Sets { name: name.to_owned(), may_split });
    }
    let is_operand = lexer.begins_plainly == Some(true) && !lexer.splits;
    Some(Word::Unknown { may_split, is_operand })
}

/// What a word stands for, when only running it would not show it.
pub fn literal(text: &str) -> Option<String> {
    match word(text) {
        Some(Word::Plain(text)) => Some(text),
        _ => None,
    }
}

/// The name in `NAME=…` and `NAME+=…`.
pub fn assigned_name(word: &str) -> Option<&str> {
    let (name, _) = word.split_once('=')?;
    let name = name.strip_suffix('+').unwrap_or(name);
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (starts && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')).then_some(name)
}

struct Lexer<'a> {
    rest: Peekable<Chars<'a>>,
    plain: String,
    /// Only running it would show it.
    is_unknown: bool,
    /// A value may be split into words.
    splits: bool,
    /// It becomes the names of files, or some of a list.
    matches_files: bool,
    /// Whether it begins with a character that is there, and no option or operator begins with.
    begins_plainly: Option<bool>,
}

impl Lexer<'_> {
    fn push(&mut self, c: char) {
        self.begins_plainly.get_or_insert(c.is_alphanumeric() || "./_".contains(c));
        self.plain.push(c);
    }

    fn value(&mut self, splits: bool) {
        self.begins_plainly.get_or_insert(false);
        self.is_unknown = true;
        self.splits |= splits;
    }

    fn pattern(&mut self) {
        self.begins_plainly.get_or_insert(false);
        self.is_unknown = true;
        self.matches_files = true;
    }

    fn unquoted(&mut self) -> Option<()> {
        while let Some(c) = self.rest.next() {
            match c {
                '\'' => loop {
                    match self.rest.next()? {
                        '\'' => break,
                        c => self.push(c),
                    }
                },
                '"' => self.quoted()?,
                '\\' => match self.rest.next()? {
                    '\n' => {}
                    c => self.push(c),
                },
                '{' if self.rest.peek() == Some(&'}') => {
                    self.push('{');
                    self.push('}');
                    self.rest.next();
                }
                // The name of a program.
                '[' if self.begins_plainly.is_none() && self.rest.peek().is_none() => self.push(c),
                // A subscript that some shells let go on in the next words.
                '[' if !self.rest.clone().any(|c| c == ']') => return None,
                '*' | '?' | '[' | '{' => self.pattern(),
                '$' => match self.rest.peek().copied() {
                    // Shells quote in ways of their own here.
                    Some('\'' | '"') => return None,
                    // Numbers.
                    Some('?' | '#' | '$' | '!') => {
                        self.rest.next();
                        self.begins_plainly.get_or_insert(true);
                        self.value(false);
                    }
                    _ if self.expansion()? => self.value(true),
                    _ => {}
                },
                '`' | '(' | ')' | '<' | '>' | '|' | '&' | ';' | '\n' | ' ' | '\t' => return None,
                c => self.push(c),
            }
        }
        Some(())
    }

    /// The rest of a double-quoted text.
    fn quoted(&mut self) -> Option<()> {
        loop {
            match self.rest.next()? {
                '"' => return Some(()),
                '`' => return None,
                '$' => match self.rest.peek().copied() {
                    Some('@') => {
                        self.rest.next();
                        self.value(true);
                    }
                    _ if self.expansion()? => self.value(false),
                    _ => {}
                },
                '\\' => match self.rest.next()? {
                    '\n' => {}
                    c @ ('$' | '`' | '"' | '\\') => self.push(c),
                    c => {
                        self.push('\\');
                        self.push(c);
                    }
                },
                c => self.push(c),
            }
        }
    }

    /// What follows a `$`: whether it is a parameter whose value is simply put there. `None` when it is more.
    fn expansion(&mut self) -> Option<bool> {
        const SPECIAL: [char; 8] = ['?', '#', '@', '*', '$', '!', '-', '0'];
        let in_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
        match self.rest.peek() {
            Some('(' | '[') => None,
            Some('{') => {
                self.rest.next();
                let mut inside = String::new();
                loop {
                    match self.rest.next()? {
                        '}' => return is_simple_parameter(&inside).then_some(true),
                        c => inside.push(c),
                    }
                }
            }
            Some(c) if SPECIAL.contains(c) || c.is_ascii_digit() => {
                self.rest.next();
                Some(true)
            }
            Some(c) if in_name(c) => {
                while self.rest.next_if(in_name).is_some() {}
                Some(true)
            }
            _ => {
                self.push('$');
                Some(false)
            }
        }
    }
}

/// The inside of `${…}` that is a parameter, its length, a default, a part cut off or replaced by plain text.
fn is_simple_parameter(inside: &str) -> bool {
    let inside = inside.strip_prefix('#').filter(|rest| !rest.is_empty()).unwrap_or(inside);
    let end = inside.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(inside.len());
    let (name, rest) = inside.split_at(end);
    if name.is_empty() {
        // In quotes `${@}` is several words.
        return matches!(rest, "?" | "*" | "$" | "!" | "-" | "#");
    }
    let plain = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "._/,*?+=%#: -".contains(c));
    // `:` otherwise begins arithmetic, `:=` and `=` assign, `@` and `!` compute, `[` is arithmetic.
    let operators = [":-", ":+", "-", "+", "##", "#", "%%", "%", "//", "/"];
    rest.is_empty() || operators.iter().any(|operator| rest.strip_prefix(operator).is_some_and(plain))
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
            ("=", "="),
            ("a$", "a$"),
            ("\"a$\"", "a$"),
            ("[", "["),
        ] {
            assert_eq!(literal(word).as_deref(), Some(text), "{word}");
        }
    }

    #[test]
    fn words_are_unknown_or_run_something() {
        for (text, expected) in [
            ("\"$x\"", Some(Word::ONE)),
            ("\"${x%.rs}.o\"", Some(Word::ONE)),
            ("\"${x:-a}$?\"", Some(Word::ONE)),
            ("$?", Some(Word::Unknown { may_split: false, is_operand: true })),
            ("~/x", Some(Word::Unknown { may_split: false, is_operand: true })),
            ("\"./$x\"", Some(Word::Unknown { may_split: false, is_operand: true })),
            ("src/*.rs", Some(Word::Unknown { may_split: true, is_operand: true })),
            ("src/$x", Some(Word::MANY)),
            ("-*", Some(Word::MANY)),
            ("$x", Some(Word::MANY)),
            ("${x}", Some(Word::MANY)),
            ("\"$@\"", Some(Word::MANY)),
            ("\"$x\"*", Some(Word::MANY)),
            ("*.rs", Some(Word::MANY)),
            ("[a]", Some(Word::MANY)),
            ("{a,b}", Some(Word::MANY)),
            ("A=$x", Some(Word::Sets { name: "A".into(), may_split: true })),
            ("A=\"$x\"", Some(Word::Sets { name: "A".into(), may_split: false })),
        ] {
            assert_eq!(word(text), expected, "{text}");
        }
        for text in [
            "`x`",
            "$(x)",
            "$((x))",
            "$[x]",
            "\"$(x)\"",
            "\"`x`\"",
            "$'git'",
            "$\"git\"",
            "a(b)",
            "'a",
            "\"a",
            "a\\",
            "${x@P}",
            "${!x}",
            "${x[1]}",
            "${x:=1}",
            "${x: -1}",
            "${x:1}",
            "${x-'}'}",
            "\"${x-'}\"; x '\"",
            "${x:-$(y)}",
            "a b",
            "\\$'\\' b",
            "x[",
            "x[a",
        ] {
            assert_eq!(word(text), None, "{text}");
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
