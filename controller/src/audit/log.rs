//! Appending to the log. Several controllers of one user may share it: each append holds a file lock, and one who
//! finds the file longer than he left it reads the chain's end anew.
//!
//! Appends are synchronous writes (microseconds into the page cache), so a record is in the file before its call is
//! forwarded; a thread of its own makes them durable, all of a commit window with one `fdatasync`. What became of a call
//! is not waited for: outcomes are deferred and written together, with the next record or at the end of the window.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, Mode, OFlags};

use super::chain::{self, Head};
use super::record::{Event, Record};
use crate::dirs;
use crate::failure::{Failure, Outcome};
use crate::limits::{AUDIT_COMMIT_WINDOW, MAX_DEFERRED_RECORDS, MAX_RECORD_LINE_BYTES};

/// Name of the first file. Rotation will count on.
pub const FILE_NAME: &str = "audit-000001.jsonl";

/// How long another controller may hold the lock; it holds it for one write.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Pause between two tries for the lock: the kernel offers no event one could await with a bound.
const LOCK_RETRY: Duration = Duration::from_micros(200);

/// An open log.
pub struct AuditLog {
    file: File,
    head: Head,
    /// Entries not written yet, without their number, in order.
    deferred: Vec<String>,
    /// Length of the file after our last append.
    length: u64,
    committer: Committer,
}

impl AuditLog {
    /// Opens or creates the log in `dir`.
    pub fn open(dir: &Path, uid: u32) -> Outcome<Self> {
        let path = dir.join(FILE_NAME);
        let fail = |error: io::Error| {
            Failure::config(format_args!("cannot open the audit log {}: {error}", path.display()))
        };
        let opened = dirs::open_private(dir, uid)?;
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(&opened, FILE_NAME, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| fail(error.into()))?;
        let file = File::from(fd);
        let committer = Committer::start(file.try_clone().map_err(fail)?)
            .map_err(|error| Failure::internal(format_args!("cannot start the audit thread: {error}")))?;
        Ok(Self { file, head: Head::default(), deferred: Vec::new(), length: 0, committer })
    }

    /// Writes one record, after all deferred ones, and returns its number.
    ///
    /// # Errors
    /// The record is not in the file, or an earlier one could not be made durable: the caller refuses its call.
    pub fn append(&mut self, record: &Record) -> io::Result<u64> {
        let entry = entry(record)?;
        self.deferred.push(entry);
        let written = self.flush();
        if written.is_err() {
            // Its caller was told; it must not appear later.
            self.deferred.pop();
        }
        written.map(|()| self.head.seq)
    }

    /// Keeps a record to be written with the next one, or by [`Self::flush`]; whether it is time to flush.
    pub fn defer(&mut self, record: &Record) -> io::Result<bool> {
        self.deferred.push(entry(record)?);
        Ok(self.deferred.len() >= MAX_DEFERRED_RECORDS)
    }

    /// Writes what was deferred. What cannot be written stays, and is tried again before anything else.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.committer.failed() {
            return Err(io::Error::other("an earlier record could not be made durable"));
        }
        if self.deferred.is_empty() {
            return Ok(());
        }
        lock(&self.file)?;
        let written = self.catch_up().and_then(|()| self.write_deferred());
        let unlocked = rustix::fs::flock(&self.file, FlockOperation::Unlock).map_err(io::Error::from);
        written.and(unlocked)?;
        self.committer.wake();
        Ok(())
    }

    fn write_deferred(&mut self) -> io::Result<()> {
        let (head, lines) = chained(&self.head, &self.deferred)?;
        self.write_lines(&lines, head)?;
        self.deferred.clear();
        Ok(())
    }

    fn write_lines(&mut self, lines: &str, head: Head) -> io::Result<()> {
        if let Err(error) = self.file.write_all(lines.as_bytes()) {
            // Half a line would spoil the chain for everybody.
            rustix::fs::ftruncate(&self.file, self.length)?;
            return Err(error);
        }
        self.length += lines.len() as u64;
        self.head = head;
        Ok(())
    }

    /// Takes the chain up where the file ends now.
    fn catch_up(&mut self) -> io::Result<()> {
        let length = rustix::fs::fstat(&self.file)?.st_size.unsigned_abs();
        if length == self.length {
            return Ok(());
        }
        let start = length.saturating_sub(MAX_RECORD_LINE_BYTES as u64 * 2);
        self.file.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        (&self.file).take(length - start).read_to_end(&mut tail)?;
        let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let torn = tail.split_off(whole);
        let last = tail.strip_suffix(b"\n").unwrap_or(&tail);
        let last = &last[last.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)..];
        self.length = length - torn.len() as u64;
        self.head = if last.is_empty() && start == 0 { Head::default() } else { head_of(last)? };
        if torn.is_empty() {
            return Ok(());
        }
        rustix::fs::ftruncate(&self.file, self.length)?;
        let hash = ring::digest::digest(&ring::digest::SHA256, &torn);
        let what = format!("{} bytes cut, sha256 {}", torn.len(), chain::hex(hash.as_ref()));
        let (head, line) = chained(&self.head, &[entry(&Record::new(Event::TornTail).because(what))?])?;
        self.write_lines(&line, head)
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        if let Err(error) = self.flush() {
            tracing::error!(%error, "the last records are lost");
        }
    }
}

/// A record's text without its number: the time comes first, the opening brace with the number is added when it is
/// written.
fn entry(record: &Record) -> io::Result<String> {
    let body = serde_json::to_string(record)?;
    // `body` is an object with at least one member.
    Ok(format!("\"time\":\"{:.3}\",{}", Timestamp::now(), &body[1..]))
}

