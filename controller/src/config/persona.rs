//! Personas: a named bundle of view, environment, network and life time.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::file::{MountFile, PersonaFile};
use super::names::{NameSet, is_variable_name};
use crate::environment::Environment;
use crate::failure::{Failure, Outcome};
use crate::limits::{DEFAULT_IDLE, DEFAULT_TTL, MAX_TTL};

/// What a session sees of the host's file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum View {
    /// `/usr` and what is listed.
    Minimal,
    /// Everything read-only; HOME and temporary directories private.
    HostRo,
}

/// Where the workspace lies inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
pub enum MountAt {
    /// At its host path, which Codex needs, and at `/workspace`.
    #[serde(rename = "host")]
    Host,
    /// Only at `/workspace`.
    #[serde(rename = "/workspace")]
    Workspace,
}

/// What a session may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Its own loopback.
    None,
    /// What the host reaches.
    Host,
}

/// How a mount behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MountMode {
    /// Read-only; the source must exist.
    Ro,
    /// Read-only; left out when the source is missing.
    RoTry,
    /// Writable; the source must exist.
    Rw,
    /// Writable; left out when the source is missing.
    RwTry,
    /// An empty directory in memory.
    Tmpfs,
    /// Hides a file or directory that another mount shows.
    Mask,
}

/// One mount besides the view's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// How it behaves.
    pub mode: MountMode,
    /// On the host; none for `tmpfs` and `mask`.
    pub from: Option<PathBuf>,
    /// Inside; absolute.
    pub to: PathBuf,
}

/// Variables of a session.
#[derive(Debug, Clone, Default)]
pub struct PersonaEnv {
    /// Literal values.
    pub set: BTreeMap<String, String>,
    /// Taken from the controller's own environment.
    pub inherit: NameSet,
    /// Taken from `.env`; nothing else of it leaves the controller.
    pub secrets: NameSet,
}

/// A complete persona.
#[derive(Debug, Clone)]
pub struct Persona {
    /// As in `[persona.NAME]`.
    pub name: String,
    /// Used when the command line names none. A relative path starts where the one who asks is.
    pub workspace: PathBuf,
    /// See [`View`].
    pub view: View,
    /// See [`MountAt`].
    pub mount_at: MountAt,
    /// See [`Network`].
    pub network: Network,
    /// In the order written: later ones win.
    pub mounts: Vec<Mount>,
    /// See [`PersonaEnv`].
    pub env: PersonaEnv,
    /// Life of a session.
    pub ttl: Duration,
    /// Life of a session nobody is connected to.
    pub idle: Duration,
}

impl Persona {
    pub(super) fn build(environment: &Environment, name: String, file: PersonaFile) -> Outcome<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if name.is_empty() || !name.bytes().all(plain) {
            return Err(Failure::config(format_args!(
                "`{name}` is no persona name: use letters, digits, - and _"
            )));
        }
        if let Some(bad) = file.env.set.keys().find(|key| !is_variable_name(key)) {
            return Err(Failure::config(format_args!(
                "`{bad}` in persona.{name}.env.set is no variable name"
            )));
        }
        let key = |part: &str| format!("persona.{name}.{part}");
        let mounts = file.mounts.into_iter().map(|mount| build_mount(environment, &name, mount));
        Ok(Self {
            workspace: file.workspace.unwrap_or_else(|| PathBuf::from(".")),
            view: file.view.unwrap_or(View::Minimal),
            mount_at: file.mount_at.unwrap_or(MountAt::Host),
            network: file.network.unwrap_or(Network::None),
            mounts: mounts.collect::<Outcome<_>>()?,
            env: PersonaEnv {
                set: file.env.set,
                inherit: NameSet::build(file.env.inherit, &key("env.inherit"))?,
                secrets: NameSet::build(file.env.secrets, &key("env.secrets"))?,
            },
            ttl: file.ttl.map_or(Ok(DEFAULT_TTL), |text| parse_duration(&text, &key("ttl")))?,
            idle: file.idle.map_or(Ok(DEFAULT_IDLE), |text| parse_duration(&text, &key("idle")))?,
            name,
        })
    }
}

fn build_mount(environment: &Environment, persona: &str, file: MountFile) -> Outcome<Mount> {
    let MountFile { mode, from, to } = file;
    let fail =
        |why: &str| Failure::config(format_args!("the mount at {} of persona {persona} {why}", to.display()));
    if !to.is_absolute() || to.components().any(|part| part == Component::ParentDir) || to == Path::new("/") {
        return Err(fail("needs an absolute path below / in `to`"));
    }
    let needs_source = !matches!(mode, MountMode::Tmpfs | MountMode::Mask);
    if needs_source && from.is_none() {
        return Err(fail("needs `from`"));
    }
    if !needs_source && from.is_some() {
        return Err(fail("takes no `from`: its mode has no source"));
    }
    Ok(Mount { mode, from: from.map(|from| environment.resolve(&from)), to })
}

/// Parses `8h`, `30m`, `1h30m`: positive, at most [`MAX_TTL`].
pub fn parse_duration(text: &str, key: &str) -> Outcome<Duration> {
    let parsed =
        text.parse::<jiff::SignedDuration>().ok().and_then(|duration| Duration::try_from(duration).ok());
    match parsed {
        Some(duration) if duration >= Duration::from_secs(1) && duration <= MAX_TTL => Ok(duration),
        _ => Err(Failure::config(format_args!(
            "`{text}` in {key} is no duration between 1s and 30 days: write 8h, 30m or 1h30m"
        ))),
    }
}
