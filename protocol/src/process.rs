//! `process/*`: parameters, results and notifications (SPEC 7), and Legion's two additions.

mod legion;

use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::value::RawValue;

use crate::object;
use crate::sandbox::Sandbox;
use crate::{Chunk, PathUri, StringMap};

pub use legion::{AnySignal, LegionStart, ResizeTerminal, SendAnySignal, TerminalSize};

/// Parameters of `process/start` (SPEC 7.1).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Start {
    /// The client's name for the process, unique in its session.
    pub process_id: String,
    /// Not empty; `argv[0]` is looked up in the child's `PATH`.
    pub argv: Vec<String>,
    /// Must exist.
    #[serde(deserialize_with = "cwd_uri")]
    pub cwd: PathUri,
    /// Laid over everything else; never filtered.
    pub env: StringMap,
    /// Absent: the child gets only `env`.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub env_policy: Option<EnvPolicy>,
    /// A terminal of 24 × 80 instead of pipes.
    pub tty: bool,
    /// Keep a writable stdin pipe; ignored with `tty`.
    #[serde(default, deserialize_with = "object::or_default")]
    pub pipe_stdin: bool,
    /// What the child sees as `argv[0]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arg0: Option<String>,
    /// The client's own wish for a narrower sandbox.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Sandbox>,
    /// Has no effect without `sandbox`.
    #[serde(default, deserialize_with = "object::or_default")]
    pub enforce_managed_network: bool,
    /// A managed proxy (SPEC 9.7), not decoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub managed_network: Option<Box<RawValue>>,
    /// A managed proxy (SPEC 9.7), not decoded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_proxy: Option<Box<RawValue>>,
    /// Telemetry of the client.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub metadata: Option<Metadata>,
    /// Accepted and not used, as in the original.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shell_snapshot: Option<Box<RawValue>>,
    /// Of a client that knows Legion: it is told more ([`Exited::signal`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub legion: Option<LegionStart>,
}

fn cwd_uri<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathUri, D::Error> {
    let text = String::deserialize(deserializer)?;
    PathUri::parse(&text).map_err(|error| match error {
        crate::path_uri::PathUriError::Foreign(_) => {
            de::Error::custom(format_args!("cwd URI `{text}` is not valid on this exec-server host: {error}"))
        }
        other => de::Error::custom(other),
    })
}

/// How the environment of a child is computed (SPEC 7.2).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvPolicy {
    /// Where it starts.
    pub inherit: Inherit,
    /// Unless set, names with `KEY`, `SECRET` or `TOKEN` are dropped.
    pub ignore_default_excludes: bool,
    /// Patterns of names to drop.
    pub exclude: Vec<String>,
    /// Added after the exclusions.
    pub set: StringMap,
    /// When not empty only matching names stay, those of `set` included.
    pub include_only: Vec<String>,
}

/// The base of a child's environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Inherit {
    /// `HOME LANG LC_ALL LC_CTYPE LOGNAME PATH SHELL USER TMPDIR TEMP TMP` of the session's environment.
    Core,
    /// The session's whole environment.
    All,
    /// Nothing.
    None,
}

/// Who asked; ids of the client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// UUID of the conversation.
    #[serde(default, deserialize_with = "uuid", skip_serializing_if = "Option::is_none")]
    pub thread_id: Option<String>,
    /// The model's tool call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

/// A UUID, with or without hyphens; the words are those of the original for what is none.
fn uuid<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let bare = text.strip_prefix("urn:uuid:").unwrap_or(&text);
    if let Some((at, found)) = bare.char_indices().find(|(_, c)| !c.is_ascii_hexdigit() && *c != '-') {
        return Err(de::Error::custom(format_args!(
            "invalid character: expected an optional prefix of `urn:uuid:` followed by [0-9a-fA-F-], found `{found}` at {}",
            at + 1
        )));
    }
    let groups: Vec<usize> = bare.split('-').map(str::len).collect();
    if groups != [32] && groups != [8, 4, 4, 4, 12] {
        return Err(de::Error::custom(format_args!("invalid length: `{text}` is no UUID")));
    }
    Ok(Some(text))
}

/// Result of `process/start`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Started {
    /// As in the request.
    pub process_id: String,
    /// `none`, or `linuxSeccomp` when the client's own sandbox was applied.
    pub sandbox_type: String,
}

/// Where a chunk came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Stream {
    /// The stdout pipe.
    Stdout,
    /// The stderr pipe.
    Stderr,
    /// The terminal.
    Pty,
}

impl Stream {
    /// The wire name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
            Self::Pty => "pty",
        }
    }
}

