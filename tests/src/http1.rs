//! The little HTTP/1.1 that the mock of the model's API needs, and a request to a client's own server.
//!
//! Invariant: one request per connection, body by `content-length`, both bounded; the answer closes the
//! connection. An answer that is asked for may come in chunks.

use std::io;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use crate::child::within;

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

/// Asks a server at `address`: status and body of its answer.
pub async fn ask(
    address: &str,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let answer = async {
        let mut stream = TcpStream::connect(address).await?;
        let length = body.len().to_string();
        let fixed = [
            ("host", address),
            ("connection", "close"),
            ("content-type", "application/json"),
            ("content-length", &length),
        ];
        let lines = fixed.iter().chain(headers).map(|(name, value)| format!("{name}: {value}\r\n"));
        let head = format!("{method} {target} HTTP/1.1\r\n{}\r\n", lines.collect::<String>());
        stream.write_all((head + body).as_bytes()).await?;
        let mut reader = BufReader::new(stream);
        let head = read_head(&mut reader).await?;
        let length = head.lines().filter_map(|line| line.split_once(':')).map(trimmed);
        let length =
            length.filter(|(name, _)| name == "content-length").find_map(|(_, value)| value.parse().ok());
        let mut answer = Vec::new();
        // Whether the server closes the connection is its own affair.
        while length.map_or(!answer.ends_with(b"0\r\n\r\n"), |length: usize| answer.len() < length) {
            if answer.len() > BODY_LIMIT || reader.read_buf(&mut answer).await? == 0 {
                break;
            }
        }
        io::Result::Ok((head, answer))
    };
    let (head, body) = within("the server answers", answer).await.expect("it can be reached");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
    let body = String::from_utf8_lossy(&body).into_owned();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    (status, if chunked { joined(&body) } else { body })
}

/// The content of chunks; sizes count bytes, and all of it is ASCII where tests look.
fn joined(chunks: &str) -> String {
    let mut rest = chunks;
    let mut content = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let Some(chunk) = after.get(..size).filter(|chunk| !chunk.is_empty()) else { break };
        content.push_str(chunk);
        rest = after[size..].trim_start_matches("\r\n");
    }
    content
}
