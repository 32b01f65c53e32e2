//! Plain HTTP/1.1 and RFC 6455 framing, seen frame by frame.
//!
//! Invariant: nothing here is shared with the servers under test (no WebSocket crate), so a framing bug cannot
//! hide by being on both ends; every read is bounded by a limit below.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for a TCP connection or an HTTP reply head.
const HTTP_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest HTTP reply head or body accepted from a server, in bytes.
const MAX_HTTP_BYTES: usize = 64 * 1024;
/// Longest WebSocket message accepted from a server, in bytes; above every message the cases ask for.
const MAX_MESSAGE_BYTES: usize = 96 * 1024 * 1024;
/// The sample nonce of RFC 6455 section 1.3 and the accept value that belongs to it.
const NONCE: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// A parsed HTTP reply; header names are lower case.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(have, _)| have == name).map(|(_, value)| value.as_str())
    }
}

/// What a server sent on a WebSocket.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A whole message: its text, in how many frames it came, and the payload of the largest one in bytes.
    Message {
        text: String,
        frames: usize,
        largest: usize,
    },
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close,
    /// The stream ended; the text says how, `"end of stream"` for a plain end.
    Ended(String),
}

/// Connects with the time-out of this file.
pub(crate) fn dial(addr: SocketAddr) -> Result<TcpStream, String> {
    let stream =
        TcpStream::connect_timeout(&addr, HTTP_TIMEOUT).map_err(|e| format!("connect {addr}: {e}"))?;
    stream.set_nodelay(true).map_err(|e| format!("set TCP_NODELAY: {e}"))?;
    stream.set_write_timeout(Some(HTTP_TIMEOUT)).map_err(|e| format!("set write timeout: {e}"))?;
    Ok(stream)
}

/// Sends each raw request on one connection and reads its reply before the next.
pub(crate) fn exchange(addr: SocketAddr, requests: &[String]) -> Result<Vec<Reply>, String> {
    let mut stream = dial(addr)?;
    stream.set_read_timeout(Some(HTTP_TIMEOUT)).map_err(|e| e.to_string())?;
    let mut reader = BufReader::new(stream.try_clone().map_err(|e| e.to_string())?);
    requests
        .iter()
        .map(|request| {
            stream.write_all(request.as_bytes()).map_err(|e| format!("send request: {e}"))?;
            read_reply(&mut reader, request.starts_with("HEAD "))
        })
        .collect()
}

fn read_reply(reader: &mut BufReader<TcpStream>, head_only: bool) -> Result<Reply, String> {
    let mut lines = Vec::new();
    let mut total = 0;
    loop {
        let mut line = String::new();
        let read = reader.read_line(&mut line).map_err(|e| format!("read reply head: {e}"))?;
        total += read;
        if read == 0 || total > MAX_HTTP_BYTES {
            return Err(format!("reply head ended early or is too long; so far {lines:?}"));
        }
        match line.trim_end() {
            "" => break,
            text => lines.push(text.to_owned()),
        }
    }
    let status = lines
        .first()
        .and_then(|line| line.split(' ').nth(1)?.parse().ok())
        .ok_or_else(|| format!("no status in {lines:?}"))?;
    let headers: Vec<(String, String)> = lines
        .iter()
        .skip(1)
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut reply = Reply { status, headers, body: String::new() };
    let length: usize = reply.header("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
    if status != 101 && !head_only {
        if length > MAX_HTTP_BYTES {
            return Err(format!("reply body of {length} bytes is too long"));
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).map_err(|e| format!("read reply body: {e}"))?;
        reply.body = String::from_utf8_lossy(&body).into_owned();
    }
    Ok(reply)
}

/// The upgrade request for `target`, with extra header lines (`Name: value`).
pub(crate) fn upgrade_request(addr: SocketAddr, target: &str, extra: &[String]) -> String {
    let mut request = format!(
        "GET {target} HTTP/1.1\r\nHost: {addr}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {NONCE}\r\n"
    );
    for line in extra {
        request.push_str(line);
        request.push_str("\r\n");
    }
    request.push_str("\r\n");
    request
}

/// Opens a WebSocket; the reader carries what the server may have sent right behind its reply.
pub(crate) fn open(addr: SocketAddr, extra: &[String]) -> Result<(TcpStream, BufReader<TcpStream>), String> {
    let mut stream = dial(addr)?;
    stream.set_read_timeout(Some(HTTP_TIMEOUT)).map_err(|e| e.to_string())?;
    let mut reader = BufReader::new(stream.try_clone().map_err(|e| e.to_string())?);
    stream
        .write_all(upgrade_request(addr, "/", extra).as_bytes())
        .map_err(|e| format!("send upgrade: {e}"))?;
    let reply = read_reply(&mut reader, false)?;
    check_upgrade(&reply)?;
    stream.set_read_timeout(None).map_err(|e| e.to_string())?;
    Ok((stream, reader))
}

/// Checks a 101 reply as RFC 6455 section 4.1 asks of a client; nothing was offered, so nothing may be chosen.
pub(crate) fn check_upgrade(reply: &Reply) -> Result<(), String> {
    let token = |name: &str, want: &str| reply.header(name).is_some_and(|v| v.eq_ignore_ascii_case(want));
    if reply.status != 101 {
        return Err(format!("upgrade refused: {reply:?}"));
    }
    if !token("connection", "upgrade") || !token("upgrade", "websocket") {
        return Err(format!("upgrade reply lacks its headers: {reply:?}"));
    }
    if reply.header("sec-websocket-accept") != Some(ACCEPT) {
        return Err(format!("wrong Sec-WebSocket-Accept: {reply:?}"));
    }
    if reply.header("sec-websocket-extensions").is_some() || reply.header("sec-websocket-protocol").is_some()
    {
        return Err(format!("the server chose an extension or sub-protocol: {reply:?}"));
    }
    Ok(())
}

/// One frame to send; `rsv` is the three reserved bits, `masked` is true for a well-behaved client.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) opcode: u8,
    pub(crate) fin: bool,
    pub(crate) rsv: u8,
    pub(crate) masked: bool,
    pub(crate) payload: Vec<u8>,
}

