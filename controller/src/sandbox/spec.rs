//! What a sandbox looks like, as values: everything [`super::argv`] needs and nothing it has to look up.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::protect::{External, Guard, Guards, Plan};
use super::secrets::{self, Secret};
use super::toolchains::{self, Toolchains};
use crate::config::{Limits, Mount, MountAt, MountMode, Network, Persona, View};
use crate::failure::{Failure, Outcome};

/// Where the workspace always is, whatever its host path.
pub const WORKSPACE: &str = "/workspace";

/// The exec-server's path inside.
pub const EXEC_SERVER: &str = "/legion/legion-exec-server";

/// `HOME` inside the minimal view.
pub const MINIMAL_HOME: &str = "/home/legion";

/// Name of the only user inside.
pub const USER: &str = "legion";

/// User and group id inside.
pub const ID: u32 = 1000;

/// How bwrap is told what to mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sources {
    /// By open descriptors (`--bind-fd`).
    Descriptors,
    /// By paths, where bwrap is too old for that.
    Paths,
    /// By paths below [`STAGE`], where a root controller has mounted everything for a user who could not reach it.
    Staged,
}

/// A directory of root's that holds, in the mount namespace of one bwrap, everything that one mounts.
pub const STAGE: &str = "/run/legion-stage";

/// An entry of the host's root directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootEntry {
    /// A directory.
    Directory(OsString),
    /// A link, e.g. `bin` → `usr/bin`.
    Link(OsString, PathBuf),
}

/// A sandbox, complete.
#[derive(Debug, Clone)]
pub struct Spec {
    /// What is seen of the host.
    pub view: View,
    /// Where the workspace is besides [`WORKSPACE`].
    pub mount_at: MountAt,
    /// What is reached.
    pub network: Network,
    /// The workspace on the host: absolute, without links.
    pub workspace: PathBuf,
    /// The persona's mounts, in order.
    pub mounts: Vec<Mount>,
    /// What is protected in the workspace.
    pub guards: Guards,
    /// When given, only these parts of the workspace are inside.
    pub parts: Option<Vec<PathBuf>>,
    /// Files shown read-only with this content: path inside, content.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Files the private home starts with: name, content.
    pub skeleton: Vec<(OsString, Vec<u8>)>,
    /// Git directories outside that belong to it.
    pub externals: Vec<External>,
    /// Secret files that would show up outside the workspace; they read as empty there.
    pub secrets: Vec<Secret>,
    /// Sizes of the in-memory file systems.
    pub limits: Limits,
    /// Host directories that are hidden in the `host-ro` view: Legion's own.
    pub hidden: Vec<PathBuf>,
    /// The user's home on the host.
    pub host_home: Option<PathBuf>,
    /// The host's root directory.
    pub root: Vec<RootEntry>,
    /// Where the host's `/etc/resolv.conf` leads, and its content, for `network = "host"`.
    pub resolv_conf: Option<(PathBuf, Vec<u8>)>,
    /// The exec-server's binary on the host.
    pub exec_server: PathBuf,
    /// How bwrap is told what to mount.
    pub sources: Sources,
    /// Toolchains of the user's home.
    pub toolchains: Toolchains,
}

/// What a session's sandbox depends on besides its persona and workspace.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// See [`Spec::hidden`].
    pub hidden: Vec<PathBuf>,
    /// See [`Spec::host_home`].
    pub host_home: Option<PathBuf>,
    /// See [`Spec::exec_server`].
    pub exec_server: PathBuf,
    /// The file of secrets.
    pub env_file: PathBuf,
    /// See [`Spec::sources`].
    pub sources: Sources,
    /// The user's own `PATH`.
    pub path: String,
}

