//! Recording what commands print, as asciicast v2: `recordings/SESSION-CALL.cast` in the state directory, mode 0600.
//!
//! Invariant: what is recorded has passed the redaction; a session records at most what its persona allows.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::rc::Rc;

use jiff::Timestamp;
use legion_protocol::process::Stream;
use ring::digest::{Context, SHA256};
use rustix::fs::{Mode, OFlags};
use serde_json::json;
use tokio::time::Instant;

use super::Command;
use crate::audit::chain::hex;
use crate::audit::record::Recording;
use crate::dirs;

/// Directory of the recordings in the state directory.
pub const DIRECTORY: &str = "recordings";

/// The recording of one command.
pub struct Recorder {
    file: File,
    name: String,
    began: Instant,
    is_terminal: bool,
    /// Bytes the session may still record.
    room: Rc<Cell<u64>>,
    written: u64,
    digest: Context,
    /// The beginning of a character whose rest has not come yet, by stream.
    partial: [Vec<u8>; 3],
    /// Why it was not recorded to the end.
    cut: Option<String>,
    /// Why it lacks something before.
    gap: Option<&'static str>,
}

impl Recorder {
    /// Begins the recording of the command of a `call` record.
    pub fn start(
        state: &Path,
        uid: u32,
        (session, call): (&str, u64),
        command: &Command,
        room: Rc<Cell<u64>>,
    ) -> io::Result<Self> {
        let dir = dirs::open_private(&state.join(DIRECTORY), uid)
            .map_err(|failure| io::Error::other(failure.message))?;
        let name = format!("{session}-{call}.cast");
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&dir, name.as_str(), flags, Mode::RUSR | Mode::WUSR)?);
        let mut recorder = Self {
            file,
            name,
            began: Instant::now(),
            is_terminal: command.is_terminal,
            room,
            written: 0,
            digest: Context::new(&SHA256),
            partial: Default::default(),
            cut: None,
            gap: None,
        };
        recorder.line(&json!({
            "version": 2,
            "width": command.size.0,
            "height": command.size.1,
            "timestamp": Timestamp::now().as_second(),
            "title": command.text,
        }));
        Ok(recorder)
    }

    /// Takes what is shown.
    pub fn output(&mut self, stream: Stream, bytes: &[u8]) {
        let slot = match stream {
            Stream::Stdout => 0,
            Stream::Stderr => 1,
            Stream::Pty => 2,
        };
        let mut text = std::mem::take(&mut self.partial[slot]);
        text.extend_from_slice(bytes);
        let whole = whole_characters(&text);
        self.partial[slot] = text.split_off(whole);
        let text = String::from_utf8_lossy(&text);
        // Without a terminal nothing has turned a line feed into a new line.
        let text = if self.is_terminal { text } else { text.replace('\n', "\r\n").into() };
        if !text.is_empty() {
            self.event("o", &text);
        }
    }

    /// Notes the size of the terminal.
    pub fn resized(&mut self, (columns, rows): (u16, u16)) {
        self.event("r", &format!("{columns}x{rows}"));
    }

    fn event(&mut self, kind: &str, data: &str) {
        let seconds = self.began.elapsed().as_secs_f64();
        self.line(&json!([(seconds * 1e6).round() / 1e6, kind, data]));
    }

    fn line(&mut self, value: &serde_json::Value) {
        if self.cut.is_some() {
            return;
        }
        let line = format!("{value}\n");
        let length = line.len() as u64;
        if length > self.room.get() {
            self.cut = Some("the session may record no more".to_owned());
        } else if let Err(error) = self.file.write_all(line.as_bytes()) {
            self.cut = Some(error.to_string());
            // Half a line is not what the outcome tells the hash of.
            let _ = self.file.set_len(self.written);
        } else {
            self.room.set(self.room.get() - length);
            self.written += length;
            self.digest.update(line.as_bytes());
        }
    }

    /// Some output was never seen; what comes after it is recorded.
    pub fn missed(&mut self) {
        self.gap.get_or_insert("output that came while its client was away is missing");
    }

    /// What the outcome says of it.
    pub fn done(&self) -> Recording {
        Recording {
            file: self.name.clone(),
            bytes: self.written,
            sha256: hex(self.digest.clone().finish().as_ref()),
            cut: self.cut.clone().or_else(|| self.gap.map(str::to_owned)),
        }
    }
}

/// How many bytes are whole characters, or will never be.
fn whole_characters(bytes: &[u8]) -> usize {
    let mut start = 0;
    while let Err(error) = std::str::from_utf8(&bytes[start..]) {
        start += error.valid_up_to();
        match error.error_len() {
            Some(length) => start += length,
            None => return start,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(room: u64, is_terminal: bool, pieces: &[&[u8]]) -> (Vec<serde_json::Value>, Recording) {
        let dir = tempfile::tempdir().unwrap();
        let uid = rustix::process::geteuid().as_raw();
        let room = Rc::new(Cell::new(room));
        let command = Command { text: "ls".to_owned(), is_terminal, ..Command::default() };
        let mut recorder =
            Recorder::start(&dir.path().join("s"), uid, ("abcdefgh", 7), &command, room).unwrap();
        for piece in pieces {
            recorder.output(Stream::Stdout, piece);
        }
        let text = std::fs::read_to_string(dir.path().join("s/recordings/abcdefgh-7.cast")).unwrap();
        (text.lines().map(|line| serde_json::from_str(line).unwrap()).collect(), recorder.done())
    }

    #[test]
    fn characters_are_whole_and_lines_begin_at_the_left() {
        let (lines, done) = record(1000, false, &[b"a\n\xc3", b"\xa9\xff", b"b"]);
        assert_eq!((lines[0]["version"].as_u64(), lines[0]["title"].as_str()), (Some(2), Some("ls")));
        let texts: Vec<_> = lines[1..].iter().map(|event| event[2].as_str().unwrap()).collect();
        assert_eq!(texts, ["a\r\n", "é\u{fffd}", "b"]);
        assert!(done.cut.is_none() && done.sha256.len() == 64, "{done:?}");
        let (lines, _) = record(1000, true, &[b"a\n"]);
        assert_eq!(lines[1][2], "a\n");
    }

    #[test]
    fn a_recording_ends_where_its_room_does() {
        let (lines, done) = record(200, true, &[b"one", &[b'x'; 300], b"two"]);
        assert_eq!(lines.len(), 2);
        assert!(done.cut.unwrap().contains("no more"));
    }
}
