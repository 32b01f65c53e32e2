//! Personas: a named bundle of view, environment, network and life time.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use legion_protocol::bootstrap::CommandLimits;
use serde::{Deserialize, Serialize};

use super::file::LimitsFile;
use super::file::{MountFile, PersonaFile};
use super::names::{NameSet, is_variable_name};
use super::quantity;
use crate::environment::Environment;
use crate::failure::{Failure, Outcome};
use crate::limits::{
    DEFAULT_ASK_TIMEOUT, DEFAULT_HOME_BYTES, DEFAULT_IDLE, DEFAULT_OPEN_FILES, DEFAULT_PIDS,
    DEFAULT_SHM_BYTES, DEFAULT_TMP_BYTES, DEFAULT_TTL, MAX_RULES,
};
use crate::policy::rule::RuleFile;
use crate::policy::{Policy, Rule, Verdict};
use crate::sandbox::seccomp;

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

/// A second session on the same workspace, which a harness in the first one is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connect {
    /// Persona of the second session.
    pub persona: String,
    /// Codex's configuration directory inside: its `environments.toml` names the second session.
    pub codex_home: Option<PathBuf>,
}

/// What a session may use up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Memory of the sandbox; of one process where there is no cgroup. None: three quarters of the machine's.
    pub memory: Option<u64>,
    /// Processes and threads of the sandbox.
    pub pids: u64,
    /// Open files of one process.
    pub open_files: u64,
    /// Run time of one command.
    pub wall: Option<Duration>,
    /// Output of one command, in bytes.
    pub output: Option<u64>,
    /// Bytes of `/tmp`.
    pub tmp: u64,
    /// Bytes of `/dev/shm`.
    pub shm: u64,
    /// Bytes of the private home.
    pub home: u64,
}

impl Limits {
    /// Bytes of memory the sandbox may use.
    pub fn memory(&self) -> u64 {
        self.memory.unwrap_or_else(most_memory)
    }

    /// What the exec-server enforces; memory only where no cgroup does it better.
    pub fn for_commands(&self, memory_by_cgroup: bool) -> CommandLimits {
        CommandLimits {
            processes: Some(self.pids),
            data_bytes: (!memory_by_cgroup).then(|| self.memory()),
            open_files: Some(self.open_files),
            wall_ms: self.wall.map(|wall| u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)),
            output_bytes: self.output,
        }
    }

    fn build(file: &LimitsFile, persona: &str) -> Outcome<Self> {
        let key = |name: &str| format!("persona.{persona}.limits.{name}");
        let size = |value: &Option<String>, name: &str, default: u64| {
            value.as_ref().map_or(Ok(default), |text| quantity::bytes(text, &key(name)))
        };
        let optional_size = |value: &Option<String>, name: &str| {
            value.as_ref().map_or(Ok(None), |text| quantity::optional(text, &key(name), quantity::bytes))
        };
        let wall = file
            .wall
            .as_ref()
            .map_or(Ok(None), |text| quantity::optional(text, &key("wall"), quantity::duration))?;
        Ok(Self {
            memory: optional_size(&file.memory, "memory")?,
            pids: file.pids.unwrap_or(DEFAULT_PIDS),
            open_files: file.open_files.unwrap_or(DEFAULT_OPEN_FILES),
            wall,
            output: optional_size(&file.output, "output")?,
            tmp: size(&file.tmp, "tmp", DEFAULT_TMP_BYTES)?,
            shm: size(&file.shm, "shm", DEFAULT_SHM_BYTES)?,
            home: size(&file.home, "home", DEFAULT_HOME_BYTES)?,
        })
    }
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
    /// When given, only these directories of the workspace are inside; the rest of it, which may be all, is not there.
    pub workspace_parts: Option<Vec<PathBuf>>,
    /// Whether the private home starts with the files of `/etc/skel`.
    pub skeleton: bool,
    /// Whether secrets are taken out of what commands print.
    pub redact: bool,
    /// Bytes of output a session records; none is recorded without.
    pub record: Option<u64>,
    /// See [`Connect`].
    pub connect: Option<Connect>,
    /// See [`PersonaEnv`].
    pub env: PersonaEnv,
    /// See [`Limits`].
    pub limits: Limits,
    /// What the system call filter relaxes or tightens.
    pub seccomp: seccomp::Options,
    /// Names or paths of the workspace that are read-only inside, besides the built-in ones.
    pub protect: Vec<PathBuf>,
    /// Whether toolchains under the user's home are shown, read-only.
    pub toolchains: bool,
    /// Life of a session.
    pub ttl: Duration,
    /// Life of a session nobody is connected to.
    pub idle: Duration,
    /// What its calls may do.
    pub policy: Rc<Policy>,
    /// Time a person has to answer a question.
    pub ask_timeout: Duration,
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
            workspace_parts: file
                .workspace_parts
                .map(|parts| parts.into_iter().map(|part| relative(part, &key("workspace_parts"))).collect())
                .transpose()?,
            skeleton: file.skeleton.unwrap_or(false),
            redact: file.redact.unwrap_or(false),
            record: file
                .record
                .map_or(Ok(None), |text| quantity::optional(&text, &key("record"), quantity::bytes))?,
            connect: file.connect.map(|connect| Connect {
                persona: connect.persona,
                codex_home: connect.codex_home.map(|home| environment.resolve(&home)),
            }),
            limits: Limits::build(&file.limits, &name)?,
            seccomp: seccomp::Options {
                unix_sockets: file.unix_sockets.unwrap_or(true),
                debug: file.debug.unwrap_or(false),
            },
            protect: file.protect.iter().map(|item| protected(item, &name)).collect::<Outcome<_>>()?,
            toolchains: file.toolchains.unwrap_or(false),
            ttl: file.ttl.map_or(Ok(DEFAULT_TTL), |text| quantity::duration(&text, &key("ttl")))?,
            idle: file.idle.map_or(Ok(DEFAULT_IDLE), |text| quantity::duration(&text, &key("idle")))?,
            ask_timeout: file
                .ask_timeout
                .map_or(Ok(DEFAULT_ASK_TIMEOUT), |text| quantity::duration(&text, &key("ask_timeout")))?,
            policy: Rc::new(policy(file.rule, file.default, file.opaque, &name)?),
            name,
        })
    }
}

