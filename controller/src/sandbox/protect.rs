//! Which paths of a workspace are protected inside (security.md 5): what tools on the host would execute or obey is
//! read-only, what holds secrets reads as empty, and so does a socket behind which somebody on the host listens.
//!
//! A read-only path whose parent can be renamed is not protected: parents are *pinned* by a mount of their own, which
//! makes them busy. A link cannot be mounted over; links that matter are listed to be watched.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use super::git;
use crate::failure::{Failure, Outcome};
use crate::limits::{MAX_PROTECT_DEPTH, MAX_PROTECT_DIRECTORIES, MAX_PROTECTED_PATHS};

/// What is done to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guard {
    /// Mounted onto itself: writable below, but it cannot be renamed or removed.
    Pin,
    /// Read-only.
    ReadOnly,
    /// A file that reads as empty.
    Mask,
}

/// The protected paths of one directory tree.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Guards(BTreeMap<PathBuf, Guard>);

impl Guards {
    /// Adds a guard with pins for all parents; the stricter guard of one path stays.
    pub fn add(&mut self, path: &Path, guard: Guard) {
        for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
            self.0.entry(parent.to_owned()).or_insert(Guard::Pin);
        }
        let slot = self.0.entry(path.to_owned()).or_insert(guard);
        *slot = guard.max(*slot);
    }

    /// Relative paths and their guards, parents before children. Below a read-only directory nothing is left to guard
    /// but masks.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, Guard)> {
        self.0.iter().filter_map(|(path, guard)| {
            let covered = path.ancestors().skip(1).any(|parent| self.0.get(parent) == Some(&Guard::ReadOnly));
            (!covered || *guard == Guard::Mask).then_some((path.as_path(), *guard))
        })
    }

    /// The guards that lie in one of these parts; all, when there are no parts.
    #[must_use]
    pub fn within(&self, parts: Option<&[PathBuf]>) -> Self {
        let inside = |path: &Path| {
            parts.is_none_or(|parts| parts.iter().any(|part| path.starts_with(part) && path != part))
        };
        Self(
            self.0
                .iter()
                .filter(|(path, _)| inside(path))
                .map(|(path, guard)| (path.clone(), *guard))
                .collect(),
        )
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// A git directory outside the workspace that belongs to it: mounted writable at its own path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct External {
    /// On the host, absolute, without links.
    pub path: PathBuf,
    /// Relative to it.
    pub guards: Guards,
}

/// Everything found in a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// Relative to the workspace.
    pub guards: Guards,
    /// Git directories outside.
    pub externals: Vec<External>,
    /// Links, absolute, that must stay what they are.
    pub links: Vec<PathBuf>,
    /// Git directories, absolute.
    pub git_dirs: Vec<PathBuf>,
    /// Directories, absolute, where new protected names would count: the workspace and its repositories.
    pub roots: Vec<PathBuf>,
    /// Directories, absolute, that must exist as long as a sandbox runs, so that nobody inside is the first to make them.
    pub placeholders: Vec<PathBuf>,
    /// Files, absolute, that do not exist and that nobody inside may make: git on the host would obey them.
    pub absent: Vec<PathBuf>,
    /// What could not be protected or will not work inside, a line each.
    pub notes: Vec<String>,
}

impl Plan {
    /// Takes over what a git directory holds.
    pub(super) fn absorb(&mut self, found: git::Found) {
        self.links.extend(found.links);
        self.git_dirs.extend(found.git_dirs);
        self.placeholders.extend(found.placeholders);
    }
}

/// Files and directories tools on the host obey, wherever they stand.
const READ_ONLY: [&str; 27] = [
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".codex",
    ".devcontainer",
    ".envrc",
    ".gitconfig",
    ".legion.toml",
    ".gitmodules",
    ".idea",
    ".inputrc",
    ".kshrc",
    ".login",
    ".mcp.json",
    ".opencode",
    ".profile",
    ".ripgreprc",
    ".tcshrc",
    ".vscode",
    ".xprofile",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
    "opencode.json",
    "opencode.jsonc",
];

/// Suffixes of `.env.*` that are examples and hold no secret.
const SHOWN_ENV_SUFFIXES: [&str; 3] = ["example", "sample", "template"];

/// Whether a file of this name holds secrets.
pub fn is_secret_name(name: &str) -> bool {
    name == ".env" || name.strip_prefix(".env.").is_some_and(|suffix| !SHOWN_ENV_SUFFIXES.contains(&suffix))
}

/// Whether tools on the host obey a file or directory of this name.
pub fn is_protected_name(name: &str) -> bool {
    READ_ONLY.contains(&name) || name == ".git" || name == ".claude"
}

/// What is protected besides what is found by its name, and where else the workspace's git may be.
#[derive(Debug, Clone, Copy)]
pub struct Wishes<'a> {
    /// Relative to the workspace.
    pub extra: &'a [PathBuf],
    /// Absolute.
    pub env_file: &'a Path,
    /// Host directories that are mounted writable at their own path.
    pub mounted: &'a [PathBuf],
    /// Git's configuration besides that of repositories, absolute: the system's and the user's.
    pub git_configs: &'a [PathBuf],
}

