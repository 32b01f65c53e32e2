//! The HTTP request head in front of a WebSocket: parsing and the checks both tiers make alike (SPEC 1.2–1.3).
//!
//! Pure: callers read bytes (bounded by `limits`), pass them in, and write the answer themselves.

use crate::limits::{MAX_UPGRADE_HEAD_BYTES, MAX_UPGRADE_HEADERS};

/// A complete request head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHead {
    /// `GET`…
    pub method: String,
    /// The request target without its query.
    pub path: String,
    /// After `?`, when there is one.
    pub query: Option<String>,
    /// Lower-case names; what is not UTF-8 in a value is replaced.
    headers: Vec<(String, String)>,
    /// Bytes of the head, its final empty line included; what follows belongs to the connection.
    pub length: usize,
}

/// Why bytes are no request head.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeadError {
    /// Longer than the bound.
    #[error("request head is longer than {MAX_UPGRADE_HEAD_BYTES} bytes")]
    TooLong,
    /// Not HTTP/1.1.
    #[error("malformed HTTP request: {0}")]
    Malformed(String),
}

impl RequestHead {
    /// Parses what has been read so far: `Ok(None)` asks for more bytes.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, HeadError> {
        let mut headers = [httparse::EMPTY_HEADER; MAX_UPGRADE_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let status = request.parse(bytes).map_err(|error| HeadError::Malformed(error.to_string()))?;
        let length = match status {
            httparse::Status::Complete(length) if length <= MAX_UPGRADE_HEAD_BYTES => length,
            httparse::Status::Partial if bytes.len() < MAX_UPGRADE_HEAD_BYTES => return Ok(None),
            _ => return Err(HeadError::TooLong),
        };
        let target = request.path.unwrap_or_default();
        let (path, query) =
            target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        // No header is left out: one whose value is odd is there all the same.
        let headers = request.headers.iter().map(|header| {
            (header.name.to_ascii_lowercase(), String::from_utf8_lossy(header.value).trim().to_owned())
        });
        Ok(Some(Self {
            method: request.method.unwrap_or_default().to_owned(),
            path: path.to_owned(),
            query: query.map(str::to_owned),
            headers: headers.collect(),
            length,
        }))
    }

    /// Whether another request may follow on the connection: the client speaks HTTP/1.1, does not ask for the end, and
    /// sends no body that would have to be read first.
    pub fn keeps_connection(&self) -> bool {
        let ends = self.lists("connection", "close") || self.has("transfer-encoding");
        !ends && self.header("content-length").is_none_or(|length| length == "0")
    }

    fn lists(&self, name: &str, word: &str) -> bool {
        self.headers
            .iter()
            .filter(|(key, _)| key == name)
            .flat_map(|(_, value)| value.split(','))
            .any(|item| item.trim().eq_ignore_ascii_case(word))
    }

    /// The first header of this (lower-case) name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Whether there is a header of this (lower-case) name, whatever its value.
    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(key, _)| key == name)
    }

    /// The bearer token of the first `Authorization` header.
    ///
    /// # Errors
    /// The text of the 401 answer (SPEC 1.3).
    pub fn bearer(&self) -> Result<&str, &'static str> {
        let value = self.header("authorization").ok_or("missing websocket bearer token")?;
        match value.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") && !token.trim().is_empty() => {
                Ok(token.trim())
            }
            _ => Err("invalid authorization header"),
        }
    }

    /// The `Sec-WebSocket-Key` of a valid upgrade request.
    ///
    /// # Errors
    /// The text of the 400 answer, in the words of the original (SPEC 1.2).
    pub fn websocket_key(&self) -> Result<&str, &'static str> {
        if !self.lists("connection", "upgrade") {
            return Err("Connection header did not include 'upgrade'");
        }
        if !self.lists("upgrade", "websocket") {
            return Err("`Upgrade` header did not include 'websocket'");
        }
        if self.header("sec-websocket-version") != Some("13") {
            return Err("`Sec-WebSocket-Version` header did not include '13'");
        }
        self.header("sec-websocket-key").ok_or("`Sec-WebSocket-Key` header missing")
    }
}

/// An HTTP answer with a plain text body; the connection is closed after it.
pub fn plain_response(status: u16, body: &str) -> String {
    response(status, "connection: close\r\n", body)
}

/// An HTTP answer with a plain text body, after which the client may send another request.
pub fn kept_response(status: u16, body: &str) -> String {
    response(status, "", body)
}

fn response(status: u16, connection: &str, body: &str) -> String {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Error",
    };
    let kind = if body.is_empty() { "" } else { "content-type: text/plain; charset=utf-8\r\n" };
    let length = body.len();
    format!("HTTP/1.1 {status} {reason}\r\n{kind}content-length: {length}\r\n{connection}\r\n{body}")
}

/// The 101 answer; `accept` is derived from the key by RFC 6455.
pub fn switching_response(accept: &str) -> String {
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "GET /a?token=x HTTP/1.1\r\nHost: 127.0.0.1:1\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: k\r\nAuthorization: bearer t  \r\n\r\nrest";

    #[test]
    fn a_good_head_is_taken_apart() {
        let head = RequestHead::parse(GOOD.as_bytes()).unwrap().unwrap();
        assert_eq!((head.path.as_str(), head.query.as_deref()), ("/a", Some("token=x")));
        assert_eq!(head.bearer(), Ok("t"));
        assert_eq!(head.websocket_key(), Ok("k"));
        assert_eq!(&GOOD[head.length..], "rest");
        for end in 0..head.length {
            assert_eq!(RequestHead::parse(&GOOD.as_bytes()[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn a_header_is_there_whatever_its_value() {
        let head = RequestHead::parse(b"GET / HTTP/1.1\r\norigin: \xff\r\n\r\n").unwrap().unwrap();
        assert!(head.has("origin"));
    }

    #[test]
    fn bounds_and_bad_heads_are_named() {
        let long = format!("GET / HTTP/1.1\r\nx: {}", "y".repeat(MAX_UPGRADE_HEAD_BYTES));
        assert_eq!(RequestHead::parse(long.as_bytes()), Err(HeadError::TooLong));
        assert!(matches!(RequestHead::parse(b"\x16\x03\x01\x02"), Err(HeadError::Malformed(_))));
        let head = |text: &str| RequestHead::parse(text.as_bytes()).unwrap().unwrap();
        assert_eq!(head("GET / HTTP/1.1\r\n\r\n").bearer(), Err("missing websocket bearer token"));
        assert_eq!(
            head("GET / HTTP/1.1\r\nauthorization: Basic x\r\n\r\n").bearer(),
            Err("invalid authorization header")
        );
        assert_eq!(
            head("GET / HTTP/1.1\r\n\r\n").websocket_key(),
            Err("Connection header did not include 'upgrade'")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_never_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = RequestHead::parse(&bytes);
        }
    }
}
