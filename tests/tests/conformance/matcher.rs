//! Compares an observation with what a case file expects.
//!
//! Invariant: matching is exact. Objects have exactly the expected members, arrays the expected order; every
//! looseness is spelled out in the case by an object with one `$` member.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::vars::Vars;

/// Compares; `Err` says where and how the two differ.
pub(crate) fn matches(expected: &Value, observed: &Value, vars: &Vars) -> Result<(), String> {
    compare(expected, observed, "", vars)
}

fn compare(expected: &Value, observed: &Value, at: &str, vars: &Vars) -> Result<(), String> {
    match (expected, observed) {
        (Value::Object(map), _) if operator(map).is_some() => {
            let (name, argument) = operator(map).unwrap_or(("", &Value::Null));
            apply(name, argument, observed, at, vars)
        }
        (Value::Object(want), Value::Object(have)) => members(want, have, true, at, vars),
        (Value::Array(want), Value::Array(have)) => {
            if want.len() != have.len() {
                return Err(differ(at, expected, observed));
            }
            want.iter()
                .zip(have)
                .enumerate()
                .try_for_each(|(i, (w, h))| compare(w, h, &format!("{at}[{i}]"), vars))
        }
        _ if expected == observed => Ok(()),
        _ => Err(differ(at, expected, observed)),
    }
}

fn members(
    want: &Map<String, Value>,
    have: &Map<String, Value>,
    exact: bool,
    at: &str,
    vars: &Vars,
) -> Result<(), String> {
    for (name, expected) in want {
        let here = format!("{at}.{name}");
        let optional = expected.as_object().and_then(operator).filter(|(op, _)| *op == "$optional");
        match (have.get(name), optional) {
            (None, Some(_)) => {}
            (None, None) => return Err(format!("{here}: missing, expected {expected}")),
            (Some(value), Some((_, inner))) => compare(inner, value, &here, vars)?,
            (Some(value), None) => compare(expected, value, &here, vars)?,
        }
    }
    match have.iter().find(|(name, _)| exact && !want.contains_key(*name)) {
        Some((name, value)) => Err(format!("{at}.{name}: unexpected member {}", short(value))),
        None => Ok(()),
    }
}

fn apply(name: &str, argument: &Value, observed: &Value, at: &str, vars: &Vars) -> Result<(), String> {
    let failed = || differ(at, &serde_json::json!({ name: argument }), observed);
    let check = |ok: bool| if ok { Ok(()) } else { Err(failed()) };
    let text = observed.as_str().unwrap_or_default();
    let wanted = argument.as_str().unwrap_or_default();
    match name {
        "$any" => Ok(()),
        "$type" => check(type_name(observed) == wanted),
        "$prefix" => check(observed.is_string() && text.starts_with(wanted)),
        "$suffix" => check(observed.is_string() && text.ends_with(wanted)),
        "$contains" => check(observed.is_string() && text.contains(wanted)),
        "$length" => check(
            argument.as_u64()
                == observed.as_array().map(|a| a.len() as u64).or(observed.as_str().map(|s| s.len() as u64)),
        ),
        "$range" => check(observed.as_f64().is_some_and(|n| {
            argument[0].as_f64().is_some_and(|low| low <= n)
                && argument[1].as_f64().is_some_and(|high| n <= high)
        })),
        "$base64" => {
            compare(argument, &Value::String(decode(text, at, vars)?), &format!("{at}:decoded"), vars)
        }
        "$base64Json" => {
            let inner = serde_json::from_str(&decode(text, at, vars)?).map_err(|e| format!("{at}: {e}"))?;
            compare(argument, &inner, &format!("{at}:decoded"), vars)
        }
        "$optional" => compare(argument, observed, at, vars),
        "$subset" => match (argument.as_object(), observed.as_object()) {
            (Some(want), Some(have)) => members(want, have, false, at, vars),
            _ => Err(failed()),
        },
        "$oneOf" => {
            let options = argument.as_array().ok_or_else(failed)?;
            check(options.iter().any(|option| compare(option, observed, at, vars).is_ok()))
        }
        "$unordered" | "$includes" => collection(name == "$unordered", argument, observed, at, vars),
        "$outputBytes" => {
            let total: usize = joined(observed)
                .and_then(|streams| {
                    streams.as_object().map(|s| s.values().filter_map(Value::as_str).map(str::len).sum())
                })
                .ok_or_else(failed)?;
            compare(&serde_json::json!({ "$range": argument }), &total.into(), at, vars)
        }
        "$output" => compare(argument, &joined(observed).ok_or_else(failed)?, at, vars),
        _ => Err(format!("{at}: unknown matcher {name}")),
    }
}

