//! What is said over the control socket: one JSON object a line, request and answer.

use std::path::PathBuf;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::approvals::{Question, Scope};
use crate::audit::record::SandboxFacts;
use crate::session::{EndReason, Session};

/// What a client asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// Make a session.
    Open {
        /// Persona name.
        persona: Option<String>,
        /// Absolute.
        workspace: Option<PathBuf>,
        /// Where the client is.
        cwd: PathBuf,
        /// Seconds.
        ttl_seconds: Option<u64>,
        /// End the session when this connection closes.
        lease: bool,
    },
    /// List sessions.
    List,
    /// One session.
    Show {
        /// Public id.
        id: String,
    },
    /// Let a session live so long from now on.
    Extend {
        /// Public id.
        id: String,
        /// Seconds.
        ttl_seconds: u64,
    },
    /// Show what a session's commands print, as long as the connection is open.
    Attach {
        /// Public id.
        id: String,
        /// The client's id of one command, or the number of its record.
        process: Option<String>,
    },
    /// Questions that wait for a person.
    Questions {
        /// Go on telling whenever they change.
        watch: bool,
    },
    /// Answer one.
    Answer {
        /// Of the question.
        id: String,
        /// How far it is approved; none denies it.
        approve: Option<Scope>,
    },
    /// End a session.
    End {
        /// Public id.
        id: String,
        /// Whether its token is revoked or its sandbox killed; both end it.
        revoke: bool,
    },
}

/// What it is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reply {
    /// A new session.
    Opened(Opened),
    /// Sessions.
    Sessions(Vec<SessionInfo>),
    /// The questions that wait, the oldest first.
    Questions(Vec<Question>),
    /// This question is answered.
    Answered(Question),
    /// It was done, or had been done before.
    Ended(SessionInfo),
    /// What is printed follows, one [`Shown`] a line.
    Attached(SessionInfo),
    /// It was not done.
    Failed {
        /// Exit code of the client.
        exit: u8,
        /// One line.
        message: String,
    },
}

/// A new session, as its opener sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Opened {
    /// Public id.
    pub session: String,
    /// The token. Shown once.
    pub token: String,
    /// Where harnesses connect, the first configured listener first.
    pub urls: Vec<String>,
    /// Where `connect` and `exec` connect.
    pub front_socket: PathBuf,
    /// The workspace as commands see it.
    pub cwd: PathBuf,
    /// The workspace on the host.
    pub workspace: PathBuf,
    /// End of the token.
    pub expires: Timestamp,
    /// What its opener should know, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A session in a listing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionInfo {
    /// Public id.
    pub id: String,
    /// Persona name.
    pub persona: String,
    /// On the host.
    pub workspace: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it ends at the latest.
    pub expires: Timestamp,
    /// `live`, or why it ended.
    pub state: String,
    /// Harness connections.
    pub connections: usize,
    /// Guarded calls so far.
    pub calls: u64,
    /// When the last one was.
    pub last_call: Option<Timestamp>,
    /// Commands running now.
    pub running: usize,
    /// Process id of its bwrap on the host.
    pub sandbox_pid: Option<u32>,
    /// Seconds it lives with nobody connected.
    pub idle_seconds: u64,
    /// The commands running now, the oldest first.
    pub processes: Vec<ProcessInfo>,
    /// What is known of its sandbox.
    pub sandbox: Option<SandboxFacts>,
    /// Digest of its rules, as `policyAdopted` records it.
    #[serde(default)]
    pub policy: Option<String>,
}

/// A running command in a listing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessInfo {
    /// The client's id.
    pub id: String,
    /// Number of its record.
    pub call: u64,
    /// Its words.
    pub command: String,
    /// Seconds since it was started.
    pub seconds: u64,
    /// Bytes it has printed.
    pub output_bytes: u64,
}

/// The commands running now, the oldest first.
pub fn processes(session: &Session) -> Vec<ProcessInfo> {
    let running = session.running().borrow();
    let mut processes: Vec<_> = running
        .iter()
        .map(|(key, command)| ProcessInfo {
            id: key.id.clone(),
            call: command.call,
            command: command.command.text.clone(),
            seconds: command.started.elapsed().as_secs(),
            output_bytes: command.output_bytes,
        })
        .collect();
    processes.sort_by_key(|process| process.call);
    processes
}

impl SessionInfo {
    /// Of a session as it is now.
    pub fn of(session: &Session) -> Self {
        let (calls, last_call) = session.calls();
        let sandbox = session.sandbox_facts();
        Self {
            id: session.id.clone(),
            persona: session.persona.name.clone(),
            workspace: session.workspace.path.display().to_string(),
            created: session.created,
            expires: session.expires(),
            state: session.why_ended().map_or("live", EndReason::text).to_owned(),
            connections: session.connections(),
            calls,
            last_call,
            running: session.running().borrow().len(),
            sandbox_pid: sandbox.as_ref().map(|facts| facts.pid),
            idle_seconds: session.idle().as_secs(),
            processes: processes(session),
            sandbox,
            policy: session.policy_digest().ok(),
        }
    }
}
