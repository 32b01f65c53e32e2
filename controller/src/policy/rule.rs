//! One rule: what it is about, and whether it meets or covers a part of a call.
//!
//! Invariant: a rule is about one kind of call. All its criteria must fit; within a list of a deny or ask rule one item
//! is enough, of an allow rule every name that occurs must be in the list.

use legion_protocol::Method;
use legion_protocol::method::{Direction, Guard};
use serde::{Deserialize, Serialize};

use super::Verdict;
use super::action::{Command, Http, Names, Op, Touch};
use super::command::{Match, Part};
use super::pattern::{HostPattern, MethodPattern, PathPattern};
use super::variables::is_influential;
use crate::limits::MAX_SHOWN_PART_CHARS;

/// A rule as it is written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleFile {
    id: Option<String>,
    argv: Option<Vec<String>>,
    command: Option<Vec<String>>,
    exe: Option<OneOrMany<String>>,
    cwd: Option<OneOrMany<String>>,
    env: Option<OneOrMany<String>>,
    path: Option<OneOrMany<String>>,
    op: Option<OneOrMany<Op>>,
    host: Option<OneOrMany<String>>,
    http: Option<OneOrMany<String>>,
    method: Option<OneOrMany<String>>,
    decision: Option<Verdict>,
    message: Option<String>,
    secrets: Option<OneOrMany<String>>,
}

impl RuleFile {
    /// Its id, when it has one.
    pub fn id(&self) -> Option<&str> {
        self.id.as_deref()
    }
}

/// `"x"` or `["x", "y"]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(item) => vec![item],
            Self::Many(items) => items,
        }
    }
}

/// A rule that makes sense.
#[derive(Debug, Clone, Serialize)]
pub struct Rule {
    /// Unique in its persona.
    pub id: String,
    /// What it decides.
    pub decision: Verdict,
    /// What the one who is refused or asked is told.
    pub message: Option<String>,
    /// Variables of `.env`, by name or `PREFIX_*`, that the commands it covers get.
    pub secrets: Vec<String>,
    pub(super) argv: Option<Vec<String>>,
    pub(super) command: Option<Vec<String>>,
    pub(super) exe: Vec<PathPattern>,
    pub(super) cwd: Vec<PathPattern>,
    pub(super) env: Vec<String>,
    pub(super) path: Vec<PathPattern>,
    pub(super) op: Vec<Op>,
    pub(super) host: Vec<HostPattern>,
    pub(super) http: Vec<String>,
    pub(super) method: Vec<MethodPattern>,
}

/// Methods a rule can decide on.
fn guarded() -> impl Iterator<Item = &'static str> {
    let decided =
        |method: &&Method| method.direction() == Direction::ClientRequest && method.guard() == Guard::Guarded;
    Method::ALL.iter().filter(decided).map(|method| method.name())
}

impl Rule {
    /// Checks what was written; the error is one line.
    pub fn build(file: RuleFile) -> Result<Self, String> {
        let id = file.id.unwrap_or_default();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if id.is_empty() || !id.bytes().all(plain) {
            return Err(format!("`{id}` is no id of a rule: give it an id of letters, digits, -, _ and ."));
        }
        let fail = |key: &str, why: &str| format!("rule {id}: {key}: {why}");
        let decision = file.decision.ok_or_else(|| fail("decision", "say allow, ask or deny"))?;
        let list = |items: Option<OneOrMany<String>>| items.map(OneOrMany::into_vec).unwrap_or_default();
        let paths = |key: &str, items: Option<OneOrMany<String>>| {
            let parse = |text: &String| {
                let shown = || text.chars().take(MAX_SHOWN_PART_CHARS).collect::<String>();
                PathPattern::parse(text).map_err(|why| fail(key, &format!("`{}`: {why}", shown())))
            };
            list(items).iter().map(parse).collect::<Result<Vec<_>, _>>()
        };
        let rule = Self {
            decision,
            message: file.message,
            secrets: list(file.secrets),
            argv: file.argv,
            command: file.command,
            exe: paths("exe", file.exe)?,
            cwd: paths("cwd", file.cwd)?,
            env: list(file.env),
            path: paths("path", file.path)?,
            op: file.op.map(OneOrMany::into_vec).unwrap_or_default(),
            host: list(file.host)
                .iter()
                .map(|text| HostPattern::parse(text).map_err(|why| fail("host", &format!("`{text}`: {why}"))))
                .collect::<Result<_, _>>()?,
            http: list(file.http).iter().map(|method| method.to_ascii_uppercase()).collect(),
            method: list(file.method)
                .iter()
                .map(|text| {
                    MethodPattern::parse(text, guarded())
                        .map_err(|why| fail("method", &format!("`{text}`: {why}")))
                })
                .collect::<Result<_, _>>()?,
            id,
        };
        rule.check()?;
        Ok(rule)
    }

