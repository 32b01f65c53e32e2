//! What `/proc` shows of this process to itself alone. The file methods run in it, so the kernel lets them have what it
//! refuses to commands: an undumpable process may still see its own maps.
//!
//! Invariant: by a file method nobody learns where the memory of this process lies, and nobody writes to `/proc`.

use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use rustix::fs::{CWD, PROC_SUPER_MAGIC, fstatfs, readlinkat};
use rustix::io::Errno;
use rustix::process::getpid;

/// Files of a process that tell where its memory lies. What else is closed to others is closed to itself as well.
const MAPS: [&str; 5] = ["maps", "numa_maps", "smaps", "smaps_rollup", "stat"];

/// Whether an opened file may be read.
///
/// # Errors
/// EACCES, as commands get it.
pub(super) fn check_read(file: impl AsFd) -> Result<(), Errno> {
    if !is_in_proc(&file)? {
        return Ok(());
    }
    let link = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    let path = PathBuf::from(OsString::from_vec(readlinkat(CWD, link, Vec::new())?.into_bytes()));
    let own = format!("/proc/{}", getpid().as_raw_nonzero());
    let is_map = path.file_name().is_some_and(|name| MAPS.iter().any(|map| name == *map));
    if is_map && path.starts_with(own) { Err(Errno::ACCESS) } else { Ok(()) }
}

/// Whether a file opened for writing may be written.
///
/// # Errors
/// EACCES for everything in `/proc`: none of it is for a client, and some is this process's own.
pub(super) fn check_write(file: impl AsFd) -> Result<(), Errno> {
    if is_in_proc(file)? { Err(Errno::ACCESS) } else { Ok(()) }
}

fn is_in_proc(file: impl AsFd) -> Result<bool, Errno> {
    Ok(fstatfs(file)?.f_type == PROC_SUPER_MAGIC)
}

#[cfg(test)]
mod tests {
    use std::fs::{File, OpenOptions};

    use super::*;

    #[test]
    fn maps_of_this_process_are_closed_and_files_for_everybody_are_not() {
        let read = |path: &str| check_read(File::open(path).unwrap());
        for map in MAPS.into_iter().filter(|map| *map != "numa_maps") {
            for process in ["self", "thread-self"] {
                let path = format!("/proc/{process}/{map}");
                // Not every kernel has all of them for threads.
                if let Ok(file) = File::open(&path) {
                    assert_eq!(check_read(file), Err(Errno::ACCESS), "{path}");
                }
            }
        }
        assert_eq!(read("/proc/self/maps"), Err(Errno::ACCESS));
        assert_eq!(
            (read("/proc/self/status"), read("/proc/meminfo"), read("/etc/passwd")),
            (Ok(()), Ok(()), Ok(()))
        );
        let write = |path: &str| check_write(OpenOptions::new().write(true).open(path).unwrap());
        assert_eq!((write("/proc/self/comm"), write("/dev/null")), (Err(Errno::ACCESS), Ok(())));
    }
}
