//! `.legion.toml`: what a workspace adds to the rules of its persona.
//!
//! Invariant: it only narrows. Whatever it says beyond that is told and has no effect.

use toml::{Table, Value};

use super::rule::RuleFile;
use super::{Policy, Rule, Verdict};
use crate::limits::MAX_RULES;

/// The file's name, in the workspace itself.
pub const FILE: &str = ".legion.toml";

/// What the file comes to.
#[derive(Debug)]
pub struct Narrowing {
    /// Its rules; of what they allow nothing is left.
    pub policy: Policy,
    /// What it says without effect, a line each.
    pub notes: Vec<String>,
}

/// Reads the text of the file; the error is one line.
pub fn narrow(text: &str, persona: &Policy) -> Result<Narrowing, String> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let mut narrowing = Narrowing { policy: Policy::default(), notes: Vec::new() };
    let says_opaque = table.contains_key("opaque");
    for (key, value) in table {
        match key.as_str() {
            "rule" => narrowing.add_rules(value)?,
            "default" | "opaque" => narrowing.add_default(&key, value, persona)?,
            _ => narrowing
                .notes
                .push(format!("{FILE}: `{}` is not for a workspace to say: ignored", key.escape_debug())),
        }
    }
    // As for a persona: what cannot be seen is treated like the rest unless the file says otherwise.
    if !says_opaque {
        narrowing.policy.opaque = narrowing.policy.default;
    }
    Ok(narrowing)
}

impl Narrowing {
    fn add_rules(&mut self, value: Value) -> Result<(), String> {
        let files: Vec<RuleFile> =
            value.try_into().map_err(|error: toml::de::Error| error.message().to_owned())?;
        if files.len() > MAX_RULES {
            return Err(format!("more than {MAX_RULES} rules"));
        }
        for file in files {
            let rule = Rule::build(file)?;
            if rule.decision == Verdict::Allow {
                self.notes.push(format!("{FILE}: rule {} would allow something: ignored", rule.id));
            } else if self.policy.rules.iter().any(|known| known.id == rule.id) {
                return Err(format!("two rules are called {}", rule.id));
            } else {
                self.policy.rules.push(rule);
            }
        }
        Ok(())
    }

    fn add_default(&mut self, key: &str, value: Value, persona: &Policy) -> Result<(), String> {
        let verdict: Verdict = value.try_into().map_err(|_| format!("{key} is allow, ask or deny"))?;
        let (of_persona, mine) = match key {
            "default" => (persona.default, &mut self.policy.default),
            _ => (persona.opaque, &mut self.policy.opaque),
        };
        if verdict < of_persona {
            self.notes.push(format!(
                "{FILE}: {key} = \"{}\" would be wider than the persona's \"{}\": ignored",
                verdict.name(),
                of_persona.name()
            ));
        } else {
            *mine = verdict;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_widen_is_told_and_ignored() {
        let persona = Policy { rules: Vec::new(), default: Verdict::Ask, opaque: Verdict::Deny };
        let text = r#"
            default = "allow"
            opaque = "deny"
            network = "host"
            [persona.default]
            view = "host-ro"
            [[rule]]
            id = "more"
            command = ["curl"]
            decision = "allow"
            [[rule]]
            id = "less"
            command = ["rm"]
            decision = "deny"
        "#;
        let narrowing = narrow(text, &persona).unwrap();
        let ids: Vec<_> = narrowing.policy.rules.iter().map(|rule| rule.id.as_str()).collect();
        assert_eq!(ids, ["less"]);
        assert_eq!((narrowing.policy.default, narrowing.policy.opaque), (Verdict::Allow, Verdict::Deny));
        let notes = narrowing.notes.join("\n");
        for part in ["`network`", "`persona`", "rule more", "default = \"allow\""] {
            assert!(notes.contains(part), "{notes}");
        }
    }

    #[test]
    fn what_cannot_be_seen_follows_the_default() {
        for (text, opaque) in [
            ("default = 'deny'", Verdict::Deny),
            ("default = 'ask'", Verdict::Ask),
            ("default = 'deny'\nopaque = 'ask'", Verdict::Ask),
            ("", Verdict::Allow),
        ] {
            assert_eq!(narrow(text, &Policy::default()).unwrap().policy.opaque, opaque, "{text}");
        }
    }

    #[test]
    fn a_broken_file_is_an_error() {
        for (text, why) in [
            ("rule = 1", "sequence"),
            ("[[rule]]\nid='a'\ncommand=['x']", "say allow, ask or deny"),
            ("[[rule]]\nid='a'\nwat=1", "unknown field"),
            ("default = 'maybe'", "allow, ask or deny"),
            ("nonsense", "expected"),
        ] {
            let error = narrow(text, &Policy::default()).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