/// The rules of a persona; what cannot be seen is treated like the rest unless it says otherwise.
fn policy(
    rules: Vec<RuleFile>,
    default: Option<Verdict>,
    opaque: Option<Verdict>,
    persona: &str,
) -> Outcome<Policy> {
    let fail = |why: &str| Failure::config(format_args!("persona.{persona}: {why}"));
    if rules.len() > MAX_RULES {
        return Err(fail(&format!("more than {MAX_RULES} rules: write fewer, wider ones")));
    }
    let rules =
        rules.into_iter().map(Rule::build).collect::<Result<Vec<_>, _>>().map_err(|why| fail(&why))?;
    let mut ids: Vec<_> = rules.iter().map(|rule| rule.id.as_str()).collect();
    ids.sort_unstable();
    if let Some(twice) = ids.windows(2).find_map(|pair| (pair[0] == pair[1]).then_some(pair[0])) {
        return Err(fail(&format!("two rules are called {twice}: give each an id of its own")));
    }
    let default = default.unwrap_or(Verdict::Allow);
    Ok(Policy { rules, default, opaque: opaque.unwrap_or(default) })
}

fn build_mount(environment: &Environment, persona: &str, file: MountFile) -> Outcome<Mount> {
    let MountFile { mode, from, to } = file;
    let to = if to.starts_with("~") { environment.resolve(&to) } else { to };
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

/// `+relative/path`: added to the built-in list. There is no way to take something off it.
fn protected(item: &str, persona: &str) -> Outcome<PathBuf> {
    let path = item.strip_prefix('+').ok_or_else(|| {
        Failure::config(format_args!("`{item}` in persona.{persona}.protect is no addition: write +path"))
    })?;
    relative(PathBuf::from(path), &format!("persona.{persona}.protect"))
}

/// A path below the workspace.
fn relative(path: PathBuf, key: &str) -> Outcome<PathBuf> {
    let below =
        !path.as_os_str().is_empty() && path.components().all(|part| matches!(part, Component::Normal(_)));
    if below {
        return Ok(path);
    }
    Err(Failure::config(format_args!("`{}` in {key} is no path below the workspace", path.display())))
}

/// Three quarters of the machine's memory: one sandbox leaves the host enough to work.
fn most_memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram / 4 * 3 * u64::from(info.mem_unit)
}