impl Spec {
    /// The sandbox of a persona on a workspace. Reads the host's root directory and `resolv.conf`.
    pub fn new(
        persona: &Persona,
        workspace: &Path,
        plan: &Plan,
        files: Vec<(PathBuf, Vec<u8>)>,
        surroundings: Surroundings,
    ) -> Outcome<Self> {
        let Surroundings { hidden, host_home, exec_server, env_file, sources, path } = surroundings;
        let toolchains = match &host_home {
            Some(home) if persona.toolchains => toolchains::find(home, &path),
            _ => Toolchains::default(),
        };
        let resolv_conf = match persona.network {
            Network::Host => read_resolv_conf(),
            Network::None => None,
        };
        let parts = persona.workspace_parts.as_deref();
        if let Some(missing) = parts.into_iter().flatten().find(|part| !workspace.join(part).is_dir()) {
            return Err(Failure::config(format_args!(
                "persona {} shows {} of the workspace {}, and there is no such directory: make it",
                persona.name,
                missing.display(),
                workspace.display()
            )));
        }
        let mut spec = Self {
            view: persona.view,
            mount_at: persona.mount_at,
            network: persona.network,
            workspace: workspace.to_owned(),
            mounts: existing(persona)?,
            guards: plan.guards.within(parts),
            parts: parts.map(<[PathBuf]>::to_vec),
            files,
            skeleton: if persona.skeleton { read_skeleton() } else { Vec::new() },
            // They belong to a repository that is not shown when only parts of the workspace are.
            externals: if parts.is_none() { plan.externals.clone() } else { Vec::new() },
            secrets: Vec::new(),
            limits: persona.limits.clone(),
            hidden,
            host_home,
            root: read_root()?,
            resolv_conf,
            exec_server,
            sources,
            toolchains,
        };
        let in_workspace = plan.guards.iter().filter(|(_, guard)| *guard == Guard::Mask);
        let mut files: Vec<PathBuf> = in_workspace.map(|(path, _)| workspace.join(path)).collect();
        files.extend(env_file.canonicalize());
        spec.secrets = secrets::places(&files, &secrets::shown(&spec));
        Ok(spec)
    }

    /// Where commands start: the workspace as a harness knows it.
    pub fn cwd(&self) -> &Path {
        match self.mount_at {
            MountAt::Host => &self.workspace,
            MountAt::Workspace => Path::new(WORKSPACE),
        }
    }

    /// `HOME` inside.
    pub fn home(&self) -> &Path {
        match (self.view, &self.host_home) {
            (View::HostRo, Some(home)) => home,
            _ => Path::new(MINIMAL_HOME),
        }
    }

    /// Every place the workspace is mounted at.
    pub fn workspace_mounts(&self) -> impl Iterator<Item = &Path> {
        let host = (self.mount_at == MountAt::Host).then_some(self.workspace.as_path());
        host.into_iter().chain(std::iter::once(Path::new(WORKSPACE)))
    }
}

/// The persona's mounts without those that may be left out because their source is missing.
fn existing(persona: &Persona) -> Outcome<Vec<Mount>> {
    let mut mounts = Vec::new();
    for mount in &persona.mounts {
        let missing = mount.from.as_ref().is_some_and(|from| !from.exists());
        match mount.mode {
            MountMode::RoTry | MountMode::RwTry if missing => {}
            _ if missing => {
                return Err(Failure::config(format_args!(
                    "persona {} mounts {}, which does not exist: make it, or use ro-try or rw-try",
                    persona.name,
                    mount.from.as_deref().unwrap_or(&mount.to).display()
                )));
            }
            _ => mounts.push(mount.clone()),
        }
    }
    Ok(mounts)
}

/// What the system gives new users; files only.
fn read_skeleton() -> Vec<(OsString, Vec<u8>)> {
    let entries = std::fs::read_dir("/etc/skel").into_iter().flatten().flatten();
    let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
    files.filter_map(|entry| Some((entry.file_name(), std::fs::read(entry.path()).ok()?))).collect()
}

fn read_resolv_conf() -> Option<(PathBuf, Vec<u8>)> {
    let path = Path::new("/etc/resolv.conf").canonicalize().ok()?;
    let content = std::fs::read(&path).ok()?;
    Some((path, content))
}

fn read_root() -> Outcome<Vec<RootEntry>> {
    let fail =
        |error: std::io::Error| Failure::unavailable(format_args!("cannot read the root directory: {error}"));
    let mut entries = Vec::new();
    for entry in std::fs::read_dir("/").map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let kind = entry.file_type().map_err(fail)?;
        if kind.is_dir() {
            entries.push(RootEntry::Directory(entry.file_name()));
        } else if kind.is_symlink() {
            entries.push(RootEntry::Link(entry.file_name(), std::fs::read_link(entry.path()).map_err(fail)?));
        }
    }
    entries.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(entries)
}

impl RootEntry {
    /// The name below `/`.
    pub fn name(&self) -> &OsString {
        match self {
            Self::Directory(name) | Self::Link(name, _) => name,
        }
    }
}