/// Looks through a workspace.
pub fn scan(workspace: &Path, wishes: Wishes<'_>) -> Outcome<Plan> {
    let Wishes { extra, env_file, mounted, git_configs } = wishes;
    let mut scan = Scan { workspace, mounted, git_configs, plan: Plan::default() };
    scan.walk().map_err(|error| {
        Failure::config(format_args!("cannot look through the workspace {}: {error}", workspace.display()))
    })?;
    for path in extra {
        let full = workspace.join(path);
        if full.symlink_metadata().is_ok() {
            scan.protect(&full);
        } else {
            scan.plan.notes.push(format!("the protected path {} does not exist yet", path.display()));
        }
    }
    if let Ok(real) = env_file.canonicalize()
        && real.is_file()
    {
        scan.mask(&real);
    }
    if scan.plan.guards.len() > MAX_PROTECTED_PATHS {
        return Err(Failure::config(format_args!(
            "the workspace {} has more than {MAX_PROTECTED_PATHS} paths to protect: choose a smaller workspace",
            workspace.display()
        )));
    }
    Ok(scan.plan)
}

/// Whether somebody listens at a socket's path: a network namespace does not keep a sandbox from it. A datagram socket
/// asks without making a connection; only a path left behind refuses.
fn is_listened_at(socket: &Path) -> bool {
    let asked = UnixDatagram::unbound().and_then(|own| own.connect(socket));
    !asked.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

pub(super) struct Scan<'a> {
    pub(super) workspace: &'a Path,
    pub(super) mounted: &'a [PathBuf],
    pub(super) git_configs: &'a [PathBuf],
    pub(super) plan: Plan,
}

impl Scan<'_> {
    /// Breadth first, so that the bound on directories leaves out the deepest ones.
    fn walk(&mut self) -> io::Result<()> {
        let mut queue = VecDeque::from([(self.workspace.to_owned(), 0)]);
        let mut seen = 0;
        self.plan.roots.push(self.workspace.to_owned());
        while let Some((dir, depth)) = queue.pop_front() {
            seen += 1;
            if seen > MAX_PROTECT_DIRECTORIES {
                let note =
                    format!("only the outermost {MAX_PROTECT_DIRECTORIES} directories were looked through");
                self.plan.notes.push(note);
                return Ok(());
            }
            let entries = match std::fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(error) if depth == 0 => return Err(error),
                // What the user cannot read the sandbox cannot either.
                Err(_) => continue,
            };
            // Looked through all the same: whoever makes such a directory does not get the rest of it unprotected.
            if git::is_bare(&dir) {
                git::bare(self, &dir);
            }
            for entry in entries.flatten() {
                let (Ok(kind), name) = (entry.file_type(), entry.file_name()) else { continue };
                let name = name.to_string_lossy();
                if kind.is_socket() && is_listened_at(&entry.path()) {
                    self.guard(&entry.path(), Guard::Mask);
                }
                if self.named(&entry.path(), &name) || !kind.is_dir() || name == "node_modules" {
                    continue;
                }
                if depth < MAX_PROTECT_DEPTH {
                    queue.push_back((entry.path(), depth + 1));
                }
            }
        }
        Ok(())
    }

    /// Guards an entry by its name; whether it had such a name.
    fn named(&mut self, path: &Path, name: &str) -> bool {
        match name {
            ".git" => git::found(self, path),
            ".claude" => self.claude(path),
            _ if READ_ONLY.contains(&name) => self.protect(path),
            _ if is_secret_name(name) => self.mask(path),
            _ => return false,
        }
        true
    }

    /// Of `.claude` only what is executed or obeyed; an agent may keep notes beside it.
    fn claude(&mut self, dir: &Path) {
        if dir.is_symlink() {
            return self.protect(dir);
        }
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let settings = name.strip_suffix(".json").is_some_and(|stem| stem.starts_with("settings"));
            if settings || matches!(name.as_str(), "commands" | "agents" | "hooks" | "skills") {
                self.protect(&entry.path());
            }
        }
    }

    /// Makes an existing path read-only; of a link, its target, and the link is watched.
    pub(super) fn protect(&mut self, path: &Path) {
        self.guard(path, Guard::ReadOnly);
    }

    /// Makes an existing file read as empty.
    fn mask(&mut self, path: &Path) {
        if path.canonicalize().is_ok_and(|real| real.is_file()) {
            self.guard(path, Guard::Mask);
        }
    }

    fn guard(&mut self, path: &Path, guard: Guard) {
        if path.is_symlink() && guard != Guard::Mask {
            self.plan.links.push(path.to_owned());
        }
        // A dangling link leads nowhere.
        let Ok(real) = path.canonicalize() else { return };
        self.guard_real(&real, guard);
    }

    /// Whether a path, as it is written, lies in something that is mounted writable.
    pub(super) fn is_inside(&self, path: &Path) -> bool {
        let externals = self.plan.externals.iter().map(|external| external.path.as_path());
        [self.workspace].into_iter().chain(externals).any(|top| path.starts_with(top))
    }

    /// Guards a path that has no links, where it is visible inside.
    pub(super) fn guard_real(&mut self, real: &Path, guard: Guard) {
        let externals = self.plan.externals.iter_mut().map(|one| (one.path.as_path(), &mut one.guards));
        let trees = [(self.workspace, &mut self.plan.guards)].into_iter().chain(externals);
        for (top, guards) in trees {
            if let Ok(relative) = real.strip_prefix(top)
                && !relative.as_os_str().is_empty()
            {
                return guards.add(relative, guard);
            }
        }
    }
}

#[cfg(test)]
mod tests;
