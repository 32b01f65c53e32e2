//! How messages travel: WebSocket messages, or lines of stdio (SPEC 1.4, 1.5).

pub(crate) mod lines;
pub(crate) mod websocket;

use std::fmt;
use std::task::{Context, Poll};

use tokio_tungstenite::tungstenite::Utf8Bytes;

/// What came in.
pub(crate) enum Incoming {
    /// One message.
    Text(Utf8Bytes),
    /// A message that is not even text, and why.
    Garbled(String),
    /// Nothing more will come.
    Ended,
}

/// The peer can no longer be reached.
#[derive(Debug)]
pub(crate) struct Lost;

/// A two-way stream of messages, driven by one task. Whole messages go in; how they are cut is the transport's business.
pub(crate) trait Transport {
    /// The next message.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Incoming>;
    /// Whether `start_send` may be called.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>>;
    /// Takes one message.
    fn start_send(&mut self, text: Utf8Bytes) -> Result<(), Lost>;
    /// Hands everything taken to the operating system.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>>;
    /// Shows the peer that we are there; call it after `poll_ready`.
    fn ping(&mut self) -> Result<(), Lost>;
    /// Who is at the other end, in the words of the original's error texts (SPEC 2.3).
    fn source(&self) -> &dyn fmt::Display;
}
