//! `fs/remove` (SPEC 8).
//!
//! Invariant: a tree is taken down relative to open directories that were opened without following links, so an exchange
//! of a directory for a link during the removal never leads out of the tree. Depth costs descriptors, not stack.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use legion_protocol::{ErrorCode, ErrorObject};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use rustix::path::Arg;

use super::{nofollow, too_deep};
use crate::error::{Outcome, fs_error};
use crate::limits::MAX_TREE_DEPTH;

/// Removes a path; a link is removed itself.
///
/// # Errors
/// ENOENT unless `force`; ENOTEMPTY for a directory with content unless `recursive`; the first one met in a tree.
pub(crate) fn remove(path: &Path, recursive: bool, force: bool, follow: bool) -> Outcome<()> {
    if !follow && recursive {
        return Err(ErrorObject::new(ErrorCode::Internal, "recursive no-follow removal is unsupported"));
    }
    if path == Path::new("/") {
        return Err(ErrorObject::invalid_request("the root directory cannot be removed"));
    }
    let result = if follow {
        remove_at(CWD, path, recursive)
    } else {
        match nofollow::open_parent(path) {
            Ok((parent, name)) => super::refuse_link(parent.as_fd(), &name)
                .and_then(|_| remove_at(parent.as_fd(), name.as_os_str(), false)),
            Err(error) => Err(fs_error(error)),
        }
    };
    match result {
        Err(error) if error.code == ErrorCode::NotFound && force => Ok(()),
        result => result,
    }
}

fn remove_at(parent: BorrowedFd<'_>, name: impl Arg + Copy, recursive: bool) -> Outcome<()> {
    match unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::ISDIR) if recursive => remove_tree(parent, name),
        Err(Errno::ISDIR) => unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(fs_error),
        result => result.map_err(fs_error),
    }
}

/// An open directory, and its name in the one before it.
struct Level {
    entries: Dir,
    name: CString,
}

fn remove_tree(parent: BorrowedFd<'_>, name: impl Arg + Copy) -> Outcome<()> {
    let mut base = open(parent, name).map_err(fs_error)?;
    let mut levels: Vec<Level> = Vec::new();
    loop {
        let depth = levels.len();
        let current = levels.last_mut().map_or(&mut base, |level| &mut level.entries);
        match next_directory(current).map_err(fs_error)? {
            Some(_) if depth >= MAX_TREE_DEPTH => return Err(too_deep()),
            Some(name) => {
                match open(current.fd().map_err(fs_error)?, name.as_c_str()) {
                    Ok(entries) => levels.push(Level { entries, name }),
                    // Removed, or exchanged for a file, in between: the next round looks again.
                    Err(Errno::NOENT) => {}
                    Err(error) => return Err(fs_error(error)),
                }
            }
            None => {
                let Some(done) = levels.pop() else { break };
                let above = levels.last().map_or(&base, |level| &level.entries);
                let above = above.fd().map_err(fs_error)?;
                ignore_missing(unlinkat(above, done.name.as_c_str(), AtFlags::REMOVEDIR))
                    .map_err(fs_error)?;
            }
        }
    }
    unlinkat(parent, name, AtFlags::REMOVEDIR).map_err(fs_error)
}

fn open(parent: BorrowedFd<'_>, name: impl Arg) -> Result<Dir, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Dir::new(openat(parent, name, flags, Mode::empty())?)
}

/// Removes entries up to the next directory and returns its name.
fn next_directory(entries: &mut Dir) -> Result<Option<CString>, Errno> {
    while let Some(entry) = entries.read() {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if entry.file_type() == FileType::Directory {
            return Ok(Some(name.to_owned()));
        }
        match ignore_missing(unlinkat(entries.fd()?, name, AtFlags::empty())) {
            Err(Errno::ISDIR) => return Ok(Some(name.to_owned())),
            result => result?,
        }
    }
    Ok(None)
}

/// Somebody else removed it first: what was wanted.
fn ignore_missing(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_tree_goes_and_what_its_links_point_to_stays() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("keep")).unwrap();
        fs::write(at("keep/a"), "x").unwrap();
        for branch in 0..20 {
            let deep = at(&format!("d/{branch}/a/b/c"));
            fs::create_dir_all(&deep).unwrap();
            for leaf in 0..20 {
                fs::write(deep.join(format!("f{leaf}")), "x").unwrap();
            }
        }
        symlink("../keep", at("d/l")).unwrap();
        remove(&at("d"), true, false, true).unwrap();
        assert!(!at("d").exists() && at("keep/a").exists());
    }

    #[test]
    fn a_tree_deeper_than_the_bound_is_an_error_not_a_crash() {
        let dir = tempfile::tempdir().unwrap();
        let mut deep = dir.path().join("d");
        for _ in 0..=MAX_TREE_DEPTH + 1 {
            deep.push("x");
        }
        fs::create_dir_all(&deep).unwrap();
        let error = remove(&dir.path().join("d"), true, true, true).unwrap_err();
        assert_eq!(error.message, too_deep().message);
    }

    #[test]
    fn force_hides_a_missing_path_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/f"), "").unwrap();
        let refused = |name: &str, recursive, force, follow| {
            remove(&at(name), recursive, force, follow).unwrap_err().message
        };
        remove(&at("none"), true, true, true).unwrap();
        assert_eq!(refused("none", true, false, true), "No such file or directory (os error 2)");
        assert_eq!(refused("d/f/x", true, true, true), "Not a directory (os error 20)");
        assert_eq!(refused("d", false, true, true), "Directory not empty (os error 39)");
        assert_eq!(refused("d", true, true, false), "recursive no-follow removal is unsupported");
        symlink("d", at("l")).unwrap();
        assert_eq!(refused("l", false, true, false), "path contains a symbolic link");
        remove(&at("none"), false, true, false).unwrap();
        assert_eq!(refused("l/f", false, true, false), "Not a directory (os error 20)");
        assert!(remove(Path::new("/"), true, true, true).is_err());
    }
}
