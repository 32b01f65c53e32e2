//! What the client of `connect` waits for. Codex starts `connect` once and never again, so it has to outlive an
//! exec-server that dies: the client is told the end of all it waits for, and goes on in a new sandbox.
//!
//! Invariant: every request is answered once, every process closed once, with numbers that go on where they stopped.

use std::collections::BTreeMap;

use legion_protocol::chunk::{OutputFrameWriter, output_head};
use legion_protocol::head::{request_start, result_id};
use legion_protocol::http::{BodyDelta, HttpRequest};
use legion_protocol::jsonrpc::{error_text, notification_text, request_text};
use legion_protocol::limits::MAX_REQUESTS_IN_FLIGHT;
use legion_protocol::process::{Closed, Exited, ProcessRef, Stream};
use legion_protocol::session::Initialize;
use legion_protocol::{Chunk, ErrorCode, ErrorObject, Head, Method, Params, RequestId, fs};
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

/// The answer to a call that was under way.
const LOST_CALL: &str = "the exec-server died before it answered: look whether the call was done before you repeat it; \
                         the next call gets a new sandbox";

/// The last output of a command that was running.
const LOST_COMMAND: &str =
    "legion: the exec-server died, and this command with it; the next call gets a new sandbox\n";

/// Exit code of what a SIGKILL has ended.
const KILLED: i32 = 128 + 9;

/// The id of the `initialize` that the client does not see.
const OWN_ID: &str = "legion-connect";

/// See the module.
#[derive(Default)]
pub(super) struct Ledger {
    /// How the client opened its session, once it has one.
    client: Option<Initialize>,
    initialized: bool,
    pending: BTreeMap<RequestId, Asked>,
    processes: BTreeMap<String, Progress>,
    /// The last number of each body that comes in pieces.
    bodies: BTreeMap<String, u64>,
    watch: Option<u64>,
}

/// What a request leaves behind when it succeeds.
enum Asked {
    Session(Initialize),
    Process(String),
    Body(String),
    Watch(u64),
    Nothing,
}

#[derive(Default)]
struct Progress {
    seq: u64,
    exited: bool,
}

/// What of a notification says how far a process or a body has come.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Step {
    #[serde(alias = "requestId")]
    process_id: String,
    seq: u64,
    #[serde(default)]
    done: bool,
}

impl Ledger {
    /// Notes a line of the client. The session, not the ledger, says what is wrong with it.
    pub(super) fn up(&mut self, line: &str) {
        if let Some((id, name)) = request_start(line)
            && let Some(method) = Method::from_name(name)
            && !leaves_something(method)
        {
            self.pending.insert(id, Asked::Nothing);
            return;
        }
        match Head::parse(line) {
            Ok(Head::Request { id, method, params }) => {
                let asked = Method::from_name(&method)
                    .zip(params)
                    .and_then(|(method, params)| Asked::of(method, params));
                self.pending.insert(id, asked.unwrap_or(Asked::Nothing));
            }
            Ok(Head::Notification { method, .. }) => {
                self.initialized |= Method::from_name(&method) == Some(Method::Initialized);
            }
            _ => {}
        }
    }

    /// Notes a message for the client.
    pub(super) fn down(&mut self, text: &str) {
        if let Some(head) = output_head(text) {
            return self.progressed(head.process_id, head.seq);
        }
        if let Some(id) = result_id(text) {
            return self.succeeded(&id);
        }
        match Head::parse(text) {
            Ok(Head::Response { id, .. }) => self.succeeded(&id),
            Ok(Head::Error { id, .. }) => drop(self.pending.remove(&id)),
            Ok(Head::Notification { method, params: Some(params) }) => self.notified(&method, params),
            _ => {}
        }
    }

    fn succeeded(&mut self, id: &RequestId) {
        match self.pending.remove(id) {
            Some(Asked::Session(client)) => self.client = Some(client),
            Some(Asked::Process(name)) => drop(self.processes.insert(name, Progress::default())),
            // One that finds no room is not told its end.
            Some(Asked::Body(name)) if self.bodies.len() < MAX_REQUESTS_IN_FLIGHT => {
                self.bodies.insert(name, 0);
            }
            Some(Asked::Watch(number)) => self.watch = Some(number),
            Some(Asked::Body(_) | Asked::Nothing) | None => {}
        }
    }

    fn progressed(&mut self, process: &str, seq: u64) {
        if let Some(progress) = self.processes.get_mut(process) {
            progress.seq = seq;
        }
    }

