//! `PathUri`: an absolute path carried as a `file:` URI (SPEC 5).
//!
//! Invariant: the path is absolute, has no `.` or `..` component, no NUL and no repeated slash, whatever the spelling
//! on the wire (percent-encoded dots and slashes included). It is resolved lexically; links are the kernel's business.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};

/// An absolute, lexically normal path of this host.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathUri(PathBuf);

/// Why a text is no `PathUri`; the texts are those of the original.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PathUriError {
    /// Neither a URI nor an absolute path.
    #[error("invalid URI: relative URL without a base")]
    Relative,
    /// A scheme that is not `file`.
    #[error("unsupported path URI scheme `{0}`")]
    Scheme(String),
    /// `?` in the URI.
    #[error("query parameters are not allowed in path URIs")]
    Query,
    /// `#` in the URI.
    #[error("fragments are not allowed in path URIs")]
    Fragment,
    /// A host, a drive letter, or NUL.
    #[error("'{0}' is invalid on 'linux'")]
    Foreign(String),
}

impl PathUri {
    /// Parses a `file:` URI, or a plain absolute path as clients before 0.150 send it (SPEC 13).
    pub fn parse(text: &str) -> Result<Self, PathUriError> {
        if text.starts_with('/') {
            if text.contains('\0') {
                return Err(PathUriError::Foreign(text.to_owned()));
            }
            return Ok(Self(normal(text.as_bytes())));
        }
        let cleaned = clean(text);
        let (scheme, rest) = split_scheme(&cleaned).ok_or(PathUriError::Relative)?;
        if !scheme.eq_ignore_ascii_case("file") {
            return Err(PathUriError::Scheme(scheme.to_ascii_lowercase()));
        }
        let (rest, fragment) = split_at(rest, '#');
        let (rest, query) = split_at(rest, '?');
        if query {
            return Err(PathUriError::Query);
        }
        if fragment {
            return Err(PathUriError::Fragment);
        }
        let path = strip_host(rest).ok_or_else(|| PathUriError::Foreign(text.to_owned()))?;
        let resolved = remove_dot_segments(path);
        let bytes = percent_decode(&resolved);
        if bytes.contains(&0) {
            // Escaped as the original tells of it: it stands for no host of another kind.
            return Err(PathUriError::Foreign(text.replace('\0', "%00")));
        }
        // `..` does not take a drive letter back.
        if has_drive_letter(&bytes) || has_drive_letter(&percent_decode(path)) {
            return Err(PathUriError::Foreign(text.to_owned()));
        }
        Ok(Self(normal(&bytes)))
    }

    /// The URI of an absolute path, normalised; `None` for a relative path or one with NUL.
    pub fn from_path(path: &Path) -> Option<Self> {
        let bytes = path.as_os_str().as_bytes();
        (bytes.first() == Some(&b'/') && !bytes.contains(&0)).then(|| Self(normal(bytes)))
    }

    /// `/`
    pub fn root() -> Self {
        Self(PathBuf::from("/"))
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The path, owned.
    pub fn into_path(self) -> PathBuf {
        self.0
    }
}

/// What the URL standard does to a `file:` URL before it is parsed, and so the original: space around it and line breaks
/// inside vanish, a backslash is a slash.
fn clean(text: &str) -> Cow<'_, str> {
    let text = text.trim_matches(|c| c <= ' ');
    if text.contains(['\t', '\n', '\r', '\\']) {
        text.chars()
            .filter(|c| !matches!(c, '\t' | '\n' | '\r'))
            .map(|c| if c == '\\' { '/' } else { c })
            .collect::<String>()
            .into()
    } else {
        text.into()
    }
}

/// `scheme:rest`, when `text` starts with a scheme of RFC 3986.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let mut bytes = scheme.bytes();
    let valid = bytes.next().is_some_and(|byte| byte.is_ascii_alphabetic())
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    valid.then_some((scheme, rest))
}

fn split_at(text: &str, separator: char) -> (&str, bool) {
    text.split_once(separator).map_or((text, false), |(before, _)| (before, true))
}

/// Removes `//` and an empty or `localhost` authority; `None` for any other host.
fn strip_host(rest: &str) -> Option<&str> {
    let Some(after) = rest.strip_prefix("//") else { return Some(rest) };
    let end = after.find('/').unwrap_or(after.len());
    let (host, path) = after.split_at(end);
    (host.is_empty() || host.eq_ignore_ascii_case("localhost")).then_some(path)
}

/// What `.` and `..` stand for in a URL, where an empty segment is one that `..` takes back: `a//..` is `a/`. Those that
/// appear when the path is decoded, as in `a%2F..`, are left for [`normal`].
fn remove_dot_segments(path: &str) -> Cow<'_, str> {
    let is = |segment: &str, dots: &str| {
        segment.len() <= 3 * dots.len() && segment.to_ascii_lowercase().replace("%2e", ".") == dots
    };
    if !path.split('/').any(|segment| is(segment, "..")) {
        return path.into();
    }
    let mut segments: Vec<&str> = Vec::new();
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        if is(segment, "..") {
            segments.pop();
        } else if !is(segment, ".") {
            segments.push(segment);
        }
    }
    segments.join("/").into()
}

fn percent_decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while let Some(&byte) = bytes.get(index) {
        let pair = bytes.get(index + 1).zip(bytes.get(index + 2));
        let escaped = pair.and_then(|(high, low)| Some((hex(*high)? << 4) | hex(*low)?));
        if let (b'%', Some(value)) = (byte, escaped) {
            decoded.push(value);
            index += 3;
        } else {
            decoded.push(byte);
            index += 1;
        }
    }
    decoded
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

