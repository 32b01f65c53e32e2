//! The caller of a notification: its memory, its descriptors, its working directory and its umask, through `/proc`.
//!
//! Invariant: what is read is one moment's state of a thread that may be killed at any time. Whoever acts on it asks the
//! listener afterwards whether the call still waits: then it was the right thread.

use std::ffi::CString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

/// Longest path, its end included, as for the kernel.
const PATH_BYTES: usize = 4096;

/// Where a read is cut so that it does not cross into a page that is not there.
const PAGE_BYTES: u64 = 4096;

/// A thread that waits for an answer.
#[derive(Debug)]
pub(super) struct Caller {
    thread: u32,
    memory: File,
}

impl Caller {
    /// Opens the memory of a thread.
    ///
    /// # Errors
    /// It may not be looked into: it has made itself undumpable, or the system forbids it.
    pub(super) fn open(thread: u32) -> Result<Self, Errno> {
        let memory =
            openat(CWD, format!("/proc/{thread}/mem"), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self { thread, memory: memory.into() })
    }

    /// A path at an address.
    pub(super) fn path(&self, address: u64) -> Result<CString, Errno> {
        let mut bytes = Vec::new();
        while bytes.len() < PATH_BYTES {
            let at = address.checked_add(bytes.len() as u64).ok_or(Errno::FAULT)?;
            let in_page = usize::try_from(PAGE_BYTES - at % PAGE_BYTES).unwrap_or(PATH_BYTES);
            let mut piece = vec![0; in_page.min(PATH_BYTES - bytes.len()).min(256)];
            let count = self.memory.read_at(&mut piece, at).map_err(|_| Errno::FAULT)?;
            let piece = &piece[..count];
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                bytes.extend_from_slice(&piece[..end]);
                // It has no zero inside: the first one ends it.
                return CString::new(bytes).map_err(|_| Errno::INVAL);
            }
            if count == 0 {
                return Err(Errno::FAULT);
            }
            bytes.extend_from_slice(piece);
        }
        Err(Errno::NAMETOOLONG)
    }

    /// Numbers at an address.
    pub(super) fn words<const N: usize>(&self, address: u64) -> Result<[i64; N], Errno> {
        let mut words = [0; N];
        for (index, word) in (0..).zip(&mut words) {
            let mut bytes = [0; 8];
            let at = address.checked_add(index * 8).ok_or(Errno::FAULT)?;
            self.memory.read_exact_at(&mut bytes, at).map_err(|_| Errno::FAULT)?;
            *word = i64::from_ne_bytes(bytes);
        }
        Ok(words)
    }

    /// The directory that relative paths of a call start from.
    pub(super) fn directory(&self, descriptor: i32) -> Result<OwnedFd, Errno> {
        if descriptor != libc::AT_FDCWD {
            return self.descriptor(descriptor);
        }
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, format!("/proc/{}/cwd", self.thread), flags, Mode::empty())
    }

    /// What one of its descriptors is open on, as a place.
    pub(super) fn descriptor(&self, descriptor: i32) -> Result<OwnedFd, Errno> {
        if descriptor < 0 {
            return Err(Errno::BADF);
        }
        let path = format!("/proc/{}/fd/{descriptor}", self.thread);
        openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| if error == Errno::NOENT { Errno::BADF } else { error })
    }

    /// Its umask, and the process it belongs to.
    fn status(&self) -> Result<(u32, u32), Errno> {
        status_of(&self.thread.to_string())
    }

    /// The bits it does not want new files to have.
    pub(super) fn umask(&self) -> Result<u32, Errno> {
        self.status().map(|(umask, _)| umask)
    }

    /// What `/proc/self` and `/proc/thread-self` are for it.
    pub(super) fn own_directories(&self) -> Result<(String, String), Errno> {
        let (_, process) = self.status()?;
        Ok((format!("/proc/{process}"), format!("/proc/{process}/task/{}", self.thread)))
    }
}

/// The umask of this process.
pub(super) fn own_umask() -> Result<u32, Errno> {
    status_of("thread-self").map(|(umask, _)| umask)
}

fn status_of(name: &str) -> Result<(u32, u32), Errno> {
    let text = std::fs::read(format!("/proc/{name}/status")).map_err(|_| Errno::SRCH)?;
    // The name of a program in it need not be text; the lines looked for are.
    let text = String::from_utf8_lossy(&text);
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let umask = field("Umask:").and_then(|value| u32::from_str_radix(value, 8).ok());
    let process = field("Tgid:").and_then(|value| value.parse().ok());
    umask.zip(process).ok_or(Errno::SRCH)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn myself() -> Caller {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        Caller::open(thread.unsigned_abs()).unwrap()
    }

    #[test]
    fn memory_is_read_to_the_end_of_a_text_and_not_further() {
        let caller = myself();
        let address = |text: &CStr| text.as_ptr().addr() as u64;
        for length in [0, 1, 255, 256, 257, 4000] {
            let text = CString::new("x".repeat(length)).unwrap();
            assert_eq!(caller.path(address(&text)), Ok(text), "{length}");
        }
        let long = CString::new("x".repeat(5000)).unwrap();
        assert_eq!(caller.path(address(&long)), Err(Errno::NAMETOOLONG));
        assert_eq!(caller.path(0), Err(Errno::FAULT));
        assert_eq!(caller.path(u64::MAX), Err(Errno::FAULT));
        let words = [1i64, -2, 3];
        assert_eq!(caller.words::<3>(words.as_ptr().addr() as u64), Ok(words));
        assert_eq!(caller.words::<1>(8), Err(Errno::FAULT));
    }

    #[test]
    fn descriptors_are_those_of_the_caller() {
        let caller = myself();
        assert_eq!(caller.descriptor(-1).unwrap_err(), Errno::BADF);
        assert_eq!(caller.descriptor(1_000_000).unwrap_err(), Errno::BADF);
        assert!(caller.directory(libc::AT_FDCWD).is_ok());
        assert_eq!(caller.umask(), own_umask());
        let (process, thread) = caller.own_directories().unwrap();
        assert_eq!(process, format!("/proc/{}", std::process::id()));
        assert!(thread.starts_with(&process));
    }
}
