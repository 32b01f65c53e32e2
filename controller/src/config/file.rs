//! `legion.toml` as it is written. Unknown keys are errors with line and column.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::audit::AuditFile;
use super::persona::{MountAt, MountMode, Network, View};
use crate::policy::Verdict;
use crate::policy::action::Op;
use crate::policy::rule::RuleFile;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConfigFile {
    #[serde(default)]
    pub(super) controller: ControllerFile,
    #[serde(default)]
    pub(super) audit: AuditFile,
    #[serde(default)]
    pub(super) persona: BTreeMap<String, PersonaFile>,
    #[serde(default)]
    pub(super) test: Vec<RuleTest>,
}

/// `[[test]]`: what the rules are expected to decide; run by `policy check`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleTest {
    /// Whose rules; the default persona's unless given.
    pub persona: Option<String>,
    /// A command and its arguments.
    pub command: Option<Vec<String>>,
    /// Its directory, from the workspace.
    pub cwd: Option<String>,
    /// Names of variables that the client sets.
    #[serde(default)]
    pub env: Vec<String>,
    /// A path, from the workspace or absolute as inside.
    pub path: Option<String>,
    /// What happens to it; it is read unless given.
    pub op: Option<Op>,
    /// `GET https://example.com/`
    pub http: Option<String>,
    /// The verdict.
    pub expect: Verdict,
    /// The rule that must have decided.
    pub rule: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ControllerFile {
    pub(super) listen: Option<Vec<String>>,
    #[serde(default)]
    pub(super) hosts: Vec<String>,
    pub(super) env_file: Option<PathBuf>,
    pub(super) tls: Option<TlsSection>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsSection {
    pub(super) cert: PathBuf,
    pub(super) key: PathBuf,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PersonaFile {
    pub(super) extends: Option<String>,
    pub(super) workspace: Option<PathBuf>,
    pub(super) view: Option<View>,
    pub(super) mount_at: Option<MountAt>,
    pub(super) network: Option<Network>,
    #[serde(default)]
    pub(super) mounts: Vec<MountFile>,
    #[serde(default)]
    pub(super) env: EnvFile,
    pub(super) workspace_parts: Option<Vec<PathBuf>>,
    pub(super) skeleton: Option<bool>,
    pub(super) redact: Option<bool>,
    pub(super) record: Option<String>,
    pub(super) connect: Option<ConnectFile>,
    #[serde(default)]
    pub(super) limits: LimitsFile,
    #[serde(default)]
    pub(super) protect: Vec<String>,
    pub(super) toolchains: Option<bool>,
    pub(super) unix_sockets: Option<bool>,
    pub(super) debug: Option<bool>,
    pub(super) ttl: Option<String>,
    pub(super) idle: Option<String>,
    #[serde(default)]
    pub(super) rule: Vec<RuleFile>,
    pub(super) default: Option<Verdict>,
    pub(super) opaque: Option<Verdict>,
    pub(super) ask_timeout: Option<String>,
}

impl PersonaFile {
    /// What it says, and for the rest what `base` says. Lists are joined, `base`'s first; a rule takes the place of the
    /// one with its id.
    pub(super) fn extending(self, base: Self) -> Self {
        let replaced = |rule: &RuleFile| self.rule.iter().any(|own| own.id() == rule.id());
        let inherited: Vec<_> = base.rule.into_iter().filter(|rule| !replaced(rule)).collect();
        Self {
            extends: self.extends,
            workspace: self.workspace.or(base.workspace),
            view: self.view.or(base.view),
            mount_at: self.mount_at.or(base.mount_at),
            network: self.network.or(base.network),
            mounts: joined(base.mounts, self.mounts),
            env: self.env.extending(base.env),
            workspace_parts: match (base.workspace_parts, self.workspace_parts) {
                (Some(first), Some(second)) => Some(joined(first, second)),
                (one, other) => one.or(other),
            },
            skeleton: self.skeleton.or(base.skeleton),
            redact: self.redact.or(base.redact),
            record: self.record.or(base.record),
            connect: self.connect.or(base.connect),
            limits: self.limits.extending(base.limits),
            protect: joined(base.protect, self.protect),
            toolchains: self.toolchains.or(base.toolchains),
            unix_sockets: self.unix_sockets.or(base.unix_sockets),
            debug: self.debug.or(base.debug),
            ttl: self.ttl.or(base.ttl),
            idle: self.idle.or(base.idle),
            rule: joined(inherited, self.rule),
            default: self.default.or(base.default),
            opaque: self.opaque.or(base.opaque),
            ask_timeout: self.ask_timeout.or(base.ask_timeout),
        }
    }
}

fn joined<T>(mut first: Vec<T>, second: Vec<T>) -> Vec<T> {
    first.extend(second);
    first
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MountFile {
    pub(super) mode: MountMode,
    pub(super) from: Option<PathBuf>,
    pub(super) to: PathBuf,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectFile {
    pub(super) persona: String,
    pub(super) codex_home: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LimitsFile {
    pub(super) memory: Option<String>,
    pub(super) pids: Option<u64>,
    pub(super) open_files: Option<u64>,
    pub(super) wall: Option<String>,
    pub(super) output: Option<String>,
    pub(super) tmp: Option<String>,
    pub(super) shm: Option<String>,
    pub(super) home: Option<String>,
}

impl LimitsFile {
    fn extending(self, base: Self) -> Self {
        Self {
            memory: self.memory.or(base.memory),
            pids: self.pids.or(base.pids),
            open_files: self.open_files.or(base.open_files),
            wall: self.wall.or(base.wall),
            output: self.output.or(base.output),
            tmp: self.tmp.or(base.tmp),
            shm: self.shm.or(base.shm),
            home: self.home.or(base.home),
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EnvFile {
    #[serde(default)]
    pub(super) set: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) inherit: Vec<String>,
    #[serde(default)]
    pub(super) secrets: Vec<String>,
}

impl EnvFile {
    fn extending(self, mut base: Self) -> Self {
        base.set.extend(self.set);
        Self {
            set: base.set,
            inherit: joined(base.inherit, self.inherit),
            secrets: joined(base.secrets, self.secrets),
        }
    }
}

/// Parses the text; a mistake comes back as line and column (both from 1) and a one-line message.
pub fn parse(text: &str) -> Result<ConfigFile, (usize, usize, String)> {
    toml::from_str(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start).min(text.len());
        let before = text.get(..start).unwrap_or_default();
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        (line, column, error.message().to_owned())
    })
}
