//! Files opened for block access: `fs/open`, `fs/readBlock`, `fs/writeBlock`, `fs/close` (SPEC 8, streams).
//!
//! Invariant: a handle is a regular file, so no block can wait for somebody else; there are at most
//! `MAX_FILE_HANDLES` of them, and they belong to one connection and end with it.

use std::cell::RefCell;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use legion_protocol::chunk::append_base64;
use legion_protocol::fs::OpenMode;
use legion_protocol::{ErrorCode, ErrorObject, RequestId};
use rustix::fs::{FileType, fstat, ftruncate};
use rustix::io::{Errno, pread, pwrite};

use super::file;
use crate::error::{Outcome, fs_error};
use crate::limits::{MAX_BLOCK_BYTES, MAX_FILE_HANDLES, MAX_HANDLE_ID_BYTES};

/// The open handles of one connection, by the client's names for them.
#[derive(Default)]
pub(crate) struct Handles(RefCell<HashMap<String, Arc<OwnedFd>>>);

impl Handles {
    /// Whether a handle of this name may be opened now.
    ///
    /// # Errors
    /// -32600 for a name that is too long or in use, and when too many are open.
    pub(crate) fn check_new(&self, id: &str) -> Outcome<()> {
        let refused = |text| Err(ErrorObject::invalid_request(text));
        check_name(id)?;
        if self.0.borrow().contains_key(id) {
            return refused(format!("file handle `{id}` already exists"));
        }
        if self.0.borrow().len() >= MAX_FILE_HANDLES {
            return refused(format!("at most {MAX_FILE_HANDLES} file handles may be open per connection"));
        }
        Ok(())
    }

    /// Keeps an opened file under a name that [`Handles::check_new`] has passed in the same turn.
    pub(crate) fn insert(&self, id: String, file: OwnedFd) {
        self.0.borrow_mut().insert(id, Arc::new(file));
    }

    /// The file of a handle, for as long as one block takes: the handle may be closed meanwhile.
    ///
    /// # Errors
    /// -32004 when there is none of this name.
    pub(crate) fn get(&self, id: &str) -> Outcome<Arc<OwnedFd>> {
        self.0
            .borrow()
            .get(id)
            .cloned()
            .ok_or_else(|| ErrorObject::new(ErrorCode::NotFound, format!("unknown file handle `{id}`")))
    }

    /// Forgets a handle. One that is not there is as good (SPEC 8).
    pub(crate) fn close(&self, id: &str) {
        self.0.borrow_mut().remove(id);
    }
}

/// Whether a handle could have this name.
///
/// # Errors
/// -32600 for one that is too long.
pub(crate) fn check_name(id: &str) -> Outcome<()> {
    if id.len() <= MAX_HANDLE_ID_BYTES {
        return Ok(());
    }
    let text = format!("file handle ID must not exceed {MAX_HANDLE_ID_BYTES} bytes");
    Err(ErrorObject::invalid_request(text))
}

/// Opens a file for block access.
///
/// # Errors
/// -32600 when it is no regular file; else the operating system's.
pub(crate) fn open(path: &Path, mode: OpenMode) -> Outcome<OwnedFd> {
    match mode {
        OpenMode::Read => file::open(path, true).map(file::Readable::into_file),
        OpenMode::Replace => replace(path, true),
    }
}

/// Creates or truncates. What is no regular file is not even opened for truncation, because `O_NONBLOCK` opens a device.
pub(crate) fn replace(path: &Path, follow: bool) -> Outcome<OwnedFd> {
    let opened = file::open_to_write(path, follow)?;
    if FileType::from_raw_mode(fstat(&opened).map_err(fs_error)?.st_mode) != FileType::RegularFile {
        return Err(file::not_a_file(path));
    }
    ftruncate(&opened, 0).map_err(fs_error)?;
    Ok(opened)
}

/// Whether a block to read has a legal length.
///
/// # Errors
/// -32600 in the words of the original.
pub(crate) fn check_read_length(length: u64) -> Outcome<()> {
    check_length("read", usize::try_from(length).unwrap_or(usize::MAX))
}

/// Whether a block to write has a legal length, and a place that a file can have.
///
/// # Errors
/// -32600 in the words of the original.
pub(crate) fn check_write_range(offset: u64, length: usize) -> Outcome<()> {
    check_length("write", length)?;
    let end = offset.checked_add(length as u64);
    if end.is_none_or(|end| i64::try_from(end).is_err()) {
        let text = "file write range exceeds the signed 64-bit file offset limit";
        return Err(ErrorObject::invalid_request(text));
    }
    Ok(())
}

fn check_length(verb: &str, length: usize) -> Outcome<()> {
    if (1..=MAX_BLOCK_BYTES).contains(&length) {
        return Ok(());
    }
    let text = format!("file {verb} block length must be between 1 and {MAX_BLOCK_BYTES}");
    Err(ErrorObject::invalid_request(text))
}

