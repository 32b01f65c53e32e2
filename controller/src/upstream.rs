//! The connection to an exec-server: a WebSocket that sends long messages from where they lie.
//!
//! The WebSocket library copies a frame into its buffer, masks the copy, and moves what is left of it after every write to
//! the socket, which grows with the square of the frame. Fragments avoid that, but then the receiver joins them in a string
//! that grows. So a long message goes to the socket as one frame past that buffer.
//!
//! Invariant: frames leave in the order in which they were fed, and nothing comes between the bytes of one. The library
//! itself writes pongs whenever it reads; they wait below it, in [`Bypass`].

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use legion_protocol::limits::MAX_FRAGMENT_BYTES;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::websocket::{self, to_io};

/// A WebSocket to an exec-server.
pub struct Upstream<S = UnixStream> {
    socket: WebSocketStream<Bypass<S>>,
    long: Frames,
}

/// Its receiving half.
pub type Receiver<S = UnixStream> = SplitStream<WebSocketStream<Bypass<S>>>;

/// Its sending half.
pub struct Sender<S = UnixStream> {
    sink: SplitSink<WebSocketStream<Bypass<S>>, Message>,
    long: Frames,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Upstream<S> {
    /// Opens the WebSocket over a connected stream.
    pub async fn connect(stream: S, token: &str) -> io::Result<Self> {
        let long = Frames::default();
        let socket = websocket::connect(Bypass { stream, long: Rc::clone(&long) }, Some(token)).await?;
        Ok(Self { socket, long })
    }

    /// Its two halves.
    pub fn split(self) -> (Sender<S>, Receiver<S>) {
        let (sink, receiver) = self.socket.split();
        (Sender { sink, long: self.long }, receiver)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Sender<S> {
    /// Sends a message; a short one may wait in a buffer for [`Self::flush`].
    pub async fn feed(&mut self, text: Utf8Bytes) -> io::Result<()> {
        if text.len() <= MAX_FRAGMENT_BYTES {
            return self.sink.feed(Message::Text(text)).await.map_err(to_io);
        }
        // What the library still holds goes first.
        self.flush().await?;
        // Without a mask, which would need a copy: the exec-server takes such frames on a Unix socket.
        let header = FrameHeader { opcode: OpCode::Data(Data::Text), ..FrameHeader::default() };
        let mut start = Vec::new();
        header.format(text.len() as u64, &mut start).map_err(to_io)?;
        self.long.borrow_mut().extend([start.into(), text.into()]);
        self.flush().await
    }

    /// Sends what waits.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.sink.flush().await.map_err(to_io)
    }
}

/// What is to be written before anything else. Bounded by the one message that [`Sender::feed`] waits for.
type Frames = Rc<RefCell<VecDeque<Bytes>>>;

/// A stream that writes what is queued beside it before what is written to it.
pub struct Bypass<S> {
    stream: S,
    long: Frames,
}

impl<S: AsyncWrite + Unpin> Bypass<S> {
    fn poll_long(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut long = self.long.borrow_mut();
        while let Some(bytes) = long.front_mut() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            bytes.advance(written);
            if bytes.is_empty() {
                long.pop_front();
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bypass<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bypass<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_long(cx))?;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_long(cx))?;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_long(cx))?;
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;

    /// Both ends over a pipe that holds little.
    async fn pair() -> (Upstream<DuplexStream>, WebSocketStream<DuplexStream>) {
        let (near, far) = duplex(4 << 10);
        let long = Frames::default();
        let bypass = Bypass { stream: near, long: Rc::clone(&long) };
        let socket = WebSocketStream::from_raw_socket(bypass, Role::Client, Some(websocket::config())).await;
        let server = WebSocketStream::from_raw_socket(
            far,
            Role::Server,
            Some(websocket::config().accept_unmasked_frames(true)),
        )
        .await;
        (Upstream { socket, long }, server)
    }

    fn texts() -> Vec<String> {
        let long = |letter: &str, more: usize| letter.repeat(MAX_FRAGMENT_BYTES + more);
        ["a".into(), long("b", 0), long("c", 1), "d".into(), long("é", 0), long("f", 1 << 20), "g".into()]
            .into()
    }

    #[tokio::test]
    async fn messages_of_every_length_arrive_in_order() {
        let (upstream, mut server) = pair().await;
        let (mut sender, _receiver) = upstream.split();
        let send = async {
            for text in texts() {
                sender.feed(text.into()).await.unwrap();
            }
            sender.flush().await.unwrap();
        };
        let receive = async {
            for text in texts() {
                assert!(server.next().await.unwrap().unwrap().into_text().unwrap() == text, "{text:.9}");
            }
        };
        tokio::join!(send, receive);
    }

    /// The library answers a ping as soon as it reads it, also in the middle of a long message.
    #[tokio::test]
    async fn a_pong_waits_for_the_end_of_a_long_message() {
        let (upstream, mut server) = pair().await;
        let (mut sender, mut receiver) = upstream.split();
        let long = "x".repeat(MAX_FRAGMENT_BYTES * 4);
        let mut feeding = Box::pin(sender.feed(long.clone().into()));
        // The pipe is full: the message is under way and no more.
        assert!(futures_util::poll!(&mut feeding).is_pending());
        server.send(Message::Ping("now".into())).await.unwrap();
        assert_eq!(receiver.next().await.unwrap().unwrap(), Message::Ping("now".into()));
        assert!(futures_util::poll!(receiver.next()).is_pending());
        let answers =
            async { (server.next().await.unwrap().unwrap(), server.next().await.unwrap().unwrap()) };
        let reading = async { while receiver.next().await.is_some() {} };
        tokio::select! {
            () = reading => panic!("the connection ended"),
            (fed, (text, pong)) = async { tokio::join!(feeding, answers) } => {
                fed.unwrap();
                assert!(text.into_text().unwrap() == long);
                assert_eq!(pong, Message::Pong("now".into()));
            }
        }
    }

    #[tokio::test]
    async fn a_message_that_nobody_reads_is_no_success() {
        let (upstream, server) = pair().await;
        let (mut sender, _receiver) = upstream.split();
        drop(server);
        assert!(sender.feed("x".repeat(MAX_FRAGMENT_BYTES + 1).into()).await.is_err());
    }
}
