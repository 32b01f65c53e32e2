//! What a command runs, as far as it can be seen.
//!
//! Invariant: whatever is not understood ends up in [`Reading::opaque`] or in a word that is not plain, never in a part that
//! looks plain.

use super::action::Names;
use super::script;
use super::unwrap::{self, Inner};
use super::variables::{self, Influence};
use crate::limits::{MAX_COMMAND_PARTS, MAX_COMMAND_WORDS, MAX_READING_DEPTH};

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word {
    /// This very text.
    Plain(String),
    /// What only running it would show; making it runs nothing.
    Unknown {
        /// It may become any number of words, instead of one.
        may_split: bool,
        /// Whatever it becomes begins as no option does.
        is_operand: bool,
    },
    /// `NAME=` before something that only running it would show.
    Sets {
        /// The name.
        name: String,
        /// Whether it may become several words.
        may_split: bool,
    },
}

impl Word {
    /// One word that could be anything.
    pub const ONE: Self = Self::Unknown { may_split: false, is_operand: false };
    /// Any number of words that could be anything.
    pub const MANY: Self = Self::Unknown { may_split: true, is_operand: false };

    /// Its text, when that can be seen.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Plain(text) => Some(text),
            Self::Unknown { .. } | Self::Sets { .. } => None,
        }
    }

    /// Whether it may be more than one word, or none.
    pub fn may_split(&self) -> bool {
        matches!(self, Self::Unknown { may_split: true, .. } | Self::Sets { may_split: true, .. })
    }

    /// Whether it may be an option, or become one.
    pub fn may_be_option(&self) -> bool {
        match self {
            Self::Plain(text) => text.starts_with('-'),
            Self::Unknown { is_operand, .. } => !is_operand,
            Self::Sets { may_split, .. } => *may_split,
        }
    }
}

impl From<&str> for Word {
    fn from(text: &str) -> Self {
        Self::Plain(text.to_owned())
    }
}

/// A variable that is set, with its value where that can be seen.
pub type Setting = (String, Option<String>);

/// What a part is to the call it is a part of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It runs, and some rule or default must allow it.
    #[default]
    Own,
    /// It runs as well, but another part answers for it: a shell for its script, the script for its shell. Rules that deny or
    /// ask count.
    Covered,
    /// It may run so, as part of something opaque. What rules that deny or ask certainly mean counts.
    Guess,
}

/// Whether a rule means something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Match {
    /// Certainly not.
    No,
    /// That depends on what cannot be seen.
    Maybe,
    /// Certainly.
    Yes,
}

impl From<bool> for Match {
    fn from(is: bool) -> Self {
        if is { Self::Yes } else { Self::No }
    }
}

/// One program with its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Part {
    /// The program and its arguments.
    pub words: Vec<Word>,
    /// A redirection makes it write to a file.
    pub writes: bool,
    /// See [`Standing`].
    pub standing: Standing,
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
        self.words.first()?.text()
    }

    /// Whether the program is found from the working directory.
    pub fn is_relative(&self) -> bool {
        self.program().is_some_and(|program| program.contains('/') && !program.starts_with('/'))
    }

    /// Why nobody can say which program it is.
    pub fn unseen(&self) -> Option<&'static str> {
        let strange = |program: &str| !program.is_ascii() || program.chars().any(char::is_control);
        // Redirections alone run nothing.
        let first = self.words.first()?;
        match first.text() {
            None => Some("the program is not a plain word"),
            Some(program) if program.is_empty() || strange(program) => Some("the program has a strange name"),
            Some(_) => None,
        }
    }

    /// Whether it is exactly this program with these first arguments, whatever else comes.
    pub fn begins_with(&self, prefix: &[String]) -> bool {
        prefix.len() <= self.words.len()
            && prefix.iter().zip(&self.words).all(|(wanted, word)| word.text() == Some(wanted))
    }

    /// Whether it may be this: by another path of the program, with options of the program before the other words.
    pub fn may_begin_with(&self, prefix: &[String]) -> Match {
        let Some((program, rest)) = prefix.split_first() else { return Match::No };
        let same = |word: &str| word == program || (!program.contains('/') && base_name(word) == program);
        let Some((first, arguments)) = self.words.split_first() else { return Match::No };
        let Some(first) = first.text() else { return Match::Maybe };
        if !same(first) {
            return Match::No;
        }
        let behind = unwrap::without_options(base_name(first), arguments);
        let options = &arguments[..arguments.len() - behind.len()];
        if options.iter().any(Word::may_split) && !rest.is_empty() {
            return compare(arguments, rest).max(Match::Maybe);
        }
        compare(arguments, rest).max(compare(behind, rest))
    }

    /// For people: what cannot be seen is `…`.
    pub fn text(&self) -> String {
        let words = self.words.iter().map(|word| match word {
            Word::Plain(text) => text.clone(),
            Word::Sets { name, .. } => format!("{name}=…"),
            Word::Unknown { .. } => "…".to_owned(),
        });
        words.collect::<Vec<_>>().join(" ")
    }
}

/// Whether words begin with these.
fn compare(words: &[Word], wanted: &[String]) -> Match {
    for (index, wanted) in wanted.iter().enumerate() {
        match words.get(index) {
            Some(Word::Plain(word)) if word == wanted => {}
            Some(Word::Plain(_)) | None => return Match::No,
            Some(Word::Sets { name, may_split: false }) if !wanted.starts_with(&format!("{name}=")) => {
                return Match::No;
            }
            // Of several words the first is an operand, and a pattern is never none.
            Some(word @ Word::Unknown { .. }) if wanted.starts_with('-') && !word.may_be_option() => {
                return Match::No;
            }
            Some(_) => return Match::Maybe,
        }
    }
    Match::Yes
}

