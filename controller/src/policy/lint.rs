//! What is wrong with rules that make sense one by one.
//!
//! Invariant: a finding is certain; what is only likely is not told.

use super::pattern::{HostPattern, MethodPattern, PathPattern};
use super::{Policy, Rule, Verdict};

/// Findings about a persona's rules, a line each.
pub fn findings(policy: &Policy) -> Vec<String> {
    let mut found = Vec::new();
    for (index, rule) in policy.rules.iter().enumerate() {
        let others = policy.rules.iter().enumerate().filter(|(other, _)| *other != index);
        let wider: Vec<_> = others.filter(|(_, other)| includes(other, rule)).collect();
        if let Some((_, other)) = wider.iter().find(|(_, other)| other.decision > rule.decision) {
            found.push(format!(
                "rule {} never decides: whatever it matches, rule {} decides {}",
                rule.id,
                other.id,
                other.decision.name()
            ));
        } else if let Some((_, other)) = wider.iter().find(|(at, other)| {
            // Of two that say the same, the later one is told.
            other.decision == rule.decision && (*at < index || !includes(rule, other))
        }) {
            found.push(format!("rule {} adds nothing: rule {} matches all of it", rule.id, other.id));
        } else if rule.decision == Verdict::Allow
            && policy.default == Verdict::Allow
            && policy.opaque == Verdict::Allow
        {
            found.push(format!("rule {} adds nothing: the default allows it already", rule.id));
        }
    }
    let looks_inside = |rule: &&Rule| {
        policy.opaque == Verdict::Allow
            && rule.decision > Verdict::Allow
            && (rule.command.is_some() || !rule.exe.is_empty())
    };
    if let Some(rule) = policy.rules.iter().find(looks_inside) {
        found.push(format!(
            "rule {} sees plain commands only, and opaque = \"{}\" lets the others by: set opaque to ask or deny",
            rule.id,
            policy.opaque.name()
        ));
    }
    found
}

/// Patterns of files, with the rule and key they stand in.
pub fn patterns(policy: &Policy) -> impl Iterator<Item = (&Rule, &'static str, &PathPattern)> {
    policy.rules.iter().flat_map(|rule| {
        let keys = [("path", &rule.path), ("exe", &rule.exe), ("cwd", &rule.cwd)];
        keys.into_iter()
            .flat_map(move |(key, patterns)| patterns.iter().map(move |pattern| (rule, key, pattern)))
    })
}

/// Whether `wide` certainly matches whatever `narrow` matches.
fn includes(wide: &Rule, narrow: &Rule) -> bool {
    let command = match (&wide.command, &narrow.command) {
        (None, _) => true,
        (Some(wide), Some(narrow)) => narrow.starts_with(wide),
        (Some(_), None) => false,
    };
    let same_paths = |wide: &[PathPattern], narrow: &[PathPattern]| {
        all_in(wide, narrow, |wide, narrow| {
            wide.text() == narrow.text() || wide.text() == "**" && narrow.is_relative()
        })
    };
    command
        && (wide.argv.is_none() || wide.argv == narrow.argv)
        && same_paths(&wide.exe, &narrow.exe)
        && same_paths(&wide.cwd, &narrow.cwd)
        && same_paths(&wide.path, &narrow.path)
        && all_in(&wide.env, &narrow.env, |wide, narrow| wide == narrow)
        && all_in(&wide.op, &narrow.op, |wide, narrow| wide.includes(*narrow))
        && all_in(&wide.http, &narrow.http, |wide, narrow| wide == narrow)
        && all_in(&wide.host, &narrow.host, HostPattern::includes)
        && all_in(&wide.method, &narrow.method, MethodPattern::includes)
        // An allow rule takes no variables but those in env; one without env is narrower.
        && (wide.decision != Verdict::Allow || wide.env == narrow.env)
        && same_kind(wide, narrow)
}

fn same_kind(wide: &Rule, narrow: &Rule) -> bool {
    let kind = |rule: &Rule| (rule.is_about_commands(), rule.is_about_files(), rule.is_about_http());
    wide.is_about_methods() || kind(wide) == kind(narrow)
}

/// An empty list matches everything.
fn all_in<T>(wide: &[T], narrow: &[T], includes: impl Fn(&T, &T) -> bool) -> bool {
    wide.is_empty()
        || !narrow.is_empty() && narrow.iter().all(|narrow| wide.iter().any(|wide| includes(wide, narrow)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::rule::RuleFile;

    fn policy(rules: &[&str], default: Verdict) -> Policy {
        let parse = |text: &&str| Rule::build(toml::from_str::<RuleFile>(text).unwrap()).unwrap();
        Policy { rules: rules.iter().map(parse).collect(), default, opaque: Verdict::Deny }
    }

    #[test]
    fn rules_that_never_decide_are_told() {
        let found = findings(&policy(
            &[
                "id='all-git'\ncommand=['git']\ndecision='deny'",
                "id='status'\ncommand=['git','status']\ndecision='allow'",
                "id='push'\ncommand=['git','push']\ndecision='deny'",
                "id='fs'\nmethod='fs/*'\ndecision='ask'",
                "id='src'\nmethod='fs/readFile'\npath='src/**'\ndecision='allow'",
                "id='make'\ncommand=['make']\ndecision='allow'",
            ],
            Verdict::Deny,
        ));
        let told: Vec<_> = found.iter().map(|line| line.split(": ").next().unwrap()).collect();
        assert_eq!(told, ["rule status never decides", "rule push adds nothing", "rule src never decides"]);
    }

    #[test]
    fn rules_without_effect_and_blind_spots_are_told() {
        let mut open = policy(
            &["id='a'\ncommand=['ls']\ndecision='allow'", "id='b'\ncommand=['rm']\ndecision='deny'"],
            Verdict::Allow,
        );
        open.opaque = Verdict::Allow;
        let found = findings(&open).join("\n");
        assert!(found.contains("rule a adds nothing: the default allows"), "{found}");
        assert!(found.contains("rule b sees plain commands only"), "{found}");
        let tight = policy(&["id='b'\ncommand=['rm']\ndecision='deny'"], Verdict::Allow);
        assert_eq!(findings(&tight), Vec::<String>::new());
    }
}
