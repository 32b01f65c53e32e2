//! What a record holds. Names are those of the JSON; absent members are left out.

use std::collections::BTreeMap;

use legion_protocol::RequestId;
use serde::{Deserialize, Serialize};

use super::mark::Mark;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Event {
    /// A controller began to write here.
    ControllerStarted,
    /// A controller stopped in good order.
    ControllerStopped,
    /// A session and its token were made.
    SessionStarted,
    /// A session lives longer.
    SessionExtended,
    /// Somebody watches a session's output.
    Watched,
    /// A session and its token are gone.
    SessionEnded,
    /// A sandbox runs.
    SandboxStarted,
    /// A sandbox is gone.
    SandboxEnded,
    /// A harness connected.
    ConnectionOpened,
    /// A harness left.
    ConnectionClosed,
    /// A handshake was refused.
    HandshakeRefused,
    /// A guarded call, or a refused one: decided, not yet done.
    Call,
    /// What became of a call.
    Outcome,
    /// A frame that breaks the protocol.
    Violation,
    /// A session has these rules from now on.
    PolicyAdopted,
    /// New rules cannot be used; the old ones stay.
    PolicyKept,
    /// What a person answered to a question, or that nobody did.
    Approval,
    /// A protected path was replaced on the host and is protected again.
    PathProtected,
    /// A name tools on the host may obey was made in the workspace.
    PathCreated,
    /// What git on the host would have run in a repository made inside was set aside.
    PathSetAside,
    /// A torn last line was cut.
    TornTail,
    /// A new file goes on where the one before was full.
    LogRotated,
    /// The chain so far is signed.
    Checkpoint,
    /// Records that had been written are missing.
    Gap,
    /// Records of which the head kept outside knows nothing.
    Unconfirmed,
    /// The head kept outside is gone.
    HeadLost,
    /// The clock did not go as time does.
    ClockJumped,
    /// Records could not be written, or not be sent on.
    RecordsLost,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Decision {
    /// Forwarded.
    Allow,
    /// A person is asked; what became of it follows.
    Ask,
    /// Refused.
    Deny,
}

/// Whose word a record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The controller saw it itself.
    Controller,
    /// The exec-server, inside the sandbox, said so.
    ExecServer,
}

/// Who asked.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Actor {
    /// The door: `tcp`, `unix`, `embedded`.
    pub door: &'static str,
    /// Address of a TCP peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// User id of a local peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// Process id of a local peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<i32>,
    /// What the harness calls itself in `initialize`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
}

/// What a call is about; which members are there depends on the method.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Object {
    /// The client's name for a process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process_id: Option<String>,
    /// The command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// The name the program is told it has, when the client gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arg0: Option<String>,
    /// Its directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Names of the variables the client set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<String>>,
    /// Names of the variables of `.env` that a rule gave it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Whether it has a terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tty: Option<bool>,
    /// The client's conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The model's tool call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// A file or directory, or the source of a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Further paths of a call that names several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// Whether a file is opened to be replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write: Option<bool>,
    /// Where a copy goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Bytes the client sent along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Whole trees.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recursive: Option<bool>,
    /// An open file's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle_id: Option<String>,
    /// Which signal is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<&'static str>,
    /// Whether an HTTP request follows redirections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follows: Option<bool>,
    /// Of an HTTP request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// What became of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// Whether it succeeded; for a command: whether it ran to an exit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ok: Option<bool>,
    /// Code of the error answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<i64>,
    /// One line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Of a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Output of a command that reached the controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// What was recorded of its output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<Recording>,
    /// From the record of the call to this one, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// A recording of what a command printed.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Recording {
    /// Its name in the directory of recordings.
    pub file: String,
    /// Its length.
    pub bytes: u64,
    /// Of the whole file.
    pub sha256: String,
    /// Why it ends before the output does, or lacks some of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut: Option<String>,
}

/// The sandbox a session runs in.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SandboxFacts {
    /// First line of `bwrap --version`.
    pub bwrap: String,
    /// SHA-256 of the NUL-separated arguments.
    pub arguments_sha256: String,
    /// Process id of bwrap on the host.
    pub pid: u32,
    /// User id it runs as.
    pub uid: u32,
    /// Process id of its pid 1 on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_pid: Option<u64>,
    /// Inode numbers of its namespaces, by bwrap's names.
    pub namespaces: BTreeMap<String, u64>,
    /// What bounds memory and processes: a cgroup, or limits of single processes and why.
    pub limits_by: String,
}

/// One record, before it has a number and a time.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// What happened.
    pub event: Event,
    /// Public id of the session and its token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persona: Option<String>,
    /// Its host directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// Number of the `call` record an outcome belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<u64>,
    /// Number of the `process/start` record of the process a call is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<u64>,
    /// Number of the `fs/open` record of the open file a call is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<u64>,
    /// Number of the record in which a person was asked about this call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<u64>,
    /// The client's own id of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<RequestId>,
    /// Number of the harness connection in its session, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<u64>,
    /// Who asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// Wire name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// What it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<Object>,
    /// What was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The id of the rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Why: of a refusal or an end, one line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The sandbox.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<SandboxFacts>,
    /// What could not be protected, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Handshakes dropped unanswered since the last refusal; records that were lost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<u64>,
    /// Digest of the rules that hold from here on; equal for equal rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What the log says of itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<Mark>,
    /// Whose word it is.
    pub source: Source,
}

impl Record {
    /// A record of this event, as the controller's own word.
    pub fn new(event: Event) -> Self {
        Self {
            event,
            session: None,
            persona: None,
            workspace: None,
            call: None,
            process: None,
            file: None,
            asked: None,
            request: None,
            connection: None,
            actor: None,
            method: None,
            object: None,
            decision: None,
            rule: None,
            reason: None,
            outcome: None,
            sandbox: None,
            notes: Vec::new(),
            dropped: None,
            policy: None,
            log: None,
            source: Source::Controller,
        }
    }

    /// The same record with a reason.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// The same record with what the log says of itself.
    #[must_use]
    pub fn marked(mut self, mark: Mark) -> Self {
        self.log = Some(mark);
        self
    }

    /// The same record of a session.
    #[must_use]
    pub fn of_session(mut self, id: &str) -> Self {
        self.session = Some(id.to_owned());
        self
    }
}
