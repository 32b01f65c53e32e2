//! Requests against a server that says exactly what a test wants.

use std::collections::BTreeMap;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::{LocalSet, spawn_local};

use super::*;

/// Answers every connection with the text for its path, and then holds it open or closes it.
async fn server(answers: &'static [(&'static str, &'static str, bool)]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            spawn_local(async move {
                let mut request = vec![0; 4096];
                let length = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let path = request.split(' ').nth(1).unwrap();
                let (_, answer, hold) = answers.iter().find(|(known, ..)| *known == path).unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                if *hold {
                    // Until the client goes.
                    let _ = stream.read(&mut [0]).await;
                }
            });
        }
    });
    format!("http://{address}")
}

struct Fixture {
    http: Http,
    requests: Rc<Requests>,
    outgoing: Rc<Outgoing>,
    env: Environment,
}

impl Fixture {
    fn new() -> Self {
        let env = BTreeMap::from([("TOKEN".into(), "t0k".into())]);
        Self { http: Http::default(), requests: Rc::default(), outgoing: Rc::default(), env }
    }

    async fn ask(&self, request: serde_json::Value) -> Result<HttpResponse, String> {
        let request = serde_json::from_value(request).unwrap();
        let prepared = prepare(request, &self.requests, &self.env).map_err(|error| error.message)?;
        run(prepared, &self.http, &self.env, &self.outgoing).await.map_err(|error| error.message)
    }

    /// The next notification.
    async fn delta(&self) -> BodyDelta {
        loop {
            if let Some(message) = self.outgoing.pop() {
                let frame: serde_json::Value = serde_json::from_str(&message.text).unwrap();
                return serde_json::from_value(frame["params"].clone()).unwrap();
            }
            tokio::task::yield_now().await;
        }
    }
}

fn get(url: &str) -> serde_json::Value {
    serde_json::json!({"method": "GET", "url": url, "requestId": "r"})
}

fn with(
    mut request: serde_json::Value,
    member: &str,
    value: impl Into<serde_json::Value>,
) -> serde_json::Value {
    request[member] = value.into();
    request
}

