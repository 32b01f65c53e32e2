//! A hand-driven client of the exec-server protocol: any socket, any header, any frame.
//!
//! Invariant: every wait is bounded; nothing is retried, so what a test sees is what the server did.

use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use futures_util::{SinkExt, StreamExt};
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::handshake::client::{Request, generate_key};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::child::within;
use crate::tls::client_config;

/// Largest message this client takes: what Codex takes (SPEC 11.8).
const MESSAGE_LIMIT: usize = 64 * 1024 * 1024;

/// Notifications kept while a test waits for something else.
const QUEUE_LIMIT: usize = 100_000;

/// A byte stream to a server.
pub trait Socket: AsyncRead + AsyncWrite + Unpin + Send + fmt::Debug {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + fmt::Debug> Socket for T {}

/// Where a server listens.
#[derive(Debug, Clone)]
pub enum Endpoint {
    /// Plain TCP.
    Tcp(SocketAddr),
    /// TLS, trusting one authority (PEM).
    Tls(SocketAddr, String),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Endpoint {
    /// From a `ws://IP:PORT` URL.
    pub fn of_url(url: &str) -> Self {
        let authority = url.strip_prefix("ws://").expect("a ws:// URL").trim_end_matches('/');
        Self::Tcp(authority.parse().expect("an address and a port"))
    }

    /// Opens a connection, for tests that write bytes themselves.
    pub async fn open(&self) -> Box<dyn Socket> {
        within("a connection", async {
            match self {
                Self::Tcp(address) => Box::new(tcp(*address).await) as Box<dyn Socket>,
                Self::Tls(address, authority) => {
                    let connector = TlsConnector::from(client_config(authority));
                    let name = ServerName::IpAddress(address.ip().into());
                    let stream = connector.connect(name, tcp(*address).await).await;
                    Box::new(stream.unwrap_or_else(|error| panic!("TLS to {address}: {error}")))
                }
                Self::Unix(path) => Box::new(
                    UnixStream::connect(path)
                        .await
                        .unwrap_or_else(|error| panic!("{}: {error}", path.display())),
                ),
            }
        })
        .await
    }

    fn host(&self) -> String {
        match self {
            Self::Tcp(address) | Self::Tls(address, _) => address.to_string(),
            Self::Unix(_) => "localhost".to_owned(),
        }
    }
}

async fn tcp(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap_or_else(|error| panic!("{address}: {error}"));
    stream.set_nodelay(true).expect("a connected socket");
    stream
}

/// The upgrade request, being prepared. What is not set is as a well-behaved client sends it.
#[derive(Debug, Clone)]
pub struct Upgrade {
    endpoint: Endpoint,
    target: String,
    host: String,
    headers: Vec<(String, String)>,
}

/// An answer other than 101.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Status code.
    pub status: u16,
    /// The body as text.
    pub body: String,
}

impl Upgrade {
    /// `GET /` with the endpoint's own host and no token.
    pub fn new(endpoint: Endpoint) -> Self {
        Self { target: "/".to_owned(), host: endpoint.host(), endpoint, headers: Vec::new() }
    }

    /// Adds `Authorization: Bearer <token>`.
    #[must_use]
    pub fn token(self, token: &str) -> Self {
        self.header("Authorization", &format!("Bearer {token}"))
    }

    /// Adds any header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Another path and query.
    #[must_use]
    pub fn target(mut self, target: &str) -> Self {
        target.clone_into(&mut self.target);
        self
    }

    /// Another `Host`.
    #[must_use]
    pub fn host(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    /// Connects and asks for the upgrade. Panics when the connection does not last as long as that.
    pub async fn connect(&self) -> Result<WsClient, Refusal> {
        match self.attempt().await {
            Ok(client) => Ok(client),
            Err(Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                Err(Refusal {
                    status: response.status().as_u16(),
                    body: String::from_utf8_lossy(body).into_owned(),
                })
            }
            Err(error) => panic!("the upgrade failed: {error}"),
        }
    }

    /// As [`Self::connect`], where the connection may be lost.
    pub async fn attempt(&self) -> Result<WsClient, Error> {
        let mut request = Request::builder()
            .uri(format!("ws://{}{}", self.endpoint.host(), self.target))
            .header("Host", &self.host)
            .header("Connection", "Upgrade")
            .header("Upgrade", "websocket")
            .header("Sec-WebSocket-Version", "13")
            .header("Sec-WebSocket-Key", generate_key());
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(()).expect("a valid request");
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_LIMIT))
            .max_frame_size(Some(MESSAGE_LIMIT));
        let socket = self.endpoint.open().await;
        let connecting = client_async_with_config(request, socket, Some(config));
        let (stream, _) = within("an answer to the upgrade", connecting).await?;
        Ok(WsClient { stream, next_id: 1, notifications: VecDeque::new() })
    }
}

