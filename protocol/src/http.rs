//! `http/request` (SPEC 9.6).

use serde::{Deserialize, Serialize};

use crate::{Chunk, object};

/// A header to send.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Field name.
    pub name: String,
    /// Field value; required even with `valueEnvVar`.
    pub value: String,
    /// A variable whose value replaces `value`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_env_var: Option<String>,
}

/// What to do with a redirection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RedirectPolicy {
    /// Follow it.
    #[default]
    Follow,
    /// Return it.
    Stop,
}

/// Parameters of `http/request`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRequest {
    /// `GET`, `POST`…
    pub method: String,
    /// http or https.
    pub url: String,
    /// Headers to send.
    #[serde(default, deserialize_with = "headers")]
    pub headers: Vec<Header>,
    /// The body.
    #[serde(default)]
    pub body_base64: Option<Chunk>,
    /// Milliseconds.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Default `follow`.
    #[serde(default, deserialize_with = "object::or_default")]
    pub redirect_policy: RedirectPolicy,
    /// The client's name for the request.
    pub request_id: String,
    /// Return after the headers; the body follows as notifications.
    #[serde(default, deserialize_with = "object::or_default")]
    pub stream_response: bool,
}

fn headers<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Vec<Header>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(transparent)]
    struct Headers(#[serde(deserialize_with = "object::list")] Vec<Header>);
    object::or_default::<D, Headers>(deserializer).map(|headers| headers.0)
}

/// A received header.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ReceivedHeader {
    /// Field name.
    pub name: String,
    /// Field value.
    pub value: String,
}

/// Result of `http/request`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpResponse {
    /// HTTP status; error statuses are normal results.
    pub status: u16,
    /// Headers received.
    pub headers: Vec<ReceivedHeader>,
    /// The body; empty when streamed.
    pub body_base64: Chunk,
}

/// Notification `http/request/bodyDelta`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BodyDelta {
    /// The client's name for the request.
    pub request_id: String,
    /// From 1.
    pub seq: u64,
    /// Bytes of the body.
    pub delta_base64: Chunk,
    /// The last one.
    pub done: bool,
    /// Why the body ended early.
    pub error: Option<String>,
}
