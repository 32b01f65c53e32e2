//! The front door: from an accepted stream to a relayed session (security.md 6).
//!
//! Invariant: nothing of the protocol is parsed before the token is verified; every refusal is recorded; peers learn
//! nothing from a refusal but its status.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use legion_protocol::limits::{MAX_UPGRADE_HEAD_BYTES, UPGRADE_TIMEOUT};
use legion_protocol::upgrade::{HeadError, RequestHead, plain_response, switching_response};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::admission::{Penalty, Place};
use crate::audit::record::Actor;
use crate::audit::{Event, Record};
use crate::controller::Controller;
use crate::limits::MAX_CONNECTIONS_PER_SESSION;
use crate::relay::Connection;
use crate::session::Session;
use crate::upstream::Upstream;
use crate::websocket;

/// How a door treats who comes.
#[derive(Debug, Clone)]
pub struct Door {
    /// Accepted names and addresses in `Host`, lower case, without port; empty where a browser cannot come.
    pub hosts: Vec<String>,
    /// Whether the token may be in the query.
    pub query_token: bool,
}

/// A refused handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    status: u16,
    /// What the peer reads.
    body: String,
    /// What the record says.
    reason: String,
    session: Option<String>,
}

impl Refusal {
    fn new(status: u16, body: &str, reason: impl Into<String>) -> Self {
        Self { status, body: body.to_owned(), reason: reason.into(), session: None }
    }
}

/// What a request head asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Asked<'a> {
    /// A probe of readiness.
    Ready,
    /// An upgrade with this token.
    Upgrade {
        /// Not yet verified.
        token: &'a str,
    },
}

impl Door {
    /// The checks that need no session. Pure.
    pub fn check<'a>(&self, head: &'a RequestHead) -> Result<Asked<'a>, Refusal> {
        if head.has("origin") {
            return Err(Refusal::new(403, "", "a request with an Origin header, as web pages send it"));
        }
        let host = head.header("host").map(host_name);
        if !self.hosts.is_empty() && !host.as_ref().is_some_and(|host| self.hosts.contains(host)) {
            return Err(Refusal::new(403, "", "the Host header names another host"));
        }
        match (head.method.as_str(), head.path.as_str()) {
            ("GET" | "HEAD", "/readyz") => return Ok(Asked::Ready),
            (_, "/readyz") => return Err(Refusal::new(405, "", "method not allowed")),
            ("GET", "/") => {}
            (_, "/") => return Err(Refusal::new(405, "Request method must be `GET`", "method not allowed")),
            _ => return Err(Refusal::new(404, "", "unknown path")),
        }
        let in_query = head.query.as_deref().and_then(token_in_query);
        let token = match (head.bearer(), in_query) {
            (Ok(token), _) => token,
            (Err(_), Some(token)) if self.query_token => token,
            (Err(text), Some(_)) => {
                return Err(Refusal::new(401, text, "a token in the URL, which this listener does not take"));
            }
            (Err(text), None) => return Err(Refusal::new(401, text, text)),
        };
        Ok(Asked::Upgrade { token })
    }
}

/// `Host` without its port, lower case.
fn host_name(host: &str) -> String {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) && !name.ends_with(':') => name,
        _ => host,
    };
    name.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase()
}

fn token_in_query(query: &str) -> Option<&str> {
    query.split('&').find_map(|pair| pair.strip_prefix("token="))
}

