//! Appending to the log. Several controllers of one user may share it: each append holds a lock, and one who finds the
//! head kept outside changed takes the chain up where it ends now.
//!
//! Appends are synchronous writes (microseconds into the page cache), so a record is in the file before its call is
//! forwarded; a thread of its own makes them durable. What became of a call is not waited for: outcomes are deferred
//! and written together, with the next record or at the end of the window.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::OFlags;

use super::anchor::{Anchor, Anchored};
use super::batch::{Batch, Lines, entry};
use super::chain::Head;
use super::checkpoint::Signer;
use super::clock::Moment;
use super::commit::Committer;
use super::files::Identity;
use super::forward::Forwarder;
use super::mark::{Mark, Rotation};
use super::record::{Event, Record};
use super::recover::{self, End};
use super::{DIRECTORY, files, keys};
use crate::config::AuditOptions;
use crate::dirs;
use crate::failure::{Failure, Outcome};
use crate::limits::{LOSS_INTERVAL, MAX_DEFERRED_RECORDS, MAX_KEPT_RECORD_BYTES, MAX_KEPT_RECORDS};

/// An open log.
pub struct AuditLog {
    dir: OwnedFd,
    number: u32,
    file: Arc<File>,
    identity: Identity,
    /// Length of the file after our last append.
    length: u64,
    head: Head,
    /// Number of the last checkpoint.
    signed: u64,
    /// Entries about the log itself, to be written first.
    findings: Vec<(Event, String)>,
    /// The chain could not be taken up where it ends: `head` is not its end.
    is_stale: bool,
    /// Entries not written yet, without their number, in order.
    deferred: Vec<String>,
    /// Records that could not be kept.
    lost: u64,
    /// When losses were told last.
    told: Option<Moment>,
    last: Moment,
    now: fn() -> Moment,
    anchor: Anchor,
    signer: Signer,
    options: AuditOptions,
    committer: Committer,
    forwarder: Option<Forwarder>,
}

impl AuditLog {
    /// Opens or creates the log of a state directory.
    pub fn open(state: &Path, uid: u32, options: &AuditOptions) -> Outcome<Self> {
        let path = state.join(DIRECTORY);
        let fail = |error: io::Error| {
            Failure::config(format_args!("cannot open the audit log in {}: {error}", path.display()))
        };
        let dir = dirs::open_private(&path, uid)?;
        let mut anchor = Anchor::open(dirs::open_private(state, uid)?).map_err(fail)?;
        anchor.lock().map_err(fail)?;
        let signer = keys::open_or_make(state, uid);
        let found = anchor.is_news().and_then(|_| recover::end(&dir, anchor.says().as_ref()));
        let behind = recover::clock_behind(&dir, Moment::now());
        anchor.unlock().map_err(fail)?;
        let End { number, file, length, head, signed, mut findings } = found.map_err(fail)?;
        findings.extend(behind.map_err(fail)?);
        let identity = Identity::of(&file).map_err(fail)?;
        let file = Arc::new(file);
        let committer =
            Committer::start(Arc::clone(&file), anchor.try_clone().map_err(fail)?).map_err(fail)?;
        let forwarder = options.syslog.clone().map(Forwarder::start).transpose().map_err(fail)?;
        let mut log = Self {
            dir,
            number,
            file,
            identity,
            length,
            head,
            signed,
            findings: Vec::new(),
            is_stale: false,
            deferred: Vec::new(),
            lost: 0,
            told: None,
            last: Moment::now(),
            now: Moment::now,
            anchor,
            signer: signer?,
            options: options.clone(),
            committer,
            forwarder,
        };
        log.found(&findings).map_err(fail)?;
        Ok(log)
    }

    /// Writes one record, after all deferred ones, and returns its number.
    ///
    /// # Errors
    /// The record is not in the file, or an earlier one could not be made durable: the caller refuses its call.
    pub fn append(&mut self, record: &Record) -> io::Result<u64> {
        self.push(record)?;
        let written = self.flush();
        if written.is_err() {
            // Its caller was told; it must not appear later.
            self.deferred.pop();
        }
        written.map(|()| self.head.seq)
    }

    /// Keeps a record to be written with the next one, or by [`Self::flush`]; whether it is time to flush.
    ///
    /// # Errors
    /// It is too long, or nothing could be written for so long that there is no more room: it is counted as lost.
    pub fn defer(&mut self, record: &Record) -> io::Result<bool> {
        let room = if self.is_full() { self.flush() } else { Ok(()) };
        room.and_then(|()| self.push(record)).inspect_err(|_| self.lost += 1)?;
        Ok(self.deferred.len() >= MAX_DEFERRED_RECORDS)
    }

