//! Whole files: `fs/readFile`, `fs/writeFile` (SPEC 8).
//!
//! Invariant: nothing that is not a regular file is opened for reading, and no open or read can block on a pipe or a
//! device: the type is checked before the open and again on the descriptor, which is non-blocking.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use legion_protocol::chunk::append_base64;
use legion_protocol::limits::MAX_READ_FILE_BYTES;
use legion_protocol::{ErrorObject, RequestId};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, ftruncate, openat, statat};
use rustix::io::Errno;

use super::{itself, nofollow};
use crate::error::{Outcome, fs_error};
use crate::limits::{FILE_BLOCK_BYTES, INLINE_FILE_BYTES, MAX_UNSIZED_FILE_BYTES};

/// A regular file opened for reading.
pub(crate) struct Readable {
    file: OwnedFd,
    /// Bytes by its metadata; 0 for the files of `/proc`.
    pub(crate) size: u64,
}

const COMMON: OFlags = OFlags::CLOEXEC.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens a file for `fs/readFile`.
///
/// # Errors
/// -32600 when it is no regular file or too large; else the operating system's.
pub(crate) fn open(path: &Path, follow: bool) -> Outcome<Readable> {
    let flags = OFlags::RDONLY | COMMON;
    let file = if follow {
        check_type(&statat(CWD, path, AtFlags::empty()).map_err(fs_error)?, || not_a_file(path))?;
        openat(CWD, path, flags, Mode::empty())
    } else {
        let (parent, name) = nofollow::open_parent(path).map_err(fs_error)?;
        let stat = statat(&parent, &name, AtFlags::SYMLINK_NOFOLLOW).map_err(fs_error)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            return Err(fs_error(Errno::LOOP));
        }
        check_type(&stat, || ErrorObject::invalid_request("path is not a regular file"))?;
        openat(&parent, &name, flags | OFlags::NOFOLLOW, Mode::empty())
    };
    let file = file.map_err(fs_error)?;
    // Again: it may have been exchanged since.
    let stat = fstat(&file).map_err(fs_error)?;
    check_type(&stat, || not_a_file(path))?;
    itself::check_read(&file).map_err(fs_error)?;
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if size > MAX_READ_FILE_BYTES { Err(too_large(MAX_READ_FILE_BYTES)) } else { Ok(Readable { file, size }) }
}

fn check_type(stat: &Stat, refusal: impl FnOnce() -> ErrorObject) -> Outcome<()> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(()),
        // What opening one says.
        FileType::Socket => Err(fs_error(Errno::NXIO)),
        _ => Err(refusal()),
    }
}

pub(super) fn not_a_file(path: &Path) -> ErrorObject {
    ErrorObject::invalid_request(format!("path `{}` is not a file", path.display()))
}

fn too_large(limit: u64) -> ErrorObject {
    ErrorObject::invalid_request(format!("file is too large to read: limit is {limit} bytes"))
}

impl Readable {
    /// The descriptor, for reading block by block.
    pub(super) fn into_file(self) -> OwnedFd {
        self.file
    }

    /// Memory its content will take as base64 text.
    pub(crate) fn cost(&self) -> usize {
        let bytes = match self.size {
            0 => MAX_UNSIZED_FILE_BYTES,
            size => usize::try_from(size).unwrap_or(usize::MAX),
        };
        bytes.div_ceil(3).saturating_mul(4)
    }

    /// What is read at most, so that a file which grows meanwhile costs no more than was expected of it.
    fn most(&self) -> u64 {
        match self.size {
            0 => MAX_UNSIZED_FILE_BYTES as u64 + 1,
            size => size + INLINE_FILE_BYTES as u64,
        }
    }

