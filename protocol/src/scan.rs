//! Bounds on the shape of a message, checked before anything of it is decoded (SPEC 14).
//!
//! Invariant: what passes here and then the JSON parser has no object with duplicate keys at any level, at most
//! [`MAX_DEPTH`] levels and at most `MAX_JSON_VALUES` values. So a small message can neither be read in two ways nor grow
//! large when decoded. The grammar itself is the parser's business: of what is no JSON this says anything.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use memchr::memchr2;

use crate::limits::MAX_JSON_VALUES;

/// Levels of nesting, those of `serde_json`.
const MAX_DEPTH: usize = 127;

/// The keys that lead to the content of a file, as the real client writes them.
const CONTENT: [&str; 2] = ["\"params\"", "\"dataBase64\""];

/// What of a long string is looked at in two ways while it is at hand.
const PIECE_BYTES: usize = 4 << 10;

/// Above this many keys in an object a tree takes over from comparing one by one.
const FEW_KEYS: usize = 16;

/// Checks the text of one message in one pass, and tells where between its quotes the string `params.dataBase64` lies, if
/// it has one and that is plain: nothing in it is escaped or would have to be.
///
/// # Errors
/// One line in the words of the original.
pub fn check(text: &str) -> Result<Option<Range<usize>>, String> {
    let mut scan = Scan::new(text);
    while let Some(&byte) = text.as_bytes().get(scan.at) {
        scan.token(byte)?;
    }
    Ok(scan.content)
}

struct Scan<'a> {
    text: &'a str,
    /// Of the next byte.
    at: usize,
    values: usize,
    levels: Vec<Level<'a>>,
    /// The keys of all open objects, those of the innermost last.
    keys: Vec<Cow<'a, str>>,
    /// A string that comes now is a key.
    key_next: bool,
    content: Option<Range<usize>>,
}

/// An open array or object.
struct Level<'a> {
    is_object: bool,
    /// Its last key, as it is written.
    key: &'a str,
    /// Where its keys start in `Scan::keys`.
    first_key: usize,
    many_keys: BTreeSet<Cow<'a, str>>,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0, values: 0, levels: Vec::new(), keys: Vec::new(), key_next: false, content: None }
    }

    fn token(&mut self, byte: u8) -> Result<(), String> {
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
            b'"' => return self.string(),
            b'{' | b'[' => return self.open(byte == b'{'),
            b'}' | b']' => self.close(),
            b',' => {
                self.at += 1;
                self.key_next = self.levels.last().is_some_and(|level| level.is_object);
            }
            b':' => {
                self.at += 1;
                self.key_next = false;
            }
            _ => {
                self.count()?;
                let rest = &self.text.as_bytes()[self.at..];
                self.at += rest.iter().position(|byte| is_delimiter(*byte)).unwrap_or(rest.len()).max(1);
            }
        }
        Ok(())
    }

    fn count(&mut self) -> Result<(), String> {
        self.values += 1;
        if self.values > MAX_JSON_VALUES {
            return Err(format!("JSON-RPC message exceeds the limit of {MAX_JSON_VALUES} JSON values"));
        }
        Ok(())
    }

    fn open(&mut self, is_object: bool) -> Result<(), String> {
        self.count()?;
        if self.levels.len() == MAX_DEPTH {
            return Err("recursion limit exceeded".to_owned());
        }
        self.levels.push(Level {
            is_object,
            key: "",
            first_key: self.keys.len(),
            many_keys: BTreeSet::new(),
        });
        self.key_next = is_object;
        self.at += 1;
        Ok(())
    }

    fn close(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.keys.truncate(level.first_key);
        }
        self.key_next = false;
        self.at += 1;
    }

    fn string(&mut self) -> Result<(), String> {
        let start = self.at;
        if !self.key_next && self.levels.iter().map(|level| level.key).eq(CONTENT) {
            self.content();
            return self.count();
        }
        let escaped = self.skip_string();
        let quoted = &self.text[start..self.at];
        if !std::mem::take(&mut self.key_next) {
            return self.count();
        }
        if let Some(level) = self.levels.last_mut() {
            level.key = quoted;
        }
        let key = if escaped {
            // What does not decode is refused by the parser.
            Cow::Owned(serde_json::from_str(quoted).unwrap_or_default())
        } else {
            Cow::Borrowed(quoted.trim_matches('"'))
        };
        self.insert(key)
    }

    /// Moves behind a string that may be megabytes, which are looked at once.
    fn content(&mut self) {
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let pieces = bytes[start..].chunks_exact(PIECE_BYTES);
        let plain =
            pieces.take_while(|piece| memchr2(b'"', b'\\', piece).is_none() && is_plain(piece)).count();
        self.at = start + plain * PIECE_BYTES;
        let rest = self.at;
        let escaped = self.skip_to_quote();
        // A text that ends before the string does has no quote to end it at.
        if let Some((b'"', last)) = bytes[rest..self.at].split_last()
            && !escaped
            && is_plain(last)
        {
            self.content = Some(start..self.at - 1);
        }
    }

    /// Moves behind a string, or to the end of the text; tells whether it has escapes.
    fn skip_string(&mut self) -> bool {
        self.at += 1;
        self.skip_to_quote()
    }

    fn skip_to_quote(&mut self) -> bool {
        let bytes = self.text.as_bytes();
        let mut escaped = false;
        while let Some(found) = bytes.get(self.at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
            self.at += found + 1;
            if bytes[self.at - 1] == b'"' {
                return escaped;
            }
            escaped = true;
            // The escaped character may be several bytes long; the rest of it is neither quote nor backslash.
            self.at += self.text[self.at..].chars().next().map_or(0, char::len_utf8);
        }
        self.at = bytes.len();
        escaped
    }

    fn insert(&mut self, key: Cow<'a, str>) -> Result<(), String> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let few = &self.keys[level.first_key..];
        if few.contains(&key) || level.many_keys.contains(&key) {
            return Err(format!("duplicate JSON object key `{key}`"));
        }
        if few.len() < FEW_KEYS {
            self.keys.push(key);
        } else {
            level.many_keys.insert(key);
        }
        Ok(())
    }
}

