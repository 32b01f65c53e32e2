//! The tracked files of the repository, and the questions the rules ask about them.
//!
//! Invariant: what git does not track is not looked at.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A tracked text file.
#[derive(Debug)]
pub(crate) struct File {
    /// Relative to the repository, with slashes.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("this crate lies in the workspace").to_owned()
}

/// All tracked files that are text; `None`, after saying so, where there is no checkout to look at.
pub(crate) fn tracked() -> Option<Vec<File>> {
    if !root().join(".git").exists() {
        eprintln!("not checked: {} is no git checkout", root().display());
        return None;
    }
    let output = Command::new("git").arg("-C").arg(root()).args(["ls-files", "-z"]).output();
    let output = output.unwrap_or_else(|error| panic!("cannot run git: {error}"));
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let list = String::from_utf8(output.stdout).expect("paths are UTF-8");
    let read = |path: &str| {
        // A file that is tracked and deleted is about to go.
        let bytes = fs::read(root().join(path)).ok()?;
        Some(File { path: path.to_owned(), text: String::from_utf8(bytes).ok()? })
    };
    Some(list.split_terminator('\0').filter_map(read).collect())
}

impl File {
    pub(crate) fn is_rust(&self) -> bool {
        self.has_extension("rs")
    }

    pub(crate) fn has_extension(&self, wanted: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == wanted)
    }

    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Lines of code with their numbers from 1: without comment lines.
    pub(crate) fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(index, line)| (index + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    /// Lines of code before the file's own tests.
    pub(crate) fn code_without_tests(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code().take_while(|(_, line)| line.trim() != "#[cfg(test)]")
    }

    /// Where one of these words stands in the code.
    pub(crate) fn uses(&self, words: &[&str]) -> Vec<String> {
        self.code_without_tests()
            .filter(|(_, line)| words.iter().any(|word| has_word(line, word)))
            .map(|(number, line)| format!("{}:{number}: {}", self.path, line.trim()))
            .collect()
    }
}

/// Whether the text holds the word and not only a longer one.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let ends = |found: &usize| {
        let before = text[..*found].chars().next_back();
        let after = text[found + word.len()..].chars().next();
        !(before.is_some_and(is_part) || word.ends_with(is_part) && after.is_some_and(is_part))
    };
    text.match_indices(word).map(|(found, _)| found).any(|found| ends(&found))
}

/// Fails with everything that breaks a rule.
#[track_caller]
pub(crate) fn assert_none(rule: &str, found: impl IntoIterator<Item = String>) {
    let found: Vec<_> = found.into_iter().collect();
    assert!(found.is_empty(), "{rule}:\n{}", found.join("\n"));
}