impl Outgoing {
    pub(crate) fn text(payload: &str) -> Self {
        Self { opcode: 1, fin: true, rsv: 0, masked: true, payload: payload.as_bytes().to_vec() }
    }

    /// Writes the frame in one call.
    pub(crate) fn write(mut self, stream: &mut TcpStream) -> std::io::Result<()> {
        /// Payloads above this length (bytes) are masked with zeros, which is a valid mask and costs no time.
        const LONG: usize = 64 * 1024;
        let flag = if self.masked { 0x80 } else { 0 };
        let mut out = vec![u8::from(self.fin) << 7 | self.rsv << 4 | self.opcode];
        let length = self.payload.len();
        let key: [u8; 4] = if length > LONG { [0; 4] } else { [0x37, 0xfa, 0x21, 0x3d] };
        if let Ok(short @ 0..=125) = u8::try_from(length) {
            out.push(flag | short);
        } else if let Ok(medium) = u16::try_from(length) {
            out.push(flag | 0x7e);
            out.extend(medium.to_be_bytes());
        } else {
            out.push(flag | 0x7f);
            out.extend((length as u64).to_be_bytes());
        }
        if self.masked {
            out.extend(key);
            if length <= LONG {
                for (byte, mask) in self.payload.iter_mut().zip(key.iter().cycle()) {
                    *byte ^= mask;
                }
            }
        }
        out.append(&mut self.payload);
        stream.write_all(&out)
    }
}

/// Reads the next message or control frame.
pub(crate) fn read_incoming(reader: &mut impl Read) -> Incoming {
    let mut message = Vec::new();
    let mut frames = 0;
    let mut largest = 0;
    loop {
        let (fin, opcode, payload) = match read_frame(reader) {
            Ok(frame) => frame,
            Err(how) => return Incoming::Ended(how),
        };
        match (opcode, frames) {
            (8, _) => return Incoming::Close,
            // Control frames between fragments would need a queue; no server here sends them.
            (9, 0) => return Incoming::Ping(payload),
            (10, 0) => return Incoming::Pong(payload),
            (1, 0) | (0, 1..) => {
                frames += 1;
                largest = largest.max(payload.len());
                message.extend(payload);
            }
            _ => return Incoming::Ended(format!("unexpected opcode {opcode} after {frames} fragments")),
        }
        if message.len() > MAX_MESSAGE_BYTES {
            return Incoming::Ended("message above the limit of the test client".into());
        }
        if fin {
            return match String::from_utf8(message) {
                Ok(text) => Incoming::Message { text, frames, largest },
                Err(_) => Incoming::Ended("text message that is not UTF-8".into()),
            };
        }
    }
}

fn read_frame(reader: &mut impl Read) -> Result<(bool, u8, Vec<u8>), String> {
    let mut head = [0; 2];
    reader.read_exact(&mut head).map_err(|e| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => "end of stream".into(),
        _ => format!("{e}"),
    })?;
    if head[0] & 0x70 != 0 || head[1] & 0x80 != 0 {
        return Err("server frame with reserved bits or a mask".into());
    }
    let mut wide = [0; 8];
    let length = match head[1] {
        126 => {
            reader.read_exact(&mut wide[6..]).map_err(|e| e.to_string())?;
            u64::from_be_bytes(wide)
        }
        127 => {
            reader.read_exact(&mut wide).map_err(|e| e.to_string())?;
            u64::from_be_bytes(wide)
        }
        short => u64::from(short),
    };
    let length = usize::try_from(length).ok().filter(|n| *n <= MAX_MESSAGE_BYTES);
    let mut payload = vec![0; length.ok_or("frame above the limit of the test client")?];
    reader.read_exact(&mut payload).map_err(|e| e.to_string())?;
    Ok((head[0] & 0x80 != 0, head[0] & 0x0f, payload))
}
