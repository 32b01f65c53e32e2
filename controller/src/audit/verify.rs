//! Verifying the log: the chain over all files, the checkpoints' signatures, the head kept outside, and what was
//! recorded as missing.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::anchor::{Anchor, Anchored, NAME as ANCHOR};
use super::chain::{Head, Line, Marked};
use super::checkpoint::PublicKey;
use super::mark::{Checkpoint, Range, Rotation};
use super::read::LineReader;
use super::{DIRECTORY, files};
use crate::limits::CHECKPOINT_RECORDS;

/// Why a log does not verify.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// It cannot be read.
    #[error("cannot read the audit log: {0}")]
    Io(#[from] io::Error),
    /// The chain is broken.
    #[error("{file} line {line}: {why}")]
    Broken {
        /// File name.
        file: String,
        /// From 1.
        line: u64,
        /// One line.
        why: String,
    },
    /// It is not the log it is said to be.
    #[error("{0}")]
    Other(String),
}

/// What somebody knows of the log from elsewhere.
#[derive(Debug, Default)]
pub struct Expected {
    /// The key of its checkpoints; without one, signatures are not checked.
    pub key: Option<PublicKey>,
    /// The hash of one of its records.
    pub head: Option<String>,
}

/// What was found.
#[derive(Debug, Default)]
pub struct Report {
    /// Records.
    pub records: u64,
    /// Files.
    pub files: usize,
    /// Checkpoints whose signature was checked.
    pub checkpoints: u64,
    /// Records after the last checkpoint.
    pub unsigned: u64,
    /// Half lines that were cut, as recorded.
    pub torn: u64,
    /// The end.
    pub head: Head,
    /// What is missing or unexplained, a line each.
    pub findings: Vec<String>,
}

/// The log at one moment: controllers may go on writing.
struct Snapshot {
    files: Vec<(u32, u64)>,
    anchored: Option<Anchored>,
}

impl Snapshot {
    fn take(state: &Path) -> io::Result<Self> {
        let dir = File::open(state.join(DIRECTORY))?;
        let mut anchor = Anchor::find(state)?;
        anchor.as_ref().map_or(Ok(()), Anchor::lock)?;
        let measure =
            |number| Ok((number, std::fs::metadata(state.join(DIRECTORY).join(files::name(number)))?.len()));
        let files = files::list(&dir).and_then(|numbers| numbers.into_iter().map(measure).collect());
        let anchored = anchor.as_mut().map_or(Ok(None), |anchor| anchor.is_news().map(|_| anchor.says()));
        anchor.as_ref().map_or(Ok(()), Anchor::unlock)?;
        Ok(Self { files: files?, anchored: anchored? })
    }
}

/// Checks the whole log of a state directory.
pub fn verify(state: &Path, expected: &Expected) -> Result<Report, VerifyError> {
    let snapshot = Snapshot::take(state)?;
    let mut walk = Walk { expected, report: Report::default(), before: None, is_known: false };
    for &(number, length) in &snapshot.files {
        walk.file(&state.join(DIRECTORY), number, length)?;
    }
    walk.end(snapshot.anchored.as_ref())
}

struct Walk<'a> {
    expected: &'a Expected,
    report: Report,
    /// Number of the file before.
    before: Option<u32>,
    /// The expected head was met.
    is_known: bool,
}

