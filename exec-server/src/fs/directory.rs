//! `fs/readDirectory` (SPEC 8).

use std::path::Path;

use legion_protocol::fs::{Directory, DirectoryEntry};
use legion_protocol::limits::MAX_DIRECTORY_ENTRIES;
use legion_protocol::{ErrorCode, ErrorObject};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};

use super::file_type;
use crate::error::{Outcome, fs_error};

/// The entries of a directory, in no order. Types are those of link targets; links that lead nowhere are left out.
///
/// # Errors
/// -32603 above the limit; else the operating system's.
pub(crate) fn read(path: &Path) -> Outcome<Directory> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = openat(CWD, path, flags, Mode::empty()).map_err(fs_error)?;
    let mut entries = Vec::new();
    let mut count = 0;
    for entry in Dir::read_from(&directory).map_err(fs_error)? {
        let entry = entry.map_err(fs_error)?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let target = match entry.file_type() {
            FileType::Symlink | FileType::Unknown => match statat(&directory, name, AtFlags::empty()) {
                Ok(stat) => file_type(&stat),
                Err(_) => continue,
            },
            known => known,
        };
        count += 1;
        // Counted to the end for the error's text, but not kept.
        if count <= MAX_DIRECTORY_ENTRIES {
            entries.push(DirectoryEntry {
                file_name: name.to_string_lossy().into_owned(),
                is_directory: target == FileType::Directory,
                is_file: target == FileType::RegularFile,
            });
        }
    }
    if count > MAX_DIRECTORY_ENTRIES {
        return Err(ErrorObject::new(
            ErrorCode::Internal,
            format!("fs/readDirectory returned {count} entries; limit is {MAX_DIRECTORY_ENTRIES}"),
        ));
    }
    Ok(Directory { entries })
}
