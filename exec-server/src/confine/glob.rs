//! Glob patterns of a wish: matching is pure, finding what matches looks at the file system once, at the start.
//!
//! `*` and `?` stay inside a name, `**` as a whole name stands for any number of names, `[…]` and `{…}` are sets. What
//! is made later and would match is not covered, as in the original.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, openat};

use crate::limits::{MAX_GLOB_ALTERNATIVES, MAX_GLOB_ENTRIES, MAX_POLICY_RULES, MAX_TREE_DEPTH};

/// Why a pattern cannot be resolved; one line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum GlobError {
    /// A set without end, or a name that leads up.
    #[error("glob pattern `{0}` is not valid")]
    Invalid(String),
    /// Alternatives of alternatives.
    #[error("glob pattern `{0}` stands for more than {MAX_GLOB_ALTERNATIVES} patterns")]
    TooManyAlternatives(String),
    /// A tree that takes too long to look through.
    #[error(
        "glob pattern `{0}` cannot be resolved: with it there are more than {MAX_GLOB_ENTRIES} files to look at"
    )]
    TooManyEntries(String),
    /// More matches than rules.
    #[error("glob pattern `{0}` matches more than {MAX_POLICY_RULES} paths")]
    TooManyMatches(String),
}

/// What all patterns of a wish together may look at.
#[derive(Debug)]
pub(super) struct Allowance(usize);

impl Default for Allowance {
    fn default() -> Self {
        Self(MAX_GLOB_ENTRIES)
    }
}

/// Paths that match an absolute pattern, as they are written (links are not followed, and count as what they are).
pub(super) fn find(pattern: &str, allowance: &mut Allowance) -> Result<Vec<PathBuf>, GlobError> {
    let mut search = Search { pattern, matches: Vec::new(), allowance };
    for alternative in alternatives(pattern)? {
        let names = names(&alternative).ok_or_else(|| GlobError::Invalid(pattern.to_owned()))?;
        // The names that are no patterns lead to where the search starts.
        let literal = names.iter().take_while(|name| !is_pattern(name)).count();
        let mut start = PathBuf::from("/");
        start.extend(names[..literal].iter().map(|name| OsStr::from_bytes(name)));
        if literal == names.len() {
            if start.symlink_metadata().is_ok() {
                search.found(start)?;
            }
        } else {
            let rest: Vec<&[u8]> = names[literal..].iter().map(Vec::as_slice).collect();
            search.look(&start, &[&rest], 0)?;
        }
    }
    Ok(search.matches)
}

struct Search<'a> {
    pattern: &'a str,
    matches: Vec<PathBuf>,
    allowance: &'a mut Allowance,
}

impl Search<'_> {
    fn found(&mut self, path: PathBuf) -> Result<(), GlobError> {
        if self.matches.len() >= MAX_POLICY_RULES {
            return Err(GlobError::TooManyMatches(self.pattern.to_owned()));
        }
        self.matches.push(path);
        Ok(())
    }

    /// Looks into a directory for what matches one of `states`: what is left of the pattern there. What cannot be read
    /// holds nothing a command could read either.
    fn look(&mut self, directory: &Path, states: &[State<'_>], depth: usize) -> Result<(), GlobError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let opened = openat(CWD, directory, flags, Mode::empty());
        let Ok(entries) = opened.and_then(Dir::read_from) else { return Ok(()) };
        if depth > MAX_TREE_DEPTH {
            return Err(GlobError::TooManyEntries(self.pattern.to_owned()));
        }
        for entry in entries.flatten() {
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let left = self.allowance.0.checked_sub(1);
            self.allowance.0 = left.ok_or_else(|| GlobError::TooManyEntries(self.pattern.to_owned()))?;
            let mut next = Vec::new();
            for state in states {
                step(state, name, &mut next);
            }
            let path = directory.join(OsStr::from_bytes(name));
            if next.iter().any(|state| state.is_empty()) {
                // What is below it is covered by its own rule.
                self.found(path)?;
            } else if !next.is_empty() && matches!(entry.file_type(), FileType::Directory | FileType::Unknown)
            {
                self.look(&path, &next, depth + 1)?;
            }
        }
        Ok(())
    }
}

