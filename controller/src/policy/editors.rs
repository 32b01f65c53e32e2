//! `sed` and `awk`: languages that mostly edit text, but can run programs.
//!
//! Invariant: a script is plain only if every bit of it is known to run nothing.

use super::command::Word;
use super::interpreters::is_input;
use super::unwrap::{Inner, opaque};

/// What a `sed` runs.
pub(super) fn sed(words: &[Word]) -> Inner {
    let unseen = || opaque("what sed does is not plain", &[]);
    let mut scripts = Vec::new();
    let (mut first, mut has_file, mut ended) = (None, false, false);
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        let Some(text) = word.text() else {
            // Behind the script there are only names of files, unless they are options.
            let has_script = has_file || first.is_some() || !scripts.is_empty();
            if has_script && (ended || !word.may_be_option()) {
                continue;
            }
            return unseen();
        };
        match text {
            "--" => ended = true,
            _ if ended || !text.starts_with('-') || text == "-" => drop(first.get_or_insert(text)),
            "--expression" | "--file" | "--line-length" => match rest.next().and_then(Word::text) {
                Some(script) if text == "--expression" => scripts.push(script),
                Some(file) if text == "--file" && is_input(file) => return unseen(),
                Some(_) => has_file |= text == "--file",
                None => return unseen(),
            },
            _ if text.starts_with("--expression=") => scripts.push(&text["--expression=".len()..]),
            _ if text.starts_with("--in-place")
                || ["--quiet", "--silent", "--regexp-extended", "--null-data", "--separate", "--posix"]
                    .contains(&text) => {}
            _ if text.starts_with("--") => return unseen(),
            _ => {
                let letters = &text[1..];
                let at = letters.find(|c| "efil".contains(c));
                let Some(at) = at else { continue };
                let value = Some(&letters[at + 1..]).filter(|value| !value.is_empty());
                match &letters[at..=at] {
                    // What follows `i` is the name of copies.
                    "i" => {}
                    letter => match value.or_else(|| rest.next().and_then(Word::text)) {
                        Some(script) if letter == "e" => scripts.push(script),
                        Some(file) if letter == "f" && is_input(file) => return unseen(),
                        Some(_) => has_file |= letter == "f",
                        None => return unseen(),
                    },
                }
            }
        }
    }
    if scripts.is_empty() && !has_file {
        scripts.extend(first);
    }
    match scripts.iter().find(|script| !only_edits(script)) {
        Some(script) => Inner::Code { why: "sed can run programs".to_owned(), text: (*script).to_owned() },
        None => Inner::Nothing,
    }
}

/// Whether a script of `sed` runs nothing.
fn only_edits(script: &str) -> bool {
    let mut rest = script;
    loop {
        rest = rest.trim_start_matches([' ', '\t', '\n', ';', '}', '{', '!', ',', '~', '+', '$']);
        rest = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let Some(command) = rest.chars().next() else { return true };
        let after = &rest[command.len_utf8()..];
        rest = match command {
            ' ' | '\t' | '\n' | ';' | '}' | '{' | '!' | ',' | '~' | '+' | '$' => rest,
            // An address, and its flags.
            '/' => match delimited(after, '/') {
                Some(after) => after.trim_start_matches(['I', 'M']),
                None => return false,
            },
            'p' | 'd' | 'q' | '=' | 'D' | 'N' | 'n' | 'G' | 'g' | 'H' | 'h' | 'P' | 'x' | 'Q' | 'z' => after,
            's' => match substitution(after) {
                Some(after) => after,
                None => return false,
            },
            'y' => {
                let Some(mark) = after.chars().next() else { return false };
                let to = delimited(&after[mark.len_utf8()..], mark).and_then(|after| delimited(after, mark));
                match to {
                    Some(after) => after,
                    None => return false,
                }
            }
            // Text and names of files go on to the end of the line.
            'a' | 'i' | 'c' if !after.contains('\n') => return true,
            'r' | 'R' | 'w' | 'W' => after.split_once('\n').map_or("", |(_, after)| after),
            // Labels end earlier in some.
            'b' | 't' | 'T' | ':' => after.split_once(['\n', ';', '}']).map_or("", |(_, after)| after),
            _ => return false,
        };
    }
}

/// `/…/…/flags`
fn substitution(text: &str) -> Option<&str> {
    let mark = text.chars().next().filter(|mark| *mark != '\n' && *mark != '\\')?;
    let after = delimited(&text[mark.len_utf8()..], mark).and_then(|after| delimited(after, mark))?;
    let after = after.trim_start_matches(|c: char| "gpiIM".contains(c) || c.is_ascii_digit());
    // `e` runs what it makes; `w` names a file.
    after.is_empty().then_some(after).or_else(|| after.starts_with([';', ' ', '\n', '}']).then_some(after))
}

/// What follows the next of these marks that is not escaped; none in a bracket, where shells of sed disagree.
fn delimited(text: &str, mark: char) -> Option<&str> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == mark => return Some(&text[at + c.len_utf8()..]),
            // A mark in a bracket ends nothing, in some places.
            '[' if bracket_holds(&text[at + 1..], mark) => return None,
            _ => {}
        }
    }
    None
}

fn bracket_holds(text: &str, mark: char) -> bool {
    text.split(']').next().is_some_and(|inside| inside.contains(mark) && text.contains(']'))
}

/// What an `awk` runs.
pub(super) fn awk(words: &[Word]) -> Inner {
    let unseen = || opaque("what awk does is not plain", &[]);
    let mut rest = words[1..].iter();
    while let Some(word) = rest.next() {
        let Some(text) = word.text() else { return unseen() };
        match text {
            "--version" | "-V" => return Inner::Nothing,
            "-F" | "-v" => match rest.next() {
                Some(word) if !word.may_split() => {}
                _ => return unseen(),
            },
            "-f" => {
                return match rest.next().and_then(Word::text) {
                    Some(file) if !is_input(file) => Inner::Nothing,
                    _ => opaque("awk does what its input says", &[]),
                };
            }
            "--" => {}
            _ if text.starts_with("-F") || text.starts_with("-v") => {}
            _ if text.starts_with('-') => return unseen(),
            program if runs_nothing(program) => return Inner::Nothing,
            program => {
                return Inner::Code { why: "awk can run programs".to_owned(), text: program.to_owned() };
            }
        }
    }
    Inner::Nothing
}

/// Whether a program of `awk` neither calls `system` nor reads or writes a pipe.
fn runs_nothing(program: &str) -> bool {
    let program = program.replace("||", "");
    let printed = program.find("print").map_or("", |at| &program[at..]);
    !["system", "getline", "@", "|&"].iter().any(|word| program.contains(word)) && !printed.contains('|')
}