/// Serves one accepted stream to its end. `place` is held until the handshake is over.
pub async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    controller: Rc<Controller>,
    penalty: Rc<Penalty>,
    door: Rc<Door>,
    stream: S,
    actor: Actor,
    mut place: Place,
) {
    let handshake = shake_hands(&controller, &penalty, &door, stream, &actor);
    let Some(shaken) = place.hold(handshake).await else { return penalty.count_dropped() };
    drop(place);
    let Some((mut stream, Admitted { session, accept_key, rest })) = shaken else { return };
    let guard = session.connect();
    let upstream = match connect_upstream(&controller, &session).await {
        Ok(upstream) => upstream,
        Err(reason) => {
            let refusal =
                Refusal { session: Some(session.id.clone()), ..Refusal::new(503, &reason, reason.clone()) };
            return refuse(&controller, &penalty, stream, actor, refusal).await;
        }
    };
    if stream.write_all(switching_response(&accept_key).as_bytes()).await.is_err() {
        return;
    }
    let mut opened = Record::new(Event::ConnectionOpened).of_session(&session.id);
    opened.connection = Some(guard.number);
    opened.actor = Some(actor.clone());
    if let Err(error) = controller.record(&opened) {
        tracing::error!(%error, "a connection is dropped because it cannot be recorded");
        return;
    }
    let config = Some(websocket::config());
    let downstream = WebSocketStream::from_partially_read(stream, rest, Role::Server, config).await;
    let connection = Connection::new(Rc::clone(&controller), Rc::clone(&session), guard.number, actor);
    let reason = connection.run(downstream, upstream).await;
    let mut closed = Record::new(Event::ConnectionClosed).of_session(&session.id).because(reason);
    closed.connection = Some(guard.number);
    controller.note(&closed);
}

/// Reads a request and decides on it; `None` when the peer was answered, was refused, or left.
async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
    controller: &Controller,
    penalty: &Penalty,
    door: &Door,
    mut stream: S,
    actor: &Actor,
) -> Option<(S, Admitted)> {
    let refusal = match timeout(UPGRADE_TIMEOUT, admit(controller, door, &mut stream)).await {
        Ok(Ok(admitted)) => return admitted.map(|admitted| (stream, admitted)),
        Ok(Err(refusal)) => refusal,
        Err(_) => {
            let seconds = Duration::as_secs(&UPGRADE_TIMEOUT);
            Refusal::new(408, "", format!("no complete request head within {seconds} s"))
        }
    };
    refuse(controller, penalty, stream, actor.clone(), refusal).await;
    None
}

struct Admitted {
    session: Rc<Session>,
    accept_key: String,
    rest: Vec<u8>,
}

/// Reads the head and checks it; `None` when the peer was answered or left.
async fn admit<S: AsyncRead + AsyncWrite + Unpin>(
    controller: &Controller,
    door: &Door,
    stream: &mut S,
) -> Result<Option<Admitted>, Refusal> {
    let mut bytes = Vec::with_capacity(1024);
    let head = loop {
        match stream.read_buf(&mut bytes).await {
            Ok(0) | Err(_) => return Ok(None),
            Ok(_) => {}
        }
        match RequestHead::parse(&bytes) {
            Ok(Some(head)) => break head,
            Ok(None) => {}
            Err(error @ HeadError::TooLong) => {
                return Err(Refusal::new(431, "", format!("{error} ({MAX_UPGRADE_HEAD_BYTES})")));
            }
            Err(error) => return Err(Refusal::new(400, "", error.to_string())),
        }
    };
    let Asked::Upgrade { token } = door.check(&head)? else {
        let _ = stream.write_all(plain_response(200, "").as_bytes()).await;
        return Ok(None);
    };
    let session = controller.authenticate(token).map_err(|denial| Refusal {
        session: denial.session,
        ..Refusal::new(401, "invalid websocket bearer token", denial.reason)
    })?;
    let key = head.websocket_key().map_err(|text| Refusal::new(400, text, text))?;
    if session.connections() >= MAX_CONNECTIONS_PER_SESSION {
        let text = format!("the session has {MAX_CONNECTIONS_PER_SESSION} connections already");
        return Err(Refusal { session: Some(session.id.clone()), ..Refusal::new(503, &text, text.clone()) });
    }
    Ok(Some(Admitted {
        accept_key: derive_accept_key(key.as_bytes()),
        rest: bytes.split_off(head.length),
        session,
    }))
}

/// A connection to the session's exec-server; a sandbox that died just now is replaced once.
async fn connect_upstream(controller: &Rc<Controller>, session: &Rc<Session>) -> Result<Upstream, String> {
    let mut last = io::Error::other("no try was made");
    for _ in 0..2 {
        let sandbox = tokio::select! {
            sandbox = session.sandbox(controller) => sandbox.map_err(|failure| failure.message)?,
            reason = session.until_ended() => return Err(format!("session {}", reason.text())),
        };
        match controller.launcher.connect(&sandbox).await {
            Ok(upstream) => return Ok(upstream),
            Err(error) => last = error,
        }
        // Either it has just died, or it does not answer; both ways it is of no more use.
        sandbox.kill().await;
    }
    Err(format!("the sandbox does not answer: {last}"))
}

