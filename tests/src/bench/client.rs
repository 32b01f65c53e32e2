//! A blocking WebSocket client that costs next to nothing, the same for every server under test.
//!
//! Invariant: `TCP_NODELAY` is set and acknowledgements are left to the kernel, as with a normal client; long messages
//! are counted, not decoded; buffers are reused; every wait ends at [`TIMEOUT`].

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::{Value, json};

use super::message::{Message, parse};

/// Longest wait for a server to send or to take anything.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Bytes asked of the socket at a time. Most frames fit whole and are never copied.
const BUFFER_BYTES: usize = 256 << 10;

/// Longest answer to the upgrade request.
const MAX_HEAD_BYTES: usize = 8 << 10;

/// Longest message taken: what the real client takes (SPEC 11.8).
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// Any mask will do: loopback has no caches to be protected from clients.
const MASK: [u8; 4] = [0x5a, 0xc3, 0x3c, 0xa5];

/// Where a server is, and what it wants to see.
#[derive(Debug, Clone)]
pub struct Address {
    authority: String,
    target: String,
    tls: Option<Arc<ClientConfig>>,
    token: Option<String>,
}

trait Socket: Read + Write + Send {}

impl<T: Read + Write + Send> Socket for T {}

impl Address {
    /// From a `ws://` or `wss://` URL; a port is needed. The second kind needs `tls`.
    ///
    /// # Errors
    /// The URL is of another kind.
    pub fn new(url: &str, token: Option<String>, tls: Option<Arc<ClientConfig>>) -> io::Result<Self> {
        let secure = url.strip_prefix("wss://");
        let rest = secure.or_else(|| url.strip_prefix("ws://"));
        let rest = rest.ok_or_else(|| io::Error::other(format!("{url} is neither ws:// nor wss://")))?;
        let tls = tls.filter(|_| secure.is_some());
        if secure.is_some() && tls.is_none() {
            return Err(io::Error::other(format!("{url} needs --ca: the certificate authority to trust")));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        Ok(Self { authority: authority.to_owned(), target: format!("/{path}"), tls, token })
    }

    /// The same server by way of another host and port; also its own.
    pub fn by_way_of(&self, authority: &str) -> (Self, String) {
        (Self { authority: authority.to_owned(), ..self.clone() }, self.authority.clone())
    }

    /// Opens a WebSocket.
    ///
    /// # Errors
    /// Of the network, and any answer other than 101.
    pub fn connect(&self) -> io::Result<Client> {
        let tcp = TcpStream::connect(&self.authority)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(TIMEOUT))?;
        tcp.set_write_timeout(Some(TIMEOUT))?;
        let socket: Box<dyn Socket> = match &self.tls {
            None => Box::new(tcp),
            Some(config) => {
                let host = self.authority.rsplit_once(':').map_or(self.authority.as_str(), |(host, _)| host);
                let name = ServerName::try_from(host.trim_matches(['[', ']']).to_owned());
                let name = name.map_err(io::Error::other)?;
                let tls = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                Box::new(StreamOwned::new(tls, tcp))
            }
        };
        let mut client = Client {
            socket,
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            unread: 0..0,
            message: Vec::new(),
            message_length: 0,
            outgoing: Vec::new(),
            next_id: 1,
        };
        client.upgrade(self)?;
        Ok(client)
    }

