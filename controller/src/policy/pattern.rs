//! Patterns of rules: paths, hosts, methods.
//!
//! Invariant: a path pattern is compared with every name a path has inside, byte by byte; case matters.

use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};
use serde::Serialize;

use super::action::{Names, plain_host};

/// Characters that make a part of a pattern more than a name.
const WILD: [char; 6] = ['*', '?', '[', ']', '{', '}'];

/// `src/**` is below the workspace, `/etc/*` is as inside.
#[derive(Debug, Clone, Serialize)]
pub struct PathPattern {
    text: String,
    #[serde(skip)]
    matcher: GlobMatcher,
    /// The part before the first wildcard.
    #[serde(skip)]
    base: PathBuf,
    /// Everything below what it matches is matched, too.
    #[serde(skip)]
    deep: bool,
}

impl PathPattern {
    /// Parses one; the error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.starts_with('~') {
            return Err("name a path below the workspace, or an absolute path as it is inside".to_owned());
        }
        if Path::new(text).components().any(|part| part == Component::ParentDir) {
            return Err("a path with `..` is never seen".to_owned());
        }
        let plain = text.strip_prefix("./").unwrap_or(text);
        let plain = if plain.len() > 1 { plain.trim_end_matches('/') } else { plain };
        let glob = GlobBuilder::new(plain).literal_separator(true).backslash_escape(true).build();
        let matcher = glob.map_err(|error| error.kind().to_string())?.compile_matcher();
        let base = plain.split('/').take_while(|part| !part.contains(WILD)).collect::<Vec<_>>().join("/");
        let base = if base.is_empty() && plain.starts_with('/') { PathBuf::from("/") } else { base.into() };
        Ok(Self { text: text.to_owned(), matcher, base, deep: plain == "**" || plain.ends_with("/**") })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The part before the first wildcard.
    pub fn base(&self) -> &Path {
        &self.base
    }

    /// Whether it stands for something below the workspace.
    pub fn is_relative(&self) -> bool {
        !self.text.starts_with('/')
    }

    fn names<'a>(&self, names: &'a Names) -> Vec<&'a Path> {
        if self.is_relative() {
            names.relative.iter().map(PathBuf::as_path).collect()
        } else {
            names.absolute.iter().map(PathBuf::as_path).collect()
        }
    }

    /// Whether it matches a path.
    pub fn matches(&self, names: &Names) -> bool {
        self.names(names).iter().any(|path| self.matcher.is_match(path))
    }

    /// Whether it may match the path or something below it.
    pub fn matches_below(&self, names: &Names) -> bool {
        let is_above = |path: &Path| {
            self.base.starts_with(path) || path == Path::new(".") || path.starts_with(&self.base)
        };
        let in_workspace = |workspace: &PathBuf| self.is_relative() || is_above(workspace);
        self.matches(names)
            || self.names(names).into_iter().any(is_above)
            || names.below.iter().any(in_workspace)
    }

    /// Whether it matches the path and everything below it.
    pub fn matches_tree(&self, names: &Names) -> bool {
        self.deep
            && self
                .names(names)
                .iter()
                .any(|path| self.matcher.is_match(path) || self.matcher.is_match(path.join("x")))
    }
}

/// `example.com`, `*.example.com`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostPattern(String);

impl HostPattern {
    /// Parses one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let name = text.strip_prefix("*.").unwrap_or(text);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
        if name.is_empty() || !name.chars().all(plain) {
            return Err("write a host name without scheme and port, or *.NAME".to_owned());
        }
        // Addresses are compared as they are usually written.
        let name = plain_host(name)
            .ok_or("no host has this name as it is compared: write a whole address, or a name")?;
        Ok(Self(if text.starts_with("*.") { format!("*.{name}") } else { name }))
    }

    /// Whether a host, in lower case, is meant. `*.example.com` is every host below, not itself.
    pub fn matches(&self, host: &str) -> bool {
        match self.0.strip_prefix('*') {
            Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
            None => host == self.0,
        }
    }

    /// Whether it matches whatever another pattern matches.
    pub fn includes(&self, other: &Self) -> bool {
        match other.0.strip_prefix('*') {
            Some(suffix) => self.0.strip_prefix('*').is_some_and(|own| suffix.ends_with(own)),
            None => self.matches(&other.0),
        }
    }
}

