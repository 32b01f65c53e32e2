//! A record as people read it.

use serde_json::Value;

use crate::cli::table;

/// `12 2026-11-29T10:00:00.123Z abcdefgh call allow process/start ["ls"] in /w`
pub(super) fn human(record: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut parts: Vec<String> = vec![text(&record["seq"]), text(&record["time"])];
    parts.push(record["session"].as_str().unwrap_or("-").to_owned());
    for name in ["event", "decision", "method", "rule", "reason"] {
        parts.extend(record.get(name).map(text));
    }
    if let Some(call) = record.get("call") {
        parts.push(format!("of {call}"));
    }
    if let Some(asked) = record.get("asked") {
        parts.push(format!("asked about in {asked}"));
    }
    let object = &record["object"];
    parts.extend(["argv", "path", "url", "processId"].iter().find_map(|name| object.get(name)).map(text));
    for (name, label) in [("cwd", "in"), ("destination", "to")] {
        parts.extend(object.get(name).map(|value| format!("{label} {}", text(value))));
    }
    if let Some(Value::Object(outcome)) = record.get("outcome") {
        parts.extend(outcome.iter().map(|(name, value)| format!("{name}={}", text(value))));
    }
    table::printable(&parts.join(" "))
}
