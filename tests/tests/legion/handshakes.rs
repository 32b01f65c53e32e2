//! Who is refused at the door, with which status, and what the log says about it (security.md section 6).
//!
//! Invariant: a refusal is recorded before it is answered, with its reason; no token is in any record, log or argument.

use std::fs;

use legion_tests::audit::Audit;
use legion_tests::certificate::Certificates;
use legion_tests::child::within;
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What a well-behaved client asks for, but for the token. `%` is where more headers go.
const REQUEST: &str = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n%\r\n";

/// The beginning of a TLS handshake: record type, version, length, then what would be a `ClientHello`.
const TLS_HELLO: &[u8] = b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03";

/// The good request with more headers.
fn request_with(headers: &str) -> String {
    REQUEST.replace('%', headers)
}

/// A running controller that logs all it can, and what has been refused so far.
struct Door {
    scratch: Scratch,
    controller: Controller,
    endpoint: Endpoint,
    refused: usize,
}

impl Door {
    async fn new(args: &[&str]) -> Self {
        Self::with_config("", args).await
    }

    async fn with_config(config: &str, args: &[&str]) -> Self {
        let scratch = Scratch::new();
        legion::configure(&scratch, config);
        let mut command = legion::start_command(&scratch, args);
        command.env("LEGION_LOG", "trace");
        let controller = Controller::launch(command).await;
        let url = controller.ready.url.replacen("wss://", "ws://", 1);
        Self { endpoint: Endpoint::of_url(&url), scratch, controller, refused: 0 }
    }

    fn token(&self) -> &str {
        &self.controller.token
    }

    /// The good request with the good token and a change.
    fn with_token(&self, from: &str, to: &str) -> String {
        let request = request_with(&format!("Authorization: Bearer {}\r\n", self.token()));
        assert!(request.contains(from), "{from} is not in {request}");
        request.replacen(from, to, 1)
    }

    /// Sends bytes; all that comes back until the other side closes.
    async fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.endpoint.open().await;
        let mut answer = Vec::new();
        within("an answer", async {
            stream.write_all(bytes).await.unwrap();
            stream.read_to_end(&mut answer).await.unwrap();
        })
        .await;
        String::from_utf8(answer).unwrap()
    }

    /// Sends bytes that must be refused; gives the new record.
    async fn refuse(&mut self, bytes: &[u8], status: u16, reason: &str) -> Value {
        let shown = String::from_utf8_lossy(bytes).into_owned();
        let answer = self.exchange(bytes).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{shown}: {answer}");
        assert!(!answer.contains(self.token()), "{answer}");
        let audit = Audit::read(&self.scratch);
        let refusals: Vec<_> = audit.events("handshakeRefused").skip(self.refused).collect();
        let [record] = refusals[..] else { panic!("{shown}: {} records", refusals.len()) };
        let recorded = record["reason"].as_str().unwrap_or_default();
        assert!(
            recorded.starts_with(&format!("{status}: ")) && recorded.contains(reason),
            "{shown}: {record}"
        );
        self.refused += 1;
        record.clone()
    }

    /// Refuses the good request with these headers.
    async fn refuse_headers(&mut self, headers: &str, status: u16, reason: &str) -> Value {
        let request = request_with(headers);
        self.refuse(request.as_bytes(), status, reason).await
    }

    /// The end of every test: nobody was let in, and none of these secrets was written anywhere.
    async fn close(self, secrets: &[String]) {
        let pid = self.controller.pid().unwrap();
        let mut seen = String::new();
        for file in ["cmdline", "environ"] {
            seen += &String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/{file}")).unwrap());
        }
        let listed = legion::run(&self.scratch, &["session", "list", "--json"]).await;
        let token = self.token().to_owned();
        let finished = self.controller.stop().await;
        finished.assert_success();
        seen += &listed.stdout;
        seen += &finished.stderr;
        for file in fs::read_dir(Audit::directory(&self.scratch)).unwrap() {
            seen += &String::from_utf8_lossy(&fs::read(file.unwrap().path()).unwrap());
        }
        for secret in secrets.iter().chain([&token]) {
            assert!(!seen.contains(secret_part(secret)), "a token was written: {seen}");
        }
        let audit = Audit::read(&self.scratch);
        assert_eq!(audit.events("handshakeRefused").count(), self.refused);
        assert_eq!(
            audit.events("call").count() + audit.events("violation").count(),
            0,
            "{:#?}",
            audit.lines()
        );
        Audit::verify(&self.scratch).await;
    }
}

