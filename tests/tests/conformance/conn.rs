//! One protocol connection: sends, and files what arrives by kind.
//!
//! Invariant: the ordering rules of SPEC 4.2 are checked on every notification of every case, not only in the cases
//! about ordering; what breaks them is kept in `violations` and fails the case.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::ProcessLog;
use crate::vars::Vars;
use crate::wire::{self, Incoming, Outgoing};

/// Messages read ahead of a case; beyond it the reader thread waits, and with it the server.
const READ_AHEAD: usize = 256;
/// Lines of the exchange kept for the failure message.
const TRACE_LINES: usize = 80;

/// How the messages travel.
enum Link {
    WebSocket(TcpStream),
    Stdio(ChildStdin),
    /// Ended from this side; every descriptor of it is closed.
    Gone,
}

/// An open (or ended) connection.
pub(crate) struct Conn {
    link: Link,
    incoming: Receiver<Incoming>,
    reader: Option<JoinHandle<()>>,
    next_id: i64,
    /// Responses not yet asked for, by the JSON text of their id.
    responses: BTreeMap<String, VecDeque<Value>>,
    /// `process/start` requests without a response yet: request id → process id.
    starting: BTreeMap<String, String>,
    pub(crate) processes: BTreeMap<String, ProcessLog>,
    /// Notifications that are not about a process.
    pub(crate) notes: VecDeque<Value>,
    pub(crate) pongs: VecDeque<Vec<u8>>,
    /// How the connection ended, once it has.
    pub(crate) ended: Option<String>,
    pub(crate) violations: Vec<String>,
    /// Number of messages received so far.
    pub(crate) received: usize,
    /// Largest frame payload and largest message received, in bytes, and most frames of one message.
    pub(crate) largest_frame: usize,
    pub(crate) largest_message: usize,
    pub(crate) most_frames: usize,
    trace: VecDeque<String>,
    /// Whether this connection took over a session, whose processes have sequence numbers already.
    pub(crate) resumed: bool,
    /// Whether a Close frame of the server is due: we sent one, and this server answers it.
    pub(crate) close_expected: bool,
    /// Whether a notification ahead of the response to its `process/start`, or out of the order of `seq`, is a
    /// violation. SPEC 4.2 says so of the original too, but under load it does both.
    pub(crate) strict_order: bool,
}

impl Conn {
    /// Opens a WebSocket; returns the connection and its local address.
    pub(crate) fn open(addr: SocketAddr, headers: &[String]) -> Result<(Self, SocketAddr), String> {
        let (stream, mut reader) = wire::open(addr, headers)?;
        let local = stream.local_addr().map_err(|e| e.to_string())?;
        let (sender, incoming) = sync_channel(READ_AHEAD);
        let reader = std::thread::spawn(move || {
            loop {
                // The original does not set TCP_NODELAY; with delayed acknowledgements every chunk of output would
                // take 40 ms (SPEC 15.1). The option wears off, so it is set again for every message.
                let _best_effort = rustix::net::sockopt::set_tcp_quickack(reader.get_ref(), true);
                let message = wire::read_incoming(&mut reader);
                let last = matches!(message, Incoming::Ended(_));
                if sender.send(message).is_err() || last {
                    return;
                }
            }
        });
        Ok((Self::new(Link::WebSocket(stream), incoming, Some(reader)), local))
    }

    /// Speaks over the pipes of a server started with `--listen stdio`.
    pub(crate) fn stdio(stdin: ChildStdin, incoming: Receiver<Incoming>) -> Self {
        Self::new(Link::Stdio(stdin), incoming, None)
    }

    fn new(link: Link, incoming: Receiver<Incoming>, reader: Option<JoinHandle<()>>) -> Self {
        Self {
            link,
            incoming,
            reader,
            next_id: 1,
            responses: BTreeMap::new(),
            starting: BTreeMap::new(),
            processes: BTreeMap::new(),
            notes: VecDeque::new(),
            pongs: VecDeque::new(),
            ended: None,
            violations: Vec::new(),
            received: 0,
            largest_frame: 0,
            largest_message: 0,
            most_frames: 0,
            trace: VecDeque::new(),
            resumed: false,
            close_expected: false,
            strict_order: false,
        }
    }

    /// The id of the next request that does not name one.
    pub(crate) fn take_id(&mut self) -> Value {
        self.next_id += 1;
        (self.next_id - 1).into()
    }

    /// Notes that `id` starts `process`.
    pub(crate) fn expect_start(&mut self, id: &Value, process: &str) {
        self.starting.insert(id.to_string(), process.to_owned());
    }

    pub(crate) fn send_text(&mut self, text: &str) -> Result<(), String> {
        // A server that cannot get rid of its answers stops reading (SPEC 4.3), so take what has arrived first.
        while let Ok(message) = self.incoming.try_recv() {
            self.file(message)?;
        }
        self.note_line('>', text);
        let sent = match &mut self.link {
            Link::WebSocket(stream) => Outgoing::text(text).write(stream),
            Link::Stdio(stdin) => writeln!(stdin, "{text}"),
            Link::Gone => return Err("the connection was ended by the case".into()),
        };
        self.sent(sent)
    }

    pub(crate) fn send_frame(&mut self, frame: Outgoing) -> Result<(), String> {
        let Link::WebSocket(stream) = &mut self.link else {
            return Err("frames need an open WebSocket".into());
        };
        let line =
            format!("frame opcode {} fin {} of {} bytes", frame.opcode, frame.fin, frame.payload.len());
        let sent = frame.write(stream);
        self.note_line('>', &line);
        self.sent(sent)
    }