    fn is_full(&self) -> bool {
        let bytes = || self.deferred.iter().map(String::len).sum::<usize>();
        self.deferred.len() >= MAX_KEPT_RECORDS || bytes() >= MAX_KEPT_RECORD_BYTES
    }

    #[cfg(test)]
    pub fn use_clock(&mut self, now: fn() -> Moment) {
        (self.now, self.last) = (now, now());
    }

    fn push(&mut self, record: &Record) -> io::Result<()> {
        let now = (self.now)();
        if let Some(jump) = now.jump_since(&self.last) {
            self.deferred.push(entry(&Record::new(Event::ClockJumped).because(jump), now)?);
        }
        self.last = now;
        self.push_losses(now)?;
        self.deferred.push(entry(record, now)?);
        Ok(())
    }

    /// Says how many records were lost, now and then.
    fn push_losses(&mut self, now: Moment) -> io::Result<()> {
        let is_recent = |told: Moment| now.uptime_ms - told.uptime_ms < LOSS_INTERVAL;
        if self.told.is_some_and(is_recent) {
            return Ok(());
        }
        let unsent = self.forwarder.as_ref().map_or(0, Forwarder::take_dropped);
        for (count, why) in [
            (std::mem::take(&mut self.lost), "they could not be written"),
            (unsent, "they are here, but were not sent to syslog"),
        ] {
            if count > 0 {
                self.told = Some(now);
                let mut record = Record::new(Event::RecordsLost).because(why);
                record.dropped = Some(count);
                self.deferred.push(entry(&record, now)?);
            }
        }
        Ok(())
    }

    /// Whether some records have no checkpoint after them.
    pub fn is_unsigned(&self) -> bool {
        self.head.seq > self.signed
    }

    /// Signs what was written since the last checkpoint.
    pub fn checkpoint(&mut self) -> io::Result<()> {
        self.write(true)
    }