/// The same token but for its last character.
fn wrong_secret(token: &str) -> String {
    let (rest, last) = token.split_at(token.len() - 1);
    format!("{rest}{}", if last == "x" { "y" } else { "x" })
}

/// What follows the public id.
fn secret_part(token: &str) -> &str {
    token.rsplit('_').next().filter(|part| part.len() > 20).unwrap_or(token)
}

#[tokio::test]
async fn tokens() {
    let mut door = Door::new(&[]).await;
    let good = door.token().to_owned();
    let session = door.controller.ready.session.clone();
    let issue = async |door: &Door, more: &[&str]| -> Value {
        let workspace = door.scratch.workspace().display().to_string();
        let args = [&["token", "issue", "--json", "--workspace", &workspace], more].concat();
        serde_json::from_str(&legion::run(&door.scratch, &args).await.stdout).unwrap()
    };
    let (revoked, expired) = (issue(&door, &[]).await, issue(&door, &["--ttl", "1s"]).await);
    let name = |issued: &Value| issued["session"].as_str().unwrap().to_owned();
    let text = |issued: &Value| issued["token"].as_str().unwrap().to_owned();
    legion::run(&door.scratch, &["token", "revoke", &name(&revoked)]).await.assert_success();
    let is_over =
        |audit: &Audit| audit.events("sessionEnded").any(|record| record["session"] == name(&expired));
    Audit::wait(&door.scratch, "the end of the token", is_over).await;

    let bearer = |token: &str| format!("Authorization: Bearer {token}\r\n");
    door.refuse_headers("", 401, "missing websocket bearer token").await;
    door.refuse_headers("Authorization: Basic bGVnaW9uOmxlZ2lvbg==\r\n", 401, "invalid authorization").await;
    door.refuse_headers("Authorization: Bearer \r\n", 401, "invalid authorization").await;
    door.refuse_headers(&bearer("guess"), 401, "not a token").await;
    let unknown =
        door.refuse_headers(&bearer(&good.replacen(&session, "guessing", 1)), 401, "unknown token").await;
    assert_eq!(unknown.get("session"), None, "{unknown}");
    for wrong in [wrong_secret(&good), good.replacen(&session, &name(&revoked), 1)] {
        let record = door.refuse_headers(&bearer(&wrong), 401, "").await;
        assert!(record["session"].is_string() && record["actor"]["door"] == "tcp", "{record}");
    }
    assert_eq!(
        door.refuse_headers(&bearer(&text(&revoked)), 401, "revoked").await["session"],
        name(&revoked)
    );
    assert_eq!(
        door.refuse_headers(&bearer(&text(&expired)), 401, "expired").await["session"],
        name(&expired)
    );
    door.refuse_headers(&bearer(&format!("{good}x")), 401, "not a token").await;
    // Of two headers the first counts, and a good second one does not help.
    door.refuse_headers(&(bearer("guess") + &bearer(&good)), 401, "not a token").await;
    door.close(&[text(&revoked), text(&expired), wrong_secret(&good)]).await;
}

