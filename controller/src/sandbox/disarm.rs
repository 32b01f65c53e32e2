//! Git directories a session has made: once its sandbox is gone, what git on the host would run there is set aside.
//!
//! Invariant: every step starts from a directory opened without following a link, and nothing is lost: a file is renamed,
//! a configuration is replaced by its harmless lines with the whole kept beside it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};

use super::git;
use super::git_config::harmless;
use super::protect::Plan;
use super::workspace::open_beneath_root;
use crate::limits::{MAX_DISARMED_CONFIG_BYTES, MAX_SET_ASIDE_NAMES};

/// What is added to the name of something set aside.
const SUFFIX: &str = ".set-aside";

/// Something in a git directory that was, or could not be, set aside.
#[derive(Debug)]
pub struct Disarmed {
    /// On the host, absolute; what it was called.
    pub path: PathBuf,
    /// What was done, or why it could not be.
    pub result: io::Result<String>,
}

/// Git directories that are there and were not, as far as they lie in what the session could write: those found, and those
/// they or new `.git` files lead to.
pub fn made(before: &Plan, after: &Plan, new_names: &[PathBuf], writable: &[PathBuf]) -> BTreeSet<PathBuf> {
    let known: BTreeSet<&PathBuf> = before.git_dirs.iter().collect();
    let found: BTreeSet<PathBuf> = after.git_dirs.iter().cloned().collect();
    let named = new_names.iter().filter(|path| path.file_name() == Some(OsStr::new(".git")));
    let named: BTreeSet<PathBuf> = named.filter_map(|path| git::target(path)).collect();
    let common = found.union(&named).filter(|dir| !known.contains(dir)).filter_map(|dir| git::common(dir));
    let led_to: BTreeSet<PathBuf> = common.chain(named.iter().cloned()).collect();
    let is_writable = |dir: &PathBuf| writable.iter().any(|top| dir.starts_with(top));
    found.into_iter().chain(led_to).filter(|dir| is_writable(dir) && !known.contains(dir)).collect()
}

/// Sets aside what git on the host would run in a git directory.
pub fn disarm(git_dir: &Path) -> Vec<Disarmed> {
    let dir = match open_beneath_root(git_dir).and_then(|dir| directory(dir.as_fd(), ".")) {
        Ok(dir) => dir,
        Err(error) => return vec![Disarmed { path: git_dir.to_owned(), result: Err(error.into()) }],
    };
    let mut done = Vec::new();
    for name in ["config", "config.worktree"] {
        done.extend(told(git_dir.join(name), configuration(&dir, name, git_dir)));
    }
    match directory(dir.as_fd(), "hooks") {
        Ok(hooks) => done.extend(set_hooks_aside(&hooks, &git_dir.join("hooks"))),
        Err(rustix::io::Errno::NOENT) => {}
        // A link, or no directory at all.
        Err(_) => done.extend(told(git_dir.join("hooks"), set_aside(&dir, OsStr::new("hooks")).map(Some))),
    }
    done
}

fn told(path: PathBuf, result: io::Result<Option<String>>) -> Option<Disarmed> {
    result.transpose().map(|result| Disarmed { path, result })
}

fn directory(at: impl AsFd, name: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, name, flags, Mode::empty())
}

/// What was done to a configuration, if anything had to be.
fn configuration(dir: &OwnedFd, name: &str, git_dir: &Path) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return set_aside(dir, OsStr::new(name)).map(Some),
        Err(error) => return Err(error.into()),
    };
    let stat = rustix::fs::fstat(&file)?;
    let mut bytes = Vec::new();
    if is(&stat, FileType::RegularFile) {
        File::from(file).take(MAX_DISARMED_CONFIG_BYTES + 1).read_to_end(&mut bytes)?;
    }
    let Some(text) = String::from_utf8(bytes).ok().filter(|text| is_judged(&stat, text)) else {
        return set_aside(dir, OsStr::new(name)).map(Some);
    };
    let kept = harmless::keep(&text, |worktree| lies_beside(git_dir, worktree));
    if kept.dropped.is_empty() {
        return Ok(None);
    }
    let aside = set_aside(dir, OsStr::new(name))?;
    write_like(dir, name, kept.text.as_bytes(), &stat)?;
    Ok(Some(format!("{}: {aside}", kept.dropped.join(", "))))
}

fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

/// Whether this is the whole of a regular file.
fn is_judged(stat: &Stat, text: &str) -> bool {
    is(stat, FileType::RegularFile) && text.len() as u64 <= MAX_DISARMED_CONFIG_BYTES
}

/// Whether the worktree that a configuration names has, by its `.git`, this git directory: a submodule's.
fn lies_beside(git_dir: &Path, worktree: &str) -> bool {
    git::target(&git_dir.join(worktree).join(".git")).is_some_and(|dir| dir == git_dir)
}

fn set_hooks_aside(hooks: &OwnedFd, path: &Path) -> Vec<Disarmed> {
    let names = match hook_names(hooks) {
        Ok(names) => names,
        Err(error) => return vec![Disarmed { path: path.to_owned(), result: Err(error) }],
    };
    let aside = |name: &OsString| Disarmed { path: path.join(name), result: set_aside(hooks, name) };
    names.iter().map(aside).collect()
}

/// What git would run: whatever can be executed. Samples cannot be called, nor can what was set aside before.
fn hook_names(hooks: &OwnedFd) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(hooks)? {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        if name == "." || name == ".." || Path::new(&name).extension().is_some() {
            continue;
        }
        let stat = rustix::fs::statat(hooks, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        if is(&stat, FileType::Symlink) || (is(&stat, FileType::RegularFile) && stat.st_mode & 0o111 != 0) {
            names.push(name);
        }
    }
    Ok(names)
}

/// Renames, never onto something; says how it is called now.
fn set_aside(dir: &OwnedFd, name: &OsStr) -> io::Result<String> {
    for number in 0..MAX_SET_ASIDE_NAMES {
        let mut aside = name.to_owned();
        aside.push(SUFFIX);
        if number > 0 {
            aside.push(format!(".{number}"));
        }
        match rustix::fs::renameat_with(dir, name, dir, &aside, RenameFlags::NOREPLACE) {
            Ok(()) => return Ok(format!("set aside as {}", aside.display())),
            Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("too many of its name were set aside before"))
}

/// A new file with the owner and the permissions of another.
fn write_like(dir: &OwnedFd, name: &str, content: &[u8], like: &Stat) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR)?;
    rustix::fs::fchown(&file, Some(Uid::from_raw(like.st_uid)), Some(Gid::from_raw(like.st_gid)))?;
    rustix::fs::fchmod(&file, Mode::from_raw_mode(like.st_mode & 0o666))?;
    File::from(file).write_all(content)
}

#[cfg(test)]
mod tests;