async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(
    controller: &Controller,
    penalty: &Penalty,
    mut stream: S,
    actor: Actor,
    refusal: Refusal,
) {
    if !penalty.serve().await {
        return;
    }
    let Refusal { status, body, reason, session } = refusal;
    note_refusal(controller, penalty, actor, session, &format!("{status}: {reason}"));
    let _ = timeout(UPGRADE_TIMEOUT, stream.write_all(plain_response(status, &body).as_bytes())).await;
    let _ = timeout(UPGRADE_TIMEOUT, stream.shutdown()).await;
}

/// Records a peer whose TLS handshake failed. It has been told so by TLS itself, or has gone.
pub async fn refuse_tls(controller: &Controller, penalty: &Penalty, actor: Actor, reason: &str) {
    if penalty.serve().await {
        note_refusal(controller, penalty, actor, None, &format!("TLS: {reason}"));
    }
}

fn note_refusal(
    controller: &Controller,
    penalty: &Penalty,
    actor: Actor,
    session: Option<String>,
    reason: &str,
) {
    let mut record = Record::new(Event::HandshakeRefused).because(controller.redactor.text(reason));
    record.session = session;
    record.actor = Some(actor);
    let dropped = penalty.take_dropped();
    record.dropped = (dropped > 0).then_some(dropped);
    controller.note(&record);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door(query_token: bool) -> Door {
        Door { hosts: vec!["127.0.0.1".into(), "localhost".into(), "::1".into()], query_token }
    }

    fn head(line: &str, headers: &str) -> RequestHead {
        RequestHead::parse(format!("{line} HTTP/1.1\r\n{headers}\r\n").as_bytes()).unwrap().unwrap()
    }

    const HOST: &str = "Host: 127.0.0.1:99\r\n";

    #[test]
    fn tokens_are_taken_from_the_header_and_from_the_query_only_where_allowed() {
        let with_header = head("GET /?x=1", &format!("{HOST}Authorization: Bearer t\r\n"));
        assert_eq!(door(false).check(&with_header), Ok(Asked::Upgrade { token: "t" }));
        let with_query = head("GET /?a=b&token=q", HOST);
        assert_eq!(door(true).check(&with_query), Ok(Asked::Upgrade { token: "q" }));
        assert_eq!(door(false).check(&with_query).unwrap_err().status, 401);
        assert_eq!(
            door(true).check(&head("GET /", HOST)).unwrap_err().body,
            "missing websocket bearer token"
        );
    }

    #[test]
    fn browsers_and_foreign_hosts_are_refused_before_the_token_is_looked_at() {
        let good = "Authorization: Bearer t\r\n";
        for origin in ["null", "http://localhost", ""] {
            let head = head("GET /", &format!("{HOST}{good}Origin: {origin}\r\n"));
            assert_eq!(door(false).check(&head).unwrap_err().status, 403);
        }
        for host in ["evil.example", "127.0.0.1.evil.example:80", "127.0.0.2", "[::2]:1", ""] {
            let head = head("GET /", &format!("{good}Host: {host}\r\n"));
            assert_eq!(door(false).check(&head).unwrap_err().status, 403, "{host}");
        }
        assert_eq!(door(false).check(&head("GET /", good)).unwrap_err().status, 403);
        for host in ["localhost", "LOCALHOST:8", "[::1]:8", "127.0.0.1"] {
            let head = head("GET /", &format!("{good}Host: {host}\r\n"));
            assert!(door(false).check(&head).is_ok(), "{host}");
        }
    }

    #[test]
    fn only_the_root_path_leads_in() {
        assert_eq!(door(false).check(&head("GET /readyz", HOST)), Ok(Asked::Ready));
        assert_eq!(door(false).check(&head("POST /readyz", HOST)).unwrap_err().status, 405);
        assert_eq!(door(false).check(&head("GET /x", HOST)).unwrap_err().status, 404);
        assert_eq!(door(false).check(&head("POST /", HOST)).unwrap_err().status, 405);
    }
}
