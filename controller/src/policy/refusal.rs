//! What the one who is refused is told: what was refused, why, and what would permit it.
//!
//! Invariant: nothing but the client's own words and the rule's message is in it, and secrets are taken out of both.

use std::path::{Path, PathBuf};

use legion_protocol::{ErrorCode, ErrorObject};
use serde_json::{Value, json};

use super::action::{Action, Command, Http, Names, Op, Touch, What};
use super::variables::is_influential;
use super::{Because, Decision};
use crate::audit::redact::Redactor;
use crate::limits::MAX_SHOWN_PART_CHARS;

/// How it came to the refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A rule or a default says so.
    Denied,
    /// A person was asked and said no.
    NotApproved,
    /// A person was asked and did not answer in time.
    TimedOut,
    /// The client gave up before a person answered.
    Withdrawn,
    /// Nobody can be asked: there are too many questions already.
    NotAsked,
}

impl Kind {
    /// As in the error object.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Denied => "policyDenied",
            Self::NotApproved => "approvalDenied",
            Self::TimedOut => "approvalTimedOut",
            Self::Withdrawn => "approvalWithdrawn",
            Self::NotAsked => "approvalUnavailable",
        }
    }
}

/// One line for the model and for records.
pub fn reason(kind: Kind, decision: &Decision, redactor: &Redactor) -> String {
    let part =
        decision.part.as_deref().map_or_else(|| "this call".to_owned(), |part| format!("`{}`", short(part)));
    let mut text = match kind {
        Kind::Denied => format!("Legion's policy refuses {part}"),
        Kind::NotApproved => format!("Legion asked the user about {part}, who did not approve it"),
        Kind::TimedOut => format!("Legion asked the user about {part} and got no answer in time"),
        Kind::Withdrawn => format!("Legion asked the user about {part}, but the client gave it up"),
        Kind::NotAsked => format!("Legion cannot ask the user about {part}: too many questions wait already"),
    };
    let because = match &decision.because {
        Because::Rule(id) => format!(" (rule {id})"),
        Because::Default | Because::Opaque(_) => format!(": {}", because(decision)),
    };
    text.push_str(&because);
    if let Some(message) = &decision.message {
        text.push_str(": ");
        text.push_str(message);
    }
    redactor.text(&text.replace(char::is_control, " "))
}

/// What decided, in a few words.
pub fn because(decision: &Decision) -> String {
    match &decision.because {
        Because::Rule(id) => format!("rule {id} says {}", decision.verdict.name()),
        Because::Default => "no rule allows it".to_owned(),
        Because::Opaque(why) => format!("what it does cannot be seen ({why})"),
    }
}

/// The error that answers the call.
pub fn error(kind: Kind, decision: &Decision, action: &Action, redactor: &Redactor) -> ErrorObject {
    // A deny or ask rule wins over whatever could be added.
    let allow = match decision.because {
        Because::Rule(_) => Value::Null,
        Because::Default | Because::Opaque(_) => allowing(action),
    };
    let message = decision.message.as_deref().map(|message| redactor.text(message));
    let data = json!({
        "kind": kind.name(),
        "rule": decision.rule(),
        "message": message,
        "allow": redacted(allow, redactor),
    });
    ErrorObject { data: Some(data), ..ErrorObject::new(ErrorCode::Refused, reason(kind, decision, redactor)) }
}

fn short(part: &str) -> String {
    let mut text: String = part.chars().take(MAX_SHOWN_PART_CHARS).collect();
    if text.len() < part.len() {
        text.push('…');
    }
    text
}

fn redacted(value: Value, redactor: &Redactor) -> Value {
    match value {
        Value::String(text) => Value::String(redactor.text(&text)),
        Value::Array(items) => items.into_iter().map(|item| redacted(item, redactor)).collect(),
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, redacted(value, redactor))).collect(),
        other => other,
    }
}

/// The narrowest rule that permits a call where no other rule forbids it; null when no rule could.
fn allowing(action: &Action) -> Value {
    match &action.what {
        What::Command(command) => allowing_command(command),
        What::Files(touches) => allowing_files(touches),
        What::Http(Http { host: Some(host), method, follows: false, .. }) => {
            json!({ "host": host, "http": method, "decision": "allow" })
        }
        What::Http(_) => Value::Null,
        What::Other => json!({ "method": action.method, "decision": "allow" }),
    }
}

fn allowing_command(command: &Command) -> Value {
    let mut rule = json!({ "argv": command.argv, "decision": "allow" });
    let names: Vec<_> = command.env.iter().filter(|name| is_influential(name)).collect();
    if !names.is_empty() {
        rule["env"] = json!(names);
    }
    if command.cwd_lost {
        return Value::Null;
    }
    let name = |cwd: &Names| {
        let path = cwd.relative.as_deref().or_else(|| cwd.absolute.first().map(PathBuf::as_path));
        path.and_then(Path::to_str).map(escaped)
    };
    let mut names: Vec<String> = command.cwd.iter().filter_map(name).collect();
    names.dedup();
    match names.as_slice() {
        [] => {}
        [one] => rule["cwd"] = json!(one),
        several => rule["cwd"] = json!(several),
    }
    rule
}

fn allowing_files(touches: &[Touch]) -> Value {
    let mut paths = Vec::new();
    let mut ops: Vec<Op> = Vec::new();
    for touch in touches {
        if touch.lost {
            return Value::Null;
        }
        for names in &touch.names {
            let path = names.relative.as_ref().or_else(|| names.absolute.first());
            let Some(path) = path.and_then(|path| path.to_str()) else { return Value::Null };
            paths.push(match (touch.tree, path) {
                (true, ".") => "**".to_owned(),
                (true, path) => format!("{}/**", escaped(path).trim_end_matches('/')),
                (false, path) => escaped(path),
            });
        }
        ops.push(touch.op);
    }
    paths.dedup();
    ops.dedup();
    json!({ "path": paths, "op": ops, "decision": "allow" })
}

/// A path as a pattern that matches only it.
fn escaped(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for c in path.chars() {
        if "*?[]{}\\!".contains(c) {
            text.push('\\');
        }
        text.push(c);
    }
    text
}
