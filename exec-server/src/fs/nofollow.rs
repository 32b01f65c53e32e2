//! Paths without symbolic links: `followSymlinks: false` (SPEC 8).
//!
//! Invariant: every component is opened relative to the one before it and without following, so no exchange of a
//! directory for a link in between is ever followed. A link in a directory position is ENOTDIR, as in the original.

use std::ffi::{OsStr, OsString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The directory a path lies in, and its name there; `.` for the root.
pub(crate) fn open_parent(path: &Path) -> Result<(OwnedFd, OsString), Errno> {
    let mut names = names(path).peekable();
    let mut directory = openat(CWD, "/", DIRECTORY, Mode::empty())?;
    let Some(mut name) = names.next() else { return Ok((directory, ".".into())) };
    for next in names {
        directory = openat(&directory, name, DIRECTORY, Mode::empty())?;
        name = next;
    }
    Ok((directory, name.to_owned()))
}

/// Makes a directory and all that lead to it.
pub(crate) fn create_directories(path: &Path) -> Result<(), Errno> {
    let mut directory = openat(CWD, "/", DIRECTORY, Mode::empty())?;
    for name in names(path) {
        directory = open_or_create(rustix::fd::AsFd::as_fd(&directory), name)?;
    }
    Ok(())
}

fn open_or_create(parent: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    match openat(parent, name, DIRECTORY, Mode::empty()) {
        Err(Errno::NOENT) => {}
        result => return result,
    }
    match mkdirat(parent, name, Mode::from_raw_mode(0o777)) {
        // Somebody else made it in between.
        Ok(()) | Err(Errno::EXIST) => openat(parent, name, DIRECTORY, Mode::empty()),
        Err(error) => Err(error),
    }
}

/// Paths here are absolute and lexically normal (`PathUri`), so every component but the root is a name.
fn names(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    })
}