/// An open connection.
#[derive(Debug)]
pub struct WsClient {
    stream: WebSocketStream<Box<dyn Socket>>,
    next_id: u64,
    notifications: VecDeque<Value>,
}

impl WsClient {
    /// `initialize` and `initialized`; gives the result.
    pub async fn initialize(&mut self, resume_session_id: Option<&str>) -> Result<Value, Value> {
        let params = json!({ "clientName": "legion-tests", "resumeSessionId": resume_session_id });
        let result = self.call("initialize", params).await?;
        self.notify("initialized", json!({})).await;
        Ok(result)
    }

    /// Sends a request and waits for its answer: the result or the error object.
    pub async fn call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        let answer = self.call_or_lose(method, params).await;
        answer.unwrap_or_else(|| panic!("the connection ended before the answer to {method}"))
    }

    /// As [`Self::call`], where the connection may be lost: then there is no answer.
    pub async fn call_or_lose(&mut self, method: &str, params: Value) -> Option<Result<Value, Value>> {
        let id = self.next_id;
        self.next_id += 1;
        let request = json!({ "id": id, "method": method, "params": params });
        self.send(Message::text(request.to_string())).await.ok()?;
        loop {
            let mut message = self.next().await?;
            if message["id"] == id {
                let error = message["error"].take();
                return Some(if error.is_null() { Ok(message["result"].take()) } else { Err(error) });
            }
            assert!(self.notifications.len() < QUEUE_LIMIT, "more notifications than a test can want");
            self.notifications.push_back(message);
        }
    }

    /// Sends a notification.
    pub async fn notify(&mut self, method: &str, params: Value) {
        self.send_json(&json!({ "method": method, "params": params })).await;
    }

    /// As [`Self::notify`], where the connection may be lost.
    pub async fn notify_or_lose(&mut self, method: &str, params: Value) {
        let message = json!({ "method": method, "params": params });
        // A loss shows at the next call.
        let _ = self.send(Message::text(message.to_string())).await;
    }

    /// Notifications that have come so far, in order.
    pub fn take_notifications(&mut self) -> impl Iterator<Item = Value> + use<> {
        std::mem::take(&mut self.notifications).into_iter()
    }

    /// The next message that no call has taken, in order; `None` when the server has ended the connection.
    pub async fn notification(&mut self) -> Option<Value> {
        match self.notifications.pop_front() {
            Some(message) => Some(message),
            None => self.next().await,
        }
    }

    /// Waits for a notification of this method; drops others.
    pub async fn wait_for(&mut self, method: &str) -> Value {
        loop {
            let Some(mut message) = self.notification().await else {
                panic!("the connection ended before {method}");
            };
            if message["method"] == method {
                return message["params"].take();
            }
        }
    }

    /// Sends one text message.
    pub async fn send_json(&mut self, message: &Value) {
        self.send(Message::text(message.to_string())).await.expect("the connection is open");
    }

    /// Sends any message.
    pub async fn send(&mut self, message: Message) -> Result<(), Error> {
        within("a message is sent", self.stream.send(message)).await
    }

    /// Waits until the server has ended the connection; drops what it still sends.
    pub async fn ended(&mut self) {
        while self.next().await.is_some() {}
    }

    /// Waits until the server has ended the connection; gives what it still sent, and the reason of its Close frame.
    pub async fn last_words(&mut self) -> (Vec<Value>, Option<String>) {
        let mut messages = Vec::from(std::mem::take(&mut self.notifications));
        loop {
            match self.next_or_end().await {
                Ok(message) => messages.push(message),
                Err(reason) => return (messages, reason),
            }
        }
    }

    async fn next(&mut self) -> Option<Value> {
        self.next_or_end().await.ok()
    }

    /// The next message, or the end with the reason of a Close frame.
    async fn next_or_end(&mut self) -> Result<Value, Option<String>> {
        loop {
            match within("a message from the server", self.stream.next()).await {
                Some(Ok(Message::Text(text))) => return Ok(parse(text.as_bytes())),
                Some(Ok(Message::Binary(bytes))) => return Ok(parse(&bytes)),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(frame))) => return Err(frame.map(|frame| frame.reason.to_string())),
                Some(Err(_)) | None => return Err(None),
            }
        }
    }
}

fn parse(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("a server message that is not JSON: {error}"))
}