/// The last component of a path.
pub fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
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
    /// Takes arguments apart. `env` are the names of the variables the client sets.
    pub fn of(argv: &[String], alias: Option<&str>, env: &[String]) -> Self {
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
        if let Some(name) = env.iter().find(|name| variables::influence(name) == Influence::Hidden) {
            reader.opaque(&format!("{name} makes programs run something else"));
        }
        reader.part(&Part { words: argv.iter().cloned().map(Word::Plain).collect(), ..Part::default() });
        reader.reading
    }

    /// Whether a program without a path may be found elsewhere than usual.
    pub fn searches_elsewhere(&self) -> bool {
        self.assigned.iter().any(|name| name == "PATH")
    }
}

/// Takes apart what takes apart.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) reading: Reading,
    /// Texts that something reads.
    pub(super) inputs: Vec<String>,
    depth: usize,
    standing: Standing,
}

impl Reader {
    /// Notes why something cannot be seen; of a guess that says nothing.
    pub(super) fn opaque(&mut self, why: &str) {
        let why = why.to_owned();
        if !(self.standing == Standing::Guess || self.reading.opaque.contains(&why))
            && self.reading.opaque.len() < MAX_COMMAND_PARTS
        {
            self.reading.opaque.push(why);
        }
    }

    /// A variable that is set for what runs.
    pub(super) fn assign(&mut self, name: &str, value: Option<&str>) {
        if !self.reading.assigned.iter().any(|known| known == name) {
            self.reading.assigned.push(name.to_owned());
        }
        match variables::influence(name) {
            Influence::None | Influence::Search => {}
            Influence::Hidden => {
                self.opaque(&format!("{name} makes programs run something else"));
                self.guess(|reader| value.iter().for_each(|text| reader.script(text)));
            }
            // Its value is a command of its own, empty for none.
            Influence::Command => match value {
                // Whoever lets the variable be set lets it run.
                Some(text) => self.standing(Standing::Covered, |reader| reader.script(text)),
                None => self.opaque(&format!("{name} names a program that cannot be seen")),
            },
        }
    }

    fn assign_all(&mut self, settings: &[Setting]) {
        for (name, value) in settings {
            self.assign(name, value.as_deref());
        }
    }

    /// Reads something that may run, but not as it is read.
    pub(super) fn guess(&mut self, read: impl FnOnce(&mut Self)) {
        self.standing(Standing::Guess, read);
    }

    fn standing(&mut self, standing: Standing, read: impl FnOnce(&mut Self)) {
        let before = self.standing;
        self.standing = before.max(standing);
        read(self);
        self.standing = before;
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
        let before = std::mem::take(&mut self.standing);
        self.opaque("it is nested too deeply, or too long, to be taken apart");
        self.standing = before;
    }

    pub(super) fn script(&mut self, text: &str) {
        self.deeper(|reader| script::read(reader, text));
    }

    /// One program with its arguments, and what that runs in turn.
    pub(super) fn part(&mut self, part: &Part) {
        if part.words.is_empty() && !part.writes {
            return;
        }
        if self.reading.parts.len() >= MAX_COMMAND_PARTS || part.words.len() > MAX_COMMAND_WORDS {
            self.too_much();
        }
        let inner = unwrap::inner(&part.words);
        let mut kept = part.clone();
        kept.words.truncate(MAX_COMMAND_WORDS);
        let is_covered = matches!(&inner, Inner::Script(_) | Inner::Runs { transparent: true, .. });
        kept.standing = if is_covered { self.standing.max(Standing::Covered) } else { self.standing };
        if self.reading.parts.len() < MAX_COMMAND_PARTS {
            self.reading.parts.push(kept);
        }
        self.inner(inner, part.writes);
    }

    fn inner(&mut self, inner: Inner, writes: bool) {
        match inner {
            Inner::Nothing => {}
            Inner::Runs { commands, assigned, moved, .. } => {
                self.reading.moved |= moved;
                self.assign_all(&assigned);
                for words in commands {
                    self.deeper(|reader| reader.part(&Part { writes, ..Part::of(&words) }));
                }
            }
            Inner::Also(commands) => self.standing(Standing::Covered, |reader| {
                for words in commands {
                    reader.deeper(|reader| reader.part(&Part::of(&words)));
                }
            }),
            Inner::Script(text) => self.script(&text),
            Inner::Moves => self.reading.moved = true,
            Inner::Assigns(settings) => self.assign_all(&settings),
            Inner::Opaque { why, words } => {
                self.opaque(&why);
                self.guess(|reader| {
                    // Any of them may be where another command begins.
                    for start in 1..words.len().min(MAX_COMMAND_WORDS) {
                        reader.deeper(|reader| reader.part(&Part::of(&words[start..])));
                    }
                    // Or hold one.
                    for text in words.iter().filter_map(Word::text).filter(|text| text.contains(' ')) {
                        script::code(reader, text);
                    }
                });
            }
            Inner::OpaqueScript { why, text } => {
                self.opaque(&why);
                self.guess(|reader| reader.script(&text));
            }
            Inner::Code { why, text } => {
                self.opaque(&why);
                self.guess(|reader| script::code(reader, &text));
            }
        }
    }
}
