//! The workspace: the one host directory a session may write.
//!
//! Invariant: a [`Workspace`] is an open directory that was reached without following a link, is not the whole system
//! or a home, and does not hold Legion's own state.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::dirs::Dirs;
use crate::failure::{Failure, Outcome};

/// An open workspace.
#[derive(Debug)]
pub struct Workspace {
    /// Absolute, without links.
    pub path: PathBuf,
    /// `O_PATH`; what is mounted, whatever the path names later.
    pub dir: OwnedFd,
    /// Owner and group.
    pub owner: (u32, u32),
}

impl Workspace {
    /// Opens the directory a user named.
    pub fn open(path: &Path, home: Option<&Path>, dirs: &Dirs) -> Outcome<Self> {
        let fail = |why: &dyn std::fmt::Display| {
            Failure::config(format_args!("cannot use the workspace {}: {why}", path.display()))
        };
        let real = path.canonicalize().map_err(|error| fail(&error))?;
        if real.to_str().is_none() {
            return Err(fail(&"its path is not UTF-8; rename it"));
        }
        let forbidden =
            ["/", "/usr", "/etc", "/home", "/root", "/var", "/proc", "/sys", "/dev", "/tmp", "/run"];
        let home = home.and_then(|home| home.canonicalize().ok());
        if forbidden.iter().any(|dir| real == Path::new(dir))
            || home.is_some_and(|home| home.starts_with(&real))
        {
            return Err(fail(&"it holds more than a project; choose a project directory with --workspace"));
        }
        for tree in ["/proc", "/sys", "/dev"] {
            if real.starts_with(tree) {
                return Err(fail(&"it is not on a real file system"));
            }
        }
        dirs.check_workspace(&real)?;
        let dir = open_beneath_root(&real).map_err(|error| fail(&error))?;
        let stat = rustix::fs::fstat(&dir).map_err(|error| fail(&error))?;
        Ok(Self { path: real, dir, owner: (stat.st_uid, stat.st_gid) })
    }
}

/// Opens a canonical path component by component, so that a link put in its place meanwhile is refused.
pub(super) fn open_beneath_root(path: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut dir = rustix::fs::open("/", flags, Mode::empty())?;
    for component in path.components() {
        if let Component::Normal(name) = component {
            dir = rustix::fs::openat(dir.as_fd(), name, flags, Mode::empty())?;
        }
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_project_directories_are_opened() {
        let base = tempfile::tempdir().unwrap();
        let home = base.path().join("home");
        let project = home.join("project");
        std::fs::create_dir_all(&project).unwrap();
        let dirs = Dirs { state: home.join("state"), run: home.join("state/run") };
        std::fs::create_dir_all(&dirs.run).unwrap();
        let open = |path: &Path| Workspace::open(path, Some(&home), &dirs);
        assert_eq!(open(&project).unwrap().path, project.canonicalize().unwrap());
        for bad in [Path::new("/"), Path::new("/usr"), &home, base.path(), &home.join("missing"), &dirs.state]
        {
            assert_eq!(open(bad).unwrap_err().exit.code(), 78, "{}", bad.display());
        }
        std::os::unix::fs::symlink(&project, home.join("link")).unwrap();
        assert_eq!(open(&home.join("link")).unwrap().path, project.canonicalize().unwrap());
    }
}
