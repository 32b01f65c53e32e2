//! What git runs besides itself: by its configuration, by options, by aliases.
//!
//! Invariant: a command of git that is not listed may be an alias, which may be anything; git's own cannot be.

use super::command::Word;
use super::unwrap::{Inner, opaque, shell_words, without_options};
use crate::sandbox::git_config::harmless;

/// Commands of git that do what their name says.
const COMMANDS: [&str; 103] = [
    "add",
    "am",
    "annotate",
    "apply",
    "archive",
    "bisect",
    "blame",
    "branch",
    "bundle",
    "cat-file",
    "check-attr",
    "check-ignore",
    "check-mailmap",
    "check-ref-format",
    "checkout",
    "checkout-index",
    "cherry",
    "cherry-pick",
    "clean",
    "clone",
    "column",
    "commit",
    "commit-graph",
    "commit-tree",
    "config",
    "count-objects",
    "describe",
    "diagnose",
    "diff",
    "diff-files",
    "diff-index",
    "diff-tree",
    "difftool",
    "fast-export",
    "fetch",
    "fmt-merge-msg",
    "for-each-ref",
    "format-patch",
    "fsck",
    "gc",
    "get-tar-commit-id",
    "grep",
    "hash-object",
    "help",
    "index-pack",
    "init",
    "interpret-trailers",
    "log",
    "ls-files",
    "ls-remote",
    "ls-tree",
    "mailinfo",
    "mailsplit",
    "maintenance",
    "merge",
    "merge-base",
    "merge-file",
    "merge-tree",
    "mktag",
    "mktree",
    "mv",
    "name-rev",
    "notes",
    "pack-objects",
    "pack-refs",
    "patch-id",
    "prune",
    "pull",
    "push",
    "range-diff",
    "read-tree",
    "rebase",
    "reflog",
    "remote",
    "repack",
    "replace",
    "request-pull",
    "rerere",
    "reset",
    "restore",
    "rev-list",
    "rev-parse",
    "revert",
    "rm",
    "shortlog",
    "show",
    "show-branch",
    "show-ref",
    "sparse-checkout",
    "stage",
    "stash",
    "status",
    "stripspace",
    "submodule",
    "switch",
    "symbolic-ref",
    "tag",
    "update-index",
    "update-ref",
    "var",
    "verify-commit",
    "version",
    "worktree",
];

/// Options whose argument another program runs, by command; the letter first.
const RUNNING: [(&str, &str, &[&str]); 10] = [
    ("rebase", "x", &["exec"]),
    ("difftool", "x", &["extcmd"]),
    ("grep", "O", &["open-files-in-pager"]),
    ("clone", "u", &["upload-pack", "template"]),
    ("fetch", "", &["upload-pack"]),
    ("pull", "", &["upload-pack"]),
    ("ls-remote", "", &["upload-pack", "exec"]),
    ("push", "", &["receive-pack", "exec"]),
    ("archive", "", &["exec"]),
    ("init", "", &["template"]),
];

/// What git is given to run.
pub fn inner(words: &[Word]) -> Inner {
    let arguments = &words[1..];
    let behind = without_options("git", arguments);
    let options = &arguments[..arguments.len() - behind.len()];
    if options.iter().any(Word::may_split) {
        return opaque("an option of git is not a plain word", &[]);
    }
    if let Err(why) = configured(options) {
        return opaque(why, &[]);
    }
    let Some(command) = behind.first() else { return Inner::Nothing };
    let Some(command) = command.text() else { return opaque("the command of git is not a plain word", &[]) };
    if !COMMANDS.contains(&command) {
        return opaque(format!("git {command} may be an alias"), &[]);
    }
    let rest = &behind[1..];
    match command {
        "config" => config(rest),
        "bisect" if rest.first().and_then(Word::text) == Some("run") => Inner::Also(vec![rest[1..].to_vec()]),
        "bisect" if rest.first().is_some_and(|word| word.text().is_none()) => {
            opaque("what git bisect does is not a plain word", &[])
        }
        "submodule" => submodule(rest),
        _ => running(command, rest),
    }
}

