//! `http/request`: one HTTP request from inside the sandbox, whole or streamed (SPEC 9.6).
//!
//! It leaves as a command's request would: where the session has no network there is none for it either. Invariant:
//! every request has a deadline, a body a bound or a reader that keeps up, and all of it ends with the connection.

mod exchange;
mod stream;
mod tls;
mod url;

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use legion_protocol::http::{BodyDelta, Header, HttpRequest, HttpResponse, ReceivedHeader, RedirectPolicy};
use legion_protocol::jsonrpc::notification_text;
use legion_protocol::{Chunk, ErrorCode, ErrorObject, Method};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::error::Outcome;
use crate::limits::{
    HTTP_MAX_TIMEOUT, HTTP_STREAM_TIMEOUT, HTTP_TIMEOUT, MAX_HTTP_BODY_BYTES, MAX_HTTP_BUFFERED_BYTES,
    MAX_HTTP_DELTA_BYTES, MAX_HTTP_LOOKUPS, MAX_HTTP_REQUESTS,
};
use crate::outgoing::Outgoing;
use crate::process::env::Environment;
use exchange::{Answer, Call, Driver, Field};
use url::{Url, UrlError};

/// What all connections share.
pub(crate) struct Http {
    /// Threads that wait for name servers: few, because file operations use the same.
    lookups: Arc<Semaphore>,
    /// Made at the first https request.
    tls: RefCell<Option<Arc<rustls::ClientConfig>>>,
}

impl Default for Http {
    fn default() -> Self {
        Self { lookups: Arc::new(Semaphore::new(MAX_HTTP_LOOKUPS)), tls: RefCell::default() }
    }
}

/// The authorities to trust, read when they are needed.
struct Tls<'a> {
    http: &'a Http,
    env: &'a Environment,
}

impl Tls<'_> {
    async fn config(&self) -> Result<Arc<rustls::ClientConfig>, String> {
        if let Some(config) = self.http.tls.borrow().as_ref() {
            return Ok(Arc::clone(config));
        }
        let named = self.env.get(OsStr::new("SSL_CERT_FILE")).cloned();
        let config = tokio::task::spawn_blocking(move || tls::config(named.as_deref()));
        let config = config.await.map_err(|error| error.to_string())??;
        *self.http.tls.borrow_mut() = Some(Arc::clone(&config));
        Ok(config)
    }
}

/// Why there is no response; the texts are those of the original where it has one.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("http/request failed: error sending request for url ({0})")]
    Unanswered(String),
    #[error("http/request failed: route-aware request timed out")]
    TimedOut,
    #[error("http/request failed: redirect target uses unsupported URL scheme: {0}")]
    Redirected(String),
    #[error("http/request failed: error sending request for url ({0}): {1}")]
    Trust(String, String),
    #[error("failed to read http/request response body: error decoding response body")]
    Cut,
    #[error(
        "failed to read http/request response body: it has more than {MAX_HTTP_BODY_BYTES} bytes; ask for it with \
         streamResponse"
    )]
    TooLarge,
    #[error(
        "failed to read http/request response body: the responses of this connection would take more than \
         {MAX_HTTP_BUFFERED_BYTES} bytes at one time; ask for them with streamResponse"
    )]
    TooMuch,
}

impl Failure {
    fn of(url: &Url) -> Self {
        Self::Unanswered(url.to_string())
    }
}

impl From<Failure> for ErrorObject {
    fn from(failure: Failure) -> Self {
        Self::new(ErrorCode::Internal, failure.to_string())
    }
}

/// The requests of one connection.
#[derive(Default)]
pub(crate) struct Requests {
    running: Cell<usize>,
    /// Of responses that are read as a whole.
    buffered: Cell<usize>,
    /// Ids of streams.
    streams: RefCell<HashSet<String>>,
    /// Streams after their answer. Each holds its place here, so they are ended, not dropped.
    tasks: RefCell<JoinSet<()>>,
}

/// The place of one request among those of its connection.
struct Place {
    requests: Rc<Requests>,
    stream: Option<String>,
    buffered: usize,
}

