//! Words of the shell that set variables or test them.
//!
//! Invariant: a name of a variable is plain, and has no subscript: that would be computed.

use super::command::{Setting, Word};
use super::shell::assigned_name;
use super::unwrap::{Inner, opaque};

pub(super) fn exported(words: &[Word]) -> Inner {
    let setting = |word: &Word| match word {
        Word::Plain(text) => match text.split_once('=') {
            Some((_, value)) => Some((assigned_name(text)?.to_owned(), Some(value.to_owned()))),
            // The value was seen where it was set.
            None => Some((assigned_name(&format!("{text}="))?.to_owned(), Some(String::new()))),
        },
        Word::Sets { name, .. } => Some((name.clone(), None)),
        Word::Unknown { .. } => None,
    };
    let names: Option<Vec<Setting>> = words[1..].iter().map(setting).collect();
    names.map_or_else(|| opaque("export with options or computed words", words), Inner::Assigns)
}

/// Names of variables are only that where they have no subscript.
pub(super) fn read(words: &[Word]) -> Inner {
    let names = words[1..].iter().skip_while(|word| matches!(word.text(), Some("-r" | "-s" | "-rs" | "-sr")));
    let setting = |word: &Word| Some((assigned_name(&format!("{}=", word.text()?))?.to_owned(), None));
    match names.map(setting).collect::<Option<Vec<Setting>>>() {
        Some(settings) => Inner::Assigns(settings),
        None => opaque("read sets what cannot be seen", words),
    }
}

/// Only what makes a script stricter, or no longer so.
pub(super) fn set(words: &[Word]) -> Inner {
    let harmless = |word: &Word| {
        word.text().is_some_and(|word| {
            ["pipefail", "errexit", "nounset", "xtrace"].contains(&word)
                || word.len() > 1
                    && word.starts_with(['-', '+'])
                    && word[1..].chars().all(|c| "euxo".contains(c))
        })
    };
    if words[1..].iter().all(harmless) {
        Inner::Nothing
    } else {
        opaque("set changes what the shell does", words)
    }
}

/// The names of variables in tests and formats may have subscripts, and those are computed.
pub(super) fn subscripted(name: &str, arguments: &[Word]) -> Inner {
    const COMPARE: [&str; 14] =
        ["=", "==", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef", "<", ">"];
    let is_safe = |word: &Word| word.text().is_some_and(|word| !word.starts_with("-v") && word != "-R");
    let safe = if name == "printf" {
        // What is only printed is only printed.
        arguments.first().is_none_or(is_safe)
    } else {
        let words = arguments.strip_suffix(&["]".into()]).unwrap_or(arguments);
        let words = words.strip_prefix(&["!".into()]).unwrap_or(words);
        words.iter().all(is_safe)
            || !words.iter().any(Word::may_split)
                && match words {
                    [_] => true,
                    [operator, _] => {
                        is_safe(operator) && operator.text().is_some_and(|word| word.starts_with('-'))
                    }
                    [_, operator, _] => operator.text().is_some_and(|word| COMPARE.contains(&word)),
                    _ => false,
                }
    };
    if safe { Inner::Nothing } else { opaque(format!("{name} may compute a subscript"), &[]) }
}