/// Notification `process/output` (SPEC 7.3).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Output {
    /// The client's name for the process.
    pub process_id: String,
    /// Grows by one over all notifications of the process, from 1.
    pub seq: u64,
    /// Where the bytes came from.
    pub stream: Stream,
    /// The bytes.
    pub chunk: Chunk,
}

/// Notification `process/exited`: the direct child was reaped.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Exited {
    /// The client's name for the process.
    pub process_id: String,
    /// See [`Output::seq`].
    pub seq: u64,
    /// 0–255; 128+N for a signal without a terminal, 1 with one.
    pub exit_code: i32,
    /// The client's own sandbox seems to have caused the failure.
    pub sandbox_denied: bool,
    /// Legion's own: which limit of the persona it was killed for, e.g. `limits.wall`. Clients ignore the member.
    #[serde(default, rename = "legionLimit", skip_serializing_if = "Option::is_none")]
    pub limit: Option<String>,
    /// Legion's own: the signal it died of, for a client that knows Legion.
    #[serde(default, rename = "legionSignal", skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// Notification `process/closed`: the last one of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Closed {
    /// The client's name for the process.
    pub process_id: String,
    /// See [`Output::seq`].
    pub seq: u64,
}

/// Parameters of `process/read` (SPEC 7.4).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Read {
    /// The client's name for the process.
    pub process_id: String,
    /// Only chunks with a greater `seq`.
    #[serde(default)]
    pub after_seq: Option<u64>,
    /// Raw bytes; the first chunk is returned whole in any case.
    #[serde(default)]
    pub max_bytes: Option<u64>,
    /// Milliseconds to wait for something new.
    #[serde(default)]
    pub wait_ms: Option<u64>,
}

/// One retained chunk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReadChunk {
    /// See [`Output::seq`].
    pub seq: u64,
    /// Where the bytes came from.
    pub stream: Stream,
    /// The bytes.
    pub chunk: Chunk,
}

/// Result of `process/read`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadResult {
    /// In order of `seq`.
    pub chunks: Vec<ReadChunk>,
    /// One more than the `afterSeq` of the next call.
    pub next_seq: u64,
    /// The direct child was reaped.
    pub exited: bool,
    /// As in `process/exited`.
    pub exit_code: Option<i32>,
    /// `process/closed` was sent.
    pub closed: bool,
    /// Always null, as in the original.
    pub failure: Option<String>,
    /// As in `process/exited`.
    pub sandbox_denied: bool,
}

/// Parameters of `process/write` (SPEC 7.5).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Write {
    /// The client's name for the process.
    pub process_id: String,
    /// The bytes.
    pub chunk: Chunk,
    /// Makes a retry idempotent. Clients before 0.150 send none and never retry (SPEC 13).
    #[serde(default)]
    pub write_id: Option<String>,
}

/// Result of `process/write`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WriteStatus {
    /// Queued, now or by an earlier request with the same `writeId`.
    Accepted,
    /// No such process.
    UnknownProcess,
    /// There is no stdin, or the process has ended.
    StdinClosed,
}

/// Result of `process/write`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WriteResult {
    /// What became of the bytes.
    pub status: WriteStatus,
}

/// Parameters of `process/signal` (SPEC 7.6).
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SendSignal {
    /// The client's name for the process.
    pub process_id: String,
    /// Sent to the process group.
    pub signal: Signal,
}

/// The signals a client may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Signal {
    /// SIGINT.
    Interrupt,
}

/// Parameters of `process/terminate` (SPEC 7.7) and `legion/closeStdin`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProcessRef {
    /// The client's name for the process.
    pub process_id: String,
}

/// Result of `process/terminate`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Terminated {
    /// Whether it was running, and so was killed.
    pub running: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_id_is_a_uuid_or_nothing() {
        let parsed = |text: &str| object::from_object::<Metadata>(text);
        for good in [
            "{}",
            r#"{"threadId":null}"#,
            r#"{"threadId":"7c9150f1-5459-48e8-b895-b8db385c9bab"}"#,
            r#"{"threadId":"7C9150F1545948E8B895B8DB385C9BAB"}"#,
        ] {
            assert!(parsed(good).is_ok(), "{good}");
        }
        for bad in ["t", "", "7c9150f1-5459-48e8-b895b8db385c9bab", "7c9150f1", "\u{1b}[0m"] {
            assert!(parsed(&serde_json::json!({ "threadId": bad }).to_string()).is_err(), "{bad:?}");
        }
        let text = parsed(r#"{"threadId":"t"}"#).unwrap_err().to_string();
        assert!(text.starts_with("invalid character: expected an optional prefix of `urn:uuid:`"));
    }
}