#[tokio::test]
async fn web_pages() {
    let mut door = Door::new(&[]).await;
    for origin in ["http://localhost", "http://127.0.0.1", "https://evil.example", "null", "", "\u{e9}"] {
        let header = format!("\r\norigin: {origin}\r\n\r\n");
        let request = door.with_token("\r\n\r\n", &header);
        door.refuse(request.as_bytes(), 403, "Origin").await;
        let probe = format!("GET /readyz HTTP/1.1\r\nHost: 127.0.0.1{header}");
        door.refuse(probe.as_bytes(), 403, "Origin").await;
    }
    for host in [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "127.0.0.2",
        "0.0.0.0",
        "[::2]:1",
        "",
    ] {
        let request = door.with_token("Host: 127.0.0.1", &format!("Host: {host}"));
        door.refuse(request.as_bytes(), 403, "Host").await;
        let probe = format!("GET /readyz HTTP/1.1\r\nHost: {host}\r\n\r\n");
        door.refuse(probe.as_bytes(), 403, "Host").await;
    }
    let without = door.with_token("Host: 127.0.0.1\r\n", "");
    door.refuse(without.as_bytes(), 403, "Host").await;
    let probe = door.exchange(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(probe.starts_with("HTTP/1.1 200 "), "{probe}");
    door.close(&[]).await;
}

#[tokio::test]
async fn requests_that_are_none() {
    let mut door = Door::new(&[]).await;
    for (from, to, status, reason) in [
        ("GET /", "POST /", 405, "method"),
        ("GET /", "GET /other", 404, "path"),
        ("GET /", "GET http://127.0.0.1/", 404, "path"),
        ("Upgrade: websocket", "Upgrade: h2c", 400, "Upgrade"),
        ("Connection: Upgrade", "Connection: close", 400, "Connection"),
        ("Version: 13", "Version: 12", 400, "Version"),
        ("Sec-WebSocket-Key", "X-Key", 400, "Key"),
    ] {
        let request = door.with_token(from, to);
        door.refuse(request.as_bytes(), status, reason).await;
    }
    for garbage in [
        TLS_HELLO,
        b"\0\0\0\0",
        b"{\"id\":1,\"method\":\"initialize\"}\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\xff\xfe GET / HTTP/1.1\r\n",
    ] {
        door.refuse(garbage, 400, "malformed").await;
    }
    let long = door.with_token("\r\n\r\n", &format!("\r\nX-Long: {}\r\n\r\n", "x".repeat(8 << 10)));
    door.refuse(long.as_bytes(), 431, "longer").await;
    let many = door.with_token("\r\n\r\n", &format!("\r\n{}\r\n", "X-Many: 1\r\n".repeat(100)));
    door.refuse(many.as_bytes(), 400, "headers").await;
    door.close(&[]).await;
}

#[tokio::test]
async fn a_token_in_the_url() {
    let mut door = Door::new(&[]).await;
    let query = format!("GET /?token={} ", door.token());
    let request = request_with("").replacen("GET / ", &query, 1);
    door.refuse(request.as_bytes(), 401, "a token in the URL").await;
    door.close(&[]).await;

    // Where it is taken, it is written nowhere either, and a wrong one is refused.
    let mut door = Door::new(&["--listen", "ws://127.0.0.1:0?query_token=true"]).await;
    let wrong = wrong_secret(door.token());
    let request = request_with("").replacen("GET / ", &format!("GET /?token={wrong} "), 1);
    door.refuse(request.as_bytes(), 401, "wrong secret").await;
    let target = format!("/?a=b&token={}", door.token());
    let client = Upgrade::new(door.endpoint.clone()).target(&target).connect().await;
    client.unwrap().initialize(None).await.unwrap();
    door.close(&[wrong]).await;
}

#[tokio::test]
async fn a_head_that_does_not_end() {
    let mut door = Door::new(&[]).await;
    let request = door.with_token("\r\n\r\n", "\r\n");
    door.refuse(request.as_bytes(), 408, "within 5 s").await;
    door.close(&[]).await;
}

#[tokio::test]
async fn without_tls_at_a_tls_port() {
    let certificates = Certificates::generate();
    let files = Scratch::new();
    let path = |name: &str, text: &str| json!(files.write(name, text));
    let tls = format!(
        "[controller]\nlisten = [\"wss://127.0.0.1:0\"]\ntls = {{ cert = {}, key = {} }}\n",
        path("cert.pem", &certificates.certificate),
        path("key.pem", &certificates.key)
    );
    let mut door = Door::with_config(&tls, &[]).await;
    let plain = door.with_token("GET", "GET");
    let answer = door.exchange(plain.as_bytes()).await;
    assert!(!answer.contains("HTTP/"), "{answer}");
    let refused = |audit: &Audit| audit.events("handshakeRefused").count() == 1;
    let audit = Audit::wait(&door.scratch, "the refusal", refused).await;
    let record = audit.events("handshakeRefused").next().unwrap();
    assert!(record["reason"].as_str().is_some_and(|reason| reason.starts_with("TLS: ")), "{record}");
    door.refused = 1;
    door.close(&[]).await;
}

#[tokio::test]
async fn the_socket_of_this_user_asks_for_a_token_too() {
    let mut door = Door::new(&[]).await;
    door.endpoint = Endpoint::Unix(door.controller.ready.control_socket.with_file_name("front.sock"));
    let record = door.refuse_headers("", 401, "missing websocket bearer token").await;
    assert_eq!(record["actor"]["door"], "unix", "{record}");
    let wrong = wrong_secret(door.token());
    let record =
        door.refuse_headers(&format!("Authorization: Bearer {wrong}\r\n"), 401, "wrong secret").await;
    assert!(record["actor"]["uid"].is_u64() && record["actor"]["pid"].is_u64(), "{record}");
    door.close(&[wrong]).await;
}
