//! What a command runs, as far as it can be seen.
//!
//! Invariant: whatever is not understood ends up in [`Reading::opaque`], never in a part that looks plain.

use super::action::Names;
use super::script;
use super::unwrap::{self, Inner};
use crate::limits::{MAX_COMMAND_PARTS, MAX_COMMAND_WORDS, MAX_READING_DEPTH};

/// A word of a command; `None` when only running it would show it.
pub type Word = Option<String>;

/// One program with its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// The program and its arguments.
    pub words: Vec<Word>,
    /// A redirection makes it write to a file, or read from what cannot be seen.
    pub redirected: bool,
    /// It may run: a deny or ask rule counts, but nothing else is made of it.
    pub guess: bool,
    /// Where its program lies, under all names; filled in only when a rule asks for it.
    pub exes: Vec<Names>,
    /// Whether links on the way to it could not be followed.
    pub lost: bool,
}

impl Part {
    fn of(words: &[Word]) -> Self {
        Self { words: words.to_vec(), ..Self::default() }
    }

    /// The program's word.
    pub fn program(&self) -> Option<&str> {
        self.words.first()?.as_deref()
    }

    /// Whether the program is found from the working directory.
    pub fn is_relative(&self) -> bool {
        self.program().is_some_and(|program| program.contains('/') && !program.starts_with('/'))
    }

    /// Why it cannot be seen whole.
    pub fn unseen(&self) -> Option<&'static str> {
        let strange = |program: &str| !program.is_ascii() || program.chars().any(char::is_control);
        match self.words.first() {
            None => Some("only redirections"),
            Some(None) => Some("the program is not a plain word"),
            Some(Some(program)) if program.is_empty() || strange(program) => {
                Some("the program has a strange name")
            }
            _ if self.words.iter().any(Option::is_none) => Some("an argument is not a plain word"),
            _ if self.redirected => Some("a redirection goes to a file"),
            _ => None,
        }
    }

    /// Whether everything about it can be seen.
    pub fn is_plain(&self) -> bool {
        self.unseen().is_none()
    }

    /// Whether it is exactly this program with these first arguments.
    pub fn begins_with(&self, prefix: &[String]) -> bool {
        prefix.len() <= self.words.len()
            && prefix.iter().zip(&self.words).all(|(wanted, word)| word.as_ref() == Some(wanted))
    }

    /// Whether it may be this: by another path of the program, with options of the program before the other words.
    pub fn may_begin_with(&self, prefix: &[String]) -> bool {
        let Some((program, rest)) = prefix.split_first() else { return false };
        let same = |word: &str| word == program || (!program.contains('/') && base_name(word) == program);
        let fits = |words: &[Word]| {
            rest.len() <= words.len()
                && rest.iter().zip(words).all(|(wanted, word)| word.as_ref() == Some(wanted))
        };
        let Some((Some(first), arguments)) = self.words.split_first() else { return false };
        same(first) && (fits(arguments) || fits(unwrap::without_options(base_name(first), arguments)))
    }

    /// For people: what cannot be seen is `…`.
    pub fn text(&self) -> String {
        let words = self.words.iter().map(|word| word.as_deref().unwrap_or("…"));
        words.collect::<Vec<_>>().join(" ")
    }
}

/// The last component of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Variables that choose which program a name is, or what else runs with it.
pub fn is_influential(name: &str) -> bool {
    const NAMES: [&str; 8] = ["PATH", "BASH_ENV", "ENV", "IFS", "SHELLOPTS", "BASHOPTS", "PS4", "CDPATH"];
    NAMES.contains(&name) || name.starts_with("LD_") || name.starts_with("BASH_FUNC_")
}

/// A command taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Programs it runs, in the order seen.
    pub parts: Vec<Part>,
    /// Why the rest cannot be seen, a line each.
    pub opaque: Vec<String>,
    /// Variables it sets for what it runs.
    pub assigned: Vec<String>,
    /// Its working directory may not be the one it started in.
    pub moved: bool,
}

