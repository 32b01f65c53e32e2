//! Named pipes between a command in the sandbox and the test: events instead of timers.
//!
//! Invariant: no wait without [`crate::child::within`].

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::child::within;

/// A named pipe.
#[derive(Debug, Clone)]
pub struct Fifo {
    path: PathBuf,
}

impl Fifo {
    /// Makes one, mode 0600.
    pub(crate) fn make(path: PathBuf) -> Self {
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
            .unwrap_or_else(|error| panic!("cannot make the FIFO {}: {error}", path.display()));
        Self { path }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The test's end when commands report by `echo > fifo`.
    pub fn signals(&self) -> Signals {
        // Being a writer as well, it sees no end of file between two reports.
        Signals { reader: self.receiver(true) }
    }

    /// The test's end when a command holds the pipe open for as long as it lives (`exec 9> fifo`).
    pub fn lifetime(&self) -> Lifetime {
        Lifetime { reader: self.receiver(false) }
    }

    /// The test's end when a command waits by `read -r _ < fifo`.
    pub fn gate(&self) -> Gate {
        let sender = pipe::OpenOptions::new()
            .read_write(true)
            .open_sender(&self.path)
            .unwrap_or_else(|error| panic!("cannot open {}: {error}", self.path.display()));
        Gate { sender: Arc::new(sender) }
    }

    /// Waits until the pipe, which somebody has open for reading, takes no more.
    pub async fn filled(&self) {
        /// There is no event for a pipe that becomes full.
        const PAUSE: Duration = Duration::from_millis(2);
        let sender = pipe::OpenOptions::new().open_sender(&self.path).expect("it has a reader");
        within("the pipe becomes full", async {
            let is_full = || {
                let mut ends = [PollFd::new(&sender, PollFlags::OUT)];
                poll(&mut ends, Some(&Timespec::default())).expect("a pipe can be polled") == 0
            };
            while !is_full() {
                tokio::time::sleep(PAUSE).await;
            }
        })
        .await;
    }

    fn receiver(&self, also_writer: bool) -> pipe::Receiver {
        pipe::OpenOptions::new()
            .read_write(also_writer)
            .open_receiver(&self.path)
            .unwrap_or_else(|error| panic!("cannot open {}: {error}", self.path.display()))
    }
}

/// Receives reports.
#[derive(Debug)]
pub struct Signals {
    reader: pipe::Receiver,
}

impl Signals {
    /// Waits for the next report and gives its line, without the line end.
    pub async fn next(&mut self, what: &str) -> String {
        within(what, read_line(&mut self.reader)).await
    }
}

/// Sees when a command begins and ends.
#[derive(Debug)]
pub struct Lifetime {
    reader: pipe::Receiver,
}

impl Lifetime {
    /// Waits until the command has written its first line into the pipe.
    pub async fn began(&mut self, what: &str) -> String {
        within(what, read_line(&mut self.reader)).await
    }

    /// Waits until nobody holds the pipe any more.
    pub async fn ended(mut self, what: &str) {
        let mut rest = Vec::new();
        within(what, self.reader.read_to_end(&mut rest)).await.expect("a pipe can be read");
    }
}

/// Lets a waiting command go on. What was written stays readable while any clone is alive.
#[derive(Debug, Clone)]
pub struct Gate {
    sender: Arc<pipe::Sender>,
}

impl Gate {
    /// Lets one reader go on, now or when it comes.
    pub fn open(&self) {
        // A few bytes fit into an empty pipe, so this cannot fail for lack of room.
        self.sender.try_write(b"go\n").expect("the pipe has room");
    }
}

async fn read_line(reader: &mut pipe::Receiver) -> String {
    let mut line = Vec::new();
    // Bytewise, so that nothing after the line is taken; these lines are a few bytes long.
    while let Ok(byte) = reader.read_u8().await {
        if byte == b'\n' {
            break;
        }
        line.push(byte);
    }
    String::from_utf8_lossy(&line).into_owned()
}
