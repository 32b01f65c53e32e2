//! Entries become lines after a head, with a checkpoint wherever one is due. Pure: the moment is passed in.

use std::io;

use super::chain::{self, Head};
use super::checkpoint::Signer;
use super::clock::Moment;
use super::mark::Mark;
use super::record::{Event, Record};
use crate::limits::{CHECKPOINT_RECORDS, MAX_RECORD_BYTES};

/// A record's text without its number: the time comes first, the opening brace with the number is added when it is
/// written.
///
/// # Errors
/// It is too long for a line: were it kept, nothing after it could ever be written.
pub fn entry(record: &Record, at: Moment) -> io::Result<String> {
    let body = plain(serde_json::to_string(record)?);
    if body.len() > MAX_RECORD_BYTES {
        return Err(io::Error::other(format!("a record of {} bytes is too long", body.len())));
    }
    // `body` is an object with at least one member.
    Ok(format!("\"time\":\"{:.3}\",{}", at.wall, &body[1..]))
}

/// JSON in which also those characters are written out that a terminal obeys and JSON leaves as they are: whoever prints a
/// line as it is prints nothing else.
fn plain(json: String) -> String {
    let is_obeyed = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
    if !json.contains(is_obeyed) {
        return json;
    }
    let mut text = String::with_capacity(json.len() + 64);
    for c in json.chars() {
        if is_obeyed(c) {
            text.extend(format!("\\u{:04x}", u32::from(c)).chars());
        } else {
            text.push(c);
        }
    }
    text
}

/// Lines to be written together.
pub struct Lines {
    /// The lines.
    pub text: String,
    /// The chain's end after them.
    pub head: Head,
    /// Number of the last checkpoint.
    pub signed: u64,
}

/// Lines in the making.
pub struct Batch<'a> {
    signer: &'a Signer,
    now: Moment,
    done: Lines,
}

impl<'a> Batch<'a> {
    /// No lines yet, after `head`.
    pub fn new(signer: &'a Signer, now: Moment, head: Head, checkpoint: u64) -> Self {
        Self { signer, now, done: Lines { text: String::new(), head, signed: checkpoint } }
    }

    /// Adds an entry, after a checkpoint when one is due: the last line is always the last entry.
    pub fn add(&mut self, rest: &str) -> io::Result<()> {
        if self.done.head.seq.saturating_sub(self.done.signed) >= CHECKPOINT_RECORDS {
            self.sign()?;
        }
        self.chain(rest);
        Ok(())
    }

    /// Adds an entry that must be the first of a file, whatever is due.
    pub fn begin(&mut self, rest: &str) {
        self.chain(rest);
    }

    /// The lines, with a checkpoint at the end if that is wanted and something has none after it.
    pub fn finish(mut self, sign: bool) -> io::Result<Lines> {
        if sign && self.done.head.seq > self.done.signed {
            self.sign()?;
        }
        Ok(self.done)
    }

    fn sign(&mut self) -> io::Result<()> {
        let mark = Mark::Checkpoint(self.signer.sign(&self.done.head));
        self.chain(&entry(&Record::new(Event::Checkpoint).marked(mark), self.now)?);
        self.done.signed = self.done.head.seq;
        Ok(())
    }

    fn chain(&mut self, rest: &str) {
        let seq = self.done.head.seq + 1;
        let entry = format!("{{\"seq\":{seq},{rest}");
        let hash = chain::link(&self.done.head.hash, &entry);
        let line = chain::line(&entry, &self.done.head.hash, &hash);
        self.done.text.push_str(&line);
        self.done.head = Head { seq, hash };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_nothing_a_terminal_obeys() {
        let text = "a\u{1b}[31m \u{9b}31m \u{7f} \u{2028} é";
        let entry = entry(&Record::new(Event::Call).because(text), Moment::now()).unwrap();
        assert!(
            !entry.contains(|c: char| c.is_control() || c == '\u{2028}') && entry.contains('é'),
            "{entry}"
        );
        let record: serde_json::Value = serde_json::from_str(&format!("{{{entry}")).unwrap();
        assert_eq!(record["reason"], text);
    }
}
