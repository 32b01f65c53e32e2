//! What a connection has seen of one process.
//!
//! Invariant: the log is in the order of `seq` and keeps the rules of SPEC 4.2 (gap-free from 1, `closed` last and
//! once, `exited` before it), so everything derived from it may rely on them. The original sometimes sends `exited`
//! ahead of an `output` with a smaller number and its client sorts; so does the log, and says that it had to.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// The notifications of one process, in order.
#[derive(Debug, Default)]
pub(crate) struct ProcessLog {
    /// Bytes per stream name, in the order of `seq`.
    pub(crate) streams: BTreeMap<String, Vec<u8>>,
    /// `output`, `exited`, `closed`; neighbours that are equal are kept once.
    pub(crate) events: Vec<&'static str>,
    pub(crate) exit: Option<Value>,
    /// Bytes of the longest single chunk.
    pub(crate) longest_chunk: usize,
    /// The last sequence number seen; 0 before the first.
    pub(crate) last_seq: u64,
    /// Whether the log may begin in the middle, because the connection resumed a session.
    mid_stream: bool,
    /// Notifications that came before one with a smaller number.
    early: BTreeMap<u64, Value>,
}

/// More notifications ahead of a missing one than this are a gap, not a change of order.
const MAX_EARLY: usize = 64;

impl ProcessLog {
    pub(crate) fn new(mid_stream: bool) -> Self {
        Self { mid_stream, ..Self::default() }
    }

    pub(crate) fn closed(&self) -> bool {
        self.events.last() == Some(&"closed")
    }

    /// The text of a stream so far; empty if the stream never produced anything.
    pub(crate) fn text(&self, stream: &str) -> String {
        self.streams.get(stream).map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    }

    /// Whether a number is missing before something that has arrived.
    pub(crate) fn has_gap(&self) -> bool {
        !self.early.is_empty()
    }

    /// Whether there was output after `exited`.
    pub(crate) fn late_output(&self) -> bool {
        self.events.iter().skip_while(|event| **event != "exited").any(|event| *event == "output")
    }

    /// Adds a `process/…` notification, and those that waited for it. `Ok(false)`: it came out of order.
    pub(crate) fn add(&mut self, note: &Value) -> Result<bool, String> {
        let seq =
            note["params"]["seq"].as_u64().ok_or_else(|| format!("notification without seq: {note}"))?;
        let first = self.mid_stream && self.last_seq == 0;
        if seq <= self.last_seq || self.early.contains_key(&seq) || self.early.len() > MAX_EARLY {
            return Err(format!("seq {seq} after {} (SPEC 4.2): {note}", self.last_seq));
        }
        if !first && seq != self.last_seq + 1 {
            self.early.insert(seq, note.clone());
            return Ok(false);
        }
        self.append(seq, note)?;
        while let Some(next) = self.early.remove(&(self.last_seq + 1)) {
            self.append(self.last_seq + 1, &next)?;
        }
        Ok(true)
    }

    fn append(&mut self, seq: u64, note: &Value) -> Result<(), String> {
        let params = &note["params"];
        self.last_seq = seq;
        if self.closed() {
            return Err(format!("notification after process/closed (SPEC 4.2): {note}"));
        }
        let members = params.as_object().map_or(0, serde_json::Map::len);
        let (kind, expected_members) = match note["method"].as_str() {
            Some("process/output") => {
                self.output(params)?;
                ("output", 4)
            }
            Some("process/exited") if self.exit.is_none() => {
                self.exit = Some(params.clone());
                ("exited", 4)
            }
            Some("process/closed") if self.exit.is_some() || self.mid_stream => ("closed", 2),
            _ => return Err(format!("out of order (SPEC 4.2): {note}")),
        };
        if members != expected_members {
            return Err(format!(
                "{kind} has {members} members instead of {expected_members} (SPEC 7.3): {note}"
            ));
        }
        if self.events.last() != Some(&kind) {
            self.events.push(kind);
        }
        Ok(())
    }

    fn output(&mut self, params: &Value) -> Result<(), String> {
        let stream = params["stream"].as_str().filter(|s| ["stdout", "stderr", "pty"].contains(s));
        let chunk = params["chunk"].as_str().and_then(|text| STANDARD.decode(text).ok());
        let (Some(stream), Some(chunk)) = (stream, chunk) else {
            return Err(format!("malformed process/output (SPEC 7.3): {params}"));
        };
        if chunk.is_empty() {
            return Err(format!("process/output with an empty chunk: {params}"));
        }
        self.longest_chunk = self.longest_chunk.max(chunk.len());
        self.streams.entry(stream.to_owned()).or_default().extend(chunk);
        Ok(())
    }
}
