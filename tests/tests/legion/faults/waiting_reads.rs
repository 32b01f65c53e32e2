//! Many requests that wait for one event, which finishes them all at once.
//!
//! Invariant: their answers are made as they leave, and not all before the first one is sent.

use legion_tests::child::Child;
use legion_tests::process_table::peak;
use legion_tests::scratch::Scratch;
use legion_tests::settings::settings;
use legion_tests::ws_client::{Endpoint, Upgrade};
use serde_json::json;

use crate::sandbox::uri;

/// Long polls of one process.
const READS: usize = 1000;

/// What each of them is answered with, at least.
const OUTPUT: usize = 60_000;

/// How much the server may grow: its queue of 16 MiB and what an allocator adds, but not all answers together.
const MEMORY_GROWTH: u64 = 40 << 20;

#[tokio::test]
async fn answers_that_become_ready_together_are_not_held_together() {
    let scratch = Scratch::new();
    let mut command = scratch.command(settings().legion_binary("legion-exec-server"));
    command.args(["--listen", "ws://127.0.0.1:0"]).current_dir(scratch.workspace());
    let mut server = Child::spawn("legion-exec-server", command);
    let mut client = Upgrade::new(Endpoint::of_url(&server.first_line().await)).connect().await.unwrap();
    client.initialize(None).await.unwrap();
    let script = format!("read -r line; head -c {OUTPUT} /dev/zero; read -r line");
    let start = json!({
        "processId": "p", "argv": ["/bin/sh", "-c", script], "env": {}, "cwd": uri(&scratch.workspace()),
        "tty": false, "pipeStdin": true,
    });
    client.call("process/start", start).await.unwrap();
    let pid = server.pid().unwrap();
    let before = peak(pid);
    for id in 0..READS {
        let read = json!({ "processId": "p", "waitMs": 600_000 });
        client.send_json(&json!({ "id": id, "method": "process/read", "params": read })).await;
    }
    let write = json!({ "processId": "p", "chunk": "Cg==", "writeId": "1" });
    client.send_json(&json!({ "id": "write", "method": "process/write", "params": write })).await;
    let mut open = READS + 1;
    while open > 0 {
        let message = client.notification().await.expect("the connection goes on");
        open -= usize::from(message.get("result").is_some());
    }
    let grown = peak(pid).saturating_sub(before);
    assert!(grown < MEMORY_GROWTH, "the server has grown by {grown} bytes");
    server.stop().await.assert_success();
}
