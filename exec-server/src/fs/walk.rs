//! `fs/walk`: a tree, breadth first (SPEC 8).
//!
//! Invariant: every bound of the request is at most that of `limits`, and what is kept besides the answer is bounded as
//! well: names of one directory, paths in all.

use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use legion_protocol::fs::{WalkEntry, WalkError, WalkKind, WalkOptions, WalkResult};
use legion_protocol::limits::{MAX_WALK_DEPTH, MAX_WALK_DIRECTORIES, MAX_WALK_ENTRIES};
use legion_protocol::{ErrorObject, PathUri};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use super::{file_type, path_of};
use crate::error::{Outcome, fs_error, os_text};
use crate::limits::{MAX_WALK_NAMES, MAX_WALK_PATH_BYTES};

/// Walks the tree at `root`, which is not listed. Directories up to `maxDepth` levels below it are entered.
///
/// # Errors
/// -32600 for bad bounds; the operating system's when the root cannot be looked at. What cannot be read below is part
/// of the result.
pub(crate) fn walk(root: &Path, options: &WalkOptions) -> Outcome<WalkResult> {
    walk_within(root, options, None)
}

/// The same, but only directories that `allows` passes are entered; it is given where they are, without links.
pub(crate) fn walk_within(
    root: &Path,
    options: &WalkOptions,
    allows: Option<&dyn Fn(&Path) -> bool>,
) -> Outcome<WalkResult> {
    check(options)?;
    // What the root leads to has to exist, also when it is a link that is not followed.
    let target = statat(CWD, root, AtFlags::empty()).map_err(fs_error)?;
    let stat = if options.follow_directory_symlinks {
        target
    } else {
        statat(CWD, root, AtFlags::SYMLINK_NOFOLLOW).map_err(fs_error)?
    };
    let mut walk = Walk {
        options,
        allows,
        result: WalkResult { entries: Vec::new(), errors: Vec::new(), truncated: false },
        pending: VecDeque::new(),
        entered: HashSet::new(),
        path_bytes: 0,
    };
    if file_type(&stat) == FileType::Directory {
        walk.pending.push_back((root.to_owned(), 0));
        walk.run();
    }
    Ok(walk.result)
}

fn check(options: &WalkOptions) -> Outcome<()> {
    if options.max_directories == 0 || options.max_entries == 0 {
        return Err(ErrorObject::invalid_request("filesystem walk limits must be greater than zero"));
    }
    if options.max_depth > MAX_WALK_DEPTH
        || options.max_directories > MAX_WALK_DIRECTORIES
        || options.max_entries > MAX_WALK_ENTRIES
    {
        return Err(ErrorObject::invalid_request(format!(
            "filesystem walk limits exceed maximums: depth={MAX_WALK_DEPTH}, directories={MAX_WALK_DIRECTORIES}, \
             entries={MAX_WALK_ENTRIES}"
        )));
    }
    Ok(())
}

struct Walk<'a> {
    options: &'a WalkOptions,
    allows: Option<&'a dyn Fn(&Path) -> bool>,
    result: WalkResult,
    /// Directories to read, with their level below the root.
    pending: VecDeque<(PathBuf, u64)>,
    /// Device and inode: a directory reached twice is entered once.
    entered: HashSet<(u64, u64)>,
    path_bytes: usize,
}

