//! `find` and `xargs`: what they run, with what they put into it.
//!
//! Invariant: a word that is replaced, or that comes from elsewhere, is not plain.

use super::command::Word;
use super::programs::Options;
use super::unwrap::{Inner, opaque, operands};

const XARGS: Options = Options {
    with: "adEILnPs",
    without: "0oprtx",
    long_with: &["arg-file", "delimiter", "max-args", "max-procs", "max-chars", "process-slot-var"],
    long: &[
        "null",
        "open-tty",
        "interactive",
        "no-run-if-empty",
        "verbose",
        "exit",
        "show-limits",
        "replace",
    ],
};

pub(super) fn xargs(words: &[Word]) -> Inner {
    let Ok(at) = operands(words, &XARGS) else {
        return opaque("xargs has options that are not known", words);
    };
    let Some(command) = words.get(at..).filter(|command| !command.is_empty()) else { return Inner::Nothing };
    let mut command = command.to_vec();
    match replaced(&words[1..at]) {
        None => command.push(Word::MANY),
        Some(pattern) => {
            for word in &mut command {
                if word.text().is_some_and(|text| text.contains(&pattern)) {
                    *word = Word::ONE;
                }
            }
        }
    }
    Inner::Runs { commands: vec![command], assigned: Vec::new(), transparent: false, moved: false }
}

/// What `xargs` replaces by what it reads.
fn replaced(options: &[Word]) -> Option<String> {
    let mut options = options.iter().filter_map(Word::text);
    let mut pattern = None;
    while let Some(option) = options.next() {
        if let Some(long) = option.strip_prefix("--") {
            let (name, value) = long.split_once('=').unwrap_or((long, "{}"));
            if !name.is_empty() && "replace".starts_with(name) {
                pattern = Some(value.to_owned());
            }
        } else if let Some((_, rest)) = option.split_once('I') {
            let next = if rest.is_empty() { options.next().unwrap_or_default() } else { rest };
            pattern = Some(next.to_owned());
        }
    }
    pattern
}

/// `-exec WORDS ;` and its like.
pub(super) fn find(words: &[Word]) -> Inner {
    const TAKE_A_WORD: [&str; 17] = [
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-wholename",
        "-regex",
        "-iregex",
        "-newer",
        "-type",
        "-maxdepth",
        "-mindepth",
        "-mtime",
        "-mmin",
        "-size",
        "-user",
        "-perm",
        "-printf",
    ];
    let (mut commands, mut moved, mut loose) = (Vec::new(), false, 0);
    let mut at = 1;
    while let Some(word) = words.get(at) {
        at += 1;
        match word.text() {
            Some("-exec" | "-ok") => {}
            Some("-execdir" | "-okdir") => moved = true,
            Some(word) => {
                let takes =
                    TAKE_A_WORD.contains(&word) && words.get(at).is_some_and(|next| !next.may_split());
                at += usize::from(takes);
                continue;
            }
            None if !word.may_be_option() => continue,
            None => {
                // Many words may be any of them.
                loose += if word.may_split() { 2 } else { 1 };
                continue;
            }
        }
        let rest = &words[at..];
        let is = |at: Option<usize>, text| at.and_then(|at| rest.get(at)?.text()) == Some(text);
        // A `+` only ends the words after `{}`.
        let ends = |at: &usize| is(Some(*at), ";") || is(Some(*at), "+") && is(at.checked_sub(1), "{}");
        let end = (0..rest.len()).find(ends).unwrap_or(rest.len());
        let seen = |(index, word): (usize, &Word)| match word.text() {
            Some("{}") if is(Some(end), "+") && index + 1 == end => Word::MANY,
            Some(text) if text.contains("{}") => Word::ONE,
            _ => word.clone(),
        };
        commands.push(rest[..end].iter().enumerate().map(seen).collect());
        at += end;
    }
    // A word that cannot be seen may be `-exec`, if another is there to end what it runs.
    let unknown = words.iter().filter(|word| word.text().is_none()).count();
    let has_end = words.iter().any(|word| matches!(word.text(), Some(";" | "+")));
    if loose > 1 || loose == 1 && (unknown > 1 || has_end) {
        return opaque("find may run what cannot be seen", words);
    }
    if commands.is_empty() {
        return Inner::Nothing;
    }
    Inner::Runs { commands, assigned: Vec::new(), transparent: false, moved }
}