impl Requests {
    /// Ends all streams: the connection is over.
    pub(crate) fn end(&self) {
        self.tasks.borrow_mut().abort_all();
    }

    fn enter(self: &Rc<Self>, request: &HttpRequest) -> Outcome<Place> {
        if self.running.get() >= MAX_HTTP_REQUESTS {
            return Err(ErrorObject::invalid_request(format!(
                "this connection already has {MAX_HTTP_REQUESTS} http requests; wait for some to end"
            )));
        }
        let stream = request.stream_response.then(|| request.request_id.clone());
        if let Some(id) = &stream
            && !self.streams.borrow_mut().insert(id.clone())
        {
            let text = format!("http/request streamResponse requestId `{id}` is already active");
            return Err(ErrorObject::invalid_params(text));
        }
        self.running.set(self.running.get() + 1);
        Ok(Place { requests: Rc::clone(self), stream, buffered: 0 })
    }
}

impl Place {
    fn buffer(&mut self, bytes: usize) -> Result<(), Failure> {
        let all = self.requests.buffered.get() + bytes;
        if all > MAX_HTTP_BUFFERED_BYTES {
            return Err(Failure::TooMuch);
        }
        self.requests.buffered.set(all);
        self.buffered += bytes;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.requests.running.set(self.requests.running.get() - 1);
        self.requests.buffered.set(self.requests.buffered.get() - self.buffered);
        if let Some(id) = &self.stream {
            self.requests.streams.borrow_mut().remove(id);
        }
    }
}

/// A request that has been checked.
pub(crate) struct Prepared {
    call: Call,
    place: Place,
    head_deadline: Instant,
    deadline: Instant,
}

/// Checks a request and gives it a place.
///
/// # Errors
/// -32602 for what cannot be sent; -32600 when there are too many.
pub(crate) fn prepare(request: HttpRequest, requests: &Rc<Requests>, env: &Environment) -> Outcome<Prepared> {
    let invalid = |text: String| ErrorObject::invalid_params(text);
    let url = Url::parse(&request.url).map_err(|error: UrlError| invalid(error.to_string()))?;
    let method = hyper::Method::from_bytes(request.method.as_bytes())
        .map_err(|error| invalid(format!("http/request method is invalid: {error}")))?;
    if method == hyper::Method::CONNECT {
        return Err(invalid("http/request method is invalid: CONNECT opens a tunnel, not a request".into()));
    }
    let place = requests.enter(&request)?;
    let headers = fields(&request.headers, env)?;
    let now = Instant::now();
    let wanted = request.timeout_ms.map(|ms| Duration::from_millis(ms).min(HTTP_MAX_TIMEOUT));
    let body_limit = if request.stream_response { HTTP_STREAM_TIMEOUT } else { HTTP_TIMEOUT };
    let call = Call {
        method,
        url,
        headers,
        body: Bytes::from(request.body_base64.unwrap_or_default().0),
        follow: request.redirect_policy == RedirectPolicy::Follow,
    };
    let head_deadline = now + wanted.unwrap_or(HTTP_TIMEOUT);
    Ok(Prepared { call, place, head_deadline, deadline: now + wanted.unwrap_or(body_limit) })
}

fn fields(headers: &[Header], env: &Environment) -> Outcome<Vec<Field>> {
    let invalid = |text: String| ErrorObject::invalid_params(text);
    let mut fields = Vec::with_capacity(headers.len());
    for Header { name, value, value_env_var } in headers {
        let parsed = HeaderName::from_bytes(name.as_bytes())
            .map_err(|error| invalid(format!("http/request header name is invalid: {error}")))?;
        let mut bytes = value.clone().into_bytes();
        if let Some(variable) = value_env_var {
            // As in the original the value is what stands before it, e.g. `Bearer `.
            let secret = env.get(OsStr::new(variable)).ok_or_else(|| {
                invalid(format!(
                    "http/request header {name} requires executor environment variable {variable}"
                ))
            })?;
            bytes.extend(secret.as_encoded_bytes());
        }
        let value = HeaderValue::from_bytes(&bytes)
            .map_err(|error| invalid(format!("http/request header value is invalid: {error}")))?;
        // Those of the connection are ours: two opinions on where a message ends are one too many.
        let of_connection = [
            header::CONNECTION,
            header::CONTENT_LENGTH,
            header::TRANSFER_ENCODING,
            header::UPGRADE,
            header::TE,
        ];
        if !of_connection.contains(&parsed) {
            fields.push(Field { name: parsed, value, secret: value_env_var.is_some() });
        }
    }
    Ok(fields)
}

