//! A client that stops reading while a command floods it.
//!
//! Invariant: it pays for that alone. What it sends is still done, its other processes and other sessions go on, and
//! nobody keeps what it does not take.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use legion_tests::process_table::resident;
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade};
use serde_json::{Value, json};

use super::exec_server;
use crate::sandbox::{Connected, uri};

/// What the flood comes to: far more than all that lies between a command and its client may hold.
const FLOOD_BYTES: usize = 64 << 20;

/// Lines another process of the session is given meanwhile.
const LINES: usize = 100;

/// Calls of another connection for each of these lines.
const OTHER_CALLS: usize = 10;

/// How much a tier may grow meanwhile: its queues and a debug build's allocator, not the flood.
const MEMORY_GROWTH: u64 = 8 << 20;

#[tokio::test]
async fn a_client_that_stops_reading_hurts_nobody_else() {
    let scratch = Scratch::new();
    let mut reports = scratch.fifo("workspace/reports").signals();
    let mut session = Connected::new(&scratch, &[]).await;
    let start = json!({
        "processId": "echo", "argv": ["/bin/bash", "-c", "while read -r line; do echo $line > reports; done"],
        "env": {}, "cwd": uri(&scratch.workspace()), "tty": false, "pipeStdin": true,
    });
    session.client.call("process/start", start).await.unwrap();
    let upgrade = Upgrade::new(Endpoint::of_url(&session.controller.ready.url));
    let mut other = upgrade.token(&session.controller.token).connect().await.unwrap();
    other.initialize(None).await.unwrap();
    // Whatever is allocated once is there before it is measured.
    assert_eq!(session.run(&scratch, "head -c 4M /dev/zero").await.output.len(), 4 << 20);
    let tiers = [session.controller.pid().unwrap(), exec_server(&scratch)];
    let before = tiers.map(resident);

    let flood = session.start(&scratch, &format!("head -c {FLOOD_BYTES} /dev/zero")).await;
    // From here on nothing is read.
    for line in 0..LINES {
        let chunk = STANDARD.encode(format!("{line}\n"));
        let write = json!({ "processId": "echo", "chunk": chunk, "writeId": line.to_string() });
        let id = format!("write-{line}");
        session.client.send_json(&json!({ "id": id, "method": "process/write", "params": write })).await;
        assert_eq!(reports.next("another process of the session goes on").await, line.to_string());
        for _ in 0..OTHER_CALLS {
            let status = other.call("environment/status", Value::Null).await;
            assert_eq!(status, Ok(json!({ "status": "ready" })));
        }
    }
    for (pid, before) in tiers.into_iter().zip(before) {
        let grown = resident(pid).saturating_sub(before);
        assert!(grown < MEMORY_GROWTH, "process {pid} has grown by {grown} bytes");
    }
    // Read after all, it is whole.
    let ran = session.end_of(&flood).await;
    assert_eq!((ran.code, ran.output.len()), (0, FLOOD_BYTES));

    // A second flood is called off by a client that does not read.
    let mut alive = scratch.fifo("workspace/alive").lifetime();
    session.start(&scratch, "exec 9> alive; echo here >&9; cat /dev/zero").await;
    alive.began("the second flood").await;
    let end = json!({ "id": "end", "method": "process/terminate", "params": { "processId": "script-3" } });
    session.client.send_json(&end).await;
    alive.ended("the second flood is terminated").await;
    session.controller.stop().await.assert_success();
}
