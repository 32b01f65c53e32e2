//! WebSockets as every tier here uses them: bounded buffers, a bounded handshake, fragments towards clients.

use std::io;

use bytes::Bytes;
use legion_protocol::limits::{
    MAX_FRAGMENT_BYTES, MAX_MESSAGE_BYTES, WEBSOCKET_MAX_WRITE_BUFFER_BYTES, WEBSOCKET_READ_BUFFER_BYTES,
    WEBSOCKET_WRITE_BUFFER_BYTES,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, tungstenite::client::IntoClientRequest};

/// The bounds of one WebSocket.
pub fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(WEBSOCKET_READ_BUFFER_BYTES)
        .write_buffer_size(WEBSOCKET_WRITE_BUFFER_BYTES)
        .max_write_buffer_size(WEBSOCKET_MAX_WRITE_BUFFER_BYTES)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES))
}

/// Opens a WebSocket as a client over a connected stream, with a bearer token in its header.
pub async fn connect<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    token: Option<&str>,
) -> io::Result<WebSocketStream<S>> {
    let mut request = "ws://localhost/".into_client_request().map_err(to_io)?;
    if let Some(token) = token {
        let value = format!("Bearer {token}").parse().map_err(|_| io::ErrorKind::InvalidInput)?;
        request.headers_mut().insert("authorization", value);
    }
    let (socket, _) =
        tokio_tungstenite::client_async_with_config(request, stream, Some(config())).await.map_err(to_io)?;
    Ok(socket)
}

/// The error of the stream below, or the protocol error as one.
pub fn to_io(error: tungstenite::Error) -> io::Error {
    match error {
        tungstenite::Error::Io(error) => error,
        tungstenite::Error::Http(response) => {
            let body = response.body().as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            io::Error::other(format!("{}: {body}", response.status()))
        }
        other => io::Error::other(other.to_string()),
    }
}

/// A text message as one frame, or as fragments when it is long.
pub fn fragments(text: Bytes) -> impl Iterator<Item = Message> {
    let total = text.len();
    let count = total.div_ceil(MAX_FRAGMENT_BYTES).max(1);
    (0..count).map(move |index| {
        let start = index * MAX_FRAGMENT_BYTES;
        let end = total.min(start + MAX_FRAGMENT_BYTES);
        let kind = if index == 0 { Data::Text } else { Data::Continue };
        Message::Frame(Frame::message(text.slice(start..end), OpCode::Data(kind), index + 1 == count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_become_fragments_that_join_to_the_text() {
        for length in [0, 1, MAX_FRAGMENT_BYTES, MAX_FRAGMENT_BYTES + 1, MAX_FRAGMENT_BYTES * 3] {
            let text = Bytes::from(vec![b'x'; length]);
            let frames: Vec<Frame> = fragments(text)
                .map(|message| match message {
                    Message::Frame(frame) => frame,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(frames.iter().map(|frame| frame.payload().len()).sum::<usize>(), length);
            assert!(frames.iter().all(|frame| frame.payload().len() <= MAX_FRAGMENT_BYTES));
            let finals: Vec<bool> = frames.iter().map(|frame| frame.header().is_final).collect();
            assert_eq!(finals.iter().filter(|last| **last).count(), 1);
            assert_eq!(finals.last(), Some(&true));
        }
    }
}
