//! Whether anybody is left at the other end of our standard streams.
//!
//! Invariant: the end of the input alone is no reason to give up what was asked for: its answers may still be read.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncRead, ReadBuf, Stdin};
use tokio::sync::Notify;

/// Standard input that tells when it is at its end.
pub(super) struct Input {
    stdin: Stdin,
    ended: Arc<Notify>,
}

impl Input {
    /// The input, and what is told of its end.
    pub(super) fn new() -> (Self, Arc<Notify>) {
        let ended = Arc::<Notify>::default();
        (Self { stdin: tokio::io::stdin(), ended: Arc::clone(&ended) }, ended)
    }
}

impl AsyncRead for Input {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stdin).poll_read(context, buffer);
        if read.is_ready() && buffer.filled().len() == before {
            self.ended.notify_one();
        }
        read
    }
}

/// Resolves when the input has ended and nobody reads our output any more; never when somebody does for `patience`.
pub(super) async fn gone(input: Arc<Notify>, patience: Duration) {
    input.notified().await;
    let hung_up = tokio::task::spawn_blocking(move || {
        // Errors and hang-ups are told without being asked for.
        let mut output = [PollFd::from_borrowed_fd(rustix::stdio::stdout(), PollFlags::empty())];
        let patience = Timespec::try_from(patience).ok();
        matches!(poll(&mut output, patience.as_ref()), Ok(1..))
    });
    if !hung_up.await.unwrap_or_default() {
        std::future::pending::<()>().await;
    }
}
