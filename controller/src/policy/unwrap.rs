//! Programs that run other programs, and what they run.
//!
//! Invariant: an option that is not in the tables makes the rest opaque; nothing is skipped that is not understood.

use super::command::{Word, base_name};
use super::programs::{
    INTERPRETERS, OPAQUE_BUILTINS, OPAQUE_PROGRAMS, OTHER_SHELLS, Options, SHELLS, SUBCOMMAND_OPTIONS, SUDO,
    TRANSPARENT, XARGS,
};

/// What a program runs in turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inner {
    /// Nothing that concerns anybody else.
    Nothing,
    /// One program. A transparent one does nothing else itself.
    Runs { words: Vec<Word>, assigned: Vec<String>, transparent: bool, moved: bool },
    /// Several; `moved` as of one: in another directory.
    Many { commands: Vec<Vec<Word>>, moved: bool },
    /// A shell script, given whole.
    Script(String),
    /// It changes the directory for what follows.
    Moves,
    /// It sets variables for what follows.
    Assigns(Vec<String>),
    /// Something that cannot be seen; words that may hold it.
    Opaque { why: String, words: Vec<Word> },
    /// A script that may run so, or otherwise.
    OpaqueScript { why: String, text: String },
}

fn opaque(why: impl Into<String>, words: &[Word]) -> Inner {
    Inner::Opaque { why: why.into(), words: words.to_vec() }
}

/// The arguments after the options that a well-known program takes before its subcommand.
pub fn without_options<'a>(program: &str, arguments: &'a [Word]) -> &'a [Word] {
    let Some((_, with)) = SUBCOMMAND_OPTIONS.iter().find(|(name, _)| *name == program) else {
        return arguments;
    };
    let mut at = 0;
    while let Some(Some(word)) = arguments.get(at) {
        let toolchain = program == "cargo" && word.starts_with('+');
        if !(toolchain || word.starts_with('-') && word.len() > 1) {
            break;
        }
        at += if with.contains(&word.as_str()) { 2 } else { 1 };
    }
    arguments.get(at..).unwrap_or_default()
}

/// What these words run in turn.
pub fn inner(words: &[Word]) -> Inner {
    let Some(Some(program)) = words.first() else { return Inner::Nothing };
    let name = base_name(program);
    let standard = !program.contains('/')
        || ["/bin/", "/usr/bin/", "/usr/local/bin/"].iter().any(|dir| *program == format!("{dir}{name}"));
    if SHELLS.contains(&name) {
        return shell(words, standard);
    }
    if let Some((_, options, operands)) = TRANSPARENT.iter().find(|(known, ..)| *known == name) {
        return runs(words, options, *operands, standard);
    }
    match name {
        "sudo" => runs(words, &SUDO, 0, false),
        "xargs" => xargs(words),
        "find" => find(words),
        "busybox" | "toybox" if matches!(words.get(1), Some(Some(applet)) if !applet.starts_with('-')) => {
            Inner::Runs {
                words: words[1..].to_vec(),
                assigned: Vec::new(),
                transparent: standard,
                moved: false,
            }
        }
        "busybox" | "toybox" => opaque("busybox with options", words),
        "cd" | "pushd" | "popd" => Inner::Moves,
        "export" => exported(words),
        "set" => set(words),
        "eval" | "trap" => {
            let text: Vec<_> = words[1..].iter().flatten().map(String::as_str).collect();
            Inner::OpaqueScript { why: format!("{name} runs a computed script"), text: text.join(" ") }
        }
        "test" | "[" | "printf"
            if words.iter().any(|word| word.as_deref().is_none_or(|word| word.starts_with("-v"))) =>
        {
            opaque(format!("{name} may compute a subscript"), &[])
        }
        "git" => git(words),
        _ if OTHER_SHELLS.contains(&name) => opaque(format!("{name} has a language of its own"), words),
        _ if OPAQUE_PROGRAMS.contains(&name) || name.starts_with("ld-linux") => {
            opaque(format!("{name} runs another program"), words)
        }
        _ if OPAQUE_BUILTINS.contains(&name) && !program.contains('/') => {
            opaque(format!("{name} changes what the shell does"), words)
        }
        _ if is_interpreter(name) && !has_operand(&words[1..]) => {
            opaque(format!("{name} does what its input says"), &[])
        }
        _ => Inner::Nothing,
    }
}

/// `python3`, `python3.12` and the like are meant by `python`.
fn is_interpreter(name: &str) -> bool {
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    INTERPRETERS.contains(&plain) || INTERPRETERS.contains(&name)
}

fn has_operand(arguments: &[Word]) -> bool {
    let is_input = |word: &str| {
        word.starts_with('-')
            || word.starts_with("/dev/fd/")
            || word.ends_with("/fd/0")
            || word == "/dev/stdin"
    };
    arguments.iter().any(|word| word.as_deref().is_some_and(|word| !is_input(word)))
}

