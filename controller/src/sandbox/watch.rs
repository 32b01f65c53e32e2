//! Watching a workspace from outside while a sandbox runs.
//!
//! Mounts protect paths, with three gaps this task closes: a file the *host* replaces loses its mount inside and is
//! mounted again; a link cannot be mounted over and is put back, ending the session, when it is changed; a name that
//! does not exist yet cannot be mounted at all: in a git directory it is taken away, ending the session, elsewhere it is
//! recorded.

pub mod hub;

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hub::{Hub, Queue};

use super::git;
use super::protect::{Guard, Plan, is_protected_name};
use super::secrets::Secret;
use crate::policy::workspace::FILE as RULES_FILE;
use crate::sys::{self, Again};

/// What is done when a name in a watched directory changes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Duty {
    /// Mount the guard of this path again, at these places inside.
    Reguard(Guard, Vec<PathBuf>),
    /// The link must have this target.
    KeepLink(PathBuf),
    /// Nobody may make this name.
    KeepAbsent,
}

/// What was noticed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// A guard was mounted again, or could not be.
    Reguarded(PathBuf, Result<(), String>),
    /// A name tools on the host obey was made in a repository or the workspace.
    NewName(PathBuf),
    /// The repository was tampered with; it was put right, and the session must end.
    Tampered(PathBuf),
}

/// The watched directories of one sandbox.
pub struct Watcher {
    hub: Rc<Hub>,
    queue: Rc<Queue>,
    directories: HashMap<i32, PathBuf>,
    duties: HashMap<PathBuf, Duty>,
    roots: Vec<PathBuf>,
    /// Mount namespace of the sandbox and the user namespace it belongs to.
    namespaces: Option<(OwnedFd, OwnedFd)>,
    pending: Vec<(i32, OsString)>,
}

impl Watcher {
    /// Watches what the plan names. `places` are where the workspace lies inside.
    pub fn new(
        hub: &Rc<Hub>,
        plan: &Plan,
        workspace: &Path,
        places: &[PathBuf],
        secrets: &[Secret],
        namespaces: Option<(OwnedFd, OwnedFd)>,
    ) -> io::Result<Self> {
        let mut watcher = Self {
            hub: Rc::clone(hub),
            queue: Rc::default(),
            directories: HashMap::new(),
            duties: duties(plan, workspace, places, secrets),
            roots: plan.roots.clone(),
            namespaces,
            pending: Vec::new(),
        };
        let parents = watcher.duties.keys().filter_map(|path| path.parent().map(Path::to_owned));
        let directories: Vec<PathBuf> = parents.chain(plan.roots.iter().cloned()).collect();
        for directory in directories {
            let watch = hub.watch(&directory, &watcher.queue)?;
            watcher.directories.insert(watch, directory);
        }
        Ok(watcher)
    }

    /// Resolves with the next thing worth telling.
    pub async fn next(&mut self) -> Notice {
        loop {
            while let Some((directory, name)) = self.pending.pop() {
                let path = self.directories.get(&directory).map(|directory| directory.join(name));
                if let Some(notice) = path.and_then(|path| self.look_at(&path)) {
                    return notice;
                }
            }
            self.queue.changed().await;
            if self.take_changes() {
                self.look_at_everything();
            }
        }
    }

    /// What was still to be noticed when the sandbox has ended; nothing in there can do more.
    pub fn last_look(&mut self) -> Vec<Notice> {
        self.hub.read();
        self.take_changes();
        self.look_at_everything();
        let pending: HashSet<(i32, OsString)> = self.pending.drain(..).collect();
        let paths =
            pending.into_iter().filter_map(|(watch, name)| Some(self.directories.get(&watch)?.join(name)));
        // Mounts went with the sandbox.
        let paths = paths.filter(|path| !matches!(self.duties.get(path), Some(Duty::Reguard(..))));
        paths.filter_map(|path| self.look_at(&path)).collect()
    }

    /// Takes over what has changed; whether some of it was lost.
    fn take_changes(&mut self) -> bool {
        let (changes, lost) = self.queue.take();
        self.pending.extend(changes);
        lost
    }

    /// Events were lost: every duty is looked at.
    fn look_at_everything(&mut self) {
        for path in self.duties.keys() {
            let watch =
                self.directories.iter().find(|(_, directory)| Some(directory.as_path()) == path.parent());
            if let (Some((watch, _)), Some(name)) = (watch, path.file_name()) {
                self.pending.push((*watch, name.to_owned()));
            }
        }
    }

