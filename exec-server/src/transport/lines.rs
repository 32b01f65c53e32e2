//! Lines of stdio: one JSON message a line, empty lines ignored (SPEC 1.5).

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use legion_protocol::limits::MAX_MESSAGE_BYTES;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_tungstenite::tungstenite::{Bytes, Utf8Bytes};

use super::{Incoming, Lost, Transport};

/// Bytes asked for at a time.
const READ_BYTES: usize = 64 << 10;

/// Outgoing bytes above which no further message is taken before some are written.
const WRITE_BYTES: usize = 128 << 10;

/// Two byte streams.
pub(crate) struct Lines<R, W> {
    reader: R,
    writer: W,
    /// Received. Lines up to `start` have been taken, and from there to `searched` there is no line feed.
    received: Vec<u8>,
    start: usize,
    searched: usize,
    buffer: Box<[u8]>,
    ended: bool,
    outgoing: VecDeque<Bytes>,
    outgoing_bytes: usize,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Lines<R, W> {
    /// Lines of `reader` in, lines of `writer` out.
    pub(crate) fn new(reader: R, writer: W) -> Self {
        Self {
            reader,
            writer,
            received: Vec::new(),
            start: 0,
            searched: 0,
            buffer: vec![0; READ_BYTES].into_boxed_slice(),
            ended: false,
            outgoing: VecDeque::new(),
            outgoing_bytes: 0,
        }
    }

    /// The next line without its line feed; at the end of the stream also an unfinished one. What is behind it stays
    /// where it is: of many short lines that came together, none is paid for by the others.
    fn take_line(&mut self) -> Option<Vec<u8>> {
        let end = self.received[self.searched..].iter().position(|byte| *byte == b'\n');
        match end.map(|end| self.searched + end) {
            Some(end) if self.start == 0 && end + 1 == self.received.len() => {
                let mut line = self.take_rest();
                line.pop();
                Some(line)
            }
            Some(end) => {
                let line = self.received[self.start..end].to_vec();
                self.start = end + 1;
                self.searched = self.start;
                Some(line)
            }
            None if self.ended && self.start < self.received.len() => Some(self.take_rest()),
            None => {
                self.searched = self.received.len();
                None
            }
        }
    }

    fn take_rest(&mut self) -> Vec<u8> {
        self.drop_taken();
        self.searched = 0;
        std::mem::take(&mut self.received)
    }

    fn drop_taken(&mut self) {
        self.received.drain(..self.start);
        self.searched -= self.start;
        self.start = 0;
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.drop_taken();
        let mut buffer = ReadBuf::new(&mut self.buffer);
        ready!(Pin::new(&mut self.reader).poll_read(cx, &mut buffer))?;
        self.received.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    }

    fn poll_write_all(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        while let Some(first) = self.outgoing.front_mut() {
            match ready!(Pin::new(&mut self.writer).poll_write(cx, first)) {
                Ok(0) | Err(_) => return Poll::Ready(Err(Lost)),
                Ok(count) => {
                    self.outgoing_bytes -= count;
                    if count == first.len() {
                        self.outgoing.pop_front();
                    } else {
                        drop(first.split_to(count));
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Transport for Lines<R, W> {
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Incoming> {
        loop {
            if let Some(line) = self.take_line() {
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Poll::Ready(match Utf8Bytes::try_from(line) {
                    Ok(text) => Incoming::Text(text),
                    Err(error) => Incoming::Garbled(error.to_string()),
                });
            }
            if self.ended || self.received.len() - self.start > MAX_MESSAGE_BYTES {
                return Poll::Ready(Incoming::Ended);
            }
            self.ended = !matches!(ready!(self.poll_read(cx)), Ok(1..));
        }
    }

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        if self.outgoing_bytes > WRITE_BYTES {
            ready!(self.poll_write_all(cx))?;
        }
        Poll::Ready(Ok(()))
    }

    fn start_send(&mut self, text: Utf8Bytes) -> Result<(), Lost> {
        self.outgoing_bytes += text.len() + 1;
        self.outgoing.push_back(text.into());
        self.outgoing.push_back(Bytes::from_static(b"\n"));
        Ok(())
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Lost>> {
        ready!(self.poll_write_all(cx))?;
        Pin::new(&mut self.writer).poll_flush(cx).map_err(|_| Lost)
    }

    fn ping(&mut self) -> Result<(), Lost> {
        // A pipe needs none.
        Ok(())
    }

    fn source(&self) -> &dyn fmt::Display {
        &"exec-server stdio"
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn lines_are_messages_however_they_arrive() {
        let input: &[u8] = b"{\"a\":1}\n\n \r\n{\"b\":2}\r\n\xff\nlast";
        for piece in [1, 3, 100] {
            let (client, server) = tokio::io::duplex(piece);
            let (reader, mut writer) = (server, client);
            let send = async {
                tokio::io::AsyncWriteExt::write_all(&mut writer, input).await.unwrap();
                drop(writer);
            };
            let receive = async {
                let mut lines = Lines::new(reader, tokio::io::sink());
                let mut seen = Vec::new();
                loop {
                    match poll_fn(|cx| lines.poll_incoming(cx)).await {
                        Incoming::Text(text) => seen.push(text.to_string()),
                        Incoming::Garbled(_) => seen.push("garbled".to_owned()),
                        Incoming::Ended => return seen,
                    }
                }
            };
            let ((), seen) = tokio::join!(send, receive);
            assert_eq!(seen, [r#"{"a":1}"#, "{\"b\":2}\r", "garbled", "last"]);
        }
    }

    #[test]
    fn taking_a_line_does_not_move_what_is_behind_it() {
        let mut lines = Lines::new(tokio::io::empty(), tokio::io::sink());
        lines.received = b"one\n\ntwo\nthr".to_vec();
        let place = lines.received.as_ptr();
        for line in [&b"one"[..], b"", b"two"] {
            assert_eq!(lines.take_line().as_deref(), Some(line));
            assert_eq!(lines.received.as_ptr(), place);
        }
        assert_eq!(lines.take_line(), None);
        lines.received.extend(b"ee\n");
        assert_eq!(lines.take_line().as_deref(), Some(&b"three"[..]));
        lines.ended = true;
        lines.received.extend(b"four");
        assert_eq!((lines.take_line().as_deref(), lines.take_line()), (Some(&b"four"[..]), None));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn messages_leave_as_lines() {
        let mut written = Vec::new();
        let mut lines = Lines::new(tokio::io::empty(), &mut written);
        lines.start_send("one".into()).unwrap();
        lines.start_send("two".into()).unwrap();
        poll_fn(|cx| lines.poll_flush(cx)).await.unwrap();
        assert_eq!(lines.outgoing_bytes, 0);
        drop(lines);
        assert_eq!(written, b"one\ntwo\n");
    }
}