/// Where the operands begin; the error is why that is not known.
fn operands(words: &[Word], options: &Options) -> Result<usize, &'static str> {
    const UNKNOWN: &str = "an option is not known";
    let mut at = 1;
    while let Some(word) = words.get(at) {
        let word = word.as_deref().ok_or("an option is not a plain word")?;
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
fn assignment(word: &Word) -> Option<&str> {
    let (name, _) = word.as_deref()?.split_once('=')?;
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    (starts && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')).then_some(name)
}

/// A program that runs the program among its operands.
fn runs(words: &[Word], options: &Options, skip: usize, transparent: bool) -> Inner {
    let at = match operands(words, options) {
        Ok(at) => at + skip,
        Err(why) => return opaque(format!("of {}, {why}", words[0].as_deref().unwrap_or("…")), words),
    };
    let rest = words.get(at..).unwrap_or_default();
    let moved = words[1..words.len() - rest.len()].iter().flatten().any(|word| changes_directory(word));
    let assigned: Vec<_> = rest.iter().map_while(assignment).map(str::to_owned).collect();
    let words = rest[assigned.len()..].to_vec();
    if words.is_empty() {
        return Inner::Assigns(assigned);
    }
    Inner::Runs { words, assigned, transparent, moved }
}

/// Whether an option makes a program run another in a directory of its choice: `env -C`, `sudo -D` and `-R`.
fn changes_directory(option: &str) -> bool {
    if let Some(long) = option.strip_prefix("--") {
        let name = long.split('=').next().unwrap_or_default();
        return !name.is_empty() && ["chdir", "chroot"].iter().any(|known| known.starts_with(name));
    }
    option.starts_with('-') && option.contains(['C', 'D', 'R'])
}

fn xargs(words: &[Word]) -> Inner {
    // Replacing is not followed: any word could become anything.
    let replaces = words[1..].iter().flatten().take_while(|word| word.starts_with('-')).any(|word| {
        word.starts_with("--rep") || !word.starts_with("--") && word.contains(['i', 'I', 'e', 'l'])
    });
    match operands(words, &XARGS) {
        Ok(at) if !replaces && at < words.len() => {
            let mut words = words[at..].to_vec();
            words.push(None);
            Inner::Runs { words, assigned: Vec::new(), transparent: false, moved: false }
        }
        Ok(_) if !replaces => Inner::Nothing,
        _ => opaque("xargs replaces words by what it reads", words),
    }
}

/// `-exec WORDS ;` and its like.
fn find(words: &[Word]) -> Inner {
    let (mut commands, mut moved) = (Vec::new(), false);
    let mut at = 1;
    while let Some(word) = words.get(at) {
        at += 1;
        match word.as_deref() {
            Some("-exec" | "-ok") => {}
            Some("-execdir" | "-okdir") => moved = true,
            _ => continue,
        }
        let rest = &words[at..];
        let is = |at: Option<usize>, text| at.and_then(|at| rest[at].as_deref()) == Some(text);
        // A `+` only ends the words after `{}`.
        let ends = |at: &usize| is(Some(*at), ";") || is(Some(*at), "+") && is(at.checked_sub(1), "{}");
        let end = (0..rest.len()).find(ends).unwrap_or(rest.len());
        let seen = |word: &Word| word.clone().filter(|word| !word.contains("{}"));
        commands.push(rest[..end].iter().map(seen).collect());
        at += end;
    }
    if commands.is_empty() { Inner::Nothing } else { Inner::Many { commands, moved } }
}

fn exported(words: &[Word]) -> Inner {
    let names: Option<Vec<String>> = words[1..]
        .iter()
        .map(|word| {
            let word = word.as_ref()?;
            let name = word.split('=').next().unwrap_or_default();
            (!name.starts_with('-')).then(|| name.trim_end_matches('+').to_owned())
        })
        .collect();
    names.map_or_else(|| opaque("export with options or computed words", words), Inner::Assigns)
}

/// Only what makes a script stricter.
fn set(words: &[Word]) -> Inner {
    let harmless = |word: &Word| {
        word.as_deref().is_some_and(|word| {
            ["pipefail", "errexit", "nounset", "xtrace"].contains(&word)
                || word.len() > 1 && word.starts_with('-') && word[1..].chars().all(|c| "euxo".contains(c))
        })
    };
    if words[1..].iter().all(harmless) {
        Inner::Nothing
    } else {
        opaque("set changes what the shell does", words)
    }
}

/// Configuration on the command line can make git run anything.
fn git(words: &[Word]) -> Inner {
    let dangerous = |word: &str| {
        word.starts_with("-c") || word.starts_with("--config-env") || word.starts_with("--exec-path=")
    };
    let arguments = &words[1..];
    let options = &arguments[..arguments.len() - without_options("git", arguments).len()];
    if options.iter().flatten().any(|word| dangerous(word)) {
        return opaque("git is configured on its command line", &[]);
    }
    Inner::Nothing
}

/// `bash -lc SCRIPT`
fn shell(words: &[Word], standard: bool) -> Inner {
    const LONG: [&str; 5] = ["--login", "--noprofile", "--norc", "--posix", "--verbose"];
    let name = words[0].as_deref().unwrap_or_default();
    let unknown = || opaque(format!("of {name}, an option is not known"), words);
    let (mut at, mut is_script) = (1, false);
    while let Some(word) = words.get(at) {
        let Some(word) = word.as_deref() else { return unknown() };
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
                | 'T' => {}
                _ => return unknown(),
            }
        }
    }
    match (words.get(at), is_script) {
        (Some(Some(script)), true) if standard => Inner::Script(script.clone()),
        (Some(Some(script)), true) => {
            Inner::OpaqueScript { why: format!("{name} may be any program"), text: script.clone() }
        }
        (Some(None), _) => opaque("the script is not a plain word", words),
        (Some(Some(_)), false) if has_operand(&words[at..]) => Inner::Nothing,
        _ => opaque(format!("{name} does what its input says"), &[]),
    }
}
