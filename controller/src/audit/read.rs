//! Reading the log back, file after file; a reader that is asked again after the end sees what was appended.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use super::files;
use crate::limits::MAX_RECORD_LINE_BYTES;

/// Bytes read at once.
const BUFFER: usize = 256 << 10;

/// The whole lines of one file.
pub struct LineReader<R> {
    reader: BufReader<R>,
    bytes: Vec<u8>,
    whole: bool,
}

impl<R: Read> LineReader<R> {
    /// Of this reader.
    pub fn new(reader: R) -> Self {
        Self { reader: BufReader::with_capacity(BUFFER, reader), bytes: Vec::new(), whole: false }
    }

    /// Reads up to the next line feed; whether there was one. Half a line is kept for later.
    pub fn advance(&mut self) -> io::Result<bool> {
        if self.whole {
            self.bytes.clear();
            self.whole = false;
        }
        while !self.whole {
            let chunk = self.reader.fill_buf()?;
            if chunk.is_empty() {
                return Ok(false);
            }
            let feed = memchr::memchr(b'\n', chunk);
            let taken = feed.map_or(chunk.len(), |feed| feed + 1);
            self.bytes.extend_from_slice(&chunk[..taken]);
            self.reader.consume(taken);
            self.whole = feed.is_some();
            if self.bytes.len() > MAX_RECORD_LINE_BYTES {
                return Err(spoiled(format!("the line is longer than {MAX_RECORD_LINE_BYTES} bytes")));
            }
        }
        Ok(true)
    }

    /// The line [`Self::advance`] has found, without its line feed.
    pub fn line(&self) -> io::Result<&str> {
        std::str::from_utf8(self.bytes()).map_err(|_| spoiled("the line is not UTF-8"))
    }

    /// As [`Self::line`], to be shown whatever it is.
    pub fn lossy(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.bytes())
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes)
    }

    /// Bytes of half a line at the end.
    pub fn torn(&self) -> usize {
        if self.whole { 0 } else { self.bytes.len() }
    }
}

/// Not a failure to read it: what is there is no line of the log.
fn spoiled(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// The whole lines of all files.
pub struct Lines {
    dir: PathBuf,
    number: u32,
    reader: Option<LineReader<File>>,
}

impl Lines {
    /// Begins at the first file of a log directory. There may be none yet.
    pub fn open(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), number: 0, reader: None }
    }

    /// Begins at the last file; `None` when that is the first.
    pub fn open_last(dir: &Path) -> io::Result<Option<Self>> {
        let numbers = match File::open(dir) {
            Ok(dir) => files::list(&dir)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let before = numbers.iter().rev().nth(1);
        Ok(before.map(|before| Self { number: *before, ..Self::open(dir) }))
    }

    /// Goes to the next line; whether there is one.
    pub fn advance(&mut self) -> io::Result<bool> {
        loop {
            if let Some(reader) = &mut self.reader
                && reader.advance()?
            {
                return Ok(true);
            }
            let Some(next) = self.next_file()? else { return Ok(false) };
            // The file may have got its last lines after we looked and before the next file was made.
            if let Some(reader) = &mut self.reader
                && reader.advance()?
            {
                return Ok(true);
            }
            self.reader = Some(LineReader::new(File::open(self.dir.join(files::name(next)))?));
            self.number = next;
        }
    }

    /// The line [`Self::advance`] has gone to.
    pub fn line(&self) -> io::Result<&str> {
        self.reader.as_ref().map_or(Ok(""), LineReader::line)
    }

    /// As [`Self::line`], to be shown whatever it is.
    pub fn lossy(&self) -> Cow<'_, str> {
        self.reader.as_ref().map_or(Cow::Borrowed(""), LineReader::lossy)
    }

    fn next_file(&self) -> io::Result<Option<u32>> {
        let dir = match File::open(&self.dir) {
            Ok(dir) => dir,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(files::list(&dir)?.into_iter().find(|number| *number > self.number))
    }
}
