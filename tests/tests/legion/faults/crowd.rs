//! Many clients that die anywhere in their handshake, while an honest one works.
//!
//! Invariant: afterwards the controller and the exec-server hold what they held before: descriptors, processes, memory.

use std::time::Duration;

use futures_util::future::join_all;
use legion_tests::child::within;
use legion_tests::process_table::{descendants_of, descriptors, resident};
use legion_tests::random::Random;
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade};
use serde_json::json;
use tokio::io::AsyncWriteExt;

use super::exec_server;
use crate::sandbox::Connected;

/// Clients that die.
const CLIENTS: usize = 500;

/// How many of them at one time.
const AT_ONCE: usize = 50;

/// What decides where each dies.
const SEED: u64 = 0xdead_c11e_4475;

/// Calls of the honest client while one crowd dies.
const HONEST_CALLS: usize = 20;

/// What may be left: the allocator keeps some pages, and sessions that can be resumed live on for a while.
const MEMORY_GROWTH: u64 = 8 << 20;

/// There is no event for a descriptor that another process closes.
const PAUSE: Duration = Duration::from_millis(10);

/// A text message as a client sends it, with a mask of zeros.
fn frame(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap();
    let mut bytes = vec![0x81, 0xfe];
    bytes.extend(length.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(text.as_bytes());
    bytes
}

/// Everything a good client sends until it may work.
fn handshake(token: &str) -> Vec<u8> {
    let mut bytes = format!(
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Authorization: Bearer {token}\r\n\r\n"
    )
    .into_bytes();
    let initialize = json!({ "id": 1, "method": "initialize", "params": { "clientName": "dies" } });
    bytes.extend(frame(&initialize.to_string()));
    bytes.extend(frame(r#"{"method":"initialized"}"#));
    bytes.extend(frame(r#"{"id":2,"method":"environment/status"}"#));
    bytes
}

/// Sends the first bytes of a handshake, perhaps in two pieces, and is gone.
async fn die(endpoint: &Endpoint, bytes: &[u8], pause_at: usize) {
    let mut stream = endpoint.open().await;
    let (first, second) = bytes.split_at(pause_at);
    // The other side may have given up on it already.
    let _ = stream.write_all(first).await;
    tokio::task::yield_now().await;
    let _ = stream.write_all(second).await;
}

#[tokio::test]
async fn clients_that_die_in_their_handshake_leave_nothing() {
    let scratch = Scratch::new();
    let mut session = Connected::new(&scratch, &[]).await;
    let endpoint = Endpoint::of_url(&session.controller.ready.url);
    let whole = handshake(&session.controller.token);
    let tiers = [session.controller.pid().unwrap(), exec_server(&scratch)];
    let before = held(tiers);
    let mut random = Random::new(SEED);
    let mut crowd = async |session: &mut Connected| {
        let fates: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                let end = random.below(whole.len() + 1);
                (end, random.below(end + 1))
            })
            .collect();
        let dying = join_all(fates.iter().map(|(end, pause)| die(&endpoint, &whole[..*end], *pause)));
        let honest = async {
            for _ in 0..HONEST_CALLS {
                let status = session.client.call("environment/status", json!(null)).await;
                assert_eq!(status, Ok(json!({ "status": "ready" })));
            }
            let another = Upgrade::new(endpoint.clone()).token(&session.controller.token);
            another.connect().await.unwrap().initialize(None).await.unwrap();
        };
        tokio::join!(dying, honest);
    };
    // Whatever is allocated once is there before memory is measured.
    crowd(&mut session).await;
    settled(tiers, &before).await;
    let memory = tiers.map(resident);
    for _ in 0..CLIENTS / AT_ONCE {
        crowd(&mut session).await;
    }
    settled(tiers, &before).await;
    for (pid, memory) in tiers.into_iter().zip(memory) {
        let grown = resident(pid).saturating_sub(memory);
        assert!(grown < MEMORY_GROWTH, "{grown} bytes more, seed {SEED}");
    }
    assert_eq!(session.run(&scratch, "echo alive").await.output, "alive\n");
    session.controller.stop().await.assert_success();
}

/// Descriptors of both tiers, and all processes below the controller.
fn held(tiers: [u32; 2]) -> ([usize; 2], Vec<u32>) {
    (tiers.map(descriptors), descendants_of(tiers[0]).unwrap())
}

/// Waits until as much is held as there was.
async fn settled(tiers: [u32; 2], before: &([usize; 2], Vec<u32>)) {
    within("everything is let go of", async {
        while held(tiers) != *before {
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await;
}