/// Every expected item is found once; with `whole`, nothing is left over.
fn collection(whole: bool, want: &Value, have: &Value, at: &str, vars: &Vars) -> Result<(), String> {
    let (Some(want), Some(have)) = (want.as_array(), have.as_array()) else {
        return Err(differ(at, want, have));
    };
    let mut left: Vec<&Value> = have.iter().collect();
    for item in want {
        let found = left.iter().position(|candidate| compare(item, candidate, at, vars).is_ok());
        let index = found.ok_or_else(|| {
            format!("{at}: no item like {} in {}", short(item), short(&have.clone().into()))
        })?;
        compare(item, left.remove(index), at, vars)?;
    }
    match left.first() {
        Some(extra) if whole => Err(format!("{at}: unexpected item {}", short(extra))),
        _ => Ok(()),
    }
}

/// The chunks of `process/read` joined per stream, as chunk boundaries are the server's choice (SPEC 7.3).
fn joined(chunks: &Value) -> Option<Value> {
    let mut streams: Map<String, Value> = Map::new();
    let mut bytes: std::collections::BTreeMap<&str, Vec<u8>> = std::collections::BTreeMap::new();
    let mut last = 0;
    for chunk in chunks.as_array()? {
        let seq = chunk["seq"].as_u64().filter(|seq| *seq > last)?;
        last = seq;
        bytes
            .entry(chunk["stream"].as_str()?)
            .or_default()
            .extend(STANDARD.decode(chunk["chunk"].as_str()?).ok()?);
    }
    for (stream, data) in bytes {
        streams.insert(stream.to_owned(), Value::String(String::from_utf8_lossy(&data).into_owned()));
    }
    Some(Value::Object(streams))
}

fn decode(text: &str, at: &str, vars: &Vars) -> Result<String, String> {
    let bytes = STANDARD.decode(text).map_err(|e| format!("{at}: not base64: {e}"))?;
    Ok(vars.normalise_text(&String::from_utf8_lossy(&bytes)))
}

/// Whether a text is a version 4 UUID in lower case, as session ids are (SPEC 3.1).
pub(crate) fn is_uuid4(text: &str) -> bool {
    text.len() == 36
        && text.char_indices().all(|(i, c)| match i {
            8 | 13 | 18 | 23 => c == '-',
            14 => c == '4',
            19 => matches!(c, '8' | '9' | 'a' | 'b'),
            _ => matches!(c, '0'..='9' | 'a'..='f'),
        })
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(n) if n.is_i64() || n.is_u64() => "integer",
        Value::Number(_) => "float",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn operator(map: &Map<String, Value>) -> Option<(&str, &Value)> {
    let (name, argument) = map.iter().next()?;
    (map.len() == 1 && name.starts_with('$')).then_some((name.as_str(), argument))
}

fn differ(at: &str, expected: &Value, observed: &Value) -> String {
    format!("{at}: expected {}, observed {}", short(expected), short(observed))
}

/// JSON of bounded length, for messages.
pub(crate) fn short(value: &Value) -> String {
    const LIMIT: usize = 400;
    let text = value.to_string();
    match text.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}… ({} bytes)", &text[..end], text.len()),
        None => text,
    }
}
