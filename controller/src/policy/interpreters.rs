//! Programs that run code: a file of it is a program like another, but what comes with the command or by its input is not
//! read here.
//!
//! Invariant: an interpreter that gets neither a file nor a module to run is opaque.

use super::command::Word;
use super::languages::{CODE_OPTIONS, INTERPRETERS, Interpreter};
use super::unwrap::{Inner, opaque};

/// Modules of Python that run code they are given, or read.
const CODE_MODULES: [&str; 5] = ["asyncio", "code", "IPython", "pdb", "timeit"];

/// What an interpreter runs; `None` when it is none.
pub(super) fn inner(name: &str, words: &[Word]) -> Option<Inner> {
    // `python3`, `python3.12` and the like are meant by `python`.
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let known = |wanted: &str| INTERPRETERS.iter().find(|one| one.names.contains(&wanted));
    let interpreter = known(name).or_else(|| known(plain))?;
    Some(runs(interpreter, name, &words[1..]))
}

fn runs(interpreter: &Interpreter, name: &str, arguments: &[Word]) -> Inner {
    let code = |text: Option<&str>| Inner::Code {
        why: format!("{name} runs code that is given with it"),
        text: text.unwrap_or_default().to_owned(),
    };
    if let Some(text) = arguments.iter().filter_map(Word::text).find(|text| text.contains("data:text/")) {
        return code(Some(text));
    }
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let Some(text) = word.text() else {
            return opaque(format!("an argument of {name} may be code"), &[]);
        };
        if ["--version", "--help", "-version", "--test"].contains(&text) || interpreter.done.contains(&text) {
            return Inner::Nothing;
        }
        if interpreter.words.contains(&text) {
            return code(words.next().and_then(Word::text));
        }
        if let Some(long) = text.strip_prefix("--").filter(|long| !long.is_empty()) {
            let (long, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            if interpreter.long_code.contains(&long) {
                return code(value.or_else(|| words.next().and_then(Word::text)));
            }
            if value.is_none()
                && interpreter.long_with.contains(&long)
                && words.next().is_some_and(Word::may_split)
            {
                return opaque(format!("an argument of {name} may be code"), &[]);
            }
        } else if let Some(letters) = text.strip_prefix('-').filter(|rest| !rest.is_empty() && text != "--") {
            match cluster(interpreter, letters) {
                Cluster::Code(rest) => return code(rest.or_else(|| words.next().and_then(Word::text))),
                Cluster::Module(name) => {
                    let name = name.or_else(|| words.next().and_then(Word::text));
                    return match name {
                        Some(name) if !CODE_MODULES.contains(&name) => Inner::Nothing,
                        _ => code(words.next().and_then(Word::text)),
                    };
                }
                Cluster::TakesNext if words.next().is_some_and(Word::may_split) => {
                    return opaque(format!("an argument of {name} may be code"), &[]);
                }
                Cluster::TakesNext | Cluster::Flags => {}
            }
        } else if interpreter.reads_input {
            // The operand is what is worked on.
        } else if text != "--" && !is_input(text) {
            return Inner::Nothing;
        } else if text != "--" {
            break;
        }
    }
    opaque(format!("{name} does what its input says"), &[])
}

enum Cluster<'a> {
    Code(Option<&'a str>),
    Module(Option<&'a str>),
    TakesNext,
    Flags,
}

/// Letters behind one `-`.
fn cluster<'a>(interpreter: &Interpreter, letters: &'a str) -> Cluster<'a> {
    for (index, letter) in letters.char_indices() {
        let rest = Some(&letters[index + letter.len_utf8()..]).filter(|rest| !rest.is_empty());
        if interpreter.code.contains(letter) {
            return Cluster::Code(rest);
        }
        if interpreter.module.contains(letter) {
            return Cluster::Module(rest);
        }
        if interpreter.with.contains(letter) {
            return if rest.is_some() { Cluster::Flags } else { Cluster::TakesNext };
        }
        if interpreter.attached.contains(letter) {
            // A module's name can have code behind it.
            let is_name = |c: char| c.is_ascii_alphanumeric() || "_:=,./-".contains(c);
            let is_plain = rest.is_none_or(|rest| rest.chars().all(is_name));
            return if is_plain { Cluster::Flags } else { Cluster::Code(rest) };
        }
    }
    Cluster::Flags
}

/// Whether a name of a script is its input.
pub(super) fn is_input(word: &str) -> bool {
    word.starts_with('-')
        || word.starts_with("/dev/")
        || word.starts_with("/proc/")
        || word.contains("fd/")
        || word.ends_with("stdin")
        || word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Programs that run something only when an option says so; `None` when none does.
pub(super) fn by_option(name: &str, words: &[Word]) -> Option<Inner> {
    let (_, letters, long) = CODE_OPTIONS.iter().find(|(known, ..)| *known == name)?;
    let mut words = words[1..].iter().enumerate();
    while let Some((index, word)) = words.next() {
        let is_cluster = name == "tar" && index == 0;
        let Some(text) = word.text() else {
            if !is_cluster && !word.may_be_option() {
                continue;
            }
            return Some(opaque(format!("an argument of {name} may make it run something"), &[]));
        };
        if text == "--" {
            break;
        }
        let value = if let Some(option) = text.strip_prefix("--") {
            let (option, value) =
                option.split_once('=').map_or((option, None), |(option, value)| (option, Some(value)));
            // Names may be cut short.
            let is_meant = !option.is_empty() && long.iter().any(|known| known.starts_with(option));
            is_meant.then_some(value)
        } else {
            // Old-style options of tar come without a `-`.
            let at = text.find(|c| letters.contains(c)).filter(|_| is_cluster || text.starts_with('-'));
            at.map(|at| Some(&text[at + 1..]).filter(|rest| !rest.is_empty()))
        };
        if let Some(value) = value {
            // The command may go on in the words behind it.
            let behind = words.map(|(_, word)| word.text().unwrap_or_default());
            let text: Vec<_> = value.into_iter().chain(behind).collect();
            return Some(Inner::Code {
                why: format!("{name} is told to run something"),
                text: text.join(" "),
            });
        }
    }
    Some(Inner::Nothing)
}