    /// The whole answer to `fs/readFile`: the file goes block by block into its base64 text, and is never held twice.
    pub(crate) fn read(self, id: &RequestId) -> Outcome<String> {
        let id = serde_json::to_string(id).unwrap_or_default();
        let expected = usize::try_from(self.size).unwrap_or(0).div_ceil(3) * 4;
        let mut text = String::with_capacity(expected + id.len() + 48);
        text.push_str(r#"{"id":"#);
        text.push_str(&id);
        text.push_str(r#","result":{"dataBase64":""#);
        let block = FILE_BLOCK_BYTES
            .min(usize::try_from(self.size).unwrap_or(usize::MAX).max(4096).next_multiple_of(3));
        let mut buffer = vec![0; block];
        let mut left = usize::try_from(self.most()).unwrap_or(usize::MAX);
        while left > 0 {
            let wanted = block.min(left);
            let length = self.fill(&mut buffer[..wanted]).map_err(fs_error)?;
            append_base64(&buffer[..length], &mut text);
            left -= length;
            if length < wanted {
                break;
            }
        }
        if left == 0 && self.size == 0 {
            return Err(too_large(MAX_UNSIZED_FILE_BYTES as u64));
        }
        text.push_str("\"}}");
        Ok(text)
    }

    /// The whole file as bytes; `None` when it has more than `limit`.
    pub(crate) fn read_up_to(self, limit: usize) -> Outcome<Option<Vec<u8>>> {
        if self.size > limit as u64 {
            return Ok(None);
        }
        let mut buffer = vec![0; limit + 1];
        let length = self.fill(&mut buffer).map_err(fs_error)?;
        buffer.truncate(length);
        buffer.shrink_to_fit();
        Ok((length <= limit).then_some(buffer))
    }

    /// Reads until the buffer is full or the file ends.
    fn fill(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let mut length = 0;
        while length < buffer.len() {
            match rustix::io::read(&self.file, &mut buffer[length..]) {
                Ok(0) => break,
                Ok(count) => length += count,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(length)
    }
}

/// `fs/writeFile`: writes in place; a new file gets 0666 less the umask.
///
/// What a file held before is written over and only then cut off: whoever watches it never finds it empty, a full disk has
/// room for what was there, and giving up megabytes of pages to ask for as many takes longer than to fill them.
///
/// # Errors
/// The operating system's.
pub(crate) fn write(path: &Path, content: &[u8], follow: bool) -> Outcome<()> {
    let file = open_to_write(path, follow)?;
    write_all(&file, content).and_then(|()| cut(&file, content.len() as u64)).map_err(fs_error)
}

/// Ends a file at this length. Other kinds than regular files have none.
fn cut(file: &OwnedFd, length: u64) -> io::Result<()> {
    let stat = fstat(file)?;
    let is_longer = u64::try_from(stat.st_size).is_ok_and(|size| size > length);
    // Nothing was written of an empty content, yet the file was changed now.
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && (is_longer || length == 0) {
        ftruncate(file, length)?;
    }
    Ok(())
}

/// Opens or creates a file for writing, with 0666 less the umask.
pub(super) fn open_to_write(path: &Path, follow: bool) -> Outcome<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | COMMON;
    let mode = Mode::from_raw_mode(0o666);
    let file = if follow {
        openat(CWD, path, flags, mode)
    } else {
        nofollow::open_parent(path)
            .and_then(|(parent, name)| openat(&parent, &name, flags | OFlags::NOFOLLOW, mode))
    };
    file.and_then(|file| itself::check_write(&file).map(|()| file)).map_err(fs_error)
}

fn write_all(file: &OwnedFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::symlink;

    use legion_protocol::Chunk;
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create, mkfifoat};

    use super::*;

    fn content(path: &Path) -> Outcome<Vec<u8>> {
        let text = open(path, true)?.read(&RequestId::from(1))?;
        let frame: serde_json::Value = serde_json::from_str(&text).unwrap();
        Ok(Chunk::from_base64(frame["result"]["dataBase64"].as_str().unwrap()).unwrap().0)
    }

    #[test]
    fn files_of_every_size_survive() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for size in [0, 1, 2, 3, 4095, 4096, FILE_BLOCK_BYTES - 1, FILE_BLOCK_BYTES, 2 * FILE_BLOCK_BYTES + 1]
        {
            let bytes: Vec<u8> = (0..size).map(|at| u8::try_from(at % 251).unwrap()).collect();
            write(&path, &bytes, true).unwrap();
            assert_eq!(content(&path).unwrap(), bytes, "{size}");
        }
    }

    #[test]
    fn what_a_file_held_is_written_over_and_then_cut_off() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for (before, after) in [("", "new"), ("longer before", "new"), ("old", "longer now"), ("old", "")] {
            fs::write(&path, before).unwrap();
            write(&path, after.as_bytes(), true).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), after);
        }
        // A file that cannot become shorter can be written over: it was never empty.
        let sealed = memfd_create("sealed", MemfdFlags::ALLOW_SEALING).unwrap();
        let path = format!("/proc/self/fd/{}", sealed.as_raw_fd());
        fs::write(&path, "old").unwrap();
        fcntl_add_seals(&sealed, SealFlags::SHRINK).unwrap();
        write(Path::new(&path), b"new", true).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn an_empty_content_is_a_change() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = fs::File::create(&path).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        write(&path, b"", true).unwrap();
        assert_ne!(file.metadata().unwrap().modified().unwrap(), std::time::UNIX_EPOCH);
    }

    #[test]
    fn a_file_of_unknown_size_is_read_to_its_end() {
        assert!(content(Path::new("/proc/self/status")).unwrap().starts_with(b"Name:"));
    }

    #[test]
    fn a_file_that_grows_while_it_is_read_costs_no_more_than_was_expected() {
        let dir = tempfile::tempdir().unwrap();
        let grown = |before: &str, after: usize| {
            let path = dir.path().join("f");
            fs::write(&path, before).unwrap();
            let file = open(&path, true).unwrap();
            let length = u64::try_from(after).unwrap();
            fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length).unwrap();
            let cost = file.cost();
            file.read(&RequestId::from(1)).map(|text| (text.len(), cost)).map_err(|error| error.message)
        };
        let (length, cost) = grown("x", 16 << 20).unwrap();
        assert!(length < cost + 2 * INLINE_FILE_BYTES, "{length}");
        assert!(grown("", 16 << 20).is_ok_and(|(length, cost)| length < cost));
        let refused = format!("file is too large to read: limit is {MAX_UNSIZED_FILE_BYTES} bytes");
        assert_eq!(grown("", MAX_UNSIZED_FILE_BYTES + 1), Err(refused));
    }

    #[test]
    fn what_could_block_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o600)).unwrap();
        for path in [&fifo, Path::new("/dev/zero"), dir.path()] {
            let error = content(path).unwrap_err();
            assert_eq!(error.message, format!("path `{}` is not a file", path.display()));
        }
        assert_eq!(write(&fifo, b"", true).unwrap_err().message, "No such device or address (os error 6)");
    }

    #[test]
    fn links_are_followed_only_when_asked_to() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("d")).unwrap();
        fs::write(at("d/a"), "a").unwrap();
        symlink("d", at("ld")).unwrap();
        symlink("d/a", at("la")).unwrap();
        symlink("d/new", at("dangling")).unwrap();
        assert!(open(&at("d/a"), false).is_ok());
        let refused = |result: Outcome<()>| result.unwrap_err().message;
        let read = |name: &str| open(&at(name), false).map(drop);
        assert_eq!(refused(read("la")), "Symbolic link loop (os error 40)");
        assert_eq!(refused(read("ld/a")), "Not a directory (os error 20)");
        assert_eq!(refused(write(&at("la"), b"", false)), "Symbolic link loop (os error 40)");
        assert_eq!(refused(write(&at("ld/a"), b"", false)), "Not a directory (os error 20)");
        write(&at("dangling"), b"x", true).unwrap();
        assert_eq!(fs::read(at("d/new")).unwrap(), b"x");
    }
}
