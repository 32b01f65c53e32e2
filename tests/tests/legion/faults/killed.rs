//! The exec-server is killed while its client works.
//!
//! Invariant: the client is told once and clearly, the next connection has a new sandbox, and nothing runs twice.

use legion_tests::audit::Audit;
use legion_tests::child::Witness;
use legion_tests::random::Random;
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade, WsClient};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::exec_server;
use crate::sandbox::{Connected, uri};

/// What the Close frame says.
const GONE: &str = "the exec-server is gone; connect again for a new sandbox";

/// Times it is killed somewhere in a burst of requests.
const KILLS: usize = 12;

/// Commands of one burst.
const BURST: usize = 8;

/// What decides after how many answers.
const SEED: u64 = 0x51_6711_1ed5;

fn kill(pid: u32) {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
}

async fn connected(session: &Connected) -> WsClient {
    let upgrade = Upgrade::new(Endpoint::of_url(&session.controller.ready.url));
    upgrade.token(&session.controller.token).connect().await.unwrap()
}

#[tokio::test]
async fn the_client_is_told_once_and_goes_on_in_a_new_sandbox() {
    let scratch = Scratch::new();
    let mut reports = scratch.fifo("workspace/reports").signals();
    let mut session = Connected::new(&scratch, &[]).await;
    let first = exec_server(&scratch);
    session.start(&scratch, "echo run >> runs; echo started > reports; sleep 300").await;
    assert_eq!(reports.next("the command starts").await, "started");
    let read = json!({ "processId": "script-1", "afterSeq": 0, "maxBytes": null, "waitMs": 60_000 });
    session.client.send_json(&json!({ "id": "read", "method": "process/read", "params": read })).await;
    kill(first);
    let (messages, reason) = session.client.last_words().await;
    assert_eq!((messages, reason.as_deref()), (Vec::<Value>::new(), Some(GONE)));

    // The session inside is gone with it; on the same connection a new one can be opened.
    let mut client = connected(&session).await;
    let lost = "0b7ff0f0-0000-4000-8000-000000000000";
    let error = client.initialize(Some(lost)).await.unwrap_err();
    assert_eq!(
        (error["code"].as_i64(), &error["message"]),
        (Some(-32600), &json!(format!("unknown session id {lost}")))
    );
    client.initialize(None).await.unwrap();
    session.client = client;
    assert_eq!(session.run(&scratch, "cat runs").await.output, "run\n");
    assert_ne!(exec_server(&scratch), first);
    session.controller.stop().await.assert_success();
    let audit = Audit::read(&scratch);
    let of_first = audit.calls("process/start").next().expect("it was recorded");
    assert!(audit.outcome(of_first).is_some(), "what became of the command is in the log: {of_first}");
    Audit::verify(&scratch).await;
}

#[tokio::test]
async fn killed_anywhere_nothing_runs_twice() {
    let scratch = Scratch::new();
    let session = Connected::new(&scratch, &[]).await;
    let mut random = Random::new(SEED);
    let mut answered = Vec::new();
    for round in 0..KILLS {
        let mut client = connected(&session).await;
        client.initialize(None).await.unwrap();
        let server = exec_server(&scratch);
        for number in 0..BURST {
            let name = format!("{round}-{number}");
            let start = json!({ "processId": name, "argv": ["/bin/sh", "-c", format!("echo {name} >> runs")],
                "env": { "PATH": "/usr/bin:/bin" }, "cwd": uri(&scratch.workspace()), "tty": false });
            client.send_json(&json!({ "id": name, "method": "process/start", "params": start })).await;
        }
        // An answer, an exit and an end for each.
        for _ in 0..random.below(3 * BURST) {
            let message = client.notification().await.expect("it lives");
            if message["method"] == "process/closed" {
                answered.push(message["params"]["processId"].as_str().unwrap().to_owned());
            }
        }
        let gone = Witness::of(server);
        kill(server);
        gone.ended("the exec-server is killed").await;
        let (_, reason) = client.last_words().await;
        assert_eq!(reason.as_deref(), Some(GONE), "round {round}, seed {SEED}");
    }
    session.controller.stop().await.assert_success();
    let runs = scratch.read("workspace/runs").unwrap_or_default();
    let mut seen: Vec<&str> = runs.lines().collect();
    seen.sort_unstable();
    let count = seen.len();
    seen.dedup();
    assert_eq!(seen.len(), count, "something ran twice, seed {SEED}: {runs}");
    for name in &answered {
        assert!(seen.contains(&name.as_str()), "{name} has closed and left nothing, seed {SEED}");
    }
    assert!(!answered.is_empty(), "seed {SEED} kills before anything is done");
    let audit = Audit::read(&scratch);
    assert_eq!(audit.events("sandboxStarted").count(), KILLS);
    Audit::verify(&scratch).await;
}