/// The whole answer to `fs/readBlock`. `eof` when fewer bytes were there than asked for.
///
/// # Errors
/// -32600 for an offset no file can have; else the operating system's, as EBADF for a handle opened with `replace`.
pub(crate) fn read_block(file: impl AsFd, id: &RequestId, offset: u64, length: u64) -> Outcome<String> {
    let wanted = usize::try_from(length).unwrap_or(MAX_BLOCK_BYTES).min(MAX_BLOCK_BYTES);
    if i64::try_from(offset).is_err() {
        return Err(ErrorObject::invalid_request(fs_error(Errno::INVAL).message));
    }
    let mut buffer = vec![0; wanted];
    let mut filled = 0;
    while filled < wanted {
        match pread(&file, &mut buffer[filled..], offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(fs_error(error)),
        }
    }
    let id = serde_json::to_string(id).unwrap_or_default();
    let mut text = String::with_capacity(filled.div_ceil(3) * 4 + id.len() + 64);
    text.push_str(r#"{"id":"#);
    text.push_str(&id);
    text.push_str(r#","result":{"chunk":""#);
    append_base64(&buffer[..filled], &mut text);
    text.push_str(if filled < wanted { r#"","eof":true}}"# } else { r#"","eof":false}}"# });
    Ok(text)
}

/// Writes a whole block at its place, which has been checked; a gap before it becomes zeros.
///
/// # Errors
/// The operating system's, as EBADF for a handle opened with `read`.
pub(crate) fn write_block(file: impl AsFd, offset: u64, bytes: &[u8]) -> Outcome<()> {
    let mut written = 0;
    while written < bytes.len() {
        match pwrite(&file, &bytes[written..], offset.saturating_add(written as u64)) {
            Ok(0) => return Err(fs_error(std::io::Error::from(std::io::ErrorKind::WriteZero))),
            Ok(count) => written += count,
            Err(Errno::INTR) => {}
            Err(error) => return Err(fs_error(error)),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use legion_protocol::Chunk;
    use proptest::prelude::*;
    use rustix::fs::{CWD, Mode, OFlags, mkfifoat, openat};

    use super::*;

    fn block(file: &OwnedFd, offset: u64, length: u64) -> Outcome<(Vec<u8>, bool)> {
        let text = read_block(file, &RequestId::from(1), offset, length)?;
        let frame: serde_json::Value = serde_json::from_str(&text).unwrap();
        let chunk = Chunk::from_base64(frame["result"]["chunk"].as_str().unwrap()).unwrap().0;
        Ok((chunk, frame["result"]["eof"].as_bool().unwrap()))
    }

    #[test]
    fn handles_have_names_and_there_is_an_end_of_them() {
        let handles = Handles::default();
        let file = || openat(CWD, "/dev/null", OFlags::RDONLY, Mode::empty()).unwrap();
        for index in 0..MAX_FILE_HANDLES {
            handles.check_new(&index.to_string()).unwrap();
            handles.insert(index.to_string(), file());
        }
        assert!(handles.check_new("more").unwrap_err().message.starts_with("at most 128"));
        assert_eq!(handles.check_new("5").unwrap_err().message, "file handle `5` already exists");
        handles.close("5");
        handles.close("5");
        assert_eq!(handles.get("5").unwrap_err().code.number(), -32004);
        handles.check_new("5").unwrap();
        assert!(handles.check_new(&"x".repeat(33)).is_err());
    }

    #[test]
    fn what_is_no_regular_file_is_neither_opened_nor_changed() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        mkfifoat(CWD, &fifo, Mode::from_raw_mode(0o600)).unwrap();
        let message = |path: &Path, mode| open(path, mode).unwrap_err().message;
        assert_eq!(message(Path::new("/dev/null"), OpenMode::Replace), "path `/dev/null` is not a file");
        assert_eq!(message(&fifo, OpenMode::Replace), "No such device or address (os error 6)");
        assert_eq!(message(&fifo, OpenMode::Read), format!("path `{}` is not a file", fifo.display()));
        assert_eq!(message(dir.path(), OpenMode::Replace), "Is a directory (os error 21)");
    }

    #[test]
    fn offsets_beyond_every_file_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = open(&dir.path().join("f"), OpenMode::Replace).unwrap();
        assert_eq!(block(&file, 1 << 63, 1).unwrap_err().message, "Invalid argument (os error 22)");
        for offset in [u64::MAX, 1 << 63, (1 << 63) - 1] {
            let error = check_write_range(offset, 1).unwrap_err();
            assert_eq!(error.message, "file write range exceeds the signed 64-bit file offset limit");
        }
        let error = block(&file, 0, 1).unwrap_err();
        assert_eq!(
            (error.code.number(), error.message.as_str()),
            (-32603, "Bad file descriptor (os error 9)")
        );
    }

    proptest! {
        /// Against a vector: any blocks written in any order, with gaps, read back in any blocks.
        #[test]
        fn blocks_are_windows_of_the_file(
            writes in prop::collection::vec((0u64..300, prop::collection::vec(any::<u8>(), 1..50)), 0..8),
            reads in prop::collection::vec((0u64..400, 1u64..100), 1..8),
        ) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("f");
            let mut model: Vec<u8> = Vec::new();
            let file = open(&path, OpenMode::Replace).unwrap();
            for (offset, bytes) in &writes {
                write_block(&file, *offset, bytes).unwrap();
                let start = usize::try_from(*offset).unwrap();
                model.resize(model.len().max(start + bytes.len()), 0);
                model[start..start + bytes.len()].copy_from_slice(bytes);
            }
            let file = open(&path, OpenMode::Read).unwrap();
            for (offset, length) in reads {
                let (chunk, eof) = block(&file, offset, length).unwrap();
                let start = usize::try_from(offset).unwrap().min(model.len());
                let end = (start + usize::try_from(length).unwrap()).min(model.len());
                prop_assert_eq!(&chunk, &model[start..end]);
                prop_assert_eq!(eof, (chunk.len() as u64) < length);
            }
        }
    }
}