/// Whether there are no control characters, which the parser does not take in strings.
fn is_plain(bytes: &[u8]) -> bool {
    // Without a way out in between: that makes vector instructions of it.
    bytes.iter().copied().fold(u8::MAX, u8::min) >= b' '
}

const fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'{' | b'}' | b'[' | b']' | b',' | b':')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fmt;

    use proptest::prelude::*;
    use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

    use super::*;

    fn refused(text: &str) -> String {
        check(text).unwrap_err()
    }

    #[test]
    fn nesting_is_bounded_whatever_it_is_made_of() {
        let arrays = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let objects = |levels: usize| format!("{}0{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        for deep in [arrays as fn(usize) -> String, objects] {
            assert!(
                check(&deep(127)).is_ok() && serde_json::from_str::<serde_json::Value>(&deep(127)).is_ok()
            );
            for levels in [128, 100_000] {
                assert_eq!(refused(&deep(levels)), "recursion limit exceeded");
            }
        }
    }

    #[test]
    fn values_are_counted() {
        let array = |items: usize| format!("[0{}]", ",0".repeat(items - 1));
        assert!(check(&array(MAX_JSON_VALUES - 1)).is_ok());
        assert_eq!(
            refused(&array(MAX_JSON_VALUES)),
            "JSON-RPC message exceeds the limit of 262144 JSON values"
        );
    }

    #[test]
    fn duplicates_are_found_at_every_level_and_in_every_spelling() {
        for text in [r#"{"a":1,"a":2}"#, r#"{"x":[{"a":1,"\u0061":2}]}"#, r#"{"b":{"a":1},"a":[{}],"a":0}"#] {
            assert_eq!(refused(text), "duplicate JSON object key `a`", "{text}");
        }
        assert_eq!(refused(r#"{"\"":1,"\"":2}"#), "duplicate JSON object key `\"`");
        let many = |last: usize| {
            let members: Vec<_> = (0..100).chain([last]).map(|key| format!("\"{key}\":0")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert!(check(&many(100)).is_ok());
        assert!(check(&many(3)).is_err() && check(&many(70)).is_err());
        assert!(check(r#"{"a":{"a":1},"b":[{"a":1},{"a":1}],"c":"a"}"#).is_ok());
    }

    /// Counts values and looks for duplicate keys by means of the parser.
    #[derive(Debug, PartialEq)]
    enum Model {
        Values(usize),
        Duplicate,
    }

    impl Model {
        fn plus(self, other: Self) -> Self {
            match (self, other) {
                (Self::Values(one), Self::Values(other)) => Self::Values(one + other),
                _ => Self::Duplicate,
            }
        }
    }

    impl<'de> Deserialize<'de> for Model {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            struct ModelVisitor;
            impl<'de> Visitor<'de> for ModelVisitor {
                type Value = Model;
                fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.write_str("any value")
                }
                fn visit_bool<E>(self, _: bool) -> Result<Model, E> {
                    Ok(Model::Values(1))
                }
                fn visit_i64<E>(self, _: i64) -> Result<Model, E> {
                    Ok(Model::Values(1))
                }
                fn visit_u64<E>(self, _: u64) -> Result<Model, E> {
                    Ok(Model::Values(1))
                }
                fn visit_f64<E>(self, _: f64) -> Result<Model, E> {
                    Ok(Model::Values(1))
                }
                fn visit_str<E>(self, _: &str) -> Result<Model, E> {
                    Ok(Model::Values(1))
                }
                fn visit_unit<E>(self) -> Result<Model, E> {
                    Ok(Model::Values(1))
                }
                fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Model, A::Error> {
                    let mut sum = Model::Values(1);
                    while let Some(item) = items.next_element()? {
                        sum = sum.plus(item);
                    }
                    Ok(sum)
                }
                fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Model, A::Error> {
                    let mut sum = Model::Values(1);
                    let mut seen = BTreeMap::new();
                    while let Some((key, value)) = members.next_entry::<String, Model>()? {
                        sum = sum.plus(value);
                        if seen.insert(key, ()).is_some() {
                            sum = Model::Duplicate;
                        }
                    }
                    Ok(sum)
                }
            }
            deserializer.deserialize_any(ModelVisitor)
        }
    }

    /// JSON texts with few different keys, so that duplicates happen, in several spellings.
    fn any_json() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![
            "-?(0|[1-9][0-9]{0,3})(\\.[0-9])?",
            "true|false|null",
            "\"[a{},:\\[\\]é]{0,4}\"",
            r#""(\\\\|\\"|\\u00e9|x){0,3}""#
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            let key = prop_oneof!["\"[ab]?\"", r#""(\\\\|\\"|\\u0061)""#];
            let member = (key, inner.clone()).prop_map(|(key, value)| format!("{key} :{value}"));
            prop_oneof![
                prop::collection::vec(inner, 0..5).prop_map(|items| format!("[{}]", items.join(" ,"))),
                prop::collection::vec(member, 0..4).prop_map(|members| format!("{{ {}}}", members.join(","))),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_scan_agrees_with_the_parser(text in any_json()) {
            let model: Model = serde_json::from_str(&text).unwrap();
            let mut scan = Scan::new(&text);
            let mut result = Ok(());
            while let (Ok(()), Some(&byte)) = (&result, text.as_bytes().get(scan.at)) {
                result = scan.token(byte);
            }
            match result {
                Ok(()) => prop_assert_eq!(model, Model::Values(scan.values)),
                Err(error) => {
                    prop_assert!(error.starts_with("duplicate JSON object key"), "{}", error);
                    prop_assert_eq!(model, Model::Duplicate);
                }
            }
        }

        #[test]
        fn any_text_is_an_answer_never_a_panic(text in "\\PC{0,60}", json in "[\\[\\]{}:,\"a0\\\\é-]{0,40}") {
            let _ = (check(&text), check(&json));
        }
    }
}
