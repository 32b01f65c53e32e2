//! The front door: accepting sockets and the HTTP request in front of a WebSocket (SPEC 1.2, 1.3).
//!
//! Invariant: before a token has been checked a peer gets 8 KiB and 5 s, and only `MAX_PENDING_HANDSHAKES` of them at
//! one time. The oldest of these gives way to a new one, but not before `HANDSHAKE_GRACE`: peers that say nothing hold
//! nobody up, and whoever speaks at once is heard.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use legion_protocol::limits::{MAX_UPGRADE_HEAD_BYTES, SOCKET_SEND_BUFFER_BYTES, UPGRADE_TIMEOUT};
use legion_protocol::upgrade::{HeadError, RequestHead, kept_response, plain_response, switching_response};
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{AbortHandle, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use crate::connection;
use crate::limits::{
    ACCEPT_RETRY, HANDSHAKE_GRACE, MAX_CONNECTIONS, MAX_PENDING_HANDSHAKES, MAX_REQUESTS_BEFORE_UPGRADE,
};
use crate::server::Server;
use crate::transport::websocket::{Peer, WebSocket};

/// A listening socket.
pub(crate) enum Listener {
    /// `ws://`
    Tcp(TcpListener),
    /// Inherited, or at a path.
    Unix(UnixListener),
}

impl Listener {
    /// Accepts connections for ever.
    pub(crate) async fn run(self, server: Rc<Server>) {
        let mut pending = Pending::new();
        loop {
            let accepted = match &self {
                Self::Tcp(listener) => match listener.accept().await {
                    Ok((stream, peer)) => {
                        // Without it a small answer waits for the peer's delayed acknowledgement (SPEC 15.1).
                        let _ = stream.set_nodelay(true);
                        pending.enter(Rc::clone(&server), stream, Peer::Tcp(peer)).await;
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
                Self::Unix(listener) => match listener.accept().await {
                    Ok((stream, _)) => {
                        let _ = set_socket_send_buffer_size(&stream, SOCKET_SEND_BUFFER_BYTES);
                        pending.enter(Rc::clone(&server), stream, Peer::Unix).await;
                        Ok(())
                    }
                    Err(error) => Err(error),
                },
            };
            if accepted.is_err() {
                sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// The handshakes of one listener.
struct Pending {
    places: Arc<Semaphore>,
    /// Oldest first, with the time each began; those that are over are dropped when the next one begins.
    begun: VecDeque<(Instant, AbortHandle)>,
}

impl Pending {
    fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(MAX_PENDING_HANDSHAKES)), begun: VecDeque::new() }
    }

    /// Serves a peer that was accepted just now, once there is a place for its handshake.
    async fn enter<S>(&mut self, server: Rc<Server>, stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let place = self.place().await;
        let handshake = spawn_local(open(server, stream, peer, place));
        self.begun.push_back((Instant::now(), handshake.abort_handle()));
    }

    /// Waits until a handshake is over, or the oldest one has had its time and is dropped. The semaphore is never
    /// closed, so there is always a place in the end.
    async fn place(&mut self) -> Option<OwnedSemaphorePermit> {
        self.begun.retain(|(_, handshake)| !handshake.is_finished());
        let place = Arc::clone(&self.places).acquire_owned();
        tokio::pin!(place);
        if let Some((since, oldest)) = self.begun.front() {
            tokio::select! {
                biased;
                place = &mut place => return place.ok(),
                () = sleep_until(*since + HANDSHAKE_GRACE) => oldest.abort(),
            }
        }
        place.await.ok()
    }
}

/// One connection up to the end of its handshake; what comes then is a task of its own. The place is given back with
/// this one.
async fn open<S>(server: Rc<Server>, mut stream: S, peer: Peer, _place: Option<OwnedSemaphorePermit>)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    // Otherwise it was answered differently, was too slow, or is gone.
    let Ok(Ok(Some(early))) = timeout(UPGRADE_TIMEOUT, upgrade(&server, &mut stream)).await else { return };
    let counted = Counted::new(&server);
    spawn_local(async move {
        let socket = WebSocket::new(stream, early, &peer).await;
        connection::serve(server, socket).await;
        drop(counted);
    });
}

/// Counts an open connection.
struct Counted(Rc<Server>);

impl Counted {
    fn new(server: &Rc<Server>) -> Self {
        server.connections.set(server.connections.get() + 1);
        Self(Rc::clone(server))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get().saturating_sub(1));
    }
}

/// Answers requests until one of them is upgraded, and returns what the client sent behind that one; `None` when the
/// connection ends before. All of it has to happen within `UPGRADE_TIMEOUT`.
async fn upgrade<S>(server: &Server, stream: &mut S) -> io::Result<Option<Vec<u8>>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut received = Vec::with_capacity(1024);
    for _ in 0..MAX_REQUESTS_BEFORE_UPGRADE {
        let head = match read_head(stream, &mut received).await? {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(None),
            Err(response) => return refuse(stream, &response).await,
        };
        let rest = received.split_off(head.length);
        match decide(server, &head) {
            Ok(key) => {
                let response = switching_response(&derive_accept_key(key.as_bytes()));
                stream.write_all(response.as_bytes()).await?;
                return Ok(Some(rest));
            }
            Err(Refusal { status, body, allow }) if head.keeps_connection() => {
                stream.write_all(with_allow(&kept_response(status, body), allow).as_bytes()).await?;
            }
            Err(Refusal { status, body, allow }) => {
                return refuse(stream, &with_allow(&plain_response(status, body), allow)).await;
            }
        }
        received = rest;
    }
    Ok(None)
}

async fn refuse<S: AsyncWrite + Unpin>(stream: &mut S, response: &str) -> io::Result<Option<Vec<u8>>> {
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(None)
}

/// Reads until `received` starts with a whole head; `None` at the end of the stream, or the answer to what is no head.
async fn read_head<S: AsyncRead + Unpin>(
    stream: &mut S,
    received: &mut Vec<u8>,
) -> io::Result<Result<Option<RequestHead>, String>> {
    loop {
        match RequestHead::parse(received) {
            Ok(Some(head)) => return Ok(Ok(Some(head))),
            Ok(None) => {}
            Err(HeadError::TooLong) => return Ok(Err(plain_response(431, "request head is too long"))),
            Err(HeadError::Malformed(_)) => return Ok(Err(plain_response(400, "malformed HTTP request"))),
        }
        let room = MAX_UPGRADE_HEAD_BYTES.saturating_sub(received.len()).max(1);
        if (&mut *stream).take(room as u64).read_buf(received).await? == 0 {
            return Ok(Ok(None));
        }
    }
}

/// An answer other than 101.
struct Refusal {
    status: u16,
    body: &'static str,
    /// The methods of a 405 answer.
    allow: Option<&'static str>,
}

impl Refusal {
    const fn new(status: u16, body: &'static str) -> Self {
        Self { status, body, allow: None }
    }
}

/// The WebSocket key of a request that may pass, or the answer to any other. The order of the checks is that of SPEC
/// 1.2: a browser learns nothing, not even that somebody listens.
fn decide(server: &Server, head: &RequestHead) -> Result<String, Refusal> {
    if head.has("origin") {
        return Err(Refusal::new(403, ""));
    }
    match (head.path.as_str(), head.method.as_str()) {
        ("/readyz", "GET" | "HEAD") => return Err(Refusal::new(200, "")),
        ("/readyz", _) => return Err(Refusal { allow: Some("GET,HEAD"), ..Refusal::new(405, "") }),
        ("/", "GET") => {}
        ("/", _) => return Err(Refusal::new(405, "Request method must be `GET`")),
        _ => return Err(Refusal::new(404, "")),
    }
    let key = head.websocket_key().map_err(|text| Refusal::new(400, text))?;
    if let Some(token) = &server.token {
        let presented = head.bearer().map_err(|text| Refusal::new(401, text))?;
        if !token.accepts(presented) {
            return Err(Refusal::new(401, "invalid websocket bearer token"));
        }
    }
    if server.connections.get() >= MAX_CONNECTIONS {
        return Err(Refusal::new(503, "too many connections; close one first"));
    }
    Ok(key.to_owned())
}

fn with_allow(response: &str, methods: Option<&str>) -> String {
    match methods {
        Some(methods) => response.replacen("\r\n", &format!("\r\nallow: {methods}\r\n"), 1),
        None => response.to_owned(),
    }
}
