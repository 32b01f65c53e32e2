//! What models send where a number or a choice is expected.
//!
//! Invariant: `null` is as good as absent, and a whole number is one however it is written; everything else is refused.

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

/// A whole number, also as `2000.0` or `"2000"`.
pub(super) fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let number = match &value {
        Value::Null => return Ok(None),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.trim().to_owned(),
        _ => String::new(),
    };
    let digits = number.strip_suffix(".0").unwrap_or(&number);
    digits
        .parse()
        .map(Some)
        .map_err(|_| de::Error::custom(format_args!("{value} is no whole number of 0 or more")))
}

/// Absent, `null` and `false` are false.
pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Ok(Option::<bool>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Given {
        #[serde(default, deserialize_with = "whole")]
        n: Option<u64>,
        #[serde(default, deserialize_with = "flag")]
        f: bool,
    }

    #[test]
    fn numbers_are_taken_as_models_write_them() {
        let given = |text: &str| serde_json::from_str::<Given>(text).map(|given| given.n);
        for (text, number) in [
            ("{}", None),
            (r#"{"n":null}"#, None),
            (r#"{"n":0}"#, Some(0)),
            (r#"{"n":2000.0}"#, Some(2000)),
            (r#"{"n":" 7 "}"#, Some(7)),
        ] {
            assert_eq!(given(text).unwrap(), number, "{text}");
        }
        for text in [r#"{"n":-1}"#, r#"{"n":1.5}"#, r#"{"n":"x"}"#, r#"{"n":[1]}"#, r#"{"n":true}"#] {
            assert!(given(text).is_err(), "{text}");
        }
        assert!(!serde_json::from_str::<Given>(r#"{"f":null}"#).unwrap().f);
        assert!(serde_json::from_str::<Given>(r#"{"f":true}"#).unwrap().f);
    }
}
