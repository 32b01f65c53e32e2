//! Finding the end of the log: at start, and when somebody else has written. What is there is held against the head
//! kept outside; what does not fit becomes records of its own.
//!
//! Invariant: nothing complete is ever removed; a number is never given twice; where nothing fits, work stops.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ring::digest;
use rustix::fs::OFlags;

use super::anchor::{Anchored, NAME as ANCHOR};
use super::chain::{self, Head, Line};
use super::files;
use super::mark::{Mark, Range};
use super::read::LineReader;
use super::record::{Event, Record};
use crate::limits::MAX_RECORD_LINE_BYTES;

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
    let number = anchored.file;
    let found = numbers.contains(&number);
    let file = files::open(dir.as_fd(), number, if found { OFlags::empty() } else { OFlags::CREATE })?;
    let length = files::length(&file)?;
    let head = anchored.head();
    let mut end = End { number, file, length, head, signed: anchored.signed, findings: Vec::new() };
    if length < anchored.size {
        end.missing(dir.as_fd(), &numbers, anchored)?;
        return Ok(end);
    }
    if anchored.size > 0 && last_line(&end.file, anchored.size)?.is_none_or(|line| line.h != anchored.hash) {
        let record = anchored.seq;
        end.find(Event::Unconfirmed, record, record, "the record is not the one that was written last");
    }
    end.unknown(dir.as_fd(), &numbers, anchored)?;
    Ok(end)
}

impl End {
    fn find(&mut self, event: Event, from: u64, to: u64, why: &str) {
        let range = Range { from, to, after: None };
        self.findings.push(Record::new(event).because(why).marked(Mark::Range(range)));
    }

    /// The file is shorter than it was: from where on are records missing?
    fn missing(&mut self, dir: BorrowedFd<'_>, numbers: &[u32], anchored: &Anchored) -> io::Result<()> {
        self.cut_torn()?;
        let last = last_of(dir, numbers.iter().copied().filter(|number| *number <= self.number))?;
        let last = last.map_or_else(Head::default, |(_, _, head)| head);
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
    fn unknown(&mut self, dir: BorrowedFd<'_>, numbers: &[u32], anchored: &Anchored) -> io::Result<()> {
        let mut from = anchored.size;
        let later = numbers.iter().copied().filter(|number| *number > anchored.file);
        for number in std::iter::once(anchored.file).chain(later) {
            if number != self.number {
                self.file = files::open(dir, number, OFlags::empty())?;
                self.number = number;
                self.length = files::length(&self.file)?;
                from = 0;
            }
            self.cut_torn()?;
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

    /// Cuts half a line off the end of the file: it was never complete, so nobody has acted on it.
    fn cut_torn(&mut self) -> io::Result<()> {
        let tail = tail(&self.file, self.length)?;
        let whole = tail.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let torn = &tail[whole..];
        if torn.is_empty() {
            return Ok(());
        }
        if torn.len() > MAX_RECORD_LINE_BYTES {
            return Err(spoiled(self.number, "its end is no record"));
        }
        self.length -= torn.len() as u64;
        rustix::fs::ftruncate(&self.file, self.length)?;
        let hash = digest::digest(&digest::SHA256, torn);
        let what = format!("{} bytes cut, sha256 {}", torn.len(), chain::hex(hash.as_ref()));
        self.findings.push(Record::new(Event::TornTail).because(what));
        Ok(())
    }
}

/// Nothing tells where the log ended: it ends where it ends, and that is said.
fn without_anchor(dir: BorrowedFd<'_>, numbers: &[u32]) -> io::Result<End> {
    let number = numbers.last().copied().unwrap_or(1);
    let file = files::open(dir, number, OFlags::CREATE)?;
    let length = files::length(&file)?;
    let mut end = End { number, file, length, head: Head::default(), signed: 0, findings: Vec::new() };
    end.cut_torn()?;
    if let Some((_, _, head)) = last_of(dir, numbers.iter().copied())? {
        end.head = head;
        let why = format!("{ANCHOR} is missing: whether the end of the log was cut off cannot be told");
        end.find(Event::HeadLost, end.head.seq, end.head.seq, &why);
    }
    Ok(end)
}

/// The last whole record of the last of these files that has one: file, length up to there, head.
fn last_of(
    dir: BorrowedFd<'_>,
    numbers: impl DoubleEndedIterator<Item = u32>,
) -> io::Result<Option<(u32, u64, Head)>> {
    for number in numbers.rev() {
        let file = files::open(dir, number, OFlags::empty())?;
        let length = files::length(&file)?;
        let Some(line) = last_line(&file, length)? else { continue };
        return Ok(Some((number, length, Head { seq: line.seq, hash: line.h })));
    }
    Ok(None)
}

/// What the last line of a file says.
struct LastLine {
    seq: u64,
    h: String,
}

/// The last whole line that ends at `end`; `None` when there is none.
fn last_line(file: &File, end: u64) -> io::Result<Option<LastLine>> {
    let tail = tail(file, end)?;
    let Some(end) = tail.iter().rposition(|byte| *byte == b'\n') else { return Ok(None) };
    let start = tail[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |feed| feed + 1);
    let parse = || -> Result<LastLine, String> {
        let text = std::str::from_utf8(&tail[start..end]).map_err(|error| error.to_string())?;
        let line = Line::parse(text)?;
        Ok(LastLine { seq: line.marked()?.seq, h: line.h.to_owned() })
    };
    parse().map(Some).map_err(|why| {
        io::Error::other(format!("its last line is spoiled ({why}): move the file away and look at it"))
    })
}

/// Enough of what precedes `end` to hold a whole line.
fn tail(mut file: &File, end: u64) -> io::Result<Vec<u8>> {
    let start = end.saturating_sub(MAX_RECORD_LINE_BYTES as u64 * 2);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.take(end - start).read_to_end(&mut tail)?;
    Ok(tail)
}

fn spoiled(number: u32, why: &str) -> io::Error {
    let name = files::name(number);
    io::Error::other(format!("the end of {name} is spoiled ({why}): move the file away and look at it"))
}