/// Sends a request. The answer to a streamed one comes after its headers; its body follows as notifications.
pub(crate) async fn run(
    prepared: Prepared,
    http: &Http,
    env: &Environment,
    outgoing: &Rc<Outgoing>,
) -> Outcome<HttpResponse> {
    let Prepared { call, mut place, head_deadline, deadline } = prepared;
    let tls = Tls { http, env };
    let sent = timeout_at(head_deadline, exchange::send(call, &tls, &http.lookups)).await;
    let Answer { response, driver } = sent.map_err(|_| Failure::TimedOut)??;
    let (head, mut body) = response.into_parts();
    let status = head.status.as_u16();
    let headers = received(&head.headers);
    let body_base64 = if let Some(request_id) = place.stream.clone() {
        let stream = BodyStream { request_id, seq: 0, outgoing: Rc::clone(outgoing), deadline };
        let requests = Rc::clone(&place.requests);
        let mut tasks = requests.tasks.borrow_mut();
        tasks.spawn_local(stream.run(body, driver, place));
        // What has ended before takes no room.
        while tasks.try_join_next().is_some() {}
        Chunk::default()
    } else {
        let whole = timeout_at(deadline, whole(&mut body, &mut place)).await;
        Chunk(whole.map_err(|_| Failure::Cut)??)
    };
    Ok(HttpResponse { status, headers, body_base64 })
}

/// As in the original a value that is not ASCII text is left out.
fn received(headers: &HeaderMap) -> Vec<ReceivedHeader> {
    headers
        .iter()
        .filter_map(|(name, value)| {
            Some(ReceivedHeader { name: name.to_string(), value: value.to_str().ok()?.to_owned() })
        })
        .collect()
}

async fn whole(body: &mut Incoming, place: &mut Place) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while let Some(piece) = exchange::next_data(body).await {
        let piece = piece.map_err(|_| Failure::Cut)?;
        if bytes.len() + piece.len() > MAX_HTTP_BODY_BYTES {
            return Err(Failure::TooLarge);
        }
        place.buffer(piece.len())?;
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// A body on its way to the client.
struct BodyStream {
    request_id: String,
    seq: u64,
    outgoing: Rc<Outgoing>,
    deadline: Instant,
}

impl BodyStream {
    /// Reads only as fast as the client does.
    async fn run(mut self, mut body: Incoming, driver: Driver, place: Place) {
        let error = loop {
            self.wait_for_room().await;
            match timeout_at(self.deadline, exchange::next_data(&mut body)).await {
                Ok(Some(Ok(bytes))) => {
                    for piece in bytes.chunks(MAX_HTTP_DELTA_BYTES) {
                        self.notify(piece, false, None);
                    }
                }
                Ok(None) => break None,
                Ok(Some(Err(_))) | Err(_) => break Some("error decoding response body".to_owned()),
            }
        };
        drop(driver);
        // The id is free again before the client is told so.
        drop(place);
        self.notify(&[], true, error);
    }

    async fn wait_for_room(&self) {
        loop {
            let changed = self.outgoing.room_changed();
            if self.outgoing.has_room() || self.outgoing.is_closed() {
                return;
            }
            changed.await;
        }
    }

    fn notify(&mut self, bytes: &[u8], done: bool, error: Option<String>) {
        self.seq += 1;
        let delta = BodyDelta {
            request_id: self.request_id.clone(),
            seq: self.seq,
            delta_base64: Chunk(bytes.to_vec()),
            done,
            error,
        };
        self.outgoing.notify(notification_text(Method::HttpRequestBodyDelta.name(), &delta));
    }
}

#[cfg(test)]
mod tests;