impl Walk<'_> {
    fn run(&mut self) {
        while let Some((path, depth)) = self.pending.pop_front() {
            let directory = match self.enter(&path) {
                Ok(Some(directory)) => directory,
                Ok(None) => continue,
                Err(error) => {
                    self.fail(&path, error);
                    continue;
                }
            };
            if self.entered.len() as u64 > self.options.max_directories {
                self.result.truncated = true;
                return;
            }
            match self.names(&directory) {
                Ok(names) => {
                    if !self.list(&path, depth, &directory, &names) {
                        self.result.truncated = true;
                        return;
                    }
                }
                Err(error) => self.fail(&path, error),
            }
        }
    }

    /// Opens a directory; `None` when it was entered before.
    fn enter(&mut self, path: &Path) -> Result<Option<OwnedFd>, Errno> {
        let mut flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if !self.options.follow_directory_symlinks {
            flags |= OFlags::NOFOLLOW;
        }
        let directory = openat(CWD, path, flags, Mode::empty())?;
        if let Some(allows) = self.allows
            && !allows(&path_of(&directory)?)
        {
            return Err(Errno::ACCESS);
        }
        let stat = fstat(&directory)?;
        Ok(self.entered.insert((stat.st_dev, stat.st_ino)).then_some(directory))
    }

    /// The names of a directory, sorted.
    fn names(&mut self, directory: &OwnedFd) -> Result<Vec<(OsString, FileType)>, Errno> {
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if names.len() >= MAX_WALK_NAMES {
                self.result.truncated = true;
                break;
            }
            names.push((name.to_owned(), entry.file_type()));
        }
        names.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        Ok(names)
    }

    /// Lists the entries of one directory; `false` when a bound was reached.
    fn list(&mut self, path: &Path, depth: u64, directory: &OwnedFd, names: &[(OsString, FileType)]) -> bool {
        for (name, kind) in names {
            let Some(kind) = self.kind(directory, name, *kind) else { continue };
            let path = path.join(name);
            self.path_bytes += path.as_os_str().len();
            if self.result.entries.len() as u64 >= self.options.max_entries
                || self.path_bytes > MAX_WALK_PATH_BYTES
            {
                return false;
            }
            // Below an absolute path, so it always is a URI.
            let Some(uri) = PathUri::from_path(&path) else { continue };
            self.result.entries.push(WalkEntry { path: uri, kind });
            let pruned = self.options.prune_hidden_directories && name.as_bytes().starts_with(b".");
            if kind == WalkKind::Directory && depth < self.options.max_depth && !pruned {
                self.pending.push_back((path, depth + 1));
            }
        }
        true
    }

    /// What an entry is listed as; `None` leaves it out.
    fn kind(&self, directory: &OwnedFd, name: &OsStr, kind: FileType) -> Option<WalkKind> {
        let own = match kind {
            FileType::Unknown => file_type(&statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?),
            known => known,
        };
        match own {
            FileType::RegularFile => Some(WalkKind::File),
            FileType::Directory => Some(WalkKind::Directory),
            FileType::Symlink if self.options.follow_directory_symlinks => {
                let target = statat(directory, name, AtFlags::empty()).ok()?;
                (file_type(&target) == FileType::Directory).then_some(WalkKind::Directory)
            }
            _ => None,
        }
    }

    fn fail(&mut self, path: &Path, error: Errno) {
        if let Some(path) = PathUri::from_path(path) {
            self.result.errors.push(WalkError { path, message: os_text(&error.into()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn options() -> WalkOptions {
        WalkOptions {
            max_depth: 5,
            max_directories: 100,
            max_entries: 1000,
            follow_directory_symlinks: true,
            prune_hidden_directories: false,
        }
    }

    #[test]
    fn links_are_entered_once_and_cycles_end() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::write(at("a/b/f"), "").unwrap();
        std::os::unix::fs::symlink("..", at("a/up")).unwrap();
        std::os::unix::fs::symlink("a/b/f", at("lf")).unwrap();
        let result = walk(dir.path(), &options()).unwrap();
        let names: Vec<_> = result
            .entries
            .iter()
            .map(|entry| entry.path.path().strip_prefix(dir.path()).unwrap().to_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, ["a", "a/b", "a/up", "a/b/f"]);
        assert!(result.errors.is_empty() && !result.truncated);
    }

    #[test]
    fn every_bound_truncates() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a/x", "b/x", "c/x"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let walked = |change: fn(&mut WalkOptions)| {
            let mut options = options();
            change(&mut options);
            let result = walk(dir.path(), &options).unwrap();
            (result.entries.len(), result.truncated)
        };
        assert_eq!(walked(|_| ()), (6, false));
        assert_eq!(walked(|options| options.max_entries = 4), (4, true));
        assert_eq!(walked(|options| options.max_directories = 2), (4, true));
        assert_eq!(walked(|options| options.max_depth = 0), (3, false));
    }
}