/// `process/start`, `fs/*`, `*`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MethodPattern(String);

impl MethodPattern {
    /// Parses one: the name of a method a rule can decide on, or a prefix of some.
    pub fn parse(text: &str, known: impl Iterator<Item = &'static str>) -> Result<Self, String> {
        let pattern = Self(text.to_owned());
        let mut known = known;
        if known.any(|name| pattern.matches(name)) {
            return Ok(pattern);
        }
        Err("no guarded method has this name: write fs/writeFile, fs/* or *".to_owned())
    }

    /// Whether a wire name is meant.
    pub fn matches(&self, name: &str) -> bool {
        match self.0.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == self.0,
        }
    }

    /// Whether it matches whatever another pattern matches.
    pub fn includes(&self, other: &Self) -> bool {
        match other.0.strip_suffix('*') {
            Some(prefix) => self.0.strip_suffix('*').is_some_and(|own| prefix.starts_with(own)),
            None => self.matches(&other.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::action::Places;

    fn names(path: &str) -> Names {
        Places { workspace: vec!["/srv/p".into(), "/workspace".into()] }.names(Path::new(path))
    }

    #[test]
    fn paths_are_matched_under_each_of_their_names() {
        let matches = |pattern: &str, path: &str| PathPattern::parse(pattern).unwrap().matches(&names(path));
        for (pattern, path, expected) in [
            ("src/*.rs", "/srv/p/src/a.rs", true),
            ("src/*.rs", "/workspace/src/a.rs", true),
            ("./src/", "/workspace/src", true),
            ("/srv/p/src/*", "/workspace/src/a", true),
            ("src/*", "/srv/p/src/a/b", false),
            ("src/**", "/srv/p/src/a/b", true),
            ("**/.env", "/srv/p/.env", true),
            ("**/.env", "/srv/p/a/b/.env", true),
            ("SRC/*", "/srv/p/src/a", false),
            ("src/*", "/etc/src/a", false),
            ("/etc/**", "/etc/passwd", true),
            (".", "/workspace", true),
        ] {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn a_tree_is_judged_by_what_may_lie_in_it() {
        let below =
            |pattern: &str, path: &str| PathPattern::parse(pattern).unwrap().matches_below(&names(path));
        assert!(below("a/b/secret", "/srv/p/a") && below("a/b/secret", "/srv/p"));
        assert!(below("**/secret", "/srv/p/x"), "something below x may be called secret");
        assert!(!below("a/b/secret", "/srv/p/x") && !below("a/*", "/etc"));
        assert!(below("a/b/secret", "/srv") && below("/workspace/a", "/srv") && below("/srv/p/a", "/"));
        assert!(!below("/var/x", "/srv") && !below("a/b/secret", "/sr"));
        let tree =
            |pattern: &str, path: &str| PathPattern::parse(pattern).unwrap().matches_tree(&names(path));
        assert!(tree("target/**", "/srv/p/target/x") && tree("target/**", "/srv/p/target"));
        assert!(tree("**", "/srv/p") && !tree("target/**", "/srv/p"));
        assert!(!tree("target/*", "/srv/p/target/x"));
    }

    #[test]
    fn nonsense_is_told() {
        for bad in ["", "~/x", "a/../b", "a/["] {
            assert!(PathPattern::parse(bad).is_err(), "{bad}");
        }
        for bad in ["", "https://x", "x:80/", "*", "*.", "a*b"] {
            assert!(HostPattern::parse(bad).is_err(), "{bad}");
        }
        assert!(HostPattern::parse("*.Example.com").unwrap().matches("a.example.com"));
        assert!(!HostPattern::parse("*.example.com").unwrap().matches("example.com"));
        assert!(MethodPattern::parse("fs/*", ["fs/open"].into_iter()).is_ok());
        assert!(MethodPattern::parse("fs/x", ["fs/open"].into_iter()).is_err());
    }
}
