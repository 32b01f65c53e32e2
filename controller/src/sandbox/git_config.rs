//! What a git configuration names that git on the host executes or obeys besides itself: a directory of hooks, files it
//! includes, programs. Those in the workspace are as good as hooks (`core.hooksPath = .husky`).
//!
//! Only as much of the format is understood as that takes. Programs count where git starts them unasked; an alias is
//! typed by whoever looks at it.

pub mod harmless;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Configuration files followed from one, itself included.
const MAX_FILES: usize = 32;

/// Of each file this much is read.
const MAX_BYTES: u64 = 1 << 20;

/// Last parts of the names of variables whose value is a command.
const COMMANDS: [&str; 16] = [
    "askpass",
    "clean",
    "cmd",
    "command",
    "driver",
    "editor",
    "external",
    "fsmonitor",
    "gitproxy",
    "helper",
    "pager",
    "process",
    "program",
    "smudge",
    "sshcommand",
    "textconv",
];

/// Absolute paths, there or not.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Directories of hooks.
    pub hooks: Vec<PathBuf>,
    /// Included files.
    pub includes: Vec<PathBuf>,
    /// Words of commands that are files.
    pub programs: Vec<PathBuf>,
}

/// Reads a configuration and what it includes. Commands start in `worktree`, the top of the repository.
pub fn named(config: &Path, worktree: &Path) -> Named {
    let mut named = Named::default();
    let mut files = vec![config.to_owned()];
    let mut next = 0;
    while let Some(file) = files.get(next).cloned() {
        next += 1;
        let base = file.parent().unwrap_or(worktree);
        for (section, key, value) in entries(&read(&file)) {
            match (section.as_str(), key.as_str()) {
                ("core", "hookspath") => named.hooks.extend(resolved(worktree, &value)),
                ("include" | "includeif", "path") => {
                    let Some(path) = resolved(base, &value).map(without_detours) else { continue };
                    if files.len() < MAX_FILES && !files.contains(&path) {
                        files.push(path.clone());
                    }
                    named.includes.push(path);
                }
                (_, key) if COMMANDS.contains(&key) => {
                    let words = value.split_whitespace().map(|word| word.trim_matches(['"', '\'', '!', ';']));
                    let files =
                        words.filter_map(|word| resolved(worktree, word)).filter(|path| path.is_file());
                    named.programs.extend(files);
                }
                _ => {}
            }
        }
    }
    named
}

/// The last value of a variable, section and name in lower case.
pub fn value(config: &Path, section: &str, name: &str) -> Option<String> {
    let entries = entries(&read(config));
    entries.into_iter().rev().find(|(known, key, _)| known == section && key == name).map(|(.., value)| value)
}

/// A path of a configuration; none in a home, which is no workspace.
fn resolved(base: &Path, path: &str) -> Option<PathBuf> {
    (!path.is_empty() && !path.starts_with('~') && !path.starts_with('%')).then(|| base.join(path))
}

/// The path with its directory as it really is, if that exists.
fn without_detours(path: PathBuf) -> PathBuf {
    let directory = path.parent().and_then(|directory| directory.canonicalize().ok());
    match (directory, path.file_name()) {
        (Some(directory), Some(name)) => directory.join(name),
        _ => path,
    }
}

fn read(file: &Path) -> String {
    let mut bytes = Vec::new();
    // What cannot be read names nothing: git could not read it either.
    let is_file = file.metadata().is_ok_and(|meta| meta.is_file());
    if is_file && let Ok(file) = File::open(file) {
        let _ = file.take(MAX_BYTES).read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Section (without its subsection), key, value; names in lower case.
fn entries(text: &str) -> Vec<(String, String, String)> {
    let text = text.replace("\\\r\n", "").replace("\\\n", "");
    let mut section = String::new();
    let mut entries = Vec::new();
    for line in text.lines() {
        let mut line = line.trim();
        if let Some(head) = line.strip_prefix('[') {
            // A subsection is quoted and may have brackets of its own.
            let quoted = head.find('"').filter(|quote| head.find(']').is_some_and(|end| *quote < end));
            let end = if quoted.is_some() { head.find("\"]").map(|end| end + 1) } else { head.find(']') };
            let Some(end) = end else { continue };
            let name = head.split([' ', '\t', '"', '.', ']']).next().unwrap_or_default();
            section = name.to_ascii_lowercase();
            line = head.get(end + 1..).unwrap_or_default().trim();
        }
        if let Some((key, value)) = line.split_once('=') {
            entries.push((section.clone(), key.trim().to_ascii_lowercase(), unquoted(value)));
        }
    }
    entries
}

/// A value without quotes, escapes and comment.
fn unquoted(text: &str) -> String {
    let mut value = String::new();
    let mut in_quotes = false;
    let mut letters = text.trim_start().chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => in_quotes = !in_quotes,
            '#' | ';' if !in_quotes => break,
            '\\' => match letters.next() {
                Some('n') => value.push('\n'),
                Some('t') => value.push('\t'),
                other => value.extend(other),
            },
            other => value.push(other),
        }
    }
    if in_quotes { value } else { value.trim_end().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_git_obeys_is_found_and_followed() {
        let base = tempfile::tempdir().unwrap();
        let root = &base.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join(".git")).unwrap();
        std::fs::create_dir_all(root.join("tools")).unwrap();
        std::fs::write(root.join("tools/clean.py"), "").unwrap();
        let config = root.join(".git/config");
        std::fs::write(
            &config,
            "[core]\n\thooksPath = .husky ; ours\n[Filter \"a]b\"]\n\tclean = \"python3 tools/clean.py\" %f\n\
             smudge = git-lfs smudge -- %f\n[alias]\n\tx = !tools/clean.py\n[include] path = ../shared\n\
             [includeIf \"gitdir:~/[x]/\"]\n\tpath = \"/elsewhere/more\"\n[remote \"origin\"]\n\turl = tools\n",
        )
        .unwrap();
        std::fs::write(root.join("shared"), "[CORE]\nHOOKSPATH=\\\nmore hooks\n[include]\npath=shared\n")
            .unwrap();
        let named = named(&config, root);
        assert_eq!(named.hooks, [root.join(".husky"), root.join("more hooks")]);
        assert_eq!(
            named.includes,
            [root.join("shared"), PathBuf::from("/elsewhere/more"), root.join("shared")]
        );
        assert_eq!(named.programs, [root.join("tools/clean.py")]);
    }

    #[test]
    fn what_cannot_be_read_names_nothing() {
        let base = tempfile::tempdir().unwrap();
        assert_eq!(named(&base.path().join("none"), base.path()), Named::default());
        assert_eq!(entries("[a\nb\n= c\n[x] y"), [(String::new(), String::new(), "c".to_owned())]);
    }
}