    /// Writes what was deferred. What cannot be written stays, and is tried again before anything else.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.deferred.is_empty() { Ok(()) } else { self.write(false) }
    }

    fn write(&mut self, sign: bool) -> io::Result<()> {
        if self.committer.failed() {
            return Err(io::Error::other("an earlier record could not be made durable"));
        }
        self.anchor.lock()?;
        let written = self.catch_up().and_then(|()| self.write_locked(sign));
        let unlocked = self.anchor.unlock();
        written.and(unlocked)?;
        self.committer.wake();
        Ok(())
    }

    /// Takes the chain up where it ends now, if that is not where we left it.
    fn catch_up(&mut self) -> io::Result<()> {
        // By name: the file may have been moved away, and another may have its name.
        let here = files::find(&self.dir, self.number)?.filter(|(identity, _)| *identity == self.identity);
        let length = here.map(|(_, length)| length).filter(|_| !self.is_stale);
        let news = self.anchor.is_news()?;
        if !news && length == Some(self.length) {
            return Ok(());
        }
        match (self.anchor.says(), length) {
            // Another controller has written to the same file, and that is all.
            (Some(anchored), Some(length))
                if news && anchored.file == self.number && anchored.size == length =>
            {
                (self.head, self.signed, self.length) = (anchored.head(), anchored.signed, length);
                self.forget_told();
                Ok(())
            }
            _ => self.recover(),
        }
    }

    /// Finds the end of the chain anew.
    fn recover(&mut self) -> io::Result<()> {
        self.is_stale = true;
        let end = recover::end(&self.dir, self.anchor.says().as_ref())?;
        if Identity::of(&end.file)? != self.identity {
            self.committer.commit_now(&self.file)?;
            self.take_file(end.number, end.file)?;
        }
        (self.head, self.signed, self.length) = (end.head, end.signed, end.length);
        self.forget_told();
        self.found(&end.findings)?;
        self.is_stale = false;
        Ok(())
    }

    /// Drops findings that whoever wrote since has recorded, or that are found again: only what we cut nobody else saw.
    fn forget_told(&mut self) {
        self.findings.retain(|(event, _)| *event == Event::TornTail);
    }

    fn found(&mut self, findings: &[Record]) -> io::Result<()> {
        for finding in findings {
            tracing::warn!(event = ?finding.event, "the audit log: {}", finding.reason.as_deref().unwrap_or_default());
            // A gap fits only right after the records before it.
            let at = if finding.event == Event::Gap { 0 } else { self.findings.len() };
            self.findings.insert(at, (finding.event, entry(finding, (self.now)())?));
        }
        Ok(())
    }

    /// Whether what was found hangs on the head kept outside: until it is recorded that head stays, to be found again.
    fn is_in_doubt(&self) -> bool {
        let hangs = |event: &Event| matches!(event, Event::Gap | Event::Unconfirmed | Event::HeadLost);
        self.findings.iter().any(|(event, _)| hangs(event))
    }

    /// Goes on in another file. What the one before holds must be durable.
    fn take_file(&mut self, number: u32, file: File) -> io::Result<()> {
        self.identity = Identity::of(&file)?;
        self.number = number;
        self.file = Arc::new(file);
        self.length = 0;
        self.committer.follow(Arc::clone(&self.file));
        Ok(())
    }

    /// Tells outside where a chain with this end ends.
    fn tell(&mut self, head: &Head, signed: u64, size: u64) -> io::Result<()> {
        let Head { seq, hash } = head.clone();
        self.anchor.write(&Anchored { seq, hash, file: self.number, size, signed })
    }

    fn write_locked(&mut self, sign: bool) -> io::Result<()> {
        let mut batch = self.batch(sign)?;
        let is_full = self.length + batch.text.len() as u64 > self.options.file_bytes;
        if self.length > 0 && is_full && !self.is_in_doubt() {
            self.rotate()?;
            batch = self.batch(sign)?;
        }
        if batch.text.is_empty() {
            return Ok(());
        }
        let is_told = self.anchor.says().is_some_and(|anchored| anchored.file == self.number);
        if !is_told && !self.is_in_doubt() {
            // Before anything is in a new file everybody must know of it: who did not would write on in the one before.
            self.tell(&self.head.clone(), self.signed, self.length).map_err(plainly)?;
        }
        let length = self.length + batch.text.len() as u64;
        let written = (&*self.file).write_all(batch.text.as_bytes()).and_then(|()| {
            if self.options.sync_always {
                self.committer.commit_now(&self.file)?;
            }
            self.tell(&batch.head, batch.signed, length)
        });
        if let Err(error) = written {
            // Half a line would spoil the chain for everybody.
            rustix::fs::ftruncate(&self.file, self.length)?;
            return Err(plainly(error));
        }
        if let Some(forwarder) = &self.forwarder {
            batch.text.split_inclusive('\n').for_each(|line| forwarder.send(line));
        }
        (self.length, self.head, self.signed) = (length, batch.head, batch.signed);
        self.findings.clear();
        self.deferred.clear();
        Ok(())
    }

    /// Everything there is to write, as lines after the head.
    fn batch(&self, sign: bool) -> io::Result<Lines> {
        let now = (self.now)();
        let mut batch = Batch::new(&self.signer, now, self.head.clone(), self.signed);
        // A file begins with its rotation, or with a gap.
        let is_gap = |(event, _): &(Event, String)| *event == Event::Gap;
        let (gap, others) = self.findings.split_at(usize::from(self.findings.first().is_some_and(is_gap)));
        for (_, entry) in gap {
            batch.begin(entry);
        }
        if self.length == 0 && self.number > 1 {
            let Head { seq, hash } = self.head.clone();
            let rotation = Rotation { file: files::name(self.number - 1), seq, head: hash };
            batch.begin(&entry(&Record::new(Event::LogRotated).marked(Mark::Rotation(rotation)), now)?);
        }
        for (_, entry) in others {
            batch.begin(entry);
        }
        for entry in &self.deferred {
            batch.add(entry)?;
        }
        batch.finish(sign)
    }

    fn rotate(&mut self) -> io::Result<()> {
        self.committer.commit_now(&self.file)?;
        let file = files::open(self.dir.as_fd(), self.number + 1, OFlags::CREATE)?;
        rustix::fs::fsync(&self.dir)?;
        if files::length(&file)? > 0 {
            // Somebody made it before us and ended before the head kept outside told of it.
            return self.recover();
        }
        self.take_file(self.number + 1, file)
    }
}

/// Says what to do where the user can do something.
fn plainly(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            let text = format!("there is no room for it, free some where the audit log is kept ({error})");
            io::Error::new(error.kind(), text)
        }
        _ => error,
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        if let Err(error) = self.checkpoint() {
            let kept = self.deferred.len() as u64 + self.lost;
            tracing::error!(%error, "the end of the audit log is not signed, and {kept} records are lost");
        }
    }
}
