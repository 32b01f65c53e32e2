//! Programs that run what they are told to, and are allowed or not for what they are themselves.
//!
//! Invariant: what they run is still held against rules that deny and ask.

use super::command::Word;
use super::unwrap::{Inner, opaque, shell_words};

/// Programs that run the program among their operands, and are allowed or not for what they are: the subcommand that does so, its
/// options that take a word, and the operands before the program.
const RUNNERS: &[(&str, Option<&str>, &[&str], usize)] = &[
    ("npx", None, &["-p", "--package", "-w", "--workspace"], 0),
    ("bunx", None, &[], 0),
    ("pnpx", None, &[], 0),
    ("npm", Some("exec"), &["-p", "--package", "-w", "--workspace"], 0),
    ("npm", Some("x"), &["-p", "--package", "-w", "--workspace"], 0),
    ("pnpm", Some("exec"), &["-C", "--dir", "-F", "--filter"], 0),
    ("pnpm", Some("dlx"), &["--package"], 0),
    ("yarn", Some("exec"), &[], 0),
    ("yarn", Some("dlx"), &["-p", "--package"], 0),
    (
        "uv",
        Some("run"),
        &["--with", "--python", "-p", "--extra", "--group", "--project", "--directory", "--env-file"],
        0,
    ),
    ("uvx", None, &["--from", "--with", "--python", "-p"], 0),
    ("pipx", Some("run"), &["--spec", "--python"], 0),
    ("poetry", Some("run"), &[], 0),
    ("pipenv", Some("run"), &[], 0),
    ("pdm", Some("run"), &["-p", "--project"], 0),
    ("hatch", Some("run"), &["-e", "--env"], 0),
    ("rye", Some("run"), &[], 0),
    ("conda", Some("run"), &["-n", "--name", "-p", "--prefix", "--cwd"], 0),
    ("mamba", Some("run"), &["-n", "--name", "-p", "--prefix", "--cwd"], 0),
    ("bundle", Some("exec"), &[], 0),
    ("rbenv", Some("exec"), &[], 0),
    ("pyenv", Some("exec"), &[], 0),
    ("asdf", Some("exec"), &[], 0),
    ("mise", Some("exec"), &["-C", "--cd", "-j", "--jobs"], 0),
    ("mise", Some("x"), &["-C", "--cd", "-j", "--jobs"], 0),
    ("direnv", Some("exec"), &[], 1),
    ("rustup", Some("run"), &[], 1),
    ("composer", Some("exec"), &[], 0),
    ("opam", Some("exec"), &["--switch"], 0),
    ("stack", Some("exec"), &[], 0),
    ("dotenv", None, &["-f", "--file", "-e"], 0),
    ("cross-env", None, &[], 0),
];

/// `uv run CMD`, `npx CMD` and the like: whoever allows them allows what they run, but not what is denied.
pub(super) fn runner(name: &str, words: &[Word]) -> Inner {
    let Some((_, subcommand, with, skip)) = RUNNERS.iter().find(|(known, subcommand, ..)| {
        *known == name && subcommand.is_none_or(|wanted| words.get(1).and_then(Word::text) == Some(wanted))
    }) else {
        return Inner::Nothing;
    };
    let mut at = 1 + usize::from(subcommand.is_some());
    while let Some(word) = words.get(at) {
        let Some(text) = word.text() else {
            return opaque(format!("{name} runs what cannot be seen"), words);
        };
        at += 1;
        match text {
            "--" => break,
            "-c" | "--call" if matches!(name, "npx" | "npm") => {
                let text = words.get(at).and_then(Word::text).unwrap_or_default();
                return Inner::OpaqueScript { why: format!("{name} runs a script"), text: text.to_owned() };
            }
            _ if with.contains(&text) => at += 1,
            _ if text.starts_with('-') => {}
            _ => {
                at -= 1;
                break;
            }
        }
    }
    let command = words.get(at + skip..).unwrap_or_default();
    if command.is_empty() { Inner::Nothing } else { Inner::Also(vec![command.to_vec()]) }
}

/// Makefiles are programs like others; what stands on the command line is not seen there.
pub(super) fn make(words: &[Word]) -> Inner {
    let plain: Vec<_> = words[1..].iter().filter_map(Word::text).collect();
    let computes = |word: &&str| {
        let letters = word.strip_prefix('-').filter(|word| !word.starts_with('-')).unwrap_or_default();
        let is_input = ["-", "-f-"].contains(word) || word.ends_with("=-") || word.contains("/dev/");
        is_input
            || word.contains('$')
            || word.starts_with("--e")
            || letters.chars().take_while(|letter| !"CfIjloW".contains(*letter)).any(|letter| letter == 'E')
            || word.contains('=') && ["SHELL", ".SHELL", "MAKE"].iter().any(|name| word.starts_with(name))
    };
    let found = plain.iter().find(|word| computes(word));
    if found.is_some() || plain.len() + 1 < words.len() {
        let text = found.copied().unwrap_or_default().to_owned();
        return Inner::Code { why: "make computes what it is given".to_owned(), text };
    }
    // Recipes run variables, whole or followed by arguments.
    let values = plain.iter().filter_map(|word| Some(word.split_once('=')?.1));
    let commands: Vec<_> = values.filter(|value| value.contains(' ')).map(shell_words).collect();
    if commands.is_empty() { Inner::Nothing } else { Inner::Also(commands) }
}

/// Statements are plain, the commands of its shell are not.
pub(super) fn sqlite(words: &[Word]) -> Inner {
    let plain: Vec<_> = words[1..].iter().filter_map(Word::text).collect();
    let commands = |word: &&str| {
        let begins = word.lines().any(|line| line.trim_start().starts_with('.')) && !word.starts_with("./");
        begins || ["load_extension", "edit(", "-cmd", "-init"].iter().any(|known| word.contains(known))
    };
    if let Some(text) = plain.iter().find(|word| commands(word)) {
        return Inner::Code { why: "sqlite3 can run programs".to_owned(), text: (*text).to_owned() };
    }
    let operands = plain.iter().filter(|word| !word.starts_with('-')).count();
    if operands < 2 || plain.len() + 1 < words.len() {
        return opaque("sqlite3 does what its input says", &[]);
    }
    Inner::Nothing
}
