//! A door under pressure: many bad handshakes, and many peers that say nothing.
//!
//! Invariant: an honest client gets in meanwhile, memory stays bounded, and every refusal is recorded or counted.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use legion_tests::audit::Audit;
use legion_tests::child::within;
use legion_tests::legion::Controller;
use legion_tests::process_table::resident;
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Bad handshakes at once: more than wait for their turn, and more than are accepted at a time.
const FLOOD: usize = 200;

/// What a flood may leave behind. A connection's buffers and its record come to a few KiB.
const MEMORY_GROWTH: u64 = 8 << 20;

/// An honest client is served within this time, whoever else is there. A silent peer is given up after five seconds.
const PROMPT: Duration = Duration::from_secs(4);

async fn opened(endpoint: &Endpoint, token: &str) {
    let mut honest = Upgrade::new(endpoint.clone()).token(token).connect().await.unwrap();
    honest.initialize(None).await.unwrap();
    let status = honest.call("environment/status", json!(null)).await;
    assert_eq!(status, Ok(json!({ "status": "ready" })));
}

/// A handshake with a wrong token, to its end; whether it was answered.
async fn bad(endpoint: &Endpoint) -> bool {
    let mut stream = endpoint.open().await;
    let request = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer lgn1_guessing_x\r\n\r\n";
    let mut answer = Vec::new();
    within("the end of the connection", async {
        // Who is not answered may be cut off at any moment.
        let _ = stream.write_all(request.as_bytes()).await;
        let _ = stream.read_to_end(&mut answer).await;
    })
    .await;
    assert!(
        answer.is_empty() || answer.starts_with(b"HTTP/1.1 401 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    !answer.is_empty()
}

#[tokio::test]
async fn bad_handshakes() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let endpoint = Endpoint::of_url(&controller.ready.url);
    let pid = controller.pid().unwrap();
    // Whatever is allocated once is there before it is measured.
    assert!(bad(&endpoint).await);
    opened(&endpoint, &controller.token).await;
    let before = resident(pid);

    let flood = join_all((0..FLOOD).map(|_| bad(&endpoint)));
    let honest = opened(&endpoint, &controller.token);
    let (answers, ()) = tokio::join!(flood, honest);
    let answered = answers.into_iter().filter(|answered| *answered).count();
    assert!(answered < FLOOD, "there is a bound on those who wait");
    let grown = resident(pid).saturating_sub(before);
    assert!(grown < MEMORY_GROWTH, "{grown} bytes more");

    // The next record counts those who were dropped.
    assert!(bad(&endpoint).await);
    let audit = Audit::read(&scratch);
    let refusals: Vec<_> = audit.events("handshakeRefused").collect();
    let dropped: u64 = refusals.iter().filter_map(|record| record["dropped"].as_u64()).sum();
    assert_eq!(refusals.len(), answered + 2);
    assert_eq!(refusals.len() as u64 + dropped, FLOOD as u64 + 2);
    controller.stop().await.assert_success();
    Audit::verify(&scratch).await;
}

#[tokio::test]
async fn silent_peers() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let endpoint = Endpoint::of_url(&controller.ready.url);
    let silent = join_all((0..FLOOD).map(|_| endpoint.open())).await;
    // Those who came first give way, long before their time is over.
    let begun = Instant::now();
    opened(&endpoint, &controller.token).await;
    assert!(begun.elapsed() < PROMPT, "it took {:?}", begun.elapsed());
    drop(silent);
    controller.stop().await.assert_success();
}
