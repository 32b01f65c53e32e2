//! OpenCode's configuration when Legion starts it: what of the user's own is carried over, and what is fixed. Pure.
//!
//! Invariant: nothing that runs something, or allows it, comes from the user's configuration.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// Settings of the user that only concern models and looks.
const CARRIED: [&str; 11] = [
    "compaction",
    "default_agent",
    "disabled_providers",
    "enabled_providers",
    "keybinds",
    "model",
    "provider",
    "small_model",
    "theme",
    "tui",
    "username",
];

/// The same of an agent.
const CARRIED_OF_AGENT: [&str; 11] = [
    "color",
    "description",
    "disable",
    "hidden",
    "maxSteps",
    "mode",
    "model",
    "prompt",
    "steps",
    "temperature",
    "top_p",
];

/// Settings that are fixed here, or say nothing.
const FIXED: [&str; 9] =
    ["$schema", "agent", "autoupdate", "formatter", "lsp", "permission", "share", "snapshot", "tool_output"];

/// Limits OpenCode does not reach: the tools keep theirs, and what it would cut it would put where they cannot read it.
const NO_SECOND_LIMIT: u32 = 16 << 20;

/// Puts `over` over `under`, objects member by member, as OpenCode does with its files.
pub(super) fn merge(under: &mut Value, over: Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (name, value) in over {
                merge(under.entry(name).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over,
    }
}

/// The configuration, and the names of the user's settings that are left out.
pub(super) fn generated(user: &Value, shell: &str) -> (Value, BTreeSet<String>) {
    let empty = Map::new();
    let user = user.as_object().unwrap_or(&empty);
    let mut config = kept(user, &CARRIED);
    if let Some(Value::Object(agents)) = user.get("agent") {
        let agents = agents.iter().filter_map(|(name, agent)| {
            Some((name.clone(), Value::Object(kept(agent.as_object()?, &CARRIED_OF_AGENT))))
        });
        config.insert("agent".to_owned(), Value::Object(agents.collect()));
    }
    let mut config = Value::Object(config);
    merge(&mut config, fixed(shell));
    let is_known = |name: &str| CARRIED.contains(&name) || FIXED.contains(&name);
    let left_out = user.keys().filter(|name| !is_known(name)).cloned().collect();
    (config, left_out)
}

/// Every tool denied: the plugin allows them when it has reached the controller.
fn fixed(shell: &str) -> Value {
    json!({
        "$schema": "https://opencode.ai/config.json",
        "permission": { "*": "deny" },
        "shell": shell,
        "lsp": false,
        "formatter": false,
        "snapshot": false,
        "share": "disabled",
        "autoupdate": false,
        "tool_output": { "max_lines": NO_SECOND_LIMIT, "max_bytes": NO_SECOND_LIMIT }
    })
}

fn kept(object: &Map<String, Value>, names: &[&str]) -> Map<String, Value> {
    let found = object.iter().filter(|(name, _)| names.contains(&name.as_str()));
    found.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Every text in a value.
pub(super) fn each_text(value: &mut Value, change: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => change(text),
        Value::Array(items) => items.iter_mut().for_each(|item| each_text(item, change)),
        Value::Object(members) => members.values_mut().for_each(|member| each_text(member, change)),
        _ => {}
    }
}

/// What `{KIND:…}` in a text names: start, end and name of each, in order.
pub(super) fn references<'a>(text: &'a str, kind: &str) -> Vec<(usize, usize, &'a str)> {
    let opening = format!("{{{kind}:");
    let starts = text.match_indices(opening.as_str()).map(|(start, _)| start);
    let found = starts.filter_map(|start| {
        let name = start + opening.len();
        let length = text.get(name..)?.find('}')?;
        Some((start, name + length + 1, &text[name..name + length]))
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_or_allows_something_is_left_out() {
        let user = json!({
            "model": "a/b",
            "provider": { "a": { "options": { "apiKey": "{env:KEY}" } } },
            "plugin": ["evil"], "mcp": { "x": {} }, "command": {}, "tools": { "bash": true }, "instructions": ["/etc/x"],
            "permission": { "*": "allow" }, "share": "auto", "shell": "/bin/bash",
            "agent": { "build": { "model": "c/d", "permission": { "bash": "allow" }, "tools": { "bash": true } } }
        });
        let (config, left_out) = generated(&user, "/stub");
        assert_eq!(config["model"], "a/b");
        assert_eq!(config["provider"], user["provider"]);
        assert_eq!(config["agent"], json!({ "build": { "model": "c/d" } }));
        assert_eq!(config["permission"], json!({ "*": "deny" }));
        assert_eq!((&config["share"], &config["shell"]), (&json!("disabled"), &json!("/stub")));
        for name in ["plugin", "mcp", "command", "tools", "instructions"] {
            assert!(config.get(name).is_none() && left_out.contains(name), "{name}");
        }
        assert!(left_out.contains("shell") && !left_out.contains("model") && !left_out.contains("agent"));
    }

    #[test]
    fn files_are_put_over_each_other() {
        let mut value = json!({ "a": { "b": 1, "c": [1, 2] }, "d": 1 });
        merge(&mut value, json!({ "a": { "c": [3], "e": 2 }, "d": { "f": 1 } }));
        assert_eq!(value, json!({ "a": { "b": 1, "c": [3], "e": 2 }, "d": { "f": 1 } }));
    }

    #[test]
    fn references_are_found() {
        let text = "Bearer {env:A}{env:B} {file:~/k} {env:";
        assert_eq!(references(text, "env"), [(7, 14, "A"), (14, 21, "B")]);
        assert_eq!(references(text, "file"), [(22, 32, "~/k")]);
    }
}
