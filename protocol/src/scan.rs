//! Bounds on the shape of a message, checked before anything of it is decoded (SPEC 14).
//!
//! Invariant: what passes has no object with duplicate keys at any level, is at most `serde_json`'s 127 levels deep and has
//! at most `MAX_JSON_VALUES` values. So a small message can neither be read in two ways nor grow large when decoded.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::head::Text;
use crate::limits::MAX_JSON_VALUES;

/// Checks the text of one message.
///
/// # Errors
/// One line in the words of the original.
pub fn check(text: &str) -> Result<(), serde_json::Error> {
    let mut left = MAX_JSON_VALUES;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Scan { left: &mut left }.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Reads one value and keeps nothing of it.
struct Scan<'a> {
    /// Values that may still come.
    left: &'a mut usize,
}

impl<'de> DeserializeSeed<'de> for Scan<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        *self.left = self.left.checked_sub(1).ok_or_else(|| {
            de::Error::custom(format_args!(
                "JSON-RPC message exceeds the limit of {MAX_JSON_VALUES} JSON values"
            ))
        })?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Scan<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Scan { left: self.left })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let mut keys = Keys::default();
        while let Some(Text(key)) = members.next_key()? {
            if let Some(key) = keys.insert(key) {
                return Err(de::Error::custom(format_args!("duplicate JSON object key `{key}`")));
            }
            members.next_value_seed(Scan { left: self.left })?;
        }
        Ok(())
    }
}

/// The keys of one object. Most have a handful, which are compared one by one.
#[derive(Default)]
struct Keys<'a> {
    few: Vec<Cow<'a, str>>,
    many: BTreeSet<Cow<'a, str>>,
}

/// Above this many keys a tree takes over.
const FEW: usize = 16;

impl<'a> Keys<'a> {
    /// Adds a key; gives it back when it is there already.
    fn insert(&mut self, key: Cow<'a, str>) -> Option<Cow<'a, str>> {
        if self.few.contains(&key) || self.many.contains(&key) {
            return Some(key);
        }
        if self.few.len() < FEW {
            self.few.push(key);
        } else {
            self.many.insert(key);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refused(text: &str) -> String {
        check(text).unwrap_err().to_string()
    }

    #[test]
    fn nesting_is_bounded_whatever_it_is_made_of() {
        let arrays = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let objects = |levels: usize| format!("{}0{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
        for deep in [arrays as fn(usize) -> String, objects] {
            assert!(check(&deep(127)).is_ok());
            for levels in [128, 100_000] {
                assert!(refused(&deep(levels)).starts_with("recursion limit exceeded"));
            }
        }
    }

    #[test]
    fn values_are_counted() {
        let array = |items: usize| format!("[0{}]", ",0".repeat(items - 1));
        assert!(check(&array(MAX_JSON_VALUES - 1)).is_ok());
        assert!(
            refused(&array(MAX_JSON_VALUES))
                .starts_with("JSON-RPC message exceeds the limit of 262144 JSON values")
        );
    }

    #[test]
    fn duplicates_are_found_at_every_level_and_in_every_spelling() {
        for text in [r#"{"a":1,"a":2}"#, r#"{"x":[{"a":1,"\u0061":2}]}"#] {
            assert!(refused(text).starts_with("duplicate JSON object key `a`"), "{text}");
        }
        let many = |last: usize| {
            let members: Vec<_> = (0..100).chain([last]).map(|key| format!("\"{key}\":0")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert!(check(&many(100)).is_ok());
        assert!(check(&many(3)).is_err() && check(&many(70)).is_err());
        assert!(check(r#"{"a":{"a":1},"b":[{"a":1},{"a":1}]}"#).is_ok());
    }

    proptest! {
        /// What passes is JSON for the full parser, too, and the other way round.
        #[test]
        fn the_grammar_is_that_of_the_full_parser(text in "[\\[\\]{}:,\"a0-9.eE+ \\\\nutrfalse-]{0,24}") {
            let full = serde_json::from_str::<serde_json::Value>(&text);
            match check(&text) {
                Ok(()) => prop_assert!(full.is_ok()),
                Err(error) => prop_assert!(full.is_err() || error.to_string().starts_with("duplicate"), "{error}"),
            }
        }
    }
}