    /// A server may drop the connection while we are still sending; that is an end like any other.
    fn sent(&mut self, result: std::io::Result<()>) -> Result<(), String> {
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
        match result {
            Err(e) if matches!(e.kind(), BrokenPipe | ConnectionReset) => {
                self.ended.get_or_insert_with(|| "reset while sending".into());
                Ok(())
            }
            other => other.map_err(|e| format!("send: {e}")),
        }
    }

    /// Ends the connection from this side: a reset, or an ordinary end.
    pub(crate) fn hang_up(&mut self, reset: bool) -> Result<(), String> {
        if let Link::WebSocket(stream) = &self.link
            && reset
        {
            rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))
                .map_err(|e| e.to_string())?;
        }
        self.close(if reset { Shutdown::Read } else { Shutdown::Both });
        self.ended = Some("hung up by the case".into());
        Ok(())
    }

    /// Closes everything; the kernel sends a reset only when the last descriptor goes.
    fn close(&mut self, how: Shutdown) {
        // For stdio this closes stdin; what the server still writes is read on.
        if let Link::WebSocket(stream) = std::mem::replace(&mut self.link, Link::Gone) {
            // The peer may be gone already, which is as good.
            let _gone = stream.shutdown(how);
            // A reader that waits for room in the channel ends with the channel, any other with the socket.
            let (_, nothing) = sync_channel(1);
            self.incoming = nothing;
            if let Some(reader) = self.reader.take() {
                let _ended = reader.join();
            }
        }
    }

    /// Takes messages until `ready` finds what it looks for, the connection ends or time runs out.
    pub(crate) fn wait<T>(
        &mut self,
        limit: Duration,
        mut ready: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(found) = ready(self) {
                return Ok(Some(found));
            }
            if self.ended.is_some() {
                return Ok(None);
            }
            match self.incoming.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(message) => self.file(message)?,
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => self.ended = Some("end of stream".into()),
            }
        }
    }

    /// Takes the oldest response to `id` that has arrived.
    pub(crate) fn response(&mut self, id: &Value) -> Option<Value> {
        self.responses.get_mut(&id.to_string())?.pop_front()
    }

    /// A response nobody asked for, if there is one.
    pub(crate) fn unclaimed(&self) -> Option<&Value> {
        self.responses.values().flatten().next()
    }

    fn file(&mut self, message: Incoming) -> Result<(), String> {
        match message {
            Incoming::Message { text, frames, largest } => {
                self.received += 1;
                self.largest_frame = self.largest_frame.max(largest);
                self.largest_message = self.largest_message.max(text.len());
                self.most_frames = self.most_frames.max(frames);
                self.note_line('<', &text);
                let value =
                    serde_json::from_str(&text).map_err(|e| format!("server sent no JSON: {e}: {text}"))?;
                self.file_value(value);
            }
            Incoming::Ping(payload) => {
                self.send_frame(Outgoing { opcode: 10, fin: true, rsv: 0, masked: true, payload })?;
            }
            Incoming::Pong(payload) => self.pongs.push_back(payload),
            Incoming::Close if self.close_expected => self.close_expected = false,
            Incoming::Close => self.violations.push("the server sent a Close frame (SPEC 1.4)".into()),
            Incoming::Ended(how) => self.ended = Some(how),
        }
        Ok(())
    }

    fn file_value(&mut self, value: Value) {
        if value.get("jsonrpc").is_some() {
            self.violations.push(format!("the server sent a jsonrpc member (SPEC 2): {value}"));
        }
        let method = value["method"].as_str().unwrap_or_default();
        match (method, value.get("id")) {
            ("", Some(id)) => {
                let id = id.to_string();
                self.starting.remove(&id);
                self.responses.entry(id).or_default().push_back(value);
            }
            ("process/output" | "process/exited" | "process/closed", None) => self.file_event(&value),
            _ => self.notes.push_back(value),
        }
    }

    fn file_event(&mut self, value: &Value) {
        let Some(id) = value["params"]["processId"].as_str() else {
            self.violations.push(format!("notification without processId: {value}"));
            return;
        };
        if self.strict_order && self.starting.values().any(|starting| starting == id) {
            self.violations
                .push(format!("notification before the response to process/start (SPEC 4.2): {value}"));
        }
        let resumed = self.resumed;
        let log = self.processes.entry(id.to_owned()).or_insert_with(|| ProcessLog::new(resumed));
        match log.add(value) {
            Ok(false) if self.strict_order => {
                self.violations
                    .push(format!("seq out of order (SPEC 4.2): {}", crate::matcher::short(value)));
            }
            Ok(_) => {}
            Err(violation) => self.violations.push(violation),
        }
    }

    fn note_line(&mut self, direction: char, text: &str) {
        const LINE: usize = 400;
        if self.trace.len() == TRACE_LINES {
            self.trace.pop_front();
        }
        let end = text.char_indices().nth(LINE).map_or(text.len(), |(end, _)| end);
        let cut = if end < text.len() { "…" } else { "" };
        self.trace.push_back(format!("{direction} {}{cut}", &text[..end]));
    }

    /// The exchange so far, normalised.
    pub(crate) fn trace(&self, vars: &Vars) -> String {
        self.trace.iter().map(|line| vars.normalise_text(line) + "\n").collect()
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.close(Shutdown::Both);
    }
}