impl Walk<'_> {
    fn file(&mut self, dir: &Path, number: u32, length: u64) -> Result<(), VerifyError> {
        let file = File::open(dir.join(files::name(number)))?;
        let mut lines = LineReader::new(file.take(length));
        let mut count = 0;
        let broken = |line: u64, why: String| VerifyError::Broken { file: files::name(number), line, why };
        let spoiled = |line: u64, error: io::Error| match error.kind() {
            io::ErrorKind::InvalidData => broken(line, error.to_string()),
            _ => VerifyError::Io(error),
        };
        while lines.advance().map_err(|error| spoiled(count + 1, error))? {
            count += 1;
            let text = lines.line().map_err(|error| spoiled(count, error))?;
            self.line(number, count == 1, text).map_err(|why| broken(count, why))?;
        }
        if lines.torn() > 0 {
            let why = "the last line is torn: the next record that is written cuts it";
            return Err(broken(count + 1, why.to_owned()));
        }
        self.report.files += 1;
        self.before = Some(number);
        Ok(())
    }

    fn line(&mut self, number: u32, is_first: bool, text: &str) -> Result<(), String> {
        let line = Line::parse(text)?;
        let marked = line.marked()?;
        if is_first {
            self.border(number, &marked)?;
        }
        let before = std::mem::take(&mut self.report.head);
        self.report.head = before.follow(&line, &marked)?;
        self.report.records += 1;
        self.report.unsigned += 1;
        self.is_known |= self.expected.head.as_ref() == Some(&self.report.head.hash);
        match marked.event.as_ref() {
            "checkpoint" => self.checkpoint(&marked.mark()?, &before)?,
            "gap" => {
                let Range { from, to, .. } = marked.mark()?;
                let found = format!("records {from} to {to} are missing, as record {} says", marked.seq);
                self.report.findings.push(found);
            }
            "unconfirmed" => {
                let Range { from, to, .. } = marked.mark()?;
                self.report.findings.push(format!(
                    "nobody vouches for records {from} to {to}, as record {} says: they were written while a \
                     controller or the machine died, or by somebody else",
                    marked.seq
                ));
            }
            "headLost" => self.report.findings.push(format!(
                "{ANCHOR} was missing when record {} was written: whether records before it were cut off cannot be told",
                marked.seq
            )),
            "tornTail" => self.report.torn += 1,
            _ => {}
        }
        // One more than due: the record that found it so.
        if self.expected.key.is_some() && self.report.unsigned > CHECKPOINT_RECORDS + 1 {
            let from = marked.seq - self.report.unsigned + 1;
            return Err(format!("records {from} to {} were never signed", marked.seq));
        }
        Ok(())
    }

    /// The first record of a file must name the file before it and its end.
    fn border(&mut self, number: u32, marked: &Marked<'_>) -> Result<(), String> {
        if number == 1 && self.before.is_none() || marked.event == "gap" {
            return Ok(());
        }
        if marked.event != "logRotated" {
            return Err("a file must begin by naming the one before it".to_owned());
        }
        let Rotation { file, seq, head } = marked.mark()?;
        let named = Head { seq, hash: head };
        match self.before {
            None => {
                self.report.findings.push(format!("records 1 to {seq} are not here: {file} is missing"));
                self.report.head = named;
                Ok(())
            }
            Some(before) if file != files::name(before) => Err(format!("{file} is missing")),
            Some(before) if named != self.report.head => Err(format!(
                "{} ended at record {seq} when this file was begun; now it ends at record {}",
                files::name(before),
                self.report.head.seq
            )),
            Some(_) => Ok(()),
        }
    }

    fn checkpoint(&mut self, checkpoint: &Checkpoint, before: &Head) -> Result<(), String> {
        if let Some(key) = &self.expected.key {
            key.verify(checkpoint, before)?;
            self.report.checkpoints += 1;
        }
        self.report.unsigned = 0;
        Ok(())
    }

    fn end(mut self, anchored: Option<&Anchored>) -> Result<Report, VerifyError> {
        let head = &self.report.head;
        match anchored.map(Anchored::head) {
            None if self.report.records == 0 => {}
            // Somebody else says where the end is.
            None if self.expected.head.as_ref() == Some(&head.hash) => {}
            None => {
                let found = format!("{ANCHOR} is missing: whether the end was cut off cannot be told");
                self.report.findings.push(found);
            }
            Some(kept) if kept == *head => {}
            Some(kept) => {
                let why = match kept.seq.cmp(&head.seq) {
                    Ordering::Greater => {
                        format!("records {} to {} had been written and are missing", head.seq + 1, kept.seq)
                    }
                    Ordering::Less => {
                        format!("nobody vouches for records {} to {}", kept.seq + 1, head.seq)
                    }
                    Ordering::Equal => {
                        format!("record {} is not the one that was written last", head.seq)
                    }
                };
                return Err(VerifyError::Other(format!("{why}: the head kept in {ANCHOR} is another")));
            }
        }
        match &self.expected.head {
            Some(hash) if !self.is_known => Err(VerifyError::Other(format!(
                "no record has the hash {hash}: the log was cut or written anew since that head was noted"
            ))),
            _ => Ok(self.report),
        }
    }
}