    /// Opens a WebSocket and a session; gives the result of `initialize` as well.
    ///
    /// # Errors
    /// Of the network, and a refusal.
    pub fn open(&self) -> io::Result<(Client, Value)> {
        let mut client = self.connect()?;
        let result = client.call("initialize", &initialize())?;
        client.queue(r#"{"method":"initialized"}"#);
        client.flush()?;
        Ok((client, result))
    }
}

/// Parameters of `initialize`.
pub fn initialize() -> String {
    json!({ "clientName": "legion-bench", "resumeSessionId": null }).to_string()
}

/// An open connection.
pub struct Client {
    socket: Box<dyn Socket>,
    buffer: Box<[u8]>,
    /// Received and not yet taken out of `buffer`.
    unread: Range<usize>,
    /// Fragments and frames too long for `buffer` are put together here; never shrinks.
    message: Vec<u8>,
    message_length: usize,
    outgoing: Vec<u8>,
    next_id: u64,
}

/// Of one frame.
struct Header {
    opcode: u8,
    last: bool,
    length: usize,
}

impl Client {
    fn upgrade(&mut self, address: &Address) -> io::Result<()> {
        let token = address.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
        // The key is not secret, and nothing is gained by checking the answer to it.
        let request = format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: bGVnaW9uLWJlbmNobWFyaw==\r\n{}\r\n",
            address.target,
            address.authority,
            token.unwrap_or_default()
        );
        self.socket.write_all(request.as_bytes())?;
        loop {
            let received = &self.buffer[self.unread.clone()];
            if let Some(end) = memchr::memmem::find(received, b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&received[..end]);
                let status = head.lines().next().unwrap_or_default().to_owned();
                self.unread.start += end + 4;
                return match status.split(' ').nth(1) {
                    Some("101") => Ok(()),
                    _ => Err(io::Error::other(format!("the server answered the upgrade with: {status}"))),
                };
            }
            if received.len() > MAX_HEAD_BYTES {
                return Err(io::Error::other("the answer to the upgrade does not end"));
            }
            self.fill(received.len() + 1)?;
        }
    }

    /// Queues a request and returns its id; `params` is JSON.
    pub fn request(&mut self, method: &str, params: &str) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.queue(&format!(r#"{{"id":{id},"method":"{method}","params":{params}}}"#));
        id
    }

    /// Queues one text message.
    pub fn queue(&mut self, text: &str) {
        let length = text.len();
        self.outgoing.push(0x81);
        match (u8::try_from(length), u16::try_from(length)) {
            (Ok(short @ 0..126), _) => self.outgoing.push(0x80 | short),
            (_, Ok(medium)) => {
                self.outgoing.push(0xfe);
                self.outgoing.extend(medium.to_be_bytes());
            }
            _ => {
                self.outgoing.push(0xff);
                self.outgoing.extend((length as u64).to_be_bytes());
            }
        }
        self.outgoing.extend(MASK);
        let start = self.outgoing.len();
        self.outgoing.extend_from_slice(text.as_bytes());
        for piece in self.outgoing[start..].chunks_mut(MASK.len()) {
            piece.iter_mut().zip(MASK).for_each(|(byte, mask)| *byte ^= mask);
        }
    }

    /// Sends what is queued.
    ///
    /// # Errors
    /// The server does not take it.
    pub fn flush(&mut self) -> io::Result<()> {
        self.socket.write_all(&self.outgoing).and_then(|()| self.socket.flush()).map_err(explain)?;
        self.outgoing.clear();
        Ok(())
    }

    /// Sends a request and waits for its result; notifications that come before it are dropped.
    ///
    /// # Errors
    /// Of the network, and an error answer.
    pub fn call(&mut self, method: &str, params: &str) -> io::Result<Value> {
        let id = self.request(method, params);
        self.flush()?;
        loop {
            let mut answer: Value = serde_json::from_slice(self.next_text()?)?;
            if answer["id"] == id {
                let error = answer["error"].take();
                return if error.is_null() {
                    Ok(answer["result"].take())
                } else {
                    Err(io::Error::other(format!("{method}: {error}")))
                };
            }
        }
    }

    /// The next message.
    ///
    /// # Errors
    /// The server has ended the connection, or is silent for too long.
    pub fn next_message(&mut self) -> io::Result<Message> {
        parse(self.next_text()?)
    }

    /// Whether a whole message may be there already: then more can be queued before sending.
    pub fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// The text of the next message.
    ///
    /// # Errors
    /// As [`Self::next_message`].
    pub fn next_text(&mut self) -> io::Result<&[u8]> {
        self.message_length = 0;
        loop {
            let Header { opcode, last, length } = self.header()?;
            match opcode {
                0..=2 if last && self.message_length == 0 && length <= self.buffer.len() => {
                    self.fill(length)?;
                    let start = self.unread.start;
                    self.unread.start += length;
                    return Ok(&self.buffer[start..start + length]);
                }
                0..=2 => {
                    self.append(length)?;
                    if last {
                        return Ok(&self.message[..self.message_length]);
                    }
                }
                9 => {
                    self.fill(length)?;
                    self.unread.start += length;
                    // An empty pong is good enough for a keep-alive.
                    self.outgoing.extend([0x8a, 0x80]);
                    self.outgoing.extend(MASK);
                    self.flush()?;
                }
                10 => {
                    self.fill(length)?;
                    self.unread.start += length;
                }
                _ => return Err(io::Error::other("the server closed the connection")),
            }
        }
    }

    fn header(&mut self) -> io::Result<Header> {
        self.fill(2)?;
        let (first, second) = (self.buffer[self.unread.start], self.buffer[self.unread.start + 1]);
        self.unread.start += 2;
        let extended = match second {
            0..126 => 0,
            126 => 2,
            127 => 8,
            _ => return Err(io::Error::other("a server does not mask")),
        };
        self.fill(extended)?;
        let bytes = &self.buffer[self.unread.start..self.unread.start + extended];
        let long = bytes.iter().fold(0, |length: u64, byte| length << 8 | u64::from(*byte));
        self.unread.start += extended;
        let length = if extended == 0 { u64::from(second) } else { long };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > MAX_MESSAGE_BYTES {
            return Err(io::Error::other(format!("a frame of {length} bytes is more than a client takes")));
        }
        Ok(Header { opcode: first & 0x0f, last: first & 0x80 != 0, length })
    }

    /// Makes at least `wanted` bytes unread in one piece; no more than the buffer holds.
    fn fill(&mut self, wanted: usize) -> io::Result<()> {
        if self.unread.start + wanted > self.buffer.len() {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        while self.unread.len() < wanted {
            if self.unread.is_empty() {
                self.unread = 0..0;
            }
            let count = self.socket.read(&mut self.buffer[self.unread.end..]).map_err(explain)?;
            if count == 0 {
                return Err(io::Error::other("the server closed the connection"));
            }
            self.unread.end += count;
        }
        Ok(())
    }

    /// Appends `length` bytes of payload to `message`, straight from the socket where they are not here yet.
    fn append(&mut self, length: usize) -> io::Result<()> {
        let end = self.message_length + length;
        if end > MAX_MESSAGE_BYTES {
            return Err(io::Error::other("a message is longer than a client takes"));
        }
        if self.message.len() < end {
            self.message.resize(end, 0);
        }
        let here = length.min(self.unread.len());
        let unread = self.unread.start..self.unread.start + here;
        let (target, rest) = self.message[self.message_length..end].split_at_mut(here);
        target.copy_from_slice(&self.buffer[unread]);
        self.unread.start += here;
        self.socket.read_exact(rest).map_err(explain)?;
        self.message_length = end;
        Ok(())
    }
}

fn explain(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::other(format!("the server did nothing for {} s", TIMEOUT.as_secs()))
        }
        _ => error,
    }
}
