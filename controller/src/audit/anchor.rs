//! The head kept in a second place, outside the log's directory: what shows that the end of the log was cut off. Its
//! file is also the lock of those who write.
//!
//! Invariant: who holds the lock sees a whole line; it is written after the records it tells of.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::chain::Head;

/// Its name in the state directory.
pub const NAME: &str = "audit.head";

/// Length of its one line: what is written is always the same piece of one page.
const LINE: usize = 256;

/// How long another controller may hold the lock; it holds it for one write.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause between two tries for the lock: the kernel offers no event one could await with a bound.
const LOCK_RETRY: Duration = Duration::from_micros(200);

/// Where the log ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Anchored {
    /// Number of the last record.
    pub seq: u64,
    /// Its hash.
    pub hash: String,
    /// Number of the file it is in.
    pub file: u32,
    /// Length of that file.
    pub size: u64,
    /// Number of the last checkpoint.
    pub signed: u64,
}

impl Anchored {
    /// The chain's end.
    pub fn head(&self) -> Head {
        Head { seq: self.seq, hash: self.hash.clone() }
    }

    fn line(&self) -> io::Result<Vec<u8>> {
        let mut line = serde_json::to_vec(self)?;
        if line.len() >= LINE {
            return Err(io::Error::other("the head of the audit log does not fit its line"));
        }
        line.resize(LINE - 1, b' ');
        line.push(b'\n');
        Ok(line)
    }
}

/// The open file.
pub struct Anchor {
    file: File,
    /// What we have read or written last.
    known: Vec<u8>,
}

impl Anchor {
    /// Opens it, or makes it.
    pub fn open(state: impl AsFd) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(state, NAME, flags, Mode::RUSR | Mode::WUSR)?);
        Ok(Self { file, known: Vec::new() })
    }

    /// Opens the one of `state` to read it; `None` when there is none.
    pub fn find(state: &Path) -> io::Result<Option<Self>> {
        match File::open(state.join(NAME)) {
            Ok(file) => Ok(Some(Self { file, known: Vec::new() })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until nobody else writes, and keeps it so.
    pub fn lock(&self) -> io::Result<()> {
        lock(&self.file)
    }

    /// Lets others write.
    pub fn unlock(&self) -> io::Result<()> {
        Ok(rustix::fs::flock(&self.file, FlockOperation::Unlock)?)
    }

    /// A second descriptor of the same lock.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()?, known: Vec::new() })
    }

    /// Whether somebody else has written it since we last did.
    pub fn is_news(&mut self) -> io::Result<bool> {
        let mut now = [0; LINE];
        let mut count = 0;
        while count < LINE {
            match self.file.read_at(&mut now[count..], count as u64)? {
                0 => break,
                read => count += read,
            }
        }
        let news = now[..count] != self.known;
        if news {
            self.known = now[..count].to_vec();
        }
        Ok(news)
    }

    /// What it says as far as [`Self::is_news`] has looked; `None` when that is nothing or no sense.
    pub fn says(&self) -> Option<Anchored> {
        serde_json::from_slice(&self.known).ok()
    }

    /// Writes it.
    pub fn write(&mut self, anchored: &Anchored) -> io::Result<()> {
        let line = anchored.line()?;
        self.file.write_all_at(&line, 0)?;
        self.known = line;
        Ok(())
    }

    /// Makes it durable.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

fn lock(file: &File) -> io::Result<()> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                let pause =
                    rustix::time::Timespec { tv_sec: 0, tv_nsec: i64::from(LOCK_RETRY.subsec_nanos()) };
                let _ = rustix::thread::nanosleep(&pause);
            }
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(io::Error::other("another process has held the audit log locked for too long"));
            }
            Err(error) => return Err(error.into()),
        }
    }
}