    fn notified(&mut self, method: &str, params: &RawValue) {
        let method = Method::from_name(method);
        if method == Some(Method::FsMissingChanged) {
            self.watch = None;
        }
        let Ok(Step { process_id: name, seq, done }) = serde_json::from_str(params.get()) else { return };
        match method {
            Some(Method::ProcessOutput) => self.progressed(&name, seq),
            Some(Method::ProcessExited) => {
                if let Some(progress) = self.processes.get_mut(&name) {
                    *progress = Progress { seq, exited: true };
                }
            }
            Some(Method::ProcessClosed) => drop(self.processes.remove(&name)),
            Some(Method::HttpRequestBodyDelta) if done => drop(self.bodies.remove(&name)),
            Some(Method::HttpRequestBodyDelta) => {
                if let Some(last) = self.bodies.get_mut(&name) {
                    *last = seq;
                }
            }
            _ => {}
        }
    }

    /// Whether the client has a session: something to go on with.
    pub(super) fn is_open(&self) -> bool {
        self.client.is_some()
    }

    /// The exec-server has died: what the client is told of all it waits for.
    pub(super) fn lost(&mut self) -> Vec<String> {
        let error = ErrorObject::new(ErrorCode::Internal, LOST_CALL);
        let pending = std::mem::take(&mut self.pending);
        let mut lines: Vec<String> = pending.keys().map(|id| error_text(id, &error)).collect();
        for (name, progress) in std::mem::take(&mut self.processes) {
            lines.extend(progress.end(name));
        }
        for (request_id, last) in std::mem::take(&mut self.bodies) {
            let error = Some(LOST_CALL.to_owned());
            let end =
                BodyDelta { request_id, seq: last + 1, delta_base64: Chunk::default(), done: true, error };
            lines.push(notification_text(Method::HttpRequestBodyDelta.name(), &end));
        }
        // What it believes to be missing may appear unseen.
        if let Some(watch_id) = self.watch.take() {
            lines.push(notification_text(Method::FsMissingChanged.name(), &fs::MissingChanged { watch_id }));
        }
        lines
    }

    /// What opens the client's session in the new sandbox: a request, and what follows its answer.
    pub(super) fn handshake(&self) -> Option<(String, Option<String>)> {
        let client = Initialize { resume_session_id: None, ..self.client.clone()? };
        let request = request_text(&own_id(), Method::Initialize.name(), &client);
        let initialized = || notification_text(Method::Initialized.name(), &json!({}));
        Some((request, self.initialized.then(initialized)))
    }
}

/// The answer to the request of [`Ledger::handshake`], if this is it.
pub(super) fn handshake_answer(text: &str) -> Option<Result<(), String>> {
    match Head::parse(text) {
        Ok(Head::Response { id, .. }) if id == own_id() => Some(Ok(())),
        Ok(Head::Error { id, error }) if id == own_id() => Some(Err(error.get().to_owned())),
        _ => None,
    }
}

fn own_id() -> RequestId {
    RequestId::Text(OWN_ID.into())
}

fn leaves_something(method: Method) -> bool {
    matches!(method, Method::Initialize | Method::ProcessStart | Method::HttpRequest | Method::FsWatchMissing)
}

impl Asked {
    fn of(method: Method, params: Params<'_>) -> Option<Self> {
        let params = params.get();
        match method {
            Method::Initialize => serde_json::from_str(params).map(Self::Session).ok(),
            Method::ProcessStart => {
                serde_json::from_str(params).map(|process: ProcessRef| Self::Process(process.process_id)).ok()
            }
            Method::HttpRequest => {
                let request: HttpRequest = serde_json::from_str(params).ok()?;
                request.stream_response.then_some(Self::Body(request.request_id))
            }
            Method::FsWatchMissing => {
                serde_json::from_str(params).map(|watch: fs::WatchMissing| Self::Watch(watch.watch_id)).ok()
            }
            _ => None,
        }
    }
}

impl Progress {
    /// The last lines of a process.
    fn end(self, process_id: String) -> Vec<String> {
        let mut seq = self.seq + 1;
        let output = OutputFrameWriter::new(&process_id, Stream::Stderr).frame(seq, LOST_COMMAND.as_bytes());
        let mut lines = vec![output];
        if !self.exited {
            seq += 1;
            let exited = Exited {
                process_id: process_id.clone(),
                seq,
                exit_code: KILLED,
                sandbox_denied: false,
                limit: None,
                signal: None,
            };
            lines.push(notification_text(Method::ProcessExited.name(), &exited));
        }
        lines.push(notification_text(Method::ProcessClosed.name(), &Closed { process_id, seq: seq + 1 }));
        lines
    }
}

#[cfg(test)]
mod tests;
