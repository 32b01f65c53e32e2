//! Reading the log back: verifying the chain, the last records, following.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use super::chain::Head;
use super::log::FILE_NAME;
use crate::limits::MAX_RECORD_LINE_BYTES;

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
        file: &'static str,
        /// From 1.
        line: u64,
        /// One line.
        why: String,
    },
}

/// Checks the whole chain and returns its head.
pub fn verify(dir: &Path) -> Result<Head, VerifyError> {
    let mut lines = Lines::open(dir)?;
    let mut head = Head::default();
    let mut number = 0;
    while let Some(text) = lines.next_line()? {
        number += 1;
        let broken = |why: String| VerifyError::Broken { file: FILE_NAME, line: number, why };
        if !text.ends_with('\n') {
            return Err(broken("the last line is torn: the next record that is written cuts it".to_owned()));
        }
        head = head.follow(&text).map_err(broken)?;
    }
    Ok(head)
}

/// The lines of a log, each with its line feed; a reader that is asked again after the end sees what was appended.
pub struct Lines {
    reader: BufReader<File>,
    partial: Vec<u8>,
}

impl Lines {
    /// Opens the log in `dir` at its beginning.
    pub fn open(dir: &Path) -> io::Result<Self> {
        Ok(Self {
            reader: BufReader::with_capacity(1 << 16, File::open(dir.join(FILE_NAME))?),
            partial: Vec::new(),
        })
    }

    /// The next line; a last line without line feed is returned as it is.
    pub fn next_line(&mut self) -> io::Result<Option<String>> {
        let whole = self.fill()?;
        if !whole && self.partial.is_empty() {
            return Ok(None);
        }
        String::from_utf8(std::mem::take(&mut self.partial))
            .map(Some)
            .map_err(|_| io::Error::other("a line is not UTF-8"))
    }

    /// The next line that is complete; an unfinished one is kept for later.
    pub fn next_complete(&mut self) -> io::Result<Option<String>> {
        if self.fill()? { self.next_line() } else { Ok(None) }
    }

    /// Reads up to the next line feed; whether there was one.
    fn fill(&mut self) -> io::Result<bool> {
        while !self.partial.ends_with(b"\n") {
            let chunk = self.reader.fill_buf()?;
            if chunk.is_empty() {
                return Ok(false);
            }
            let end = chunk.iter().position(|byte| *byte == b'\n').map_or(chunk.len(), |end| end + 1);
            self.partial.extend_from_slice(&chunk[..end]);
            self.reader.consume(end);
            if self.partial.len() > MAX_RECORD_LINE_BYTES {
                return Err(io::Error::other(format!("a line is longer than {MAX_RECORD_LINE_BYTES} bytes")));
            }
        }
        Ok(true)
    }
}
