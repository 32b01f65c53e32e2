//! Programs that run other programs, and what they run.
//!
//! Invariant: an option that is not in the tables makes the rest opaque; nothing is skipped that is not understood.

use super::command::{Setting, Word, base_name};
use super::programs::{
    LANGUAGES, OPAQUE_BUILTINS, OPAQUE_PROGRAMS, Options, SHELLS, SUBCOMMAND_OPTIONS, SUDO, TRANSPARENT,
};
use super::{builtins, editors, finders, git, interpreters, runners};

/// What a program runs in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inner {
    /// Nothing that concerns anybody else.
    Nothing,
    /// Programs. A transparent one does nothing else itself. `moved`: in another directory.
    Runs { commands: Vec<Vec<Word>>, assigned: Vec<Setting>, transparent: bool, moved: bool },
    /// Programs that it answers for itself.
    Also(Vec<Vec<Word>>),
    /// A shell script, given whole.
    Script(String),
    /// It changes the directory for what follows.
    Moves,
    /// It sets variables for what follows.
    Assigns(Vec<Setting>),
    /// Something that cannot be seen; words that may hold it.
    Opaque { why: String, words: Vec<Word> },
    /// A script that may run so, or otherwise.
    OpaqueScript { why: String, text: String },
    /// A program in a language that nobody reads here.
    Code { why: String, text: String },
}

pub(super) fn opaque(why: impl Into<String>, words: &[Word]) -> Inner {
    Inner::Opaque { why: why.into(), words: words.to_vec() }
}

/// A shell that runs this text, as words.
pub(super) fn shell_words(text: &str) -> Vec<Word> {
    vec!["sh".into(), "-c".into(), text.into()]
}

/// The arguments after the options that a well-known program takes before its subcommand.
pub fn without_options<'a>(program: &str, arguments: &'a [Word]) -> &'a [Word] {
    let Some((_, with)) = SUBCOMMAND_OPTIONS.iter().find(|(name, _)| *name == program) else {
        return arguments;
    };
    let mut at = 0;
    while let Some(word) = arguments.get(at).and_then(Word::text) {
        let toolchain = program == "cargo" && word.starts_with('+');
        if !(toolchain || word.starts_with('-') && word.len() > 1) {
            break;
        }
        at += if with.contains(&word) { 2 } else { 1 };
    }
    arguments.get(at..).unwrap_or_default()
}

/// What these words run in turn.
pub fn inner(words: &[Word]) -> Inner {
    let Some(program) = words.first().and_then(Word::text) else { return Inner::Nothing };
    let name = base_name(program);
    let standard = !program.contains('/')
        || ["/bin/", "/usr/bin/", "/usr/local/bin/"].iter().any(|dir| *program == format!("{dir}{name}"));
    if SHELLS.contains(&name) {
        return shell(words, standard);
    }
    if name == "command" && words.get(1).and_then(Word::text).is_some_and(|word| ["-v", "-V"].contains(&word))
    {
        return Inner::Nothing;
    }
    if let Some((_, options, operands)) = TRANSPARENT.iter().find(|(known, ..)| *known == name) {
        return runs(words, options, *operands, standard);
    }
    match name {
        "sudo" => runs(words, &SUDO, 0, false),
        "xargs" => finders::xargs(words),
        "find" => finders::find(words),
        "busybox" | "toybox"
            if words.get(1).and_then(Word::text).is_some_and(|word| !word.starts_with('-')) =>
        {
            Inner::Runs {
                commands: vec![words[1..].to_vec()],
                assigned: Vec::new(),
                transparent: standard,
                moved: false,
            }
        }
        "busybox" | "toybox" => opaque("busybox with options", words),
        "cd" | "pushd" | "popd" => Inner::Moves,
        "export" => builtins::exported(words),
        "set" => builtins::set(words),
        "read" => builtins::read(words),
        "wait" if words[1..].iter().all(|word| !word.may_be_option()) => Inner::Nothing,
        "jobs" if words[1..].iter().all(|word| matches!(word.text(), Some("-l" | "-p" | "-r" | "-s"))) => {
            Inner::Nothing
        }
        "eval" | "trap" => {
            let text: Vec<_> = words[1..].iter().filter_map(Word::text).collect();
            Inner::OpaqueScript { why: format!("{name} runs a computed script"), text: text.join(" ") }
        }
        "test" | "[" | "printf" => builtins::subscripted(name, &words[1..]),
        "git" => git::inner(words),
        "sed" | "gsed" => editors::sed(words),
        "awk" | "gawk" | "mawk" | "nawk" => editors::awk(words),
        "make" | "gmake" => runners::make(words),
        "sqlite3" | "sqlite" => runners::sqlite(words),
        _ => by_table(words, program, name),
    }
}

fn by_table(words: &[Word], program: &str, name: &str) -> Inner {
    if name.starts_with('-') {
        return opaque("the program has the name of an option", words);
    }
    if LANGUAGES.contains(&name) {
        return opaque(format!("{name} has a language of its own"), words);
    }
    if OPAQUE_PROGRAMS.contains(&name) || name.starts_with("ld-linux") || name.starts_with("ld-musl") {
        return opaque(format!("{name} runs another program"), words);
    }
    if OPAQUE_BUILTINS.contains(&name) && !program.contains('/') {
        return opaque(format!("{name} changes what the shell does"), words);
    }
    if name == "cmake" && words.get(1).and_then(Word::text) == Some("-E") {
        return opaque("cmake -E runs another program", words);
    }
    // git's programs have names of their own, too.
    if let Some(command) = name.strip_prefix("git-") {
        let mut git = vec!["git".into(), command.into()];
        git.extend_from_slice(&words[1..]);
        return Inner::Also(vec![git]);
    }
    if let Some(inner) = interpreters::inner(name, words) {
        return inner;
    }
    interpreters::by_option(name, words).unwrap_or_else(|| runners::runner(name, words))
}