/// Whether the options before the command set nothing that may run something.
fn configured(options: &[Word]) -> Result<(), &'static str> {
    const WHY: &str = "git is configured on its command line";
    let mut options = options.iter();
    while let Some(option) = options.next() {
        match option.text() {
            Some("-c") => match options.next().and_then(Word::text) {
                Some(setting) if is_harmless(setting) => {}
                _ => return Err(WHY),
            },
            Some("-C" | "--git-dir" | "--work-tree" | "--namespace") => drop(options.next()),
            Some(text)
                if text.starts_with("-c")
                    || text.starts_with("--config-env")
                    || text.starts_with("--exec-path=") =>
            {
                return Err(WHY);
            }
            Some(_) => {}
            None => return Err(WHY),
        }
    }
    Ok(())
}

/// `section.name=value`
fn is_harmless(setting: &str) -> bool {
    let (key, value) = setting.split_once('=').unwrap_or((setting, "true"));
    match key.to_ascii_lowercase().as_str() {
        "core.pager" | "core.editor" | "sequence.editor" => ["", "cat", "true", ":"].contains(&value),
        "safe.directory" => true,
        _ => harmless::is_harmless_setting(key, value),
    }
}

fn config(rest: &[Word]) -> Inner {
    const READ: [&str; 9] = [
        "get",
        "list",
        "--get",
        "--get-all",
        "--get-regexp",
        "--get-urlmatch",
        "--list",
        "-l",
        "--get-color",
    ];
    let words: Option<Vec<&str>> = rest.iter().map(Word::text).collect();
    let Some(words) = words else { return opaque("what git config does is not plain", &[]) };
    if words.iter().take_while(|word| !word.contains('.')).any(|word| READ.contains(word)) {
        return Inner::Nothing;
    }
    let mut plain = words.iter().filter(|word| !word.starts_with('-') && !["set", "unset"].contains(word));
    let removes = words.iter().any(|word| word.starts_with("--unset") || *word == "unset");
    let edits = words.iter().any(|word| {
        word.starts_with("-e")
            || ["--e", "--rename", "--remove", "-f", "--f", "--bl", "--d"]
                .iter()
                .any(|known| word.starts_with(known))
    });
    match (plain.next(), plain.next()) {
        _ if edits => opaque("git config changes what git runs", &[]),
        (Some(_), None) => Inner::Nothing,
        (Some(_), _) if removes => Inner::Nothing,
        (Some(key), Some(value)) if is_harmless(&format!("{key}={value}")) => Inner::Nothing,
        _ => opaque("git config changes what git runs", &[]),
    }
}

fn submodule(rest: &[Word]) -> Inner {
    let words: Option<Vec<&str>> = rest.iter().map(Word::text).collect();
    let Some(words) = words else { return opaque("what git submodule does is not plain", &[]) };
    let Some(at) = words.iter().position(|word| *word == "foreach") else { return Inner::Nothing };
    let command: Vec<_> = words[at + 1..].iter().skip_while(|word| word.starts_with('-')).copied().collect();
    Inner::Also(vec![shell_words(&command.join(" "))])
}

/// Looks for options that make a command run something.
fn running(command: &str, rest: &[Word]) -> Inner {
    let has_alien = rest.iter().filter_map(Word::text).any(|word| word.starts_with("ext::"));
    let Some((_, letter, long)) = RUNNING.iter().find(|(known, ..)| *known == command) else {
        return Inner::Nothing;
    };
    if has_alien {
        return opaque(format!("git {command} is told to run something"), rest);
    }
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        let Some(text) = word.text() else {
            return opaque(format!("an argument of git {command} may make it run something"), &[]);
        };
        if text == "--" {
            break;
        }
        let value = if let Some(name) = text.strip_prefix("--") {
            let (name, value) =
                name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
            // Names may be cut short.
            let is_running = name.len() > 1 && long.iter().any(|known| known.starts_with(name));
            let configures = command == "clone" && name.len() > 1 && "config".starts_with(name);
            (is_running || configures).then_some(value)
        } else {
            let letters = text.strip_prefix('-').unwrap_or_default();
            let at = letters.find(|c| letter.contains(c) || command == "clone" && c == 'c');
            at.map(|at| Some(&letters[at + 1..]).filter(|rest| !rest.is_empty()))
        };
        if let Some(value) = value {
            let text = value.or_else(|| words.next().and_then(Word::text)).unwrap_or_default();
            return match command {
                "rebase" | "difftool" => Inner::Also(vec![shell_words(text)]),
                _ => Inner::OpaqueScript {
                    why: format!("git {command} is told to run something"),
                    text: text.to_owned(),
                },
            };
        }
    }
    Inner::Nothing
}
