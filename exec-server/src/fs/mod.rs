//! `fs/*`: the operations on paths (SPEC 8). Synchronous functions of paths; `dispatch` decides where they run.

pub(crate) mod copy;
pub(crate) mod directory;
pub(crate) mod file;
mod itself;
mod nofollow;
pub(crate) mod remove;
pub(crate) mod stream;
pub(crate) mod walk;
pub(crate) mod watch;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use legion_protocol::fs::{Canonical, Metadata};
use legion_protocol::{ErrorObject, PathUri};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Stat, mkdirat, readlinkat, statat};
use rustix::io::Errno;

use crate::error::{Outcome, fs_error};
use crate::limits::MAX_TREE_DEPTH;

/// `fs/getMetadata`.
///
/// # Errors
/// Without `follow`, -32600 when the path is a link; else the operating system's.
pub(crate) fn metadata(path: &Path, follow: bool) -> Outcome<Metadata> {
    if follow {
        let target = statat(CWD, path, AtFlags::empty()).map_err(fs_error)?;
        let own = statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).map_err(fs_error)?;
        return Ok(describe(&target, file_type(&own) == FileType::Symlink));
    }
    let (parent, name) = nofollow::open_parent(path).map_err(fs_error)?;
    Ok(describe(&refuse_link(parent.as_fd(), &name)?, false))
}

/// What is at a name that must not be a link.
fn refuse_link(parent: BorrowedFd<'_>, name: &OsStr) -> Outcome<Stat> {
    let own = statat(parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(fs_error)?;
    if file_type(&own) == FileType::Symlink {
        return Err(ErrorObject::invalid_request("path contains a symbolic link"));
    }
    Ok(own)
}

/// The answer for a tree that costs more descriptors than one operation may hold.
fn too_deep() -> ErrorObject {
    ErrorObject::invalid_request(format!("the directory tree is deeper than {MAX_TREE_DEPTH} levels"))
}

fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

fn describe(stat: &Stat, is_symlink: bool) -> Metadata {
    let nanoseconds = i64::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Metadata {
        is_directory: file_type(stat) == FileType::Directory,
        is_file: file_type(stat) == FileType::RegularFile,
        is_symlink,
        size: u64::try_from(stat.st_size).unwrap_or(0),
        created_at_ms: 0,
        modified_at_ms: stat.st_mtime.saturating_mul(1000).saturating_add(nanoseconds / 1_000_000),
    }
}

/// Where the kernel says something is that is open. What is not at a path, as a pipe, has a text without a slash in front.
pub(crate) fn path_of(descriptor: impl AsFd) -> Result<PathBuf, Errno> {
    let link = format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd());
    let text = readlinkat(CWD, link, Vec::new())?.into_bytes();
    Ok(PathBuf::from(OsString::from_vec(text)))
}

/// `fs/createDirectory`.
pub(crate) fn create_directory(path: &Path, recursive: bool, follow: bool) -> Outcome<()> {
    let mode = Mode::from_raw_mode(0o777);
    match (recursive, follow) {
        (false, true) => mkdirat(CWD, path, mode).map_err(fs_error),
        (false, false) => nofollow::open_parent(path)
            .and_then(|(parent, name)| mkdirat(&parent, &name, mode))
            .map_err(fs_error),
        (true, true) => create_directories(path).map_err(fs_error),
        (true, false) => nofollow::create_directories(path).map_err(fs_error),
    }
}

/// Like `mkdir -p`, but what is in the way is named by the kernel: EEXIST for a file at the end, ENOTDIR before it.
fn create_directories(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)
}

/// `fs/canonicalize`: all links resolved; the path must exist.
pub(crate) fn canonicalize(path: &Path) -> Outcome<Canonical> {
    let canonical = std::fs::canonicalize(path).map_err(fs_error)?;
    let path = PathUri::from_path(&canonical).ok_or_else(|| fs_error(Errno::INVAL))?;
    Ok(Canonical { path })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn metadata_tells_of_the_target_and_of_the_link() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("f"), "hello\n").unwrap();
        symlink("f", at("lf")).unwrap();
        symlink("nowhere", at("broken")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let seen = metadata(&at("lf"), true).unwrap();
        assert!(seen.is_file && seen.is_symlink && !seen.is_directory);
        assert_eq!((seen.size, seen.created_at_ms), (6, 0));
        let millis = fs::metadata(at("f")).unwrap().modified().unwrap();
        let millis = millis.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
        assert_eq!(u128::try_from(seen.modified_at_ms).unwrap(), millis);
        let code = |name, follow| metadata(&at(name), follow).unwrap_err().code.number();
        assert_eq!(code("broken", true), -32004);
        assert_eq!(code("loop", true), -32603);
        assert_eq!(code("lf", false), -32600);
        assert_eq!(code("broken", false), -32600);
        assert!(metadata(&at("f"), false).unwrap().is_file);
        assert!(metadata(Path::new("/"), false).unwrap().is_directory);
        let null = metadata(Path::new("/dev/null"), true).unwrap();
        assert!(!null.is_file && !null.is_directory);
    }

    #[test]
    fn directories_are_made_as_mkdir_makes_them() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("f"), "").unwrap();
        for follow in [true, false] {
            let base = format!("k{follow}");
            create_directory(&at(&format!("{base}/a/b")), true, follow).unwrap();
            create_directory(&at(&base), true, follow).unwrap();
            let error =
                |name: &str, recursive| create_directory(&at(name), recursive, follow).unwrap_err().message;
            assert_eq!(error(&base, false), "File exists (os error 17)");
            assert_eq!(error("none/a", false), "No such file or directory (os error 2)");
            assert_eq!(error("f/x", true), "Not a directory (os error 20)");
        }
        assert_eq!(create_directory(&at("f"), true, true).unwrap_err().message, "File exists (os error 17)");
        symlink("ktrue", at("ld")).unwrap();
        create_directory(&at("ld"), true, true).unwrap();
        let error = create_directory(&at("ld/new"), true, false).unwrap_err();
        assert_eq!(error.message, "Not a directory (os error 20)");
    }
}