impl Reading {
    /// Takes arguments apart.
    pub fn of(argv: &[String], alias: Option<&str>) -> Self {
        let mut reader = Reader::default();
        let program = argv.first().map_or("", String::as_str);
        if alias.is_some_and(|name| base_name(name) != base_name(program)) {
            reader.opaque("the program is told that it has another name");
        }
        if argv.iter().any(|word| word.contains('\0')) {
            reader.opaque("an argument has a NUL");
        }
        if argv.is_empty() {
            reader.opaque("there is no program");
        }
        reader.part(&Part { words: argv.iter().cloned().map(Some).collect(), ..Part::default() });
        reader.reading
    }
}

/// Takes apart what takes apart.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) reading: Reading,
    depth: usize,
    guessing: bool,
}

impl Reader {
    /// Notes why something cannot be seen; of a guess that says nothing.
    pub(super) fn opaque(&mut self, why: &str) {
        let why = why.to_owned();
        if !(self.guessing || self.reading.opaque.contains(&why))
            && self.reading.opaque.len() < MAX_COMMAND_PARTS
        {
            self.reading.opaque.push(why);
        }
    }

    pub(super) fn assign(&mut self, name: &str) {
        if !self.reading.assigned.iter().any(|known| known == name) {
            self.reading.assigned.push(name.to_owned());
        }
    }

    fn assign_all(&mut self, names: &[String]) {
        for name in names {
            self.assign(name);
        }
    }

    /// Reads something that may run, but not as it is read.
    pub(super) fn guess(&mut self, read: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.guessing, true);
        read(self);
        self.guessing = before;
    }

    /// One level further in; too deep is opaque.
    pub(super) fn deeper(&mut self, read: impl FnOnce(&mut Self)) {
        if self.depth >= MAX_READING_DEPTH || self.reading.parts.len() >= MAX_COMMAND_PARTS {
            self.too_much();
            return;
        }
        self.depth += 1;
        read(self);
        self.depth -= 1;
    }

    /// What is too much to look at is opaque even in a guess: something was not looked at.
    fn too_much(&mut self) {
        let before = std::mem::replace(&mut self.guessing, false);
        self.opaque("it is nested too deeply, or too long, to be taken apart");
        self.guessing = before;
    }

    pub(super) fn script(&mut self, text: &str) {
        self.deeper(|reader| script::read(reader, text));
    }

    /// One program with its arguments, and what that runs in turn.
    pub(super) fn part(&mut self, part: &Part) {
        if part.words.is_empty() && !part.redirected {
            return;
        }
        if self.reading.parts.len() >= MAX_COMMAND_PARTS || part.words.len() > MAX_COMMAND_WORDS {
            self.too_much();
        }
        let inner = unwrap::inner(&part.words);
        let transparent = matches!(&inner, Inner::Script(_) | Inner::Runs { transparent: true, .. });
        let mut kept = part.clone();
        kept.words.truncate(MAX_COMMAND_WORDS);
        kept.guess = self.guessing || transparent && part.is_plain();
        if self.reading.parts.len() < MAX_COMMAND_PARTS {
            self.reading.parts.push(kept);
        }
        self.inner(inner, part.redirected);
    }

    fn inner(&mut self, inner: Inner, redirected: bool) {
        match inner {
            Inner::Nothing => {}
            Inner::Runs { words, assigned, moved, .. } => {
                self.reading.moved |= moved;
                self.assign_all(&assigned);
                self.deeper(|reader| reader.part(&Part { redirected, ..Part::of(&words) }));
            }
            Inner::Many { commands, moved } => {
                self.reading.moved |= moved;
                for words in commands {
                    self.deeper(|reader| reader.part(&Part { redirected, ..Part::of(&words) }));
                }
            }
            Inner::Script(text) => self.script(&text),
            Inner::Moves => self.reading.moved = true,
            Inner::Assigns(names) => self.assign_all(&names),
            Inner::Opaque { why, words } => {
                self.opaque(&why);
                self.guess(|reader| {
                    // Any of them may be where another command begins.
                    for start in 1..words.len().min(MAX_COMMAND_WORDS) {
                        reader.deeper(|reader| reader.part(&Part::of(&words[start..])));
                    }
                });
            }
            Inner::OpaqueScript { why, text } => {
                self.opaque(&why);
                self.guess(|reader| reader.script(&text));
            }
        }
    }
}
