//! `fs/copy` (SPEC 8).

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use legion_protocol::ErrorObject;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fchmod, fstat, ftruncate, mkdirat, openat, readlinkat, statat,
    symlinkat,
};
use rustix::io::Errno;

use super::{create_directories, file_type, itself, too_deep};
use crate::error::{Outcome, fs_error};
use crate::limits::MAX_TREE_DEPTH;

/// Copies a file, link or directory; links stay links, a directory merges into an existing one.
///
/// # Errors
/// -32600 for other kinds, a directory without `recursive`, a directory into itself; else the operating system's.
pub(crate) fn copy(source: &Path, destination: &Path, recursive: bool) -> Outcome<()> {
    match kind(source).map_err(fs_error)? {
        FileType::RegularFile => copy_file(source, destination).map_err(fs_error),
        FileType::Symlink => copy_link(source, destination).map_err(fs_error),
        FileType::Directory if !recursive => Err(ErrorObject::invalid_request(
            "fs/copy requires recursive: true when sourcePath is a directory",
        )),
        FileType::Directory => {
            if is_inside(source, destination).map_err(fs_error)? {
                return Err(ErrorObject::invalid_request(
                    "fs/copy cannot copy a directory to itself or one of its descendants",
                ));
            }
            copy_tree(source, destination)
        }
        _ => Err(ErrorObject::invalid_request(
            "fs/copy only supports regular files, directories, and symlinks",
        )),
    }
}

fn kind(path: &Path) -> Result<FileType, Errno> {
    Ok(file_type(&statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)?))
}

/// Whether `destination`, whose end need not exist, lies at or below `source` once links are resolved.
fn is_inside(source: &Path, destination: &Path) -> io::Result<bool> {
    let source = std::fs::canonicalize(source)?;
    let mut missing: Vec<OsString> = Vec::new();
    let mut existing = destination;
    loop {
        match std::fs::canonicalize(existing) {
            Ok(mut resolved) => {
                resolved.extend(missing.iter().rev());
                return Ok(resolved.starts_with(&source));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (Some(parent), Some(name)) = (existing.parent(), existing.file_name()) else {
                    return Ok(false);
                };
                missing.push(name.to_owned());
                existing = parent;
            }
            Err(error) => return Err(error),
        }
    }
}

fn copy_tree(source: &Path, destination: &Path) -> Outcome<()> {
    // With all that lead to it, as in the original; what is copied into it needs no more.
    create_directories(destination).map_err(fs_error)?;
    let mut pending: Vec<(PathBuf, PathBuf, usize)> = vec![(source.to_owned(), destination.to_owned(), 0)];
    while let Some((source, destination, depth)) = pending.pop() {
        if depth > MAX_TREE_DEPTH {
            return Err(too_deep());
        }
        make_directory(&destination).map_err(fs_error)?;
        for entry in std::fs::read_dir(&source).map_err(fs_error)? {
            let entry = entry.map_err(fs_error)?;
            let (from, to) = (entry.path(), destination.join(entry.file_name()));
            match kind(&from).map_err(fs_error)? {
                FileType::RegularFile => copy_file(&from, &to).map_err(fs_error)?,
                FileType::Symlink => copy_link(&from, &to).map_err(fs_error)?,
                FileType::Directory => pending.push((from, to, depth + 1)),
                // Pipes, sockets and devices inside are left out, as in the original.
                _ => {}
            }
        }
    }
    Ok(())
}

fn make_directory(path: &Path) -> Result<(), Errno> {
    match mkdirat(CWD, path, Mode::from_raw_mode(0o777)) {
        Err(Errno::EXIST) if file_type(&statat(CWD, path, AtFlags::empty())?) == FileType::Directory => {
            Ok(())
        }
        result => result,
    }
}

fn copy_link(source: &Path, destination: &Path) -> io::Result<()> {
    let target = readlinkat(CWD, source, Vec::new())?;
    symlinkat(target, CWD, destination)?;
    Ok(())
}

/// Content and permission bits; set-id bits stay behind, as with `cp`.
fn copy_file(source: &Path, destination: &Path) -> io::Result<()> {
    let common = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let from = openat(CWD, source, OFlags::RDONLY | OFlags::NOFOLLOW | common, Mode::empty())?;
    let stat = fstat(&from)?;
    if file_type(&stat) != FileType::RegularFile {
        // Exchanged since it was looked at.
        return Err(Errno::INVAL.into());
    }
    itself::check_read(&from)?;
    let mode = Mode::from_raw_mode(stat.st_mode & 0o777);
    let to = openat(CWD, destination, OFlags::WRONLY | OFlags::CREATE | common, mode)?;
    itself::check_write(&to)?;
    let existing = fstat(&to)?;
    if (existing.st_dev, existing.st_ino) == (stat.st_dev, stat.st_ino) {
        // Onto itself: truncating it first would destroy it.
        return Ok(());
    }
    if file_type(&existing) == FileType::RegularFile {
        ftruncate(&to, 0)?;
        fchmod(&to, mode)?;
    }
    pour(from, to)
}

fn pour(from: OwnedFd, to: OwnedFd) -> io::Result<()> {
    io::copy(&mut File::from(from), &mut File::from(to)).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_tree_is_copied_with_modes_and_links() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("d/sub")).unwrap();
        fs::write(at("d/sub/f"), "x").unwrap();
        fs::set_permissions(at("d/sub/f"), fs::Permissions::from_mode(0o750)).unwrap();
        symlink("nowhere", at("d/broken")).unwrap();
        copy(&at("d"), &at("e"), true).unwrap();
        assert_eq!(fs::read(at("e/sub/f")).unwrap(), b"x");
        assert_eq!(fs::metadata(at("e/sub/f")).unwrap().permissions().mode() & 0o7777, 0o750);
        assert_eq!(fs::read_link(at("e/broken")).unwrap(), Path::new("nowhere"));
    }

    #[test]
    fn a_copy_never_destroys_its_source() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("f"), "text").unwrap();
        symlink("f", at("l")).unwrap();
        fs::hard_link(at("f"), at("h")).unwrap();
        for destination in ["f", "l", "h"] {
            copy(&at("f"), &at(destination), false).unwrap();
            assert_eq!(fs::read(at("f")).unwrap(), b"text");
        }
        fs::create_dir(at("d")).unwrap();
        symlink("d", at("ld")).unwrap();
        for destination in ["d", "d/x", "ld/x/y", "d/../d/x"] {
            assert!(copy(&at("d"), &at(destination), true).is_err(), "{destination}");
        }
        assert_eq!(fs::read_dir(at("d")).unwrap().count(), 0);
    }
}
