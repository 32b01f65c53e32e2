//! What a root controller mounts for a bwrap that runs as somebody else.
//!
//! That user may not reach the workspace's path, the exec-server's, or a mount's; so everything is mounted below
//! [`STAGE`], in a mount namespace of that one bwrap. What is root's own and writable is mounted with ids mapped: the
//! stand-in user appears as its owner, and what it makes belongs to root on disk.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Command;

use super::run_as::RunAs;
use super::spec::STAGE;
use crate::failure::{Failure, Outcome};
use crate::sys;

/// Trees to mount, each under its name.
pub struct Stage {
    /// A user namespace that maps root on disk to the stand-in.
    mapping: Option<OwnedFd>,
    trees: Vec<sys::Tree>,
}

impl Stage {
    /// A stage, if bwrap runs as another user than the controller.
    pub fn for_user(run_as: RunAs) -> Outcome<Option<Self>> {
        if run_as.drop_to().is_none() {
            return Ok(None);
        }
        let failed = |error: io::Error| {
            Failure::unavailable(format_args!(
                "cannot prepare {STAGE} for the sandbox: {error}; start Legion as an ordinary user"
            ))
        };
        make_stage().map_err(failed)?;
        let mapping = run_as.stand_in().map(sys::root_to).transpose().map_err(|error| {
            Failure::unavailable(format_args!(
                "root's own workspace needs a user namespace for its ids, and none can be made ({error}): start Legion as an \
                 ordinary user, or give the workspace to one with chown -R"
            ))
        })?;
        Ok(Some(Self { mapping, trees: Vec::new() }))
    }

    /// Adds a copy of the mount at `at`.
    pub fn add(&mut self, at: BorrowedFd<'_>, name: &str, writable: bool) -> io::Result<()> {
        let mapping = self.mapping.as_ref().filter(|_| writable).map(AsFd::as_fd);
        let target = CString::new(format!("{STAGE}/{name}"))?;
        let is_directory = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(at)?.st_mode).is_dir();
        self.trees.push(sys::Tree { mount: sys::copy_mount(at, mapping)?, target, is_directory });
        Ok(())
    }

    /// What to tell when a path cannot be staged.
    pub fn failure(&self, path: &Path, error: &io::Error) -> Failure {
        if self.mapping.is_some() {
            Failure::unavailable(format_args!(
                "{} belongs to root and a sandbox must not run as root, but its file system cannot map ids ({error}): start \
                 Legion as an ordinary user, or give the workspace to one with chown -R",
                path.display()
            ))
        } else {
            Failure::unavailable(format_args!("cannot mount {} for the sandbox: {error}", path.display()))
        }
    }

    /// Makes the command mount the trees and change to the user before it starts.
    pub fn prepare(self, command: &mut Command, uid: u32, gid: u32) {
        sys::mount_and_drop(command, self.trees, uid, gid);
    }
}

/// Makes the directory the stage is mounted on: root's, in a place only root can change.
fn make_stage() -> io::Result<()> {
    match std::fs::create_dir(STAGE) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let stat = rustix::fs::lstat(STAGE)?;
    if stat.st_uid == 0 && rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
        Ok(())
    } else {
        Err(io::Error::other("it is not a directory of root's"))
    }
}
