//! The policy: what a call may do, decided by one pure function that the gate, `policy why` and `policy replay` share.
//!
//! Invariant: a deny rule wins over an ask rule, that over an allow rule, that over the persona's default. Deny and ask
//! rules match what can be seen; an allow rule covers only what can be seen whole. What cannot be seen is opaque, and only
//! a rule with the exact `argv` allows it.

pub mod action;
mod builtins;
pub mod command;
mod editors;
mod finders;
mod git;
mod heredoc;
mod interpreters;
mod languages;
pub mod lint;
pub mod pattern;
mod programs;
pub mod refusal;
pub mod rule;
mod runners;
mod script;
mod shell;
mod unwrap;
mod variables;
pub mod workspace;

use std::rc::Rc;

use serde::{Deserialize, Serialize};

pub use action::{Action, Sight, What};
pub use rule::Rule;

use action::{Http, Touch};
use command::{Match, Part, Standing};

/// What is to become of a call, the mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It goes on.
    Allow,
    /// A person is asked.
    Ask,
    /// It is refused.
    Deny,
}

impl Verdict {
    /// As in the configuration.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

/// What decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Because {
    /// A rule, by its id.
    Rule(String),
    /// No rule; the default for what can be seen.
    Default,
    /// No rule; the default for what cannot be seen, and why it cannot.
    Opaque(String),
}

/// The answer to one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// What becomes of it.
    pub verdict: Verdict,
    /// What decided.
    pub because: Because,
    /// The rule's own words.
    pub message: Option<String>,
    /// The part of the call that decided: one command of a script, one path.
    pub part: Option<String>,
}

impl Decision {
    fn of(rule: &Rule, part: Option<String>) -> Self {
        Self {
            verdict: rule.decision,
            because: Because::Rule(rule.id.clone()),
            message: rule.message.clone(),
            part,
        }
    }

    /// The id of the rule that decided.
    pub fn rule(&self) -> Option<&str> {
        match &self.because {
            Because::Rule(id) => Some(id),
            Because::Default | Because::Opaque(_) => None,
        }
    }
}

/// One persona's rules, or those of a workspace.
#[derive(Debug, Clone, Serialize)]
pub struct Policy {
    /// In the order written; the order does not matter between different decisions.
    pub rules: Vec<Rule>,
    /// For what no rule matches.
    pub default: Verdict,
    /// For what no rule matches and nobody can see into.
    pub opaque: Verdict,
}

impl Default for Policy {
    fn default() -> Self {
        Self { rules: Vec::new(), default: Verdict::Allow, opaque: Verdict::Allow }
    }
}

