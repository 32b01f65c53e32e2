//! The envelope's parts: request ids, error codes, error objects, and the writers of whole frames (SPEC 2, 6).
//!
//! Frames carry no `jsonrpc` member; the error object comes before the id, as the original writes it.

use std::fmt;

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// A request id: a string or a signed 64-bit integer, echoed with its type (SPEC 2.1).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RequestId {
    /// An integer id; the real client counts from 1 on every connection.
    Integer(i64),
    /// A string id.
    Text(Box<str>),
}

impl RequestId {
    /// The id the original uses to answer what it could not parse (SPEC 2.3).
    pub const UNPARSABLE: Self = Self::Integer(-1);
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(id) => id.fmt(f),
            Self::Text(id) => fmt::Debug::fmt(id, f),
        }
    }
}

impl From<i64> for RequestId {
    fn from(id: i64) -> Self {
        Self::Integer(id)
    }
}

impl Serialize for RequestId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(id) => serializer.serialize_i64(*id),
            Self::Text(id) => serializer.serialize_str(id),
        }
    }
}

impl<'de> Deserialize<'de> for RequestId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct IdVisitor;
        impl Visitor<'_> for IdVisitor {
            type Value = RequestId;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a signed 64-bit integer")
            }
            fn visit_i64<E: de::Error>(self, id: i64) -> Result<RequestId, E> {
                Ok(RequestId::Integer(id))
            }
            fn visit_u64<E: de::Error>(self, id: u64) -> Result<RequestId, E> {
                i64::try_from(id).map(RequestId::Integer).map_err(|_| E::custom("id is out of range"))
            }
            fn visit_str<E: de::Error>(self, id: &str) -> Result<RequestId, E> {
                Ok(RequestId::Text(id.into()))
            }
        }
        deserializer.deserialize_any(IdVisitor)
    }
}

/// The codes of SPEC 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "i64")]
pub enum ErrorCode {
    /// -32600: handshake order, unknown or duplicate ids, permission denied, most file system rules.
    InvalidRequest,
    /// -32601: no such method.
    MethodNotFound,
    /// -32602: the parameters do not fit.
    InvalidParams,
    /// -32603: everything else from the operating system; spawn failures.
    Internal,
    /// -32004: ENOENT or an unknown file handle. The one code the client acts on.
    NotFound,
    /// -32077: Legion's policy or session state refused the call. No client gives it a meaning of its own.
    Refused,
}

impl ErrorCode {
    /// The number on the wire.
    pub fn number(self) -> i64 {
        match self {
            Self::InvalidRequest => -32600,
            Self::MethodNotFound => -32601,
            Self::InvalidParams => -32602,
            Self::Internal => -32603,
            Self::NotFound => -32004,
            Self::Refused => -32077,
        }
    }
}

impl From<ErrorCode> for i64 {
    fn from(code: ErrorCode) -> Self {
        code.number()
    }
}

/// What an error frame carries.
#[derive(Debug, Clone, Serialize)]
pub struct ErrorObject {
    /// See [`ErrorCode`].
    pub code: ErrorCode,
    /// Structured detail, e.g. `{"kind":"spawnNotFound"}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<serde_json::Value>,
    /// One line; it may reach the model, so it never holds a secret.
    pub message: String,
}

impl ErrorObject {
    /// An error without `data`.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, data: None, message: message.into() }
    }

    /// -32600.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    /// -32602.
    pub fn invalid_params(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidParams, message)
    }

    /// -32601 in the words of the original (SPEC 2.5).
    pub fn method_not_found(method: &str) -> Self {
        Self::new(ErrorCode::MethodNotFound, format!("exec-server stub does not implement `{method}` yet"))
    }

    /// The answer to a message that is no frame (SPEC 1.5, 2.3). `source` names the transport and peer.
    pub fn unparsable(source: &str, detail: &str) -> Self {
        let kind = if source.ends_with("stdio") { "" } else { "websocket " };
        Self::invalid_request(format!("failed to parse {kind}JSON-RPC message from {source}: {detail}"))
    }
}

#[derive(Serialize)]
struct RequestFrame<'a, P> {
    id: &'a RequestId,
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct NotificationFrame<'a, P> {
    method: &'a str,
    params: &'a P,
}

#[derive(Serialize)]
struct ResponseFrame<'a, R> {
    id: &'a RequestId,
    result: &'a R,
}

#[derive(Serialize)]
struct ErrorFrame<'a> {
    error: &'a ErrorObject,
    id: &'a RequestId,
}

/// What an error frame received from a peer says; the code is any number a server may use.
#[derive(Debug, Clone, Deserialize)]
pub struct ReceivedError {
    /// The peer's code.
    pub code: i64,
    /// The peer's one-line text.
    pub message: String,
    /// The peer's detail, unparsed.
    #[serde(default)]
    pub data: Option<Box<RawValue>>,
}

fn to_text<T: Serialize>(frame: &T) -> String {
    // Types of this crate serialize to JSON without fail: string keys only, no custom errors.
    serde_json::to_string(frame).unwrap_or_default()
}

/// `{"id":…,"method":…,"params":…}`
pub fn request_text<P: Serialize>(id: &RequestId, method: &str, params: &P) -> String {
    to_text(&RequestFrame { id, method, params })
}

/// `{"method":…,"params":…}`
pub fn notification_text<P: Serialize>(method: &str, params: &P) -> String {
    to_text(&NotificationFrame { method, params })
}

/// `{"id":…,"result":…}`
pub fn response_text<R: Serialize>(id: &RequestId, result: &R) -> String {
    to_text(&ResponseFrame { id, result })
}

/// `{"error":{…},"id":…}`
pub fn error_text(id: &RequestId, error: &ErrorObject) -> String {
    to_text(&ErrorFrame { error, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_keep_their_type_and_range() {
        for text in ["1", "-5", "9223372036854775807", "\"abc\"", "\"\""] {
            let id: RequestId = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&id).unwrap(), text);
        }
        for text in ["9223372036854775808", "1.5", "null", "[]", "true"] {
            assert!(serde_json::from_str::<RequestId>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn frames_are_written_as_the_original_writes_them() {
        let error = ErrorObject {
            code: ErrorCode::Internal,
            data: Some(serde_json::json!({"kind": "spawnNotFound"})),
            message: "no".into(),
        };
        assert_eq!(
            error_text(&RequestId::from(3), &error),
            r#"{"error":{"code":-32603,"data":{"kind":"spawnNotFound"},"message":"no"},"id":3}"#
        );
        assert_eq!(response_text(&RequestId::Text("a".into()), &()), r#"{"id":"a","result":null}"#);
    }
}
