//! The measures of one connection, each a number for one round.
//!
//! Invariant: the same bytes are sent to every server, and what comes back is checked before a number is given.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::client::Client;
use super::message::{Message, parse};
use super::subject::{Subject, file_uri};

/// `PATH` of every command.
const COMMAND_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Commands kept in flight by the measure of that name.
const COMMANDS_IN_FLIGHT: u64 = 16;

/// Requests kept in flight by the measure of that name.
const REQUESTS_IN_FLIGHT: u64 = 64;

/// Bytes one command prints.
const OUTPUT_BYTES: usize = 128 << 20;

/// Bytes of the file that is read and written.
const FILE_BYTES: usize = 8 << 20;

/// Time and samples of one measure in one round. Whichever is first ends it, but never below `LEAST_SAMPLES`. Short,
/// with many rounds: where the scheduler puts processes, and how busy others are, lasts longer than this.
const ROUND_TIME: Duration = Duration::from_millis(200);
/// See [`ROUND_TIME`].
const MOST_SAMPLES: usize = 2000;
/// See [`ROUND_TIME`].
const LEAST_SAMPLES: usize = 5;

/// Characters typed into one terminal: a line holds 4095.
const MOST_KEYSTROKES: usize = 1500;

/// A connection with its session, ready to be measured.
pub struct Harness {
    pub(super) client: Client,
    directory: String,
    next_process: u64,
}

/// Seconds, median of single ones, or events a second: see each measure.
type Measured = io::Result<f64>;

impl Harness {
    /// Opens a session.
    ///
    /// # Errors
    /// Of the connection; and the server does not say where files may be made.
    pub fn open(subject: &Subject) -> io::Result<Self> {
        let (client, result) = subject.address.open()?;
        Self::with(client, &result, subject.directory.clone())
    }

