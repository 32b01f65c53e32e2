//! What the log says of itself, in the member `log` of a record: rotation, checkpoints, what is missing. Pure.

use serde::{Deserialize, Serialize};

/// First record of a file that goes on where another was full.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Rotation {
    /// Name of the file before.
    pub file: String,
    /// Number of its last record.
    pub seq: u64,
    /// Hash of its last record.
    pub head: String,
}

/// The chain so far, signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Checkpoint {
    /// Number of the last signed record.
    pub seq: u64,
    /// Its hash.
    pub head: String,
    /// Fingerprint of the key.
    pub key: String,
    /// Ed25519, base64, over the text that `checkpoint::signed_text` makes.
    pub signature: String,
}

/// Some records.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Range {
    /// The first.
    pub from: u64,
    /// The last.
    pub to: u64,
    /// Hash of the record before a gap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Mark {
    /// See [`Rotation`].
    Rotation(Rotation),
    /// See [`Checkpoint`].
    Checkpoint(Checkpoint),
    /// See [`Range`].
    Range(Range),
}