fn has_drive_letter(path: &[u8]) -> bool {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    matches!(first, [letter, b':' | b'|'] if letter.is_ascii_alphabetic())
}

/// Absolute, without empty, `.` and `..` components.
fn normal(bytes: &[u8]) -> PathBuf {
    let mut components: Vec<&[u8]> = Vec::new();
    for component in bytes.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => {
                components.pop();
            }
            name => components.push(name),
        }
    }
    let mut path = Vec::with_capacity(bytes.len() + 1);
    for component in &components {
        path.push(b'/');
        path.extend_from_slice(component);
    }
    if path.is_empty() {
        path.push(b'/');
    }
    PathBuf::from(OsString::from_vec(path))
}

impl fmt::Display for PathUri {
    /// The canonical URI, e.g. `file:///x/sp%20ace%25%23%3F%C3%A9`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("file://")?;
        for &byte in self.0.as_os_str().as_bytes() {
            let plain = byte.is_ascii_graphic()
                && !matches!(byte, b'%' | b'#' | b'?' | b'"' | b'<' | b'>' | b'`' | b'{' | b'}' | b'\\');
            if plain { f.write_char(char::from(byte))? } else { write!(f, "%{byte:02X}")? }
        }
        Ok(())
    }
}

impl fmt::Debug for PathUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for PathUri {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PathUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PathUriVisitor;
        impl Visitor<'_> for PathUriVisitor {
            type Value = PathUri;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<PathUri, E> {
                PathUri::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_str(PathUriVisitor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path_of(text: &str) -> String {
        PathUri::parse(text).unwrap().path().to_str().unwrap().to_owned()
    }

    #[test]
    fn spellings_of_one_path_are_one_path() {
        for text in [
            "file:///tmp/x",
            "FILE:///tmp/x",
            "file://localhost/tmp/x",
            "file:/tmp/x",
            "file:tmp/x",
            "file:///tmp/./y/../x",
            "file:///tmp/%2e%2E/tmp/x",
            "file:///tmp/y%2F..%2Fx",
            "file:///../../tmp//x/",
            "file:///tmp/x//..",
            "file:///tmp//y/..//x//%2E.",
            " file:///tmp/x ",
            "file:///tm\tp/\nx",
            "file:///tmp\\x",
            "/tmp/x",
            "/tmp//y/../x/.",
        ] {
            assert_eq!(path_of(text), "/tmp/x", "{text}");
        }
        assert_eq!(path_of("file:///"), "/");
        assert_eq!(path_of("/.."), "/");
        assert_eq!(path_of("file:///a//../.."), "/");
        assert_eq!(path_of("/a//.."), "/", "a plain path is no URL");
        assert_eq!(path_of("/a%20b"), "/a%20b");
        assert_eq!(path_of("file:///100%"), "/100%");
        assert_eq!(path_of("file:///a%5Cb%20"), "/a\\b ");
        assert_eq!(path_of("/a\\b "), "/a\\b ");
    }

    #[test]
    fn what_is_no_path_is_refused_in_the_words_of_the_original() {
        for (text, message) in [
            ("", "invalid URI: relative URL without a base"),
            ("tmp/x", "invalid URI: relative URL without a base"),
            ("http://x/y", "unsupported path URI scheme `http`"),
            ("file:///tmp?x=1", "query parameters are not allowed in path URIs"),
            ("file:///tmp#x", "fragments are not allowed in path URIs"),
            ("file://host/tmp", "'file://host/tmp' is invalid on 'linux'"),
            ("file:///C:/Users", "'file:///C:/Users' is invalid on 'linux'"),
            ("file:///C:/../Users", "'file:///C:/../Users' is invalid on 'linux'"),
            ("file:///x/../C:/Users", "'file:///x/../C:/Users' is invalid on 'linux'"),
            ("file:///tmp/x%00y", "'file:///tmp/x%00y' is invalid on 'linux'"),
            ("file:///tmp/x\0y", "'file:///tmp/x%00y' is invalid on 'linux'"),
        ] {
            assert_eq!(PathUri::parse(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn the_canonical_form_escapes_what_uris_escape() {
        assert_eq!(PathUri::parse("/x/sp ace%#?é").unwrap().to_string(), "file:///x/sp%20ace%25%23%3F%C3%A9");
    }

    proptest! {
        #[test]
        fn every_path_survives_the_wire(bytes in prop::collection::vec(1u8..=255, 0..60)) {
            let mut path = b"/".to_vec();
            path.extend(&bytes);
            let uri = PathUri::from_path(Path::new(&OsString::from_vec(path))).unwrap();
            // A first component such as `c:` is read as a drive letter by every client; it stays out of reach.
            if let Ok(parsed) = PathUri::parse(&uri.to_string()) {
                prop_assert_eq!(parsed, uri);
            } else {
                prop_assert!(has_drive_letter(uri.path().as_os_str().as_bytes()));
            }
        }

        #[test]
        fn parsed_paths_are_normal(text in "(file://)?/[a-z./%20eEfF\\\\]{0,40}") {
            if let Ok(uri) = PathUri::parse(&text) {
                let bytes = uri.path().as_os_str().as_bytes();
                prop_assert_eq!(bytes[0], b'/');
                prop_assert!(!bytes.windows(2).any(|pair| pair == b"//"));
                prop_assert!(bytes.split(|b| *b == b'/').all(|part| part != b"." && part != b".."));
                prop_assert_eq!(PathUri::from_path(uri.path()), Some(uri.clone()));
            }
        }
    }
}
