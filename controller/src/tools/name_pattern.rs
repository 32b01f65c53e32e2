//! Patterns of file names.
//!
//! Invariant: pure. A pattern without a slash is about names in every directory, one with a slash about the whole path
//! from where the search starts, as in `.gitignore` and with `rg --glob`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};

/// Alternatives that are handed to git one by one.
const MAX_ALTERNATIVES: usize = 64;

/// A checked pattern.
pub(super) struct NamePattern {
    text: String,
    matcher: GlobMatcher,
}

impl NamePattern {
    /// Checks a pattern; `root` is where the search starts.
    ///
    /// # Errors
    /// One line that says what is wrong with it.
    pub(super) fn new(pattern: &str, root: &Path) -> Result<Self, String> {
        let relative = match Path::new(pattern).strip_prefix(root) {
            Ok(rest) => rest.to_str().unwrap_or_default(),
            Err(_) if pattern.starts_with('/') => {
                return Err(format!(
                    "{pattern:?} does not begin with {}: give the directory as path, and the pattern relative to it",
                    root.display()
                ));
            }
            Err(_) => pattern.trim_start_matches("./"),
        };
        if relative.is_empty() {
            return Err("the pattern is empty".to_owned());
        }
        let text = if relative.contains('/') { relative.to_owned() } else { format!("**/{relative}") };
        let glob = GlobBuilder::new(&text)
            .literal_separator(true)
            .backslash_escape(true)
            .empty_alternates(true)
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { text, matcher: glob.compile_matcher() })
    }

    /// Whether a path relative to the root matches.
    pub(super) fn matches(&self, path: &[u8]) -> bool {
        self.matcher.is_match(Path::new(OsStr::from_bytes(path)))
    }

    /// Pathspecs with which git leaves most other files out; none when it has no words for the pattern.
    pub(super) fn pathspecs(&self) -> Vec<String> {
        let mut done = Vec::new();
        let mut left = vec![self.text.clone()];
        while let Some(text) = left.pop() {
            let group = text.find('{').zip(text.find('}')).filter(|(open, close)| open < close);
            let Some((open, close)) = group else {
                done.push(format!(":(glob){text}"));
                continue;
            };
            let inner = &text[open + 1..close];
            if inner.contains('{') || text.contains('\\') || left.len() + done.len() > MAX_ALTERNATIVES {
                return Vec::new();
            }
            left.extend(
                inner.split(',').map(|word| format!("{}{word}{}", &text[..open], &text[close + 1..])),
            );
        }
        done.sort();
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pattern: &str) -> NamePattern {
        NamePattern::new(pattern, Path::new("/p")).unwrap()
    }

    #[test]
    fn a_slash_anchors_a_pattern() {
        for (pattern, matching, other) in [
            ("*.rs", "src/deep/a.rs", "a.rsx"),
            ("**/*.rs", "a.rs", "a.py"),
            ("src/*.rs", "src/a.rs", "src/deep/a.rs"),
            ("./src/*.rs", "src/a.rs", "x/src/a.rs"),
            ("/p/src/**", "src/deep/a.rs", "a.rs"),
            ("*.{js,ts,}", "a/b.ts", "a/b.rs"),
            ("[!a-c]?.x", "dx.x", "ax.x"),
            ("caf\u{e9}*", "caf\u{e9}.txt", "cafe.txt"),
        ] {
            let pattern = of(pattern);
            assert!(pattern.matches(matching.as_bytes()), "{} {matching}", pattern.text);
            assert!(!pattern.matches(other.as_bytes()), "{} {other}", pattern.text);
        }
        assert!(of("*.txt").matches(b"caf\xe9.txt"));
    }

    #[test]
    fn what_is_no_pattern_is_said() {
        for (pattern, what) in [("a[", "unclosed"), ("{a", "unclosed"), ("", "empty"), ("/q/*.rs", "/p")] {
            let error = NamePattern::new(pattern, Path::new("/p")).err().unwrap();
            assert!(error.contains(what), "{pattern}: {error}");
        }
    }

    #[test]
    fn git_gets_each_alternative() {
        assert_eq!(of("*.{ts,tsx}").pathspecs(), [":(glob)**/*.ts", ":(glob)**/*.tsx"]);
        assert_eq!(of("{a,b}/{c,d}").pathspecs().len(), 4);
        assert_eq!(of("src/**").pathspecs(), [":(glob)src/**"]);
        assert_eq!(of("{a,{b,c}}").pathspecs(), [""; 0]);
    }
}