    /// Takes over a connection whose `initialize` gave `result`.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn with(client: Client, result: &Value, directory: Option<PathBuf>) -> io::Result<Self> {
        let directory = match (directory, result["environmentInfo"]["cwd"].as_str()) {
            (Some(path), _) => file_uri(&path),
            (None, Some(uri)) => uri.to_owned(),
            (None, None) => {
                return Err(io::Error::other("the server names no working directory: use --directory"));
            }
        };
        Ok(Self { client, directory, next_process: 1 })
    }

    /// Queues `process/start`; returns the number that names the process.
    fn start(&mut self, argv: &[&str], tty: bool) -> u64 {
        let process = self.next_process;
        self.next_process += 1;
        // As the real client asks (SPEC 11.3).
        let params = json!({
            "processId": process.to_string(),
            "argv": argv,
            "cwd": self.directory,
            "envPolicy": {
                "inherit": "all", "ignoreDefaultExcludes": true, "exclude": ["CODEX_VERSION"], "set": {}, "includeOnly": [],
            },
            "env": { "PATH": COMMAND_PATH, "TERM": "dumb", "NO_COLOR": "1", "PAGER": "cat", "LC_ALL": "C.UTF-8" },
            "tty": tty,
            "pipeStdin": false,
            "arg0": null,
            "sandbox": null,
        });
        self.client.request("process/start", &params.to_string());
        process
    }

    /// Waits for the end of `process`; gives the bytes it has printed.
    fn closed(&mut self, process: u64) -> io::Result<usize> {
        let mut output = 0;
        loop {
            match self.client.next_message()? {
                Message::Output(bytes) => output += bytes,
                Message::Exited(0) => {}
                Message::Exited(code) => {
                    return Err(io::Error::other(format!("the command ended with {code}")));
                }
                Message::Closed(closed) if closed == process => return Ok(output),
                Message::Error(error) => return Err(io::Error::other(error)),
                _ => {}
            }
        }
    }

    /// Seconds from `process/start` of `/bin/true` to its `process/closed`, one after the other.
    ///
    /// # Errors
    /// As all measures: of the connection, or an answer that is not what was asked for.
    pub fn command(&mut self) -> Measured {
        repeat(MOST_SAMPLES, || {
            let start = Instant::now();
            let process = self.start(&["/bin/true"], false);
            self.client.flush()?;
            self.closed(process)?;
            Ok(start.elapsed())
        })
    }

    /// Commands a second, [`COMMANDS_IN_FLIGHT`] at a time.
    ///
    /// # Errors
    /// See [`Self::command`].
    pub fn commands_in_flight(&mut self) -> Measured {
        self.run_commands(|_, elapsed| elapsed < ROUND_TIME).map(|(done, elapsed)| rate(done, elapsed))
    }

    /// Runs `count` commands, [`COMMANDS_IN_FLIGHT`] at a time.
    ///
    /// # Errors
    /// See [`Self::command`].
    pub fn run_many(&mut self, count: u64) -> io::Result<()> {
        self.run_commands(|started, _| started < count).map(|_| ())
    }

    fn run_commands(&mut self, more: impl Fn(u64, Duration) -> bool) -> io::Result<(u64, Duration)> {
        let begin = Instant::now();
        let (mut started, mut done) = (0, 0);
        while started < COMMANDS_IN_FLIGHT {
            self.start(&["/bin/true"], false);
            started += 1;
        }
        self.client.flush()?;
        while done < started {
            match self.client.next_message()? {
                Message::Closed(_) => {
                    done += 1;
                    if more(started, begin.elapsed()) {
                        self.start(&["/bin/true"], false);
                        started += 1;
                    }
                }
                Message::Error(error) => return Err(io::Error::other(error)),
                _ => {}
            }
            if !self.client.has_unread() {
                self.client.flush()?;
            }
        }
        Ok((done, begin.elapsed()))
    }

    /// Seconds from `process/write` of one character to its echo by a terminal.
    ///
    /// # Errors
    /// See [`Self::command`].
    pub fn keystroke(&mut self) -> Measured {
        let process = self.start(&["cat"], true);
        self.client.flush()?;
        self.await_result()?;
        let mut write = 0;
        let measured = repeat(MOST_KEYSTROKES, || {
            let begin = Instant::now();
            write += 1;
            let params = format!(r#"{{"processId":"{process}","chunk":"eA==","writeId":"{write}"}}"#);
            self.client.request("process/write", &params);
            self.client.flush()?;
            let (mut echoed, mut answered) = (None, false);
            while echoed.is_none() || !answered {
                match self.client.next_message()? {
                    Message::Output(1) => echoed = Some(begin.elapsed()),
                    Message::Result { .. } => answered = true,
                    other => return Err(io::Error::other(format!("no echo of one character: {other:?}"))),
                }
            }
            Ok(echoed.unwrap_or_default())
        })?;
        self.client.request("process/terminate", &format!(r#"{{"processId":"{process}"}}"#));
        self.client.flush()?;
        while self.client.next_message()? != Message::Closed(process) {}
        Ok(measured)
    }

    pub(super) fn await_result(&mut self) -> io::Result<Option<usize>> {
        loop {
            match self.client.next_message()? {
                Message::Result { data, .. } => return Ok(data),
                Message::Error(error) => return Err(io::Error::other(error)),
                _ => {}
            }
        }
    }

    fn metadata_params(&self) -> String {
        json!({ "path": self.directory, "sandbox": null }).to_string()
    }

    /// Seconds of an `fs/getMetadata` round trip.
    ///
    /// # Errors
    /// See [`Self::command`].
    pub fn metadata(&mut self) -> Measured {
        let params = self.metadata_params();
        repeat(MOST_SAMPLES, || {
            let begin = Instant::now();
            self.client.request("fs/getMetadata", &params);
            self.client.flush()?;
            self.await_result()?;
            Ok(begin.elapsed())
        })
    }

    /// `fs/getMetadata` requests a second, [`REQUESTS_IN_FLIGHT`] at a time.
    ///
    /// # Errors
    /// See [`Self::command`].
    pub fn requests_in_flight(&mut self) -> Measured {
        let params = self.metadata_params();
        let begin = Instant::now();
        let mut asked = 0;
        while asked < REQUESTS_IN_FLIGHT {
            self.client.request("fs/getMetadata", &params);
            asked += 1;
        }
        self.client.flush()?;
        let mut answered = 0;
        while answered < asked {
            self.await_result()?;
            answered += 1;
            if begin.elapsed() < ROUND_TIME {
                self.client.request("fs/getMetadata", &params);
                asked += 1;
            }
            if !self.client.has_unread() {
                self.client.flush()?;
            }
        }
        Ok(rate(answered, begin.elapsed()))
    }

    /// Bytes a second of one command that prints.
    ///
    /// # Errors
    /// See [`Self::command`]; and bytes are missing.
    pub fn output(&mut self) -> Measured {
        let count = OUTPUT_BYTES.to_string();
        let begin = Instant::now();
        let process = self.start(&["head", "-c", &count, "/dev/zero"], false);
        self.client.flush()?;
        let seen = self.closed(process)?;
        let elapsed = begin.elapsed();
        expect_bytes(seen, OUTPUT_BYTES)?;
        Ok(rate(OUTPUT_BYTES as u64, elapsed))
    }

    fn file(&self) -> String {
        format!("{}/legion-bench.bin", self.directory)
    }

    /// The text of an `fs/writeFile` of [`FILE_BYTES`].
    fn write_params(&self) -> String {
        let mut text = "QUJD".repeat(FILE_BYTES / 3);
        text.push_str(["", "QQ==", "QUI="][FILE_BYTES % 3]);
        json!({ "path": self.file(), "dataBase64": text, "sandbox": null }).to_string()
    }

    /// Bytes a second of `fs/writeFile`.
    ///
    /// # Errors
    /// See [`Self::command`]; and the file is not as long as what was written.
    pub fn write_file(&mut self) -> Measured {
        let params = self.write_params();
        let seconds = repeat(MOST_SAMPLES, || {
            self.client.request("fs/writeFile", &params);
            let begin = Instant::now();
            self.client.flush()?;
            self.await_result()?;
            Ok(begin.elapsed())
        })?;
        let params = json!({ "path": self.file(), "sandbox": null }).to_string();
        let size = self.client.call("fs/getMetadata", &params)?["size"].as_u64();
        expect_bytes(usize::try_from(size.unwrap_or(0)).unwrap_or(0), FILE_BYTES)?;
        Ok(FILE_BYTES as f64 / seconds)
    }

    /// Bytes a second of `fs/readFile`.
    ///
    /// # Errors
    /// See [`Self::command`]; and the answer is not as long as the file.
    pub fn read_file(&mut self) -> Measured {
        self.client.call("fs/writeFile", &self.write_params())?;
        let params = json!({ "path": self.file(), "sandbox": null }).to_string();
        let seconds = repeat(MOST_SAMPLES, || {
            let begin = Instant::now();
            self.client.request("fs/readFile", &params);
            self.client.flush()?;
            let text = self.client.next_text()?;
            let elapsed = begin.elapsed();
            match parse(text)? {
                Message::Result { data, .. } => expect_bytes(data.unwrap_or(0), FILE_BYTES)?,
                other => return Err(io::Error::other(format!("no content of a file: {other:?}"))),
            }
            Ok(elapsed)
        })?;
        Ok(FILE_BYTES as f64 / seconds)
    }

    /// Starts `count` commands that do nothing until they are killed with their session.
    ///
    /// # Errors
    /// See [`Self::command`].
    pub fn start_sleepers(&mut self, count: usize) -> io::Result<()> {
        for _ in 0..count {
            self.start(&["/bin/sleep", "1000000"], false);
        }
        self.client.flush()?;
        for _ in 0..count {
            self.await_result()?;
        }
        Ok(())
    }
}

fn expect_bytes(seen: usize, expected: usize) -> io::Result<()> {
    if seen == expected {
        return Ok(());
    }
    Err(io::Error::other(format!("{seen} bytes came where there should be {expected}")))
}

fn rate(events: u64, elapsed: Duration) -> f64 {
    events as f64 / elapsed.as_secs_f64()
}

/// The median of single times, in seconds.
///
/// # Errors
/// The first one of `sample`.
pub fn repeat(most: usize, mut sample: impl FnMut() -> io::Result<Duration>) -> io::Result<f64> {
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.len() < LEAST_SAMPLES || (begin.elapsed() < ROUND_TIME && times.len() < most) {
        times.push(sample()?.as_secs_f64());
    }
    Ok(median(&mut times))
}

/// The middle of `values`; 0 when there are none.
pub fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => 0.0,
        length if length % 2 == 1 => values[middle],
        _ => f64::midpoint(values[middle - 1], values[middle]),
    }
}
