//! One protocol connection: sends, and files what arrives by kind.
//!
//! Invariant: the ordering rules of SPEC 4.2 are checked on every notification of every case, not only in the cases
//! about ordering; what breaks them is kept in `violations` and fails the case.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::ChildStdin;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::process::ProcessLog;
use crate::vars::Vars;
use crate::wire::{self, Incoming, Outgoing};

/// Messages read ahead of a case; beyond it the reader thread waits, and with it the server.
const READ_AHEAD: usize = 256;
/// Lines of the exchange kept for the failure message.
const TRACE_LINES: usize = 400;

/// How the messages travel.
enum Link {
    WebSocket(TcpStream),
    Stdio(Option<ChildStdin>),
}

/// An open (or ended) connection.
pub(crate) struct Conn {
    link: Link,
    incoming: Receiver<Incoming>,
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
    /// Whether a notification ahead of the response to its `process/start` is a violation.
    pub(crate) strict_start: bool,
}

impl Conn {
    /// Opens a WebSocket; returns the connection and its local address.
    pub(crate) fn open(addr: SocketAddr, headers: &[String]) -> Result<(Self, SocketAddr), String> {
        let (stream, mut reader) = wire::open(addr, headers)?;
        let local = stream.local_addr().map_err(|e| e.to_string())?;
        let (sender, incoming) = sync_channel(READ_AHEAD);
        std::thread::spawn(move || {
            loop {
                let message = wire::read_incoming(&mut reader);
                let last = matches!(message, Incoming::Ended(_));
                if sender.send(message).is_err() || last {
                    return;
                }
            }
        });
        Ok((Self::new(Link::WebSocket(stream), incoming), local))
    }

    /// Speaks over the pipes of a server started with `--listen stdio`.
    pub(crate) fn stdio(stdin: ChildStdin, incoming: Receiver<Incoming>) -> Self {
        Self::new(Link::Stdio(Some(stdin)), incoming)
    }

    fn new(link: Link, incoming: Receiver<Incoming>) -> Self {
        Self {
            link,
            incoming,
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
            strict_start: false,
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
        self.note_line('>', text);
        match &mut self.link {
            Link::WebSocket(stream) => Outgoing::text(text).write(stream),
            Link::Stdio(Some(stdin)) => writeln!(stdin, "{text}").map_err(|e| format!("write to stdin: {e}")),
            Link::Stdio(None) => Err("stdin is closed".into()),
        }
    }

    pub(crate) fn send_frame(&mut self, frame: Outgoing) -> Result<(), String> {
        self.note_line('>', &format!("{frame:?}"));
        match &mut self.link {
            Link::WebSocket(stream) => frame.write(stream),
            Link::Stdio(_) => Err("stdio has no frames".into()),
        }
    }

    /// Ends the connection from this side: a reset, or an ordinary end.
    pub(crate) fn hang_up(&mut self, reset: bool) -> Result<(), String> {
        match &mut self.link {
            Link::WebSocket(stream) => {
                if reset {
                    rustix::net::sockopt::set_socket_linger(&*stream, Some(Duration::ZERO))
                        .map_err(|e| e.to_string())?;
                }
                // The peer may be gone already, which is as good.
                let _gone = stream.shutdown(if reset { Shutdown::Read } else { Shutdown::Both });
            }
            Link::Stdio(stdin) => *stdin = None,
        }
        self.ended = Some("hung up by the case".into());
        Ok(())
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
        if self.strict_start && self.starting.values().any(|starting| starting == id) {
            self.violations
                .push(format!("notification before the response to process/start (SPEC 4.2): {value}"));
        }
        let resumed = self.resumed;
        let log = self.processes.entry(id.to_owned()).or_insert_with(|| ProcessLog::new(resumed));
        if let Err(violation) = log.add(value) {
            self.violations.push(violation);
        }
    }

    fn note_line(&mut self, direction: char, text: &str) {
        const LINE: usize = 600;
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
        if let Link::WebSocket(stream) = &self.link {
            // Ends the reader thread too.
            let _gone = stream.shutdown(Shutdown::Both);
        }
    }
}
