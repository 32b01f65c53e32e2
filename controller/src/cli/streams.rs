//! Our standard streams as those of a command: stdin piece by piece, output written by a task of its own.
//!
//! Invariant: nothing here blocks the event loop, so signals are obeyed while nobody reads our output; one piece is on
//! its way in each direction, and who is slow is waited for by not taking the next.

use std::io;

use legion_protocol::process::Stream;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::sys;

/// Bytes of stdin in one message.
const STDIN_CHUNK: usize = 64 << 10;

/// Pieces of our stdin, as they come. The bound of one piece in the channel is the back-pressure.
pub(super) fn read_stdin() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::task::spawn_local(async move {
        let mut stdin = tokio::io::stdin();
        let mut buffer = vec![0; STDIN_CHUNK];
        while let Ok(count @ 1..) = stdin.read(&mut buffer).await {
            if sender.send(buffer[..count].to_vec()).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// The next piece; for ever when there is no stdin to read, or no more.
pub(super) async fn next_chunk(stdin: &mut Option<mpsc::Receiver<Vec<u8>>>) -> Option<Vec<u8>> {
    match stdin {
        Some(receiver) => receiver.recv().await,
        None => std::future::pending().await,
    }
}

/// Resolves when our stdout is a pipe, a socket or a terminal and its other end is closed: whoever has nothing to write for
/// a long time would not learn of it otherwise.
pub(super) async fn reader_left() {
    let stdout = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 0).map_err(io::Error::from);
    if let Ok(stdout) = stdout.and_then(sys::watch_fd) {
        while let Ok(mut ready) = stdout.ready(Interest::ERROR | Interest::READABLE).await {
            if ready.ready().is_error() || ready.ready().is_read_closed() {
                return;
            }
            // The keyboard of a terminal, or what a socket says.
            ready.clear_ready();
        }
    }
    // A file cannot be watched: nobody leaves it.
    std::future::pending::<()>().await;
}

/// A piece of the command's output.
struct Piece {
    stream: Stream,
    bytes: Vec<u8>,
}

/// Our stdout and stderr.
pub(super) struct Output {
    to_writer: Option<mpsc::Sender<Piece>>,
    writer: JoinHandle<io::Result<()>>,
    waiting: Option<Piece>,
}

/// What has become of the output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is room for the next piece.
    Room,
    /// All of it is written.
    Written,
    /// Nobody takes it any more.
    ReaderLeft,
}

impl Output {
    pub(super) fn start() -> Self {
        let (to_writer, pieces) = mpsc::channel(1);
        let writer = tokio::task::spawn_local(write(pieces));
        Self { to_writer: Some(to_writer), writer, waiting: None }
    }

    /// Whether a piece waits; then there is no room for another.
    pub(super) fn is_full(&self) -> bool {
        self.waiting.is_some()
    }

    /// Takes a piece. There must be room.
    pub(super) fn put(&mut self, stream: Stream, bytes: Vec<u8>) {
        self.waiting = Some(Piece { stream, bytes });
    }

    /// No more will come: [`Self::progress`] ends with [`Progress::Written`].
    pub(super) fn close(&mut self) {
        if self.waiting.is_none() {
            self.to_writer = None;
        }
    }

    /// Resolves when something has changed. May be dropped and asked again: nothing is lost or written twice.
    pub(super) async fn progress(&mut self) -> Progress {
        let Some(to_writer) = &self.to_writer else {
            return match (&mut self.writer).await {
                Ok(Ok(())) => Progress::Written,
                _ => Progress::ReaderLeft,
            };
        };
        if self.waiting.is_none() {
            to_writer.closed().await;
            return Progress::ReaderLeft;
        }
        match (to_writer.reserve().await, self.waiting.take()) {
            (Ok(room), Some(piece)) => {
                room.send(piece);
                Progress::Room
            }
            _ => Progress::ReaderLeft,
        }
    }
}

async fn write(mut pieces: mpsc::Receiver<Piece>) -> io::Result<()> {
    let (mut stdout, mut stderr) = (tokio::io::stdout(), tokio::io::stderr());
    while let Some(Piece { stream, bytes }) = pieces.recv().await {
        let out: &mut (dyn AsyncWrite + Unpin) = match stream {
            Stream::Stderr => &mut stderr,
            Stream::Stdout | Stream::Pty => &mut stdout,
        };
        out.write_all(&bytes).await?;
        out.flush().await?;
    }
    Ok(())
}