/// The names of a pattern that are still to be matched.
type State<'a> = &'a [&'a [u8]];

/// Adds what is left of a pattern after one name; an empty rest is a match. Rests of one pattern are told apart by
/// their length, so there are never more of them than it has names.
fn step<'a>(state: State<'a>, name: &[u8], next: &mut Vec<State<'a>>) {
    let mut add = |state: State<'a>| {
        if !next.iter().any(|known| known.len() == state.len()) {
            next.push(state);
        }
    };
    match state.split_first() {
        Some((&b"**", rest)) if rest.is_empty() => add(rest),
        Some((&b"**", rest)) => {
            // It takes the name and stays, or it takes nothing and the rest has its turn.
            add(state);
            step(rest, name, next);
        }
        Some((first, rest)) if matches(first, name) => add(rest),
        _ => {}
    }
}

/// The names of an absolute pattern; `None` when one leads up or a set has no end.
fn names(pattern: &str) -> Option<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for component in Path::new(pattern).components() {
        match component {
            Component::Normal(name) => {
                let name = name.as_bytes().to_vec();
                // `**` twice in a row says nothing new.
                if name != b"**" || names.last() != Some(&name) {
                    names.push(name);
                }
            }
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    names.iter().all(|name| sets_end(name)).then_some(names)
}

fn is_pattern(name: &[u8]) -> bool {
    name.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

fn sets_end(name: &[u8]) -> bool {
    let mut rest = name;
    while let Some(start) = rest.iter().position(|byte| *byte == b'[') {
        let Some((_, after)) = set(&rest[start + 1..], 0) else { return false };
        rest = after;
    }
    true
}

/// The texts that a pattern with `{a,b}` stands for.
fn alternatives(pattern: &str) -> Result<Vec<String>, GlobError> {
    let mut done = Vec::new();
    let mut open = vec![pattern.to_owned()];
    while let Some(text) = open.pop() {
        let Some(start) = text.find('{') else {
            if text.contains('}') {
                return Err(GlobError::Invalid(pattern.to_owned()));
            }
            done.push(text);
            continue;
        };
        let (parts, end) = braces(&text[start..]).ok_or_else(|| GlobError::Invalid(pattern.to_owned()))?;
        let (before, after) = (&text[..start], &text[start + end..]);
        open.extend(parts.iter().map(|part| format!("{before}{part}{after}")));
        if open.len() + done.len() > MAX_GLOB_ALTERNATIVES {
            return Err(GlobError::TooManyAlternatives(pattern.to_owned()));
        }
    }
    Ok(done)
}

/// The parts of `{a,b{c,d}}…` and where it ends.
fn braces(text: &str) -> Option<(Vec<&str>, usize)> {
    let (mut depth, mut parts, mut start) = (0, Vec::new(), 1);
    for (at, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            ',' if depth == 1 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            '}' if depth == 1 => {
                parts.push(&text[start..at]);
                return Some((parts, at + 1));
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
    None
}

/// Whether a name matches a pattern without slashes. Linear in the name for each `*`, never exponential.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut pattern, mut name) = (pattern, name);
    // Behind the last `*`, and how much of the name it has not tried to take yet.
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        match (pattern.split_first(), name.split_first()) {
            (Some((b'*', rest)), _) => {
                retry = Some((rest, name));
                pattern = rest;
                continue;
            }
            (None, None) => return true,
            (Some((token, after_token)), Some((byte, after_byte))) => {
                let fits = match token {
                    b'?' => Some(after_token),
                    b'[' => set(after_token, *byte).and_then(|(fits, after)| fits.then_some(after)),
                    plain => (plain == byte).then_some(after_token),
                };
                if let Some(after) = fits {
                    (pattern, name) = (after, after_byte);
                    continue;
                }
            }
            _ => {}
        }
        let Some((after_star, [_, shorter @ ..])) = retry else { return false };
        retry = Some((after_star, shorter));
        (pattern, name) = (after_star, shorter);
    }
}

/// Whether a byte is in the set that starts behind `[`, and what follows the set; `None` when it has no end.
fn set(text: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (negated, mut text) = match text {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, text),
    };
    let mut found = false;
    let mut first = true;
    loop {
        match text {
            [b']', rest @ ..] if !first => return Some((found != negated, rest)),
            [low, b'-', high, rest @ ..] if *high != b']' => {
                found |= (*low..=*high).contains(&byte);
                text = rest;
            }
            [one, rest @ ..] => {
                found |= *one == byte;
                text = rest;
            }
            [] => return None,
        }
        first = false;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;

    fn found(dir: &Path, pattern: &str) -> Vec<String> {
        let prefix = dir.to_str().unwrap();
        let mut found: Vec<_> = find(&format!("{prefix}/{pattern}"), &mut Allowance::default())
            .unwrap()
            .iter()
            .map(|path| path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned())
            .collect();
        found.sort();
        found
    }

    #[test]
    fn what_is_there_is_found_once() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a.env", "sub/b.env", "sub/deep/c.env", "sub/deep/.env", "d.txt", "x/y/z/w/e.env"] {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink("nowhere", dir.path().join("link.env")).unwrap();
        std::os::unix::fs::symlink("/", dir.path().join("root")).unwrap();
        let of = |pattern| found(dir.path(), pattern);
        let all = ["a.env", "link.env", "sub/b.env", "sub/deep/.env", "sub/deep/c.env", "x/y/z/w/e.env"];
        assert_eq!(of("**/*.env"), all);
        assert_eq!(of("**/**/*.env"), all);
        assert_eq!(of("*.env"), ["a.env", "link.env"]);
        assert_eq!(of("sub/*.env"), ["sub/b.env"]);
        assert_eq!(of("**/deep"), ["sub/deep"]);
        assert_eq!(of("sub/**"), ["sub/b.env", "sub/deep"]);
        assert_eq!(of("**/y/**/e.env"), ["x/y/z/w/e.env"]);
        assert_eq!(
            of("{a.env,sub/{b,none}.env,**/[c-d].*}"),
            ["a.env", "d.txt", "sub/b.env", "sub/deep/c.env"]
        );
        assert_eq!(of("d.txt"), ["d.txt"]);
        assert!(of("none").is_empty() && of("none/**").is_empty());
    }

    #[test]
    fn what_cannot_be_resolved_is_refused() {
        for pattern in ["/a/../b*", "/a/[b", "/a/{b", "/a/b}"] {
            assert_eq!(
                find(pattern, &mut Allowance::default()).unwrap_err(),
                GlobError::Invalid(pattern.to_owned())
            );
        }
        let error = find("/usr/**/*.none", &mut Allowance(3)).unwrap_err();
        assert!(matches!(error, GlobError::TooManyEntries(_)));
        let many = format!("/{}", "{a,b}".repeat(12));
        assert!(matches!(
            find(&many, &mut Allowance::default()).unwrap_err(),
            GlobError::TooManyAlternatives(_)
        ));
    }

    fn model(pattern: &[u8], name: &[u8]) -> bool {
        match pattern.split_first() {
            None => name.is_empty(),
            Some((b'*', rest)) => (0..=name.len()).any(|taken| model(rest, &name[taken..])),
            Some((b'?', rest)) => !name.is_empty() && model(rest, &name[1..]),
            Some((b'[', rest)) => name.split_first().is_some_and(|(byte, name)| {
                set(rest, *byte).is_some_and(|(fits, after)| fits && model(after, name))
            }),
            Some((plain, rest)) => name.first() == Some(plain) && model(rest, &name[1..]),
        }
    }

    #[test]
    fn sets_are_those_of_shells() {
        for (pattern, name, fits) in [
            ("[abc]", "b", true),
            ("[!abc]", "b", false),
            ("[^abc]", "x", true),
            ("[a-c]x", "bx", true),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("[", "[", false),
        ] {
            assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), fits, "{pattern} {name}");
        }
    }

    proptest! {
        #[test]
        fn names_match_as_defined(pattern in "([ab*?]|\\[ab\\]|\\[!a\\]){0,8}", name in "[ab]{0,8}") {
            prop_assert_eq!(matches(pattern.as_bytes(), name.as_bytes()), model(pattern.as_bytes(), name.as_bytes()));
        }
    }
}