#[tokio::test]
async fn bodies_end_in_every_way_http_has() {
    LocalSet::new()
        .run_until(async {
            let url = server(&[
                ("/close", "HTTP/1.1 200 OK\r\n\r\nuntil close", false),
                ("/chunked", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\nx-t: 1\r\n\r\n", true),
                ("/length", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokmore", true),
                ("/early", "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", true),
                ("/cut", "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab", false),
                ("/garbage", "hello\r\n\r\n", false),
            ])
            .await;
            let fixture = Fixture::new();
            for (path, body) in [("/close", "until close"), ("/chunked", "abc"), ("/length", "ok"), ("/early", "")] {
                let response = fixture.ask(get(&format!("{url}{path}"))).await.unwrap();
                assert_eq!(response.body_base64.0, body.as_bytes(), "{path}");
            }
            let cut = fixture.ask(get(&format!("{url}/cut"))).await.unwrap_err();
            assert_eq!(cut, "failed to read http/request response body: error decoding response body");
            let garbage = fixture.ask(get(&format!("{url}/garbage"))).await.unwrap_err();
            assert_eq!(garbage, format!("http/request failed: error sending request for url ({url}/garbage)"));
            assert_eq!((fixture.requests.running.get(), fixture.requests.buffered.get()), (0, 0));
        })
        .await;
}

#[tokio::test]
async fn redirections_end() {
    LocalSet::new()
        .run_until(async {
            let url = server(&[
                ("/loop", "HTTP/1.1 302 Found\r\nlocation: loop\r\ncontent-length: 0\r\n\r\n", true),
                ("/away", "HTTP/1.1 302 Found\r\nlocation: ftp://x/\r\ncontent-length: 0\r\n\r\n", true),
                ("/nowhere", "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n", true),
            ])
            .await;
            let fixture = Fixture::new();
            let error = fixture.ask(get(&format!("{url}/loop"))).await.unwrap_err();
            assert_eq!(error, format!("http/request failed: error sending request for url ({url}/loop)"));
            let error = fixture.ask(get(&format!("{url}/away"))).await.unwrap_err();
            assert_eq!(error, "http/request failed: redirect target uses unsupported URL scheme: ftp");
            assert_eq!(fixture.ask(get(&format!("{url}/nowhere"))).await.unwrap().status, 302);
        })
        .await;
}

#[tokio::test]
async fn a_stream_is_numbered_timed_and_named_once() {
    LocalSet::new()
        .run_until(async {
            let url = server(&[
                ("/whole", "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", true),
                ("/endless", "HTTP/1.1 200 OK\r\n\r\ntick", true),
            ])
            .await;
            let fixture = Fixture::new();
            let stream = |path: &str| with(get(&format!("{url}{path}")), "streamResponse", true);
            let response = fixture.ask(stream("/whole")).await.unwrap();
            assert!(response.body_base64.0.is_empty());
            let (first, last) = (fixture.delta().await, fixture.delta().await);
            assert_eq!((first.seq, &first.delta_base64.0[..], first.done), (1, &b"ok"[..], false));
            assert_eq!((last.seq, last.done, last.error), (2, true, None));
            // Its id is free again; while one runs it is not.
            fixture.ask(with(stream("/endless"), "timeoutMs", 300)).await.unwrap();
            let twice = fixture.ask(stream("/whole")).await.unwrap_err();
            assert_eq!(twice, "http/request streamResponse requestId `r` is already active");
            assert_eq!(fixture.delta().await.delta_base64.0, b"tick");
            let last = fixture.delta().await;
            assert_eq!((last.done, last.error.as_deref()), (true, Some("error decoding response body")));
            fixture.ask(stream("/whole")).await.unwrap();
        })
        .await;
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_stream_not_the_server() {
    LocalSet::new()
        .run_until(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            let sent = Rc::new(Cell::new(0));
            let counter = Rc::clone(&sent);
            let server = spawn_local(async move {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                while let Ok(count) = stream.write(&[b'x'; 8192]).await {
                    counter.set(counter.get() + count);
                }
            });
            let fixture = Fixture::new();
            fixture.ask(with(get(&url), "streamResponse", true)).await.unwrap();
            // Until nothing moves any more.
            let mut before = usize::MAX;
            while sent.get() != before {
                before = sent.get();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            assert!(fixture.outgoing.bytes() < 1 << 20, "{}", fixture.outgoing.bytes());
            while fixture.outgoing.pop().is_some() {}
            fixture.delta().await;
            // All of it ends with the connection, the server's side as well.
            fixture.requests.end();
            let requests = Rc::downgrade(&fixture.requests);
            drop(fixture);
            let ended = async {
                while requests.upgrade().is_some() || !server.is_finished() {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(Duration::from_secs(10), ended).await.unwrap();
        })
        .await;
}

#[test]
fn what_cannot_be_sent_is_refused_before_anything_is_sent() {
    let fixture = Fixture::new();
    let refused = |request: serde_json::Value| {
        prepare(serde_json::from_value(request).unwrap(), &fixture.requests, &fixture.env)
            .err()
            .unwrap()
            .message
    };
    let header = |header: serde_json::Value| with(get("http://h/"), "headers", serde_json::json!([header]));
    assert_eq!(
        refused(with(get("http://h/"), "method", "BAD METHOD")),
        "http/request method is invalid: invalid HTTP method"
    );
    assert!(
        refused(with(get("http://h/"), "method", "CONNECT")).starts_with("http/request method is invalid")
    );
    assert_eq!(
        refused(header(serde_json::json!({"name": "a b", "value": "x"}))),
        "http/request header name is invalid: invalid HTTP header name"
    );
    assert!(
        refused(header(serde_json::json!({"name": "a", "value": "x\ny"})))
            .starts_with("http/request header value is invalid")
    );
    assert_eq!(
        refused(header(serde_json::json!({"name": "X-A", "value": "v", "valueEnvVar": "NONE"}))),
        "http/request header X-A requires executor environment variable NONE"
    );
    assert_eq!((fixture.requests.running.get(), fixture.requests.streams.borrow().len()), (0, 0));
}

#[test]
fn values_of_the_environment_follow_what_stands_before_them() {
    let fixture = Fixture::new();
    let headers: Vec<Header> = serde_json::from_value(serde_json::json!([
        {"name": "Authorization", "value": "Bearer ", "valueEnvVar": "TOKEN"},
        {"name": "Content-Length", "value": "7"},
        {"name": "X-A", "value": "plain"}
    ]))
    .unwrap();
    let fields = fields(&headers, &fixture.env).unwrap();
    let seen: Vec<_> = fields.iter().map(|field| (field.value.to_str().unwrap(), field.secret)).collect();
    assert_eq!(seen, [("Bearer t0k", true), ("plain", false)]);
}

#[test]
fn there_is_an_end_of_requests() {
    let fixture = Fixture::new();
    let request: HttpRequest = serde_json::from_value(get("http://h/")).unwrap();
    let places: Vec<_> =
        (0..MAX_HTTP_REQUESTS).map(|_| fixture.requests.enter(&request).ok().unwrap()).collect();
    assert!(fixture.requests.enter(&request).is_err());
    drop(places);
    let mut place = fixture.requests.enter(&request).ok().unwrap();
    place.buffer(MAX_HTTP_BUFFERED_BYTES).unwrap();
    assert!(place.buffer(1).is_err());
    drop(place);
    assert_eq!(fixture.requests.buffered.get(), 0);
}

/// A server for `localhost` with a certificate of its own, and that certificate.
async fn secure_server() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
    spawn_local(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            spawn_local(async move {
                // Refused by a client that does not trust it.
                let Ok(mut stream) = acceptor.accept(stream).await else { return };
                assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").await.unwrap();
                let _ = stream.read(&mut [0]).await;
            });
        }
    });
    (url, made.cert.pem())
}

#[tokio::test]
async fn https_needs_an_authority_of_the_session() {
    LocalSet::new()
        .run_until(async {
            let (url, certificate) = secure_server().await;
            let dir = tempfile::tempdir().unwrap();
            let trusting = |pem: &str, name: &str| {
                let path = dir.path().join(name);
                std::fs::write(&path, pem).unwrap();
                let env = BTreeMap::from([("SSL_CERT_FILE".into(), path.into())]);
                Fixture { env, ..Fixture::new() }
            };
            let fixture = trusting(&certificate, "right");
            assert_eq!(fixture.ask(get(&url)).await.unwrap().body_base64.0, b"secret");
            let by_address = url.replace("localhost", "127.0.0.1");
            assert!(fixture.ask(get(&by_address)).await.unwrap_err().contains("certificate"));
            let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            let error = trusting(&other.cert.pem(), "wrong").ask(get(&url)).await.unwrap_err();
            let start = format!(
                "http/request failed: error sending request for url ({url}): invalid peer certificate"
            );
            assert!(error.starts_with(&start), "{error}");
        })
        .await;
}
