//! The little HTTP/1.1 that the mock of the model's API needs.
//!
//! Invariant: one request per connection, body by `content-length`, both bounded; the answer closes the
//! connection.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Longest request line plus headers. Codex sends about 2 KiB.
const HEAD_LIMIT: u64 = 64 * 1024;

/// Longest body. A request repeats the whole conversation, images and long outputs included.
const BODY_LIMIT: usize = 64 * 1024 * 1024;

/// A request as it came.
#[derive(Debug)]
pub struct HttpRequest {
    /// `GET`, `POST`, …
    pub method: String,
    /// Path with query.
    pub target: String,
    /// Names in lower case, in the order they came.
    pub headers: Vec<(String, String)>,
    /// The body, empty without `content-length`.
    pub body: Vec<u8>,
}

impl HttpRequest {
    /// The first header of this (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Reads one request.
pub async fn read_request(stream: &mut TcpStream) -> io::Result<HttpRequest> {
    let mut reader = BufReader::new(stream);
    let head = read_head(&mut reader).await?;
    let mut lines = head.lines();
    let mut request_line = lines.next().unwrap_or_default().split(' ');
    let method = request_line.next().unwrap_or_default().to_owned();
    let target = request_line.next().ok_or_else(|| invalid("no target in the request line"))?.to_owned();
    let headers: Vec<_> = lines.filter_map(|line| line.split_once(':')).map(trimmed).collect();
    let mut request = HttpRequest { method, target, headers, body: Vec::new() };
    if let Some(length) = request.header("content-length") {
        let length: usize = length.parse().map_err(|_| invalid("content-length is not a number"))?;
        if length > BODY_LIMIT {
            return Err(invalid("body too large"));
        }
        request.body = vec![0; length];
        reader.read_exact(&mut request.body).await?;
    }
    Ok(request)
}

async fn read_head(reader: &mut (impl AsyncBufReadExt + Unpin)) -> io::Result<String> {
    let mut head = String::new();
    let mut limited = reader.take(HEAD_LIMIT);
    loop {
        if limited.read_line(&mut head).await? == 0 {
            return Err(invalid("the head ends early or is too long"));
        }
        if head.ends_with("\r\n\r\n") {
            return Ok(head);
        }
    }
}

fn trimmed((name, value): (&str, &str)) -> (String, String) {
    (name.to_ascii_lowercase(), value.trim().to_owned())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Writes one answer and ends the connection.
pub async fn respond(
    stream: &mut TcpStream,
    status: &str,
    content_type: &str,
    body: &[u8],
) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.shutdown().await
}
