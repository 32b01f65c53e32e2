//! What the measures need to know of a server's message, found without decoding long ones. Pure.

use std::borrow::Cow;
use std::io;

use serde::Deserialize;
use serde_json::Value;

/// Messages above this are looked at, not parsed: output, and the content of files.
const LONG_BYTES: usize = 4 << 10;

/// What a server said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A result: the id of its request, 0 when the message is long.
    Result {
        /// Of the request.
        id: u64,
        /// Decoded length of `dataBase64`, when it has one.
        data: Option<usize>,
    },
    /// An error answer, as text.
    Error(String),
    /// Output of a command; the number of bytes.
    Output(usize),
    /// A command has exited with this code.
    Exited(i64),
    /// A command has closed: the number that names it.
    Closed(u64),
    /// Something else.
    Other,
}

#[derive(Deserialize)]
struct Short<'a> {
    id: Option<u64>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<Params<'a>>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    process_id: Option<Cow<'a, str>>,
    exit_code: Option<i64>,
}

/// Reads one message.
///
/// # Errors
/// It is no message of the protocol.
pub fn parse(text: &[u8]) -> io::Result<Message> {
    if text.len() > LONG_BYTES {
        return Ok(long(text));
    }
    let Short { id, method, params, error } = serde_json::from_slice(text)?;
    if let Some(error) = error {
        return Ok(Message::Error(error.to_string()));
    }
    let Some(method) = method else {
        let id = id.ok_or_else(|| io::Error::other("an answer without an id"))?;
        return Ok(Message::Result { id, data: base64_bytes(text, br#""dataBase64":""#) });
    };
    let process = || params.as_ref().and_then(|params| params.process_id.as_deref()?.parse().ok());
    Ok(match &*method {
        "process/output" => Message::Output(base64_bytes(text, br#""chunk":""#).unwrap_or(0)),
        "process/exited" => {
            Message::Exited(params.as_ref().and_then(|params| params.exit_code).unwrap_or(-1))
        }
        "process/closed" => process().map_or(Message::Other, Message::Closed),
        _ => Message::Other,
    })
}

fn long(text: &[u8]) -> Message {
    match base64_bytes(text, br#""chunk":""#) {
        Some(bytes) => Message::Output(bytes),
        None => Message::Result { id: 0, data: base64_bytes(text, br#""dataBase64":""#) },
    }
}

/// Decoded length of the base64 text behind `start`, which comes early and ends at the next quote.
fn base64_bytes(text: &[u8], start: &[u8]) -> Option<usize> {
    let from = memchr::memmem::find(&text[..text.len().min(LONG_BYTES)], start)? + start.len();
    let length = memchr::memchr(b'"', &text[from..])?;
    let padding = text[from..from + length].iter().rev().take(2).filter(|byte| **byte == b'=').count();
    Some((length / 4 * 3).saturating_sub(padding))
}