    fn check(&self) -> Result<(), String> {
        let fail = |why: &str| Err(format!("rule {}: {why}", self.id));
        let kinds = [self.is_about_commands(), self.is_about_files(), self.is_about_http()];
        let count = kinds.iter().filter(|is| **is).count();
        if count > 1 {
            return fail(
                "it mixes kinds of calls: write one rule for commands, one for paths, one for hosts",
            );
        }
        if count == 0 && self.method.is_empty() {
            return fail(
                "it says nothing to match: give it command, argv, exe, cwd, env, path, op, host, http or method",
            );
        }
        if [&self.argv, &self.command].iter().any(|words| words.as_ref().is_some_and(Vec::is_empty)) {
            return fail("a command has at least one word");
        }
        if self.message.as_ref().is_some_and(|message| message.chars().any(char::is_control)) {
            return fail("the message must be one line");
        }
        if !self.secrets.is_empty() && (!self.is_about_commands() || self.decision == Verdict::Deny) {
            return fail("secrets are for rules that allow commands, or ask about them");
        }
        let is_name = |name: &String| {
            let name = name.strip_suffix('*').unwrap_or(name);
            name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        match self.env.iter().chain(&self.secrets).find(|name| !is_name(name) || name.is_empty()) {
            Some(bad) => fail(&format!("`{bad}` is no variable name: write NAME or PREFIX_*")),
            None => Ok(()),
        }
    }

    pub(super) fn is_about_commands(&self) -> bool {
        self.argv.is_some()
            || self.command.is_some()
            || !(self.exe.is_empty() && self.cwd.is_empty() && self.env.is_empty())
    }

    pub(super) fn is_about_files(&self) -> bool {
        !(self.path.is_empty() && self.op.is_empty())
    }

    pub(super) fn is_about_http(&self) -> bool {
        !(self.host.is_empty() && self.http.is_empty())
    }

    /// Whether only the method counts.
    pub fn is_about_methods(&self) -> bool {
        !(self.is_about_commands() || self.is_about_files() || self.is_about_http())
    }

    /// Whether it needs links followed or programs found.
    pub fn looks_at_files(&self) -> bool {
        !(self.exe.is_empty() && self.path.is_empty() && self.cwd.is_empty())
    }

    pub(super) fn meets_method(&self, name: &str) -> bool {
        self.method.is_empty() || self.method.iter().any(|pattern| pattern.matches(name))
    }

    pub(super) fn meets_part(&self, command: &Command, part: &Part) -> Match {
        if self.is_about_methods() {
            return Match::Yes;
        }
        if !self.is_about_commands() || self.argv.as_ref().is_some_and(|argv| *argv != command.argv) {
            return Match::No;
        }
        let words = self.command.as_ref().map_or(Match::Yes, |words| part.may_begin_with(words));
        let is_exe = any_or_none(&self.exe, |pattern| part.exes.iter().any(|exe| pattern.matches(exe)));
        let exe = if is_exe { Match::Yes } else { hidden(part.lost) };
        words.min(exe).min(self.meets_cwd(command)).min(self.meets_env(command))
    }

    fn meets_cwd(&self, command: &Command) -> Match {
        let is_meant = any_or_none(&self.cwd, |pattern| command.cwd.iter().any(|cwd| pattern.matches(cwd)));
        if is_meant { Match::Yes } else { hidden(command.reading.moved || command.cwd_lost) }
    }

    fn meets_env(&self, command: &Command) -> Match {
        (self.env.is_empty() || command.names().any(|name| self.has_variable(name))).into()
    }

    /// Of a call that cannot be seen into: what of the rule is about the whole call.
    pub(super) fn meets_whole(&self, command: &Command) -> bool {
        if self.command.is_some() || !self.exe.is_empty() {
            return self.is_exactly(command);
        }
        self.is_about_methods()
            || self.is_about_commands()
                && self.argv.as_ref().is_none_or(|argv| *argv == command.argv)
                && self.meets_cwd(command) == Match::Yes
                && self.meets_env(command) == Match::Yes
    }

    /// Whether it names these very arguments, so that nothing in them need be understood.
    pub(super) fn is_exactly(&self, command: &Command) -> bool {
        self.argv.as_ref().is_some_and(|argv| *argv == command.argv)
            && (command.alias.is_none() || command.alias.as_ref() == command.argv.first())
            && self.covers_cwd(command)
            && self.covers_client_variables(command)
    }

    fn covers_cwd(&self, command: &Command) -> bool {
        let is_meant = |cwd: &Names| self.cwd.iter().any(|pattern| pattern.matches(cwd));
        self.cwd.is_empty() || !command.cwd_lost && command.cwd.iter().all(is_meant)
    }

    pub(super) fn covers_part(&self, command: &Command, part: &Part) -> bool {
        if self.argv.is_some() {
            return self.is_exactly(command);
        }
        if self.is_about_methods() {
            return true;
        }
        let assigned = || command.reading.assigned.iter();
        self.is_about_commands()
            && !part.writes
            && !part.words.is_empty()
            && self.command.as_ref().is_none_or(|words| part.begins_with(words))
            && (self.exe.is_empty() || self.covers_program(part))
            && (self.cwd.is_empty() || !command.reading.moved && self.covers_cwd(command))
            && assigned().all(|name| self.has_variable(name))
            && self.covers_client_variables(command)
    }

    /// The client's own variables are the harness's, but those that choose what a program is must be named.
    fn covers_client_variables(&self, command: &Command) -> bool {
        command.env.iter().all(|name| !is_influential(name) || self.has_variable(name))
    }

    fn covers_program(&self, part: &Part) -> bool {
        let unknown = part.exes.is_empty() || part.lost;
        let is_meant = |exe: &Names| self.exe.iter().any(|pattern| pattern.matches(exe));
        !unknown && part.exes.iter().all(is_meant)
    }

    pub(super) fn meets_touch(&self, touch: &Touch) -> bool {
        let matches = |pattern: &PathPattern| {
            touch
                .names
                .iter()
                .any(|names| if touch.tree { pattern.matches_below(names) } else { pattern.matches(names) })
        };
        self.is_about_methods()
            || self.is_about_files()
                && any_or_none(&self.op, |op| op.includes(touch.op))
                && any_or_none(&self.path, matches)
    }

    pub(super) fn covers_touch(&self, touch: &Touch) -> bool {
        let matches = |names: &Names| {
            self.path
                .iter()
                .any(|pattern| if touch.tree { pattern.matches_tree(names) } else { pattern.matches(names) })
        };
        self.is_about_methods()
            || self.is_about_files()
                && any_or_none(&self.op, |op| op.includes(touch.op))
                && (self.path.is_empty() || !touch.lost && touch.names.iter().all(matches))
    }

    pub(super) fn meets_http(&self, http: &Http) -> Match {
        if self.is_about_methods() {
            return Match::Yes;
        }
        if !self.is_about_http() || !any_or_none(&self.http, |method| *method == http.method) {
            return Match::No;
        }
        let is_meant = |host: &HostPattern| http.host.as_ref().is_some_and(|name| host.matches(name));
        // Where a redirection leads is not seen.
        if any_or_none(&self.host, is_meant) { Match::Yes } else { hidden(http.follows) }
    }

    pub(super) fn covers_http(&self, http: &Http) -> bool {
        // Where a redirection leads is not seen.
        self.meets_http(http) == Match::Yes && (self.host.is_empty() || !http.follows)
    }

    /// Whether it gives a variable, or all of a `PREFIX_*`.
    pub(super) fn gives(&self, wanted: &str) -> bool {
        let prefix = |item: &String| item.strip_suffix('*').is_some_and(|prefix| wanted.starts_with(prefix));
        self.decision != Verdict::Deny && self.secrets.iter().any(|item| item == wanted || prefix(item))
    }

    fn has_variable(&self, name: &str) -> bool {
        self.env
            .iter()
            .any(|item| item.strip_suffix('*').map_or(item == name, |prefix| name.starts_with(prefix)))
    }
}

/// What a rule that does not match what is seen says of the rest.
fn hidden(is_hidden: bool) -> Match {
    if is_hidden { Match::Maybe } else { Match::No }
}

fn any_or_none<T>(items: &[T], matches: impl Fn(&T) -> bool) -> bool {
    items.is_empty() || items.iter().any(matches)
}