/// The lines of entries after a head, and the new head.
fn chained(head: &Head, entries: &[String]) -> io::Result<(Head, String)> {
    let mut head = head.clone();
    let mut lines = String::new();
    for rest in entries {
        let seq = head.seq + 1;
        let entry = format!("{{\"seq\":{seq},{rest}");
        let hash = chain::link(&head.hash, &entry);
        let line = chain::line(&entry, &head.hash, &hash);
        if line.len() > MAX_RECORD_LINE_BYTES {
            return Err(io::Error::other(format!("a record of {} bytes is too long", line.len())));
        }
        lines.push_str(&line);
        head = Head { seq, hash };
    }
    Ok((head, lines))
}

fn head_of(line: &[u8]) -> io::Result<Head> {
    let spoiled = |why: String| {
        io::Error::other(format!(
            "the last line of the audit log is spoiled ({why}): move the file away and look at it"
        ))
    };
    let text = std::str::from_utf8(line).map_err(|error| spoiled(error.to_string()))?;
    let line = chain::Line::parse(text).map_err(spoiled)?;
    Ok(Head { seq: line.seq().map_err(spoiled)?, hash: line.h.to_owned() })
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

/// The thread that makes records durable.
struct Committer {
    wake: Option<SyncSender<()>>,
    state: Arc<CommitState>,
    thread: Option<std::thread::JoinHandle<()>>,
}

#[derive(Default)]
struct CommitState {
    /// A commit that covers everything written until now is on its way.
    due: AtomicBool,
    failed: AtomicBool,
}

impl Committer {
    fn start(file: File) -> io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let state = Arc::<CommitState>::default();
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("audit-commit".into()).spawn(move || {
            commit_loop(&file, &woken, &shared);
        })?;
        Ok(Self { wake: Some(wake), state, thread: Some(thread) })
    }

    /// Asks for a commit; costs a system call only when none is due.
    fn wake(&self) {
        if !self.state.due.swap(true, Ordering::AcqRel) {
            // A full channel already holds the wake-up this record needs.
            let _ = self.wake.as_ref().map(|wake| wake.try_send(()));
        }
    }

    fn failed(&self) -> bool {
        self.state.failed.load(Ordering::Relaxed)
    }
}

fn commit_loop(file: &File, woken: &Receiver<()>, state: &CommitState) {
    while woken.recv().is_ok() {
        // Let the window fill; the end of the program cuts it short.
        let closing = matches!(woken.recv_timeout(AUDIT_COMMIT_WINDOW), Err(RecvTimeoutError::Disconnected));
        // What is written from here on needs a commit of its own.
        state.due.store(false, Ordering::Release);
        if let Err(error) = file.sync_data() {
            tracing::error!(%error, "the audit log cannot be made durable; new calls are refused");
            state.failed.store(true, Ordering::Relaxed);
        }
        if closing {
            return;
        }
    }
}

impl Drop for Committer {
    /// Everything written is durable before the program ends.
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::read;

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    fn record() -> Record {
        Record::new(Event::Call).of_session("abcdefgh")
    }

    #[test]
    fn two_writers_share_one_chain() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("audit");
        let mut one = AuditLog::open(&dir, uid()).unwrap();
        let mut two = AuditLog::open(&dir, uid()).unwrap();
        for round in 0..50 {
            assert_eq!(one.append(&record()).unwrap(), round * 2 + 1);
            assert_eq!(two.append(&record()).unwrap(), round * 2 + 2);
        }
        assert_eq!(read::verify(&dir).unwrap().seq, 100);
    }

    #[test]
    fn threads_and_reopening_lose_no_record() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("audit");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut log = AuditLog::open(&dir, uid()).unwrap();
                    (0..100).for_each(|_| {
                        log.append(&record()).unwrap();
                    });
                });
            }
        });
        assert_eq!(read::verify(&dir).unwrap().seq, 400);
    }

    #[test]
    fn deferred_records_keep_their_place_and_are_not_lost() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("audit");
        let mut log = AuditLog::open(&dir, uid()).unwrap();
        assert_eq!(log.append(&record()).unwrap(), 1);
        log.defer(&record().because("first")).unwrap();
        log.defer(&record().because("second")).unwrap();
        assert_eq!(log.append(&record()).unwrap(), 4);
        log.defer(&record()).unwrap();
        drop(log);
        assert_eq!(read::verify(&dir).unwrap().seq, 5);
        let text = std::fs::read_to_string(dir.join(FILE_NAME)).unwrap();
        assert!(text.find("first").unwrap() < text.find("second").unwrap());
    }

    #[test]
    fn a_torn_tail_is_cut_and_told() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("audit");
        AuditLog::open(&dir, uid()).unwrap().append(&record()).unwrap();
        let path = dir.join(FILE_NAME);
        std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"e\":{\"seq\":2,")
            .unwrap();
        assert!(read::verify(&dir).is_err());
        assert_eq!(AuditLog::open(&dir, uid()).unwrap().append(&record()).unwrap(), 3);
        assert_eq!(read::verify(&dir).unwrap().seq, 3);
        assert!(std::fs::read_to_string(&path).unwrap().contains("\"tornTail\""));
    }

    #[test]
    fn a_spoiled_last_line_stops_work_instead_of_starting_a_new_chain() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("audit");
        AuditLog::open(&dir, uid()).unwrap().append(&record()).unwrap();
        std::fs::OpenOptions::new()
            .append(true)
            .open(dir.join(FILE_NAME))
            .unwrap()
            .write_all(b"junk\n")
            .unwrap();
        let error = AuditLog::open(&dir, uid()).unwrap().append(&record()).unwrap_err();
        assert!(error.to_string().contains("spoiled"), "{error}");
    }
}
