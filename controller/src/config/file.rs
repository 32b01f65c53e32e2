//! `legion.toml` as it is written. Unknown keys are errors with line and column.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

use super::audit::AuditFile;
use super::persona::{MountAt, MountMode, Network, View};

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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PersonaFile {
    pub(super) workspace: Option<PathBuf>,
    pub(super) view: Option<View>,
    pub(super) mount_at: Option<MountAt>,
    pub(super) network: Option<Network>,
    #[serde(default)]
    pub(super) mounts: Vec<MountFile>,
    #[serde(default)]
    pub(super) env: EnvFile,
    pub(super) workspace_parts: Option<Vec<PathBuf>>,
    #[serde(default)]
    pub(super) skeleton: bool,
    pub(super) connect: Option<ConnectFile>,
    #[serde(default)]
    pub(super) limits: LimitsFile,
    #[serde(default)]
    pub(super) protect: Vec<String>,
    #[serde(default)]
    pub(super) toolchains: bool,
    pub(super) unix_sockets: Option<bool>,
    #[serde(default)]
    pub(super) debug: bool,
    pub(super) ttl: Option<String>,
    pub(super) idle: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct MountFile {
    pub(super) mode: MountMode,
    pub(super) from: Option<PathBuf>,
    pub(super) to: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ConnectFile {
    pub(super) persona: String,
    pub(super) codex_home: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize)]
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

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EnvFile {
    #[serde(default)]
    pub(super) set: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) inherit: Vec<String>,
    #[serde(default)]
    pub(super) secrets: Vec<String>,
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
