//! One HTTP exchange: resolve, connect, send, and follow redirections.
//!
//! Invariant: every hop has a connection of its own, which ends with the response it belongs to. What was meant for one
//! server is not sent to another: credentials, cookies and values from the environment stay behind at a redirection.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::stream::Stream;
use super::url::{Url, UrlError};
use super::{Failure, Tls};
use crate::limits::{
    HTTP_CONNECT_TIMEOUT, MAX_HTTP_ADDRESSES, MAX_HTTP_HEAD_BYTES, MAX_HTTP_HEADERS, MAX_HTTP_REDIRECTS,
};

/// What to send.
pub(super) struct Call {
    pub(super) method: Method,
    pub(super) url: Url,
    pub(super) headers: Vec<Field>,
    pub(super) body: Bytes,
    pub(super) follow: bool,
}

/// A header to send.
pub(super) struct Field {
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
    /// Part of it comes from the environment.
    pub(super) secret: bool,
}

/// A response whose body has not been read yet.
pub(super) struct Answer {
    pub(super) response: Response<Incoming>,
    /// The body comes as long as this runs.
    pub(super) driver: Driver,
}

/// The task that moves the bytes of one connection; it ends when this is dropped.
pub(super) struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends the request, and again wherever it is redirected to if that is wanted.
pub(super) async fn send(mut call: Call, tls: &Tls<'_>, lookups: &Arc<Semaphore>) -> Result<Answer, Failure> {
    for _ in 0..=MAX_HTTP_REDIRECTS {
        let answer = once(&call, tls, lookups).await?;
        let Some(next) = redirection(&call, &answer.response)? else { return Ok(answer) };
        redirect(&mut call, next, answer.response.status());
    }
    Err(Failure::of(&call.url))
}

/// Where a response leads to; `None` when it is to be returned.
fn redirection(call: &Call, response: &Response<Incoming>) -> Result<Option<Url>, Failure> {
    if !call.follow || !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
    match location.map(|location| call.url.join(location)) {
        Some(Ok(next)) => Ok(Some(next)),
        Some(Err(UrlError::Scheme(scheme))) => Err(Failure::Redirected(scheme)),
        Some(Err(UrlError::Invalid(_))) | None => Ok(None),
    }
}

fn redirect(call: &mut Call, next: Url, status: StatusCode) {
    if !call.url.is_same_origin(&next) {
        let ours = [header::AUTHORIZATION, header::COOKIE, header::PROXY_AUTHORIZATION, header::HOST];
        call.headers.retain(|field| !field.secret && !ours.contains(&field.name));
    }
    if matches!(status.as_u16(), 301..=303) {
        call.body = Bytes::new();
        call.headers.retain(|field| !field.name.as_str().starts_with("content-"));
        if call.method != Method::HEAD {
            call.method = Method::GET;
        }
    }
    call.url = next;
}

async fn once(call: &Call, tls: &Tls<'_>, lookups: &Arc<Semaphore>) -> Result<Answer, Failure> {
    let failed = |_: io::Error| Failure::of(&call.url);
    let tcp = connect(&call.url, lookups).await.map_err(failed)?;
    // A request in two pieces must not wait for an acknowledgement.
    let _ = tcp.set_nodelay(true);
    let stream = if call.url.secure { secure(&call.url, tls, tcp).await? } else { Stream::Plain(tcp) };
    exchange(call, stream).await.map_err(|()| Failure::of(&call.url))
}

async fn exchange(call: &Call, stream: Stream) -> Result<Answer, ()> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HTTP_HEAD_BYTES).max_headers(MAX_HTTP_HEADERS);
    let (mut sender, connection) = builder.handshake::<_, Whole>(stream).await.map_err(drop)?;
    // Its end shows itself at the response or its body.
    let driver = Driver(spawn_local(async { drop(connection.await) }));
    let response = sender.send_request(request(call)?).await.map_err(drop)?;
    Ok(Answer { response, driver })
}

fn request(call: &Call) -> Result<Request<Whole>, ()> {
    let Url { path, query, .. } = &call.url;
    let mut request = Request::builder().method(call.method.clone()).uri(format!("{path}{query}"));
    let mut default = |name: HeaderName, value: Option<String>| {
        let missing = !call.headers.iter().any(|field| field.name == name);
        if let (Some(headers), Some(value), true) = (request.headers_mut(), value, missing) {
            headers.extend(HeaderValue::from_str(&value).ok().map(|value| (name, value)));
        }
    };
    default(header::HOST, Some(call.url.authority()));
    default(header::ACCEPT, Some("*/*".to_owned()));
    default(header::AUTHORIZATION, call.url.credentials.clone());
    for Field { name, value, .. } in &call.headers {
        request = request.header(name, value);
    }
    request.body(Whole(call.body.clone())).map_err(drop)
}

