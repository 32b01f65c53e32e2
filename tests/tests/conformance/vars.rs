//! Placeholders and generated values on the way out, normalisation on the way in.
//!
//! Invariant: what is compared never holds a path, port, session id or time of this run; what is sent always does.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

/// Strings above this length (bytes) are not searched for things to normalise; they are bulk file contents.
const MAX_NORMALISED: usize = 1024 * 1024;
/// A time stamp within this distance of now (milliseconds) is a time of this run.
const THIS_RUN_MS: u64 = 3_600_000;
/// Longest string a generator may build, in bytes.
const MAX_GENERATED: usize = 96 * 1024 * 1024;

/// The names a case can use as `${name}`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vars {
    /// Replaced in what is sent and put back into what is observed; longest value first.
    volatile: Vec<(String, String)>,
    /// Replaced in what is sent only: short values that may occur anywhere by chance.
    bound: Vec<(String, Value)>,
}

impl Vars {
    /// Adds a value of this run; a later value of the same name wins.
    pub(crate) fn add(&mut self, name: &str, value: &str) {
        self.volatile.retain(|(have, _)| have != name);
        self.volatile.push((name.to_owned(), value.to_owned()));
        self.volatile.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    }

    /// Adds a value that is replaced in what is sent only.
    pub(crate) fn bind(&mut self, name: &str, value: Value) {
        self.bound.retain(|(have, _)| have != name);
        self.bound.push((name.to_owned(), value));
    }

    fn lookup(&self, name: &str) -> Option<String> {
        if let Some((_, value)) = self.volatile.iter().find(|(have, _)| have == name) {
            return Some(value.clone());
        }
        let bound = self.bound.iter().find(|(have, _)| have == name);
        bound.map(|(_, value)| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    }

    /// Replaces every `${name}`.
    pub(crate) fn text(&self, text: &str) -> Result<String, String> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find("${") {
            let (before, after) = rest.split_at(start);
            let (name, tail) =
                after[2..].split_once('}').ok_or_else(|| format!("open placeholder: {text}"))?;
            out.push_str(before);
            out.push_str(&self.lookup(name).ok_or_else(|| format!("unknown placeholder {name}"))?);
            rest = tail;
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Replaces placeholders and runs generators in a value that is to be sent.
    pub(crate) fn expand(&self, value: &Value) -> Result<Value, String> {
        self.build(value, true)
    }

    /// Runs the generators in an expectation; its placeholders stay, the observation has them too.
    pub(crate) fn expectation(&self, value: &Value) -> Result<Value, String> {
        self.build(value, false)
    }

    fn build(&self, value: &Value, fill: bool) -> Result<Value, String> {
        Ok(match value {
            Value::String(text) if fill => Value::String(self.text(text)?),
            Value::Array(items) => {
                Value::Array(items.iter().map(|v| self.build(v, fill)).collect::<Result<_, _>>()?)
            }
            Value::Object(map) => match generator(map) {
                Some((name, argument)) => Self::generate(name, &self.build(argument, fill)?)?,
                None => Value::Object(
                    map.iter()
                        .map(|(k, v)| Ok((k.clone(), self.build(v, fill)?)))
                        .collect::<Result<_, String>>()?,
                ),
            },
            other => other.clone(),
        })
    }

    fn generate(name: &str, argument: &Value) -> Result<Value, String> {
        let text = |value: &Value| {
            value.as_str().map(str::to_owned).ok_or(format!("{name}: want text, got {value}"))
        };
        let list = || argument.as_array().ok_or(format!("{name}: want a list"));
        Ok(Value::String(match name {
            "$repeat" => {
                let unit = text(&argument[0])?;
                let times =
                    argument[1].as_u64().and_then(|n| usize::try_from(n).ok()).ok_or("$repeat: times")?;
                if unit.len().saturating_mul(times) > MAX_GENERATED {
                    return Err("$repeat: too long".into());
                }
                unit.repeat(times)
            }
            "$concat" => list()?.iter().map(text).collect::<Result<String, _>>()?,
            "$b64" => STANDARD.encode(text(argument)?),
            "$jwt" => crate::jwt::sign(argument)?,
            "$list" => {
                let times =
                    argument[1].as_u64().and_then(|n| usize::try_from(n).ok()).ok_or("$list: times")?;
                return Ok(Value::Array(
                    (0..times)
                        .map(|i| Ok(Value::String(text(&argument[0])?.replace('#', &i.to_string()))))
                        .collect::<Result<_, String>>()?,
                ));
            }
            _ => return Err(format!("unknown generator {name}")),
        }))
    }

    /// Puts the placeholders back into an observed value, and replaces times of this run by `${time}`.
    pub(crate) fn normalise(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.normalise_text(text)),
            Value::Array(items) => Value::Array(items.iter().map(|v| self.normalise(v)).collect()),
            Value::Object(map) => {
                Value::Object(map.iter().map(|(k, v)| (k.clone(), self.normalise_member(k, v))).collect())
            }
            other => other.clone(),
        }
    }

    fn normalise_member(&self, name: &str, value: &Value) -> Value {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
        match (name, value.as_u64()) {
            ("createdAtMs" | "modifiedAtMs", Some(ms))
                if now.abs_diff(u128::from(ms)) < u128::from(THIS_RUN_MS) =>
            {
                Value::String("${time}".into())
            }
            _ => self.normalise(value),
        }
    }

    /// The same for bare text.
    pub(crate) fn normalise_text(&self, text: &str) -> String {
        if text.len() > MAX_NORMALISED {
            return text.to_owned();
        }
        self.volatile.iter().fold(text.to_owned(), |text, (name, value)| {
            if value.is_empty() || !text.contains(value.as_str()) {
                text
            } else {
                text.replace(value.as_str(), &format!("${{{name}}}"))
            }
        })
    }
}

const GENERATORS: [&str; 5] = ["$repeat", "$concat", "$b64", "$jwt", "$list"];

fn generator(map: &Map<String, Value>) -> Option<(&str, &Value)> {
    let (name, argument) = map.iter().next()?;
    (map.len() == 1 && GENERATORS.contains(&name.as_str())).then_some((name.as_str(), argument))
}
