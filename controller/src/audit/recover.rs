//! Finding the end of the log: at start, and when somebody else has written. What is there is held against the head
//! kept outside; what does not fit becomes records of its own.
//!
//! Invariant: nothing complete is ever removed; a number is never given twice; where nothing fits, work stops, and then
//! nothing at all has been changed.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use jiff::Timestamp;
use ring::digest;
use rustix::fs::OFlags;
use serde::Deserialize;

use super::anchor::{Anchored, NAME as ANCHOR};
use super::chain::{self, Head, Line};
use super::clock::Moment;
use super::files;
use super::mark::{Mark, Range};
use super::read::LineReader;
use super::record::{Event, Record};
use crate::limits::{AUDIT_TAIL_BYTES, MAX_RECORD_LINE_BYTES};

/// Where the next record goes.
pub struct End {
    /// Number of the file.
    pub number: u32,
    /// The file.
    pub file: File,
    /// Its length.
    pub length: u64,
    /// The chain's end.
    pub head: Head,
    /// Number of the last checkpoint.
    pub signed: u64,
    /// What did not fit, to be recorded first.
    pub findings: Vec<Record>,
}

/// Finds the end. The caller holds the lock.
pub fn end(dir: &OwnedFd, anchored: Option<&Anchored>) -> io::Result<End> {
    let numbers = files::list(dir)?;
    let Some(anchored) = anchored else { return without_anchor(dir.as_fd(), &numbers) };
    let mut end = End::open(dir.as_fd(), &numbers, anchored.file)?;
    (end.head, end.signed) = (anchored.head(), anchored.signed);
    let mut torn = Vec::from_iter(end.find_torn()?);
    if end.length < anchored.size {
        end.missing(dir.as_fd(), &numbers, anchored)?;
    } else {
        let last = if anchored.size > 0 { last_line(&end.file, anchored.size)? } else { None };
        if anchored.size > 0 && last.is_none_or(|line| line.h != anchored.hash) {
            let record = anchored.seq;
            end.find(Event::Unconfirmed, record, record, "the record is not the one that was written last");
        }
        end.unknown(dir.as_fd(), &numbers, anchored, &mut torn)?;
    }
    torn.iter().try_for_each(Torn::cut)?;
    Ok(end)
}

/// What the last record says that was found in these files, if it says that the clock has been set back since.
pub fn clock_behind(dir: &OwnedFd, now: Moment) -> io::Result<Option<Record>> {
    let last = last_of(dir.as_fd(), files::list(dir)?.into_iter())?;
    let behind = last.and_then(|line| line.time).and_then(|time| now.behind(time));
    Ok(behind.map(|why| Record::new(Event::ClockJumped).because(why)))
}

/// Half a line at the end of a file: it was never complete, so nobody has acted on it.
struct Torn {
    file: File,
    /// Length without it.
    whole: u64,
}

impl Torn {
    fn cut(&self) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&self.file, self.whole)?)
    }
}

impl End {
    /// The end of a file that is there, or is made, before anything is known of its chain.
    fn open(dir: BorrowedFd<'_>, numbers: &[u32], number: u32) -> io::Result<Self> {
        let is_new = !numbers.contains(&number);
        let file = files::open(dir, number, if is_new { OFlags::CREATE } else { OFlags::empty() })?;
        if is_new {
            rustix::fs::fsync(dir)?;
        }
        let length = files::length(&file)?;
        Ok(Self { number, file, length, head: Head::default(), signed: 0, findings: Vec::new() })
    }

    fn find(&mut self, event: Event, from: u64, to: u64, why: &str) {
        let range = Range { from, to, after: None };
        self.findings.push(Record::new(event).because(why).marked(Mark::Range(range)));
    }

    /// The file is shorter than it was: from where on are records missing?
    fn missing(&mut self, dir: BorrowedFd<'_>, numbers: &[u32], anchored: &Anchored) -> io::Result<()> {
        let last = last_of(dir, numbers.iter().copied().filter(|number| *number <= self.number))?;
        let last = last.map_or_else(Head::default, LastLine::head);
        if last.seq >= anchored.seq {
            let why = "the file is shorter than it was, though its last record is there";
            self.find(Event::Unconfirmed, anchored.seq, anchored.seq, why);
            return Ok(());
        }
        // The chain goes on from the head that was kept: no number is given twice.
        let range = Range { from: last.seq + 1, to: anchored.seq, after: Some(last.hash) };
        let why = format!("records {} to {} had been written and are missing", range.from, range.to);
        self.findings.insert(0, Record::new(Event::Gap).because(why).marked(Mark::Range(range)));
        Ok(())
    }

    /// Takes up what lies behind the head that was kept: a controller was killed before it could tell, or somebody else
    /// has written there.
    fn unknown(
        &mut self,
        dir: BorrowedFd<'_>,
        numbers: &[u32],
        anchored: &Anchored,
        torn: &mut Vec<Torn>,
    ) -> io::Result<()> {
        let mut from = anchored.size;
        let later = numbers.iter().copied().filter(|number| *number > anchored.file);
        for number in std::iter::once(anchored.file).chain(later) {
            if number != self.number {
                self.file = files::open(dir, number, OFlags::empty())?;
                self.number = number;
                self.length = files::length(&self.file)?;
                from = 0;
                torn.extend(self.find_torn()?);
            }
            if self.length > from {
                self.take_up(from)?;
            }
        }
        if self.head.seq > anchored.seq {
            let why = format!("the head kept in {ANCHOR} does not know them");
            self.find(Event::Unconfirmed, anchored.seq + 1, self.head.seq, &why);
        }
        Ok(())
    }