/// What is decided on its own within a call; the severest of all decides the call.
enum Unit<'a> {
    Part(&'a Part),
    Opaque(&'a str),
    Touch(&'a Touch),
    Http(&'a Http),
    Other,
}

impl Policy {
    /// Whether it allows everything, so that nothing need be looked at.
    pub fn is_open(&self) -> bool {
        self.rules.is_empty() && self.default == Verdict::Allow && self.opaque == Verdict::Allow
    }

    /// Whether some rule looks at resolved paths or programs.
    pub fn looks_at_files(&self) -> bool {
        self.rules.iter().any(Rule::looks_at_files)
    }

    /// Decides one call.
    pub fn decide(&self, action: &Action) -> Decision {
        let mut worst: Option<Decision> = None;
        for unit in units(action) {
            let decision = self.judge(action, &unit);
            // Of equals, one that a rule made tells more.
            let rank = |decision: &Decision| (decision.verdict, decision.rule().is_some());
            if worst.as_ref().is_none_or(|worst| rank(&decision) > rank(worst)) {
                worst = Some(decision);
            }
        }
        worst.unwrap_or_else(|| self.judge(action, &Unit::Other))
    }

    /// The variables of `.env`, by name or `PREFIX_*`, that a command gets: each part of it must be covered by a rule that
    /// gives them.
    pub fn secrets(&self, action: &Action) -> Vec<String> {
        let units = units(action);
        let is_given = |wanted: &&String| {
            let covering = |unit: &Unit<'_>| {
                self.rules.iter().any(|rule| rule.gives(wanted) && covers(rule, action, unit))
            };
            // A shell that only runs what is looked at as well need not be covered itself.
            let is_guess =
                |unit: &Unit<'_>| matches!(unit, Unit::Part(part) if part.standing > Standing::Own);
            units.iter().any(covering) && units.iter().all(|unit| is_guess(unit) || covering(unit))
        };
        let mut given: Vec<String> =
            self.rules.iter().flat_map(|rule| &rule.secrets).filter(is_given).cloned().collect();
        given.sort();
        given.dedup();
        given
    }

    fn judge(&self, action: &Action, unit: &Unit<'_>) -> Decision {
        let part = describe(unit);
        let mut hidden: Option<&Rule> = None;
        let mut hit: Option<&Rule> = None;
        for verdict in [Verdict::Deny, Verdict::Ask] {
            for rule in self.rules.iter().filter(|rule| rule.decision == verdict) {
                match meets(rule, action, unit) {
                    Match::Yes => hit = hit.or(Some(rule)),
                    Match::Maybe => hidden = hidden.or(Some(rule)),
                    Match::No => {}
                }
            }
        }
        let unseen = Self::unseen(unit, hidden);
        // What cannot be seen may be worse than what is.
        let may_be_worse = |rule: &Rule| hidden.is_some_and(|hidden| hidden.decision > rule.decision);
        if let Some(rule) = hit {
            if !may_be_worse(rule) || rule.decision >= self.opaque {
                return Decision::of(rule, part);
            }
        } else {
            let is_seen = match unit {
                Unit::Part(_) | Unit::Opaque(_) => unseen.is_none(),
                // What of them is not seen an allow rule looks at itself.
                Unit::Touch(_) | Unit::Http(_) | Unit::Other => hidden.is_none(),
            };
            let covering = |rule: &&Rule| {
                let covers = if is_seen {
                    covers
                } else {
                    |rule: &Rule, action: &Action, _: &Unit<'_>| names_exactly(rule, action)
                };
                rule.decision == Verdict::Allow && covers(rule, action, unit)
            };
            if let Some(rule) = self.rules.iter().find(covering) {
                return Decision::of(rule, part);
            }
        }
        let (verdict, because) = match unseen {
            Some(why) => (self.opaque, Because::Opaque(why)),
            // Only rules make something of what another part answers for.
            None if matches!(unit, Unit::Part(part) if part.standing > Standing::Own) => {
                (Verdict::Allow, Because::Default)
            }
            None => (self.default, Because::Default),
        };
        Decision { verdict, because, message: None, part }
    }

    /// Why a unit cannot be judged by what is seen of it. `hidden` is a rule that may be about it.
    fn unseen(unit: &Unit<'_>, hidden: Option<&Rule>) -> Option<String> {
        let why = match unit {
            Unit::Part(part) if part.standing == Standing::Guess => return None,
            Unit::Part(part) => part.unseen(),
            Unit::Opaque(why) => Some(*why),
            Unit::Touch(touch) if touch.lost => Some("where links on its way lead cannot be seen"),
            Unit::Http(http) if http.host.is_none() => Some("the URL does not show its host plainly"),
            Unit::Touch(_) | Unit::Http(_) | Unit::Other => None,
        };
        why.map(str::to_owned)
            .or_else(|| hidden.map(|rule| format!("rule {} may be about what is not plain in it", rule.id)))
    }
}

fn units(action: &Action) -> Vec<Unit<'_>> {
    match &action.what {
        What::Command(command) => {
            let parts = command.reading.parts.iter().map(Unit::Part);
            parts.chain(command.reading.opaque.iter().map(|why| Unit::Opaque(why))).collect()
        }
        What::Files(touches) => touches.iter().map(Unit::Touch).collect(),
        What::Http(http) => vec![Unit::Http(http)],
        What::Other => vec![Unit::Other],
    }
}

fn describe(unit: &Unit<'_>) -> Option<String> {
    match unit {
        Unit::Part(part) => Some(part.text()),
        Unit::Touch(touch) => Some(touch.path.display().to_string()),
        Unit::Http(http) => {
            Some(format!("{} {}", http.method, http.host.as_deref().unwrap_or("(unseen host)")))
        }
        Unit::Opaque(_) | Unit::Other => None,
    }
}

/// Whether a deny or ask rule matches.
fn meets(rule: &Rule, action: &Action, unit: &Unit<'_>) -> Match {
    if !rule.meets_method(action.method) {
        return Match::No;
    }
    match (unit, &action.what) {
        (Unit::Part(part), What::Command(command)) => rule.meets_part(command, part),
        (Unit::Opaque(_), What::Command(command)) => rule.meets_whole(command).into(),
        (Unit::Touch(touch), _) => rule.meets_touch(touch).into(),
        (Unit::Http(http), _) => rule.meets_http(http),
        _ => rule.is_about_methods().into(),
    }
}

/// Whether a rule names the very call, so that nothing in it need be seen.
fn names_exactly(rule: &Rule, action: &Action) -> bool {
    rule.meets_method(action.method)
        && match &action.what {
            What::Command(command) => rule.is_exactly(command),
            // Rules about nothing but methods cover them whatever they are about.
            What::Files(_) | What::Http(_) | What::Other => rule.is_about_methods(),
        }
}

/// Whether an allow rule covers all of it.
fn covers(rule: &Rule, action: &Action, unit: &Unit<'_>) -> bool {
    rule.meets_method(action.method)
        && match (unit, &action.what) {
            (Unit::Part(part), What::Command(command)) => rule.covers_part(command, part),
            (Unit::Opaque(_), What::Command(command)) => rule.is_exactly(command),
            (Unit::Touch(touch), _) => rule.covers_touch(touch),
            (Unit::Http(http), _) => rule.covers_http(http),
            _ => rule.is_about_methods(),
        }
}

/// The rules of a session: its persona's, narrowed by the workspace's own.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// The persona's.
    pub persona: Rc<Policy>,
    /// The workspace's; it allows nothing that the persona does not.
    pub workspace: Option<Rc<Policy>>,
}

impl Rules {
    /// See [`Policy::is_open`].
    pub fn is_open(&self) -> bool {
        self.persona.is_open() && self.workspace.as_ref().is_none_or(|policy| policy.is_open())
    }

    /// See [`Policy::looks_at_files`].
    pub fn look_at_files(&self) -> bool {
        self.persona.looks_at_files() || self.workspace.as_ref().is_some_and(|policy| policy.looks_at_files())
    }

    /// The severer of both decisions.
    pub fn decide(&self, action: &Action) -> Decision {
        let decision = self.persona.decide(action);
        let narrowed = self.workspace.as_ref().map(|policy| policy.decide(action));
        narrowed.filter(|narrowed| narrowed.verdict > decision.verdict).unwrap_or(decision)
    }
}

#[cfg(test)]
mod corpus;
#[cfg(test)]
mod sight_tests;
#[cfg(test)]
mod tests;
