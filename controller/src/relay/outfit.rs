//! Giving a command the variables of `.env` that a rule grants it.
//!
//! Invariant: a value goes into the one frame that starts the command and nowhere else; records name the variable.

use std::collections::BTreeMap;

use legion_protocol::StringMap;
use serde_json::value::{RawValue, to_raw_value};
use tokio_tungstenite::tungstenite::Utf8Bytes;

use super::Connection;

impl Connection {
    /// The names of `.env` that these names and prefixes mean.
    pub(super) fn granted(&self, patterns: &[String]) -> Vec<String> {
        let is_meant = |name: &&String| {
            patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
                Some(prefix) => name.starts_with(prefix),
                None => *name == pattern,
            })
        };
        self.controller.config.secrets.keys().filter(is_meant).cloned().collect()
    }

    /// The frame with what was granted to it.
    pub(super) fn outfitted(&self, text: Utf8Bytes) -> Utf8Bytes {
        let names = self.to_add.take();
        if names.is_empty() {
            return text;
        }
        let secrets = &self.controller.config.secrets;
        let variables = names.iter().filter_map(|name| Some((name.as_str(), secrets.get(name)?.expose())));
        match with_variables(&text, variables) {
            Ok(text) => text.into(),
            Err(error) => {
                // The gate has decoded the same text.
                tracing::error!(%error, "a command starts without the variables it was granted");
                text
            }
        }
    }
}

/// The text of a `process/start` with these variables in its `env`; everything else stays as it is.
fn with_variables<'v>(
    text: &str,
    variables: impl Iterator<Item = (&'v str, &'v str)>,
) -> Result<String, serde_json::Error> {
    type Members = BTreeMap<String, Box<RawValue>>;
    let member = |members: &Members, name: &str| members.get(name).map_or("{}", |raw| raw.get()).to_owned();
    let mut frame: Members = serde_json::from_str(text)?;
    let mut params: Members = serde_json::from_str(&member(&frame, "params"))?;
    let mut env: StringMap = serde_json::from_str(&member(&params, "env"))?;
    env.0.extend(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
    params.insert("env".to_owned(), to_raw_value(&env)?);
    frame.insert("params".to_owned(), to_raw_value(&params)?);
    serde_json::to_string(&frame)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn only_env_changes() {
        let frame = json!({
            "id": 7, "method": "process/start", "trace": null,
            "params": { "processId": "p", "env": { "PATH": "/bin", "A": "client's" }, "sandbox": { "x": [1.50] } },
        });
        let text = with_variables(&frame.to_string(), [("A", "a\"b"), ("B", "c")].into_iter()).unwrap();
        let mut expected = frame;
        expected["params"]["env"] = json!({ "PATH": "/bin", "A": "a\"b", "B": "c" });
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), expected);
        assert!(with_variables("{\"params\":{\"env\":[]}}", std::iter::empty()).is_err());
    }
}
