//! Strict decoding: JSON objects only, no duplicate keys.
//!
//! Derived serde structs also accept arrays in field order, and maps keep the last of duplicate keys; two readers could
//! then see different calls in one frame. Everything the policy looks at is decoded through this module.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, DeserializeOwned, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::frame::Params;
use crate::jsonrpc::ErrorObject;

/// Decodes the `params` of a frame into `T`. Missing `params` count as `null` (SPEC 2.2).
///
/// # Errors
/// -32602 with the decoder's text, without its line and column: the client sent one line.
pub fn params<T: DeserializeOwned>(raw: Option<Params<'_>>) -> Result<T, ErrorObject> {
    params_in(raw)
}

/// Like [`params`], for a type that borrows from the frame.
pub fn params_in<'a, T: Deserialize<'a>>(raw: Option<Params<'a>>) -> Result<T, ErrorObject> {
    from_object(raw.map_or("null", Params::get)).map_err(|error| ErrorObject::invalid_params(detail(&error)))
}

/// The text of a decoding error without ` at line L column C`, and with numbers named as the original names them.
pub fn detail(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    in_original_words(text).unwrap_or_else(|| text.to_owned())
}

/// The original decodes numbers late and so does not tell their kinds apart. `None`: the words are the same.
fn in_original_words(text: &str) -> Option<String> {
    // Of valid JSON only: a number, null or boolean where the name of a variant should be.
    if text == "expected value" {
        return Some("invalid type: number, expected a string".to_owned());
    }
    let (kind, rest) = text.strip_prefix("invalid ")?.split_once(": ")?;
    let number = rest.strip_prefix("integer `").or_else(|| rest.strip_prefix("floating point `"))?;
    let (_, expected) = number.split_once("`, expected ")?;
    let integers = ["u8", "u16", "u32", "u64", "usize", "i8", "i16", "i32", "i64", "isize"];
    if integers.contains(&expected) {
        return Some("invalid number".to_owned());
    }
    (kind == "type").then(|| format!("invalid type: number, expected {expected}"))
}

/// Decodes `T` from a JSON text that must be an object.
pub fn from_object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, serde_json::Error> {
    if text.trim_ascii_start().starts_with('[') {
        return Err(de::Error::custom("invalid type: sequence, expected an object"));
    }
    serde_json::from_str(text)
}

/// `#[serde(deserialize_with = "object::nested")]`: a required member that must be an object.
pub fn nested<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    from_object(raw.get()).map_err(|error| de::Error::custom(detail(&error)))
}

/// `#[serde(default, deserialize_with = "object::optional")]`: an object, `null`, or absent.
pub fn optional<'de, D: Deserializer<'de>, T: DeserializeOwned>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let raw = Option::<Box<RawValue>>::deserialize(deserializer)?;
    raw.map(|raw| from_object(raw.get()).map_err(|error| de::Error::custom(detail(&error)))).transpose()
}

/// `#[serde(deserialize_with = "object::list")]`: an array whose items must all be objects.
pub fn list<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<Vec<T>, D::Error> {
    let raw = Vec::<Box<RawValue>>::deserialize(deserializer)?;
    raw.iter().map(|raw| from_object(raw.get()).map_err(|error| de::Error::custom(detail(&error)))).collect()
}

/// `#[serde(default, deserialize_with = "object::or_default")]`: `null` and absent mean the default.
pub fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

/// A string borrowed from the frame when it has no escapes.
#[derive(Debug)]
pub struct Text<'a>(pub Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = Text<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }
            fn visit_borrowed_str<E: de::Error>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(TextVisitor)
    }
}

/// A map from strings to strings that refuses duplicate keys, ordered by key.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct StringMap(pub BTreeMap<String, String>);

impl<'de> Deserialize<'de> for StringMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapVisitor;
        impl<'de> Visitor<'de> for MapVisitor {
            type Value = StringMap;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<StringMap, A::Error> {
                let mut map = BTreeMap::new();
                while let Some((key, value)) = access.next_entry::<String, String>()? {
                    if map.contains_key(&key) {
                        return Err(de::Error::custom(format_args!("duplicate field `{key}`")));
                    }
                    map.insert(key, value);
                }
                Ok(StringMap(map))
            }
        }
        deserializer.deserialize_map(MapVisitor)
    }
}

/// The one member of `params` the relay needs of most notifications.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessIdOnly<'a> {
    /// The client's name for a process.
    #[serde(borrow)]
    pub process_id: Cow<'a, str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Inner {
        #[allow(dead_code, reason = "only its decoding is under test")]
        a: u32,
    }

    #[derive(Debug, Deserialize)]
    struct Outer {
        #[serde(default, deserialize_with = "optional")]
        inner: Option<Inner>,
    }

    #[test]
    fn arrays_are_refused_at_every_level() {
        assert!(from_object::<Inner>(r#"{"a":1}"#).is_ok());
        assert!(from_object::<Inner>(" [1]").is_err());
        assert!(from_object::<Outer>(r#"{"inner":{"a":1}}"#).unwrap().inner.is_some());
        assert!(from_object::<Outer>(r#"{"inner":null}"#).unwrap().inner.is_none());
        assert!(from_object::<Outer>(r#"{"inner":[1]}"#).is_err());
    }

    #[test]
    fn duplicate_keys_are_refused_and_errors_have_no_position() {
        assert!(from_object::<Inner>(r#"{"a":1,"a":2}"#).is_err());
        assert!(serde_json::from_str::<StringMap>(r#"{"a":"1","a":"2"}"#).is_err());
        for (text, message) in [
            (r#"{"a":-1}"#, "invalid number"),
            (r#"{"a":1.5}"#, "invalid number"),
            (r#"{"a":"x"}"#, "invalid type: string \"x\", expected u32"),
            (r#"{"inner":5}"#, "invalid type: number, expected struct Inner"),
        ] {
            let inner = from_object::<Inner>(text).err();
            let error = inner.filter(|_| text.contains("\"a\"")).or_else(|| from_object::<Outer>(text).err());
            assert_eq!(detail(&error.unwrap()), message, "{text}");
        }
        assert_eq!(params::<Inner>(None).unwrap_err().message, "invalid type: null, expected struct Inner");
        let raw = serde_json::value::to_raw_value(&serde_json::json!({})).unwrap();
        assert_eq!(params::<Inner>(Some(Params::from(&*raw))).unwrap_err().message, "missing field `a`");
    }
}
