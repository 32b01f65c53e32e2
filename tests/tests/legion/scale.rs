//! Many sessions with many processes at one controller: what one more costs.
//!
//! Invariant: cost is processor time and memory as the kernel counts them, never the time a busy machine takes.
//! `scripts/bench --scale` measures the full size, 200 sessions and 10 000 processes.

use legion_tests::bench::memory;
use legion_tests::child::Witness;
use legion_tests::legion::{self, Controller};
use legion_tests::process_table::{descendants_of, processor_time, resident};
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade, WsClient};
use serde_json::{Value, json};

use crate::faults::exec_server;
use crate::sandbox::uri;

const SESSIONS: usize = 20;

/// Of each session.
const PROCESSES: usize = 50;

/// Calls whose cost is measured together, and how often: the least counts.
const CALLS: usize = 300;
/// See [`CALLS`].
const ROUNDS: usize = 5;

/// How much more a call may cost at full size: what a debug build and cold caches make of "as much".
const FLAT: u64 = 2;

/// Most memory of a session with its sandbox, and of the exec-server for one more process.
const SESSION_BYTES: u64 = 8 << 20;
/// See [`SESSION_BYTES`].
const PROCESS_BYTES: u64 = 64 << 10;

async fn connected(url: &str, token: &str) -> WsClient {
    let mut client = Upgrade::new(Endpoint::of_url(url)).token(token).connect().await.unwrap();
    client.initialize(None).await.unwrap();
    client
}

/// A session of its own.
async fn another(scratch: &Scratch, url: &str) -> WsClient {
    let workspace = scratch.workspace().display().to_string();
    let issued = legion::run(scratch, &["token", "issue", "--json", "--workspace", &workspace]).await;
    issued.assert_success();
    let issued: Value = serde_json::from_str(&issued.stdout).unwrap();
    connected(url, issued["token"].as_str().unwrap()).await
}

/// Processor time both tiers take for [`CALLS`] calls.
async fn cost(client: &mut WsClient, scratch: &Scratch, tiers: [u32; 2]) -> u64 {
    let spent = || tiers.map(processor_time).iter().sum::<u64>();
    let mut least = u64::MAX;
    for _ in 0..ROUNDS {
        let before = spent();
        for _ in 0..CALLS {
            client.call("fs/getMetadata", json!({ "path": uri(&scratch.workspace()) })).await.unwrap();
        }
        least = least.min(spent() - before);
    }
    least
}

#[tokio::test]
async fn one_more_session_and_one_more_process_cost_as_much_as_the_first() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let (pid, url) = (controller.pid().unwrap(), controller.ready.url.as_str());
    let mut clients = vec![connected(url, &controller.token).await];
    let tiers = [pid, exec_server(&scratch)];
    let first = cost(&mut clients[0], &scratch, tiers).await;
    let held = |pid| memory::of_tree(pid).unwrap().proportional_bytes.expect("root or the user itself looks");
    let one = held(pid);

    while clients.len() < SESSIONS {
        clients.push(another(&scratch, url).await);
    }
    let a_session = held(pid).saturating_sub(one) / (SESSIONS - 1) as u64;
    assert!(a_session < SESSION_BYTES, "a session takes {a_session} bytes");

    let (before, inside) = (resident(tiers[1]), descendants_of(pid).unwrap().len());
    for (number, client) in clients.iter_mut().enumerate() {
        for process in 0..PROCESSES {
            let start = json!({ "processId": process.to_string(), "argv": ["/bin/sleep", "1000"], "env": {},
                "cwd": uri(&scratch.workspace()), "tty": process % 10 == 0 });
            let started = client.call("process/start", start).await;
            assert!(started.is_ok(), "session {number}, process {process}: {started:?}");
        }
    }
    assert_eq!(descendants_of(pid).unwrap().len(), inside + SESSIONS * PROCESSES);
    let a_process = resident(tiers[1]).saturating_sub(before) / PROCESSES as u64;
    assert!(a_process < PROCESS_BYTES, "the exec-server takes {a_process} bytes for a process");
    let last = cost(&mut clients[0], &scratch, tiers).await;
    assert!(last < FLAT * first, "{CALLS} calls took {first} ns alone, and {last} ns among all");

    let ends: Vec<_> = descendants_of(pid).unwrap().into_iter().map(Witness::of).collect();
    controller.stop().await.assert_success();
    for end in ends {
        end.ended("all that was inside ends with the controller").await;
    }
}