/// Where the operands begin; the error is why that is not known.
pub(super) fn operands(words: &[Word], options: &Options) -> Result<usize, &'static str> {
    const UNKNOWN: &str = "an option is not known";
    let mut at = 1;
    while let Some(word) = words.get(at) {
        // A word that only sets a variable is an operand.
        if matches!(word, Word::Sets { may_split: false, .. }) {
            return Ok(at);
        }
        let word = word.text().ok_or("an option is not a plain word")?;
        at += 1;
        if word == "--" {
            return Ok(at);
        }
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            // Names may be cut short.
            let takes = options.long_with.iter().any(|known| known.starts_with(name));
            if !takes && !options.long.iter().any(|known| known.starts_with(name)) {
                return Err(UNKNOWN);
            }
            at += usize::from(takes && value.is_none());
        } else if word.len() > 1 && word.starts_with('-') {
            for (index, letter) in word.char_indices().skip(1) {
                if options.with.contains(letter) {
                    at += usize::from(index + letter.len_utf8() == word.len());
                    break;
                }
                if !options.without.contains(letter) {
                    return Err(UNKNOWN);
                }
            }
        } else if word == "-" {
            return Err(UNKNOWN);
        } else {
            return Ok(at - 1);
        }
    }
    Ok(words.len())
}

/// `NAME=value`
fn setting(word: &Word) -> Option<Setting> {
    match word {
        // `env` does not ask what a name is made of.
        Word::Plain(text) => {
            text.split_once('=').map(|(name, value)| (name.to_owned(), Some(value.to_owned())))
        }
        Word::Sets { name, may_split: false } => Some((name.clone(), None)),
        Word::Sets { .. } | Word::Unknown { .. } => None,
    }
}

/// A program that runs the program among its operands.
fn runs(words: &[Word], options: &Options, skip: usize, transparent: bool) -> Inner {
    let at = match operands(words, options) {
        Ok(at) => at + skip,
        Err(why) => return opaque(format!("of {}, {why}", words[0].text().unwrap_or("…")), words),
    };
    let rest = words.get(at..).unwrap_or_default();
    let before = &words[1..words.len() - rest.len()];
    if before.iter().any(Word::may_split) {
        return opaque("what runs is not a plain word", words);
    }
    let moved = before.iter().filter_map(Word::text).any(changes_directory);
    let assigned: Vec<_> = rest.iter().map_while(setting).collect();
    let words = rest[assigned.len()..].to_vec();
    if words.is_empty() {
        return Inner::Assigns(assigned);
    }
    Inner::Runs { commands: vec![words], assigned, transparent, moved }
}

/// Whether an option makes a program run another in a directory of its choice: `env -C`, `sudo -D` and `-R`.
fn changes_directory(option: &str) -> bool {
    if let Some(long) = option.strip_prefix("--") {
        let name = long.split('=').next().unwrap_or_default();
        return !name.is_empty() && ["chdir", "chroot"].iter().any(|known| known.starts_with(name));
    }
    option.starts_with('-') && option.contains(['C', 'D', 'R'])
}

/// `bash -lc SCRIPT`
fn shell(words: &[Word], standard: bool) -> Inner {
    const LONG: [&str; 5] = ["--login", "--noprofile", "--norc", "--posix", "--verbose"];
    let name = words[0].text().unwrap_or_default();
    let unknown = || opaque(format!("of {name}, an option is not known"), words);
    let (mut at, mut is_script) = (1, false);
    while let Some(word) = words.get(at) {
        let Some(word) = word.text() else { return unknown() };
        if ["--version", "--help"].contains(&word) && words.len() == 2 {
            return Inner::Nothing;
        }
        at += 1;
        // A lone `-` ends the options, too; a lone `+` is one that says nothing.
        if word == "--" || word == "-" {
            break;
        }
        if !word.starts_with(['-', '+']) {
            at -= 1;
            break;
        }
        if LONG.contains(&word) {
            continue;
        }
        for letter in word[1..].chars() {
            match letter {
                'c' if word.starts_with('-') => is_script = true,
                'o' => at += 1,
                'l' | 'e' | 'u' | 'x' | 'v' | 'f' | 'h' | 'b' | 'B' | 'C' | 'E' | 'H' | 'm' | 'P' | 'p'
                | 'T' | 'n' => {}
                _ => return unknown(),
            }
        }
    }
    if words[1..at.min(words.len())].iter().any(Word::may_split) {
        return unknown();
    }
    match (words.get(at).map(Word::text), is_script) {
        (Some(Some(script)), true) if standard => Inner::Script(script.to_owned()),
        (Some(Some(script)), true) => {
            Inner::OpaqueScript { why: format!("{name} may be any program"), text: script.to_owned() }
        }
        (Some(None), _) => opaque("the script is not a plain word", words),
        (Some(Some(file)), false) if !interpreters::is_input(file) => Inner::Nothing,
        _ => opaque(format!("{name} does what its input says"), &[]),
    }
}