/// Tries the addresses of the host one after the other.
async fn connect(url: &Url, lookups: &Arc<Semaphore>) -> io::Result<TcpStream> {
    let mut error = io::Error::from(io::ErrorKind::NotFound);
    for address in resolve(url, lookups).await? {
        match timeout(HTTP_CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(refused)) => error = refused,
            Err(_) => error = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(error)
}

/// A thread that waits for a name server keeps its place until it is done, also when nobody waits for it any more.
async fn resolve(url: &Url, lookups: &Arc<Semaphore>) -> io::Result<Vec<SocketAddr>> {
    let host = url.bare_host();
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, url.port)]);
    }
    let place = Arc::clone(lookups).acquire_owned().await.map_err(io::Error::other)?;
    let target = (host.to_owned(), url.port);
    let found = tokio::task::spawn_blocking(move || {
        let _place = place;
        Ok(target.to_socket_addrs()?.take(MAX_HTTP_ADDRESSES).collect())
    });
    found.await.map_err(io::Error::other)?
}

async fn secure(url: &Url, tls: &Tls<'_>, tcp: TcpStream) -> Result<Stream, Failure> {
    let config = tls.config().await.map_err(|why| Failure::Trust(url.to_string(), why))?;
    let name = ServerName::try_from(url.bare_host().to_owned()).map_err(|_| Failure::of(url))?;
    let connected = TlsConnector::from(config).connect(name, tcp).await;
    match connected {
        Ok(stream) => Ok(Stream::Tls(Box::new(stream))),
        Err(error) => match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            // Why a certificate is not trusted is worth knowing; other failures are those of any connection.
            Some(refused @ rustls::Error::InvalidCertificate(_)) => {
                Err(Failure::Trust(url.to_string(), refused.to_string()))
            }
            _ => Err(Failure::of(url)),
        },
    }
}

/// A body that is there as a whole.
pub(super) struct Whole(Bytes);

impl Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let bytes = std::mem::take(&mut self.0);
        Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

/// The next bytes of a body; `None` at its end.
pub(super) async fn next_data(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    loop {
        let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
        match frame.map(Frame::into_data) {
            Ok(Ok(bytes)) if bytes.is_empty() => {}
            Ok(Ok(bytes)) => return Some(Ok(bytes)),
            // Trailers are not part of a body.
            Ok(Err(_)) => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(headers: &[(&'static str, bool)]) -> Call {
        let field = |(name, secret): &(&'static str, bool)| Field {
            name: HeaderName::from_static(name),
            value: HeaderValue::from_static("x"),
            secret: *secret,
        };
        Call {
            method: Method::POST,
            url: Url::parse("http://a/").unwrap(),
            headers: headers.iter().map(field).collect(),
            body: Bytes::from_static(b"body"),
            follow: true,
        }
    }

    fn names(call: &Call) -> Vec<&str> {
        call.headers.iter().map(|field| field.name.as_str()).collect()
    }

    #[test]
    fn secrets_stay_with_the_server_they_were_meant_for() {
        let headers =
            [("authorization", false), ("cookie", false), ("x-key", true), ("x-a", false), ("host", false)];
        for (url, kept) in [
            ("http://a/other", vec!["authorization", "cookie", "x-key", "x-a", "host"]),
            ("http://b/", vec!["x-a"]),
            ("http://a:8080/", vec!["x-a"]),
            ("https://a/", vec!["x-a"]),
        ] {
            let mut call = call(&headers);
            redirect(&mut call, Url::parse(url).unwrap(), StatusCode::TEMPORARY_REDIRECT);
            assert_eq!((names(&call), &call.body[..]), (kept, &b"body"[..]), "{url}");
        }
    }

    #[test]
    fn a_redirected_post_becomes_a_get_unless_told_to_stay() {
        for (status, method, kept) in [
            (301, Method::GET, vec!["x-a"]),
            (302, Method::GET, vec!["x-a"]),
            (303, Method::GET, vec!["x-a"]),
            (307, Method::POST, vec!["content-type", "x-a"]),
            (308, Method::POST, vec!["content-type", "x-a"]),
        ] {
            let mut call = call(&[("content-type", false), ("x-a", false)]);
            let next = Url::parse("http://a/next").unwrap();
            redirect(&mut call, next, StatusCode::from_u16(status).unwrap());
            assert_eq!((&call.method, names(&call)), (&method, kept), "{status}");
            assert_eq!(call.body.is_empty(), method == Method::GET, "{status}");
        }
    }
}