    /// Does what is due for a path whose name changed.
    fn look_at(&self, path: &Path) -> Option<Notice> {
        match self.duties.get(path) {
            Some(Duty::Reguard(guard, places)) => path.symlink_metadata().is_ok().then(|| {
                Notice::Reguarded(
                    path.to_owned(),
                    self.reguard(*guard, places).map_err(|error| error.to_string()),
                )
            }),
            Some(Duty::KeepLink(target)) => {
                (std::fs::read_link(path).ok().as_ref() != Some(target)).then(|| {
                    put_back(path, target);
                    Notice::Tampered(path.to_owned())
                })
            }
            Some(Duty::KeepAbsent) => path.symlink_metadata().is_ok().then(|| {
                put_away(path);
                Notice::Tampered(path.to_owned())
            }),
            None => {
                let name = path.file_name()?.to_string_lossy();
                let counts = path.parent().is_some_and(|parent| self.roots.iter().any(|root| root == parent));
                let new = counts && is_protected_name(&name) && path.symlink_metadata().is_ok();
                new.then(|| Notice::NewName(path.to_owned()))
            }
        }
    }

    fn reguard(&self, guard: Guard, places: &[PathBuf]) -> io::Result<()> {
        let (mounts, user) = self.namespaces.as_ref().ok_or(io::ErrorKind::Unsupported)?;
        let again = match guard {
            Guard::Mask => Again::Mask,
            Guard::ReadOnly | Guard::Pin => Again::ReadOnly,
        };
        places
            .iter()
            .try_for_each(|place| sys::mount_again(mounts, user, again, place.as_os_str().as_bytes()))
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        for watch in self.directories.keys() {
            self.hub.unwatch(*watch, &self.queue);
        }
    }
}

/// The duties of a plan by absolute host path.
fn duties(plan: &Plan, workspace: &Path, places: &[PathBuf], secrets: &[Secret]) -> HashMap<PathBuf, Duty> {
    let mut duties = HashMap::new();
    for (relative, guard) in plan.guards.iter().filter(|(_, guard)| *guard != Guard::Pin) {
        let inside = places.iter().map(|place| place.join(relative)).collect();
        duties.insert(workspace.join(relative), Duty::Reguard(guard, inside));
    }
    // Rules that a person adds while the session lives are not its agent's to take away.
    let rules = workspace.join(RULES_FILE);
    duties.entry(rules).or_insert_with(|| {
        Duty::Reguard(Guard::ReadOnly, places.iter().map(|place| place.join(RULES_FILE)).collect())
    });
    for external in &plan.externals {
        for (relative, guard) in external.guards.iter().filter(|(_, guard)| *guard != Guard::Pin) {
            let path = external.path.join(relative);
            duties.insert(path.clone(), Duty::Reguard(guard, vec![path]));
        }
    }
    for (file, elsewhere) in secrets {
        match duties.get_mut(file) {
            Some(Duty::Reguard(Guard::Mask, inside)) => inside.extend(elsewhere.iter().cloned()),
            _ => drop(duties.insert(file.clone(), Duty::Reguard(Guard::Mask, elsewhere.clone()))),
        }
    }
    for dir in &plan.git_dirs {
        for name in git::READ_ONLY {
            let path = dir.join(name);
            if path.symlink_metadata().is_err() {
                duties.insert(path, Duty::KeepAbsent);
            }
        }
    }
    for path in &plan.absent {
        duties.insert(path.clone(), Duty::KeepAbsent);
    }
    for link in &plan.links {
        if let Ok(target) = std::fs::read_link(link) {
            duties.insert(link.clone(), Duty::KeepLink(target));
        }
    }
    duties
}

/// Makes `path` the link it was; what stands there is kept beside it.
fn put_back(path: &Path, target: &Path) {
    put_away(path);
    if let Err(error) = std::os::unix::fs::symlink(target, path) {
        tracing::error!(%error, path = %path.display(), "a link cannot be put back");
    }
}

/// Takes a name away. Its content stays for whoever looks into the matter.
fn put_away(path: &Path) {
    if path.symlink_metadata().is_err() {
        return;
    }
    let mut aside = path.as_os_str().to_owned();
    aside.push(format!(".legion-{}", jiff::Timestamp::now().as_millisecond()));
    if let Err(error) = std::fs::rename(path, &aside) {
        tracing::error!(%error, path = %path.display(), "a name cannot be taken away");
    }
}
