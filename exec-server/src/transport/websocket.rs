//! WebSocket messages. Long ones leave in fragments, so that the client's frame limit is never met and pings pass in
//! between (SPEC 11.8, 15.3).

use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::{Sink, Stream};
use legion_protocol::limits::{
    MAX_FRAGMENT_BYTES, MAX_MESSAGE_BYTES, WEBSOCKET_MAX_WRITE_BUFFER_BYTES, WEBSOCKET_READ_BUFFER_BYTES,
    WEBSOCKET_WRITE_BUFFER_BYTES,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Bytes, Message, Utf8Bytes};

use super::{Incoming, Lost, Transport};

/// Who is at the other end.
#[derive(Debug)]
pub(crate) enum Peer {
    /// Somebody on the network.
    Tcp(SocketAddr),
    /// Somebody on this machine. Masks protect what lies between (RFC 6455, 10.3): nothing lies there, so frames may come
    /// without, and long ones need not be copied to be masked.
    Unix,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix => f.write_str("unix"),
        }
    }
}

/// An upgraded connection.
pub(crate) struct WebSocket<S> {
    socket: WebSocketStream<S>,
    /// What is left of a message that leaves in fragments.
    rest: Option<Utf8Bytes>,
    source: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin> WebSocket<S> {
    /// Takes over after the 101 answer; `early` is what the client sent right behind its request.
    pub(crate) async fn new(stream: S, early: Vec<u8>, peer: &Peer) -> Self {
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES))
            .read_buffer_size(WEBSOCKET_READ_BUFFER_BYTES)
            .write_buffer_size(WEBSOCKET_WRITE_BUFFER_BYTES)
            .max_write_buffer_size(WEBSOCKET_MAX_WRITE_BUFFER_BYTES)
            .accept_unmasked_frames(matches!(peer, Peer::Unix));
        let socket = WebSocketStream::from_partially_read(stream, early, Role::Server, Some(config)).await;
        Self { socket, rest: None, source: format!("exec-server websocket {peer}") }
    }

    fn start(&mut self, message: Message) -> Result<(), Lost> {
        Pin::new(&mut self.socket).start_send(message).map_err(|_| Lost)
    }

    /// Sends the next fragment of `rest`, if there is one.
    fn start_fragment(&mut self, opcode: Data, rest: Utf8Bytes) -> Result<(), Lost> {
        let (head, tail) = split(rest);
        let last = tail.is_none();
        self.rest = tail;
        self.start(Message::Frame(Frame::message(head, OpCode::Data(opcode), last)))
    }
}

/// At most one frame's worth from the start, at a character boundary, and what is left.
fn split(text: Utf8Bytes) -> (Bytes, Option<Utf8Bytes>) {
    if text.len() <= MAX_FRAGMENT_BYTES {
        return (text.into(), None);
    }
    let end = text.floor_char_boundary(MAX_FRAGMENT_BYTES);
    let mut head: Bytes = text.into();
    let tail = head.split_off(end);
    // Cut at a character boundary of valid text, so it is valid text.
    let tail = Utf8Bytes::try_from(tail).ok();
    (head, tail)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Transport for WebSocket<S> {
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Incoming> {
        loop {
            return Poll::Ready(match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                Some(Ok(Message::Text(text))) => Incoming::Text(text),
                Some(Ok(Message::Binary(bytes))) => match Utf8Bytes::try_from(bytes) {
                    Ok(text) => Incoming::Text(text),
                    Err(error) => Incoming::Garbled(error.to_string()),
                },
                // Pongs are sent by the library; a Close is answered by it, and the end follows.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_))) => {
                    continue;
                }
                Some(Err(_)) | None => Incoming::Ended,
            });
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        loop {
            ready!(Pin::new(&mut self.socket).poll_ready(cx)).map_err(|_| Lost)?;
            match self.rest.take() {
                Some(rest) => self.start_fragment(Data::Continue, rest)?,
                None => return Poll::Ready(Ok(())),
            }
        }
    }

    fn start_send(&mut self, text: Utf8Bytes) -> Result<(), Lost> {
        if text.len() <= MAX_FRAGMENT_BYTES {
            self.start(Message::Text(text))
        } else {
            self.start_fragment(Data::Text, text)
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        ready!(self.poll_ready(cx))?;
        Pin::new(&mut self.socket).poll_flush(cx).map_err(|_| Lost)
    }

    fn ping(&mut self) -> Result<(), Lost> {
        self.start(Message::Ping(Bytes::new()))
    }

    fn source(&self) -> &dyn fmt::Display {
        &self.source
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_are_cut_at_characters_and_nothing_is_lost() {
        let text = "é".repeat(MAX_FRAGMENT_BYTES) + "x";
        let mut rest = Some(Utf8Bytes::from(text.clone()));
        let mut joined = String::new();
        let mut pieces = 0;
        while let Some(text) = rest {
            let (head, tail) = split(text);
            assert!(head.len() <= MAX_FRAGMENT_BYTES);
            joined.push_str(std::str::from_utf8(&head).unwrap());
            rest = tail;
            pieces += 1;
        }
        assert_eq!(pieces, 3);
        assert_eq!(joined, text);
    }
}