    fn take_up(&mut self, from: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(from))?;
        let file = self.file.try_clone()?;
        let mut lines = LineReader::new(file.take(self.length - from));
        while lines.advance()? {
            let followed = Line::parse(lines.line()?).and_then(|line| {
                let marked = line.marked()?;
                Ok((self.head.follow(&line, &marked)?, marked.event == "checkpoint"))
            });
            let (head, is_checkpoint) = followed.map_err(|why| spoiled(self.number, &why))?;
            if is_checkpoint {
                self.signed = head.seq;
            }
            self.head = head;
        }
        Ok(())
    }

    /// Finds half a line at the end of the file. The end is before it.
    fn find_torn(&mut self) -> io::Result<Option<Torn>> {
        let tail = tail(&self.file, self.length, 1)?;
        let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let torn = &tail[whole..];
        if torn.is_empty() {
            return Ok(None);
        }
        if torn.len() > MAX_RECORD_LINE_BYTES {
            return Err(spoiled(self.number, "its end is no record"));
        }
        self.length -= torn.len() as u64;
        let hash = digest::digest(&digest::SHA256, torn);
        let what = format!("{} bytes cut, sha256 {}", torn.len(), chain::hex(hash.as_ref()));
        self.findings.push(Record::new(Event::TornTail).because(what));
        Ok(Some(Torn { file: self.file.try_clone()?, whole: self.length }))
    }
}

/// Nothing tells where the log ended: it ends where it ends, and that is said.
fn without_anchor(dir: BorrowedFd<'_>, numbers: &[u32]) -> io::Result<End> {
    let number = numbers.last().copied().unwrap_or(1);
    let mut end = End::open(dir, numbers, number)?;
    let torn = end.find_torn()?;
    if let Some(last) = last_of(dir, numbers.iter().copied())? {
        end.head = last.head();
        let why = format!("{ANCHOR} is missing: whether the end of the log was cut off cannot be told");
        end.find(Event::HeadLost, end.head.seq, end.head.seq, &why);
    }
    torn.iter().try_for_each(Torn::cut)?;
    Ok(end)
}

/// The last whole record of the last of these files that has one.
fn last_of(
    dir: BorrowedFd<'_>,
    numbers: impl DoubleEndedIterator<Item = u32>,
) -> io::Result<Option<LastLine>> {
    for number in numbers.rev() {
        let file = files::open(dir, number, OFlags::empty())?;
        let length = files::length(&file)?;
        let last = last_line(&file, length)?;
        if last.is_some() {
            return Ok(last);
        }
    }
    Ok(None)
}

/// What the last line of a file says.
struct LastLine {
    seq: u64,
    h: String,
    time: Option<Timestamp>,
}

impl LastLine {
    fn head(self) -> Head {
        Head { seq: self.seq, hash: self.h }
    }
}

/// The time in a record.
#[derive(Deserialize)]
struct Timed {
    time: Timestamp,
}

/// The last whole line that ends at `end`; `None` when there is none.
fn last_line(file: &File, end: u64) -> io::Result<Option<LastLine>> {
    let tail = tail(file, end, 2)?;
    let Some(end) = tail.iter().rposition(|byte| *byte == b'\n') else { return Ok(None) };
    let start = tail[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |feed| feed + 1);
    let parse = || -> Result<LastLine, String> {
        let text = std::str::from_utf8(&tail[start..end]).map_err(|error| error.to_string())?;
        let line = Line::parse(text)?;
        let time = serde_json::from_str::<Timed>(line.e.get()).ok().map(|timed| timed.time);
        Ok(LastLine { seq: line.marked()?.seq, h: line.h.to_owned(), time })
    };
    parse().map(Some).map_err(|why| {
        io::Error::other(format!("its last line is spoiled ({why}): move the file away and look at it"))
    })
}

/// Enough of what precedes `end` to hold so many line feeds, if there are as many near enough.
fn tail(file: &File, end: u64, feeds: usize) -> io::Result<Vec<u8>> {
    let longest = MAX_RECORD_LINE_BYTES as u64 * 2;
    let mut size = AUDIT_TAIL_BYTES;
    loop {
        let start = end.saturating_sub(size);
        let mut tail = vec![0; usize::try_from(end - start).map_err(io::Error::other)?];
        file.read_exact_at(&mut tail, start)?;
        if start == 0 || size >= longest || memchr::memchr_iter(b'\n', &tail).count() >= feeds {
            return Ok(tail);
        }
        size = longest.min(size * 8);
    }
}

fn spoiled(number: u32, why: &str) -> io::Error {
    let name = files::name(number);
    io::Error::other(format!("the end of {name} is spoiled ({why}): move the file away and look at it"))
}
