//! `legion-controller start`: what it says, what it leaves on disk, what dies with it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use legion_tests::audit::Audit;
use legion_tests::child::Witness;
use legion_tests::fifo::Fifo;
use legion_tests::legion::Controller;
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade, WsClient};
use rustix::process::Signal;
use serde_json::json;

async fn client(controller: &Controller) -> WsClient {
    let upgrade = Upgrade::new(Endpoint::of_url(&controller.ready.url)).token(&controller.token);
    let mut client = upgrade.connect().await.unwrap();
    client.initialize(None).await.unwrap();
    client
}

/// Starts a command that lives until it is killed, with a child in a session of its own.
async fn start_for_ever(client: &mut WsClient, scratch: &Scratch, alive: &Fifo) {
    let script = format!("exec 9> {}; setsid sleep 300 & echo here >&9; sleep 300", alive.path().display());
    let params = json!({
        "processId": "1", "argv": ["/bin/bash", "-c", script], "env": { "PATH": "/usr/bin:/bin" },
        "cwd": format!("file://{}", scratch.workspace().display()), "tty": false,
    });
    client.call("process/start", params).await.unwrap();
}

#[tokio::test]
async fn the_token_is_private() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&controller.ready.token_file), 0o600);
    assert_eq!(mode(controller.ready.token_file.parent().unwrap()), 0o700);
    assert_eq!(mode(controller.ready.control_socket.parent().unwrap()), 0o700);
    assert!(controller.token.starts_with("lgn1_"), "the token has another form");
    let command_line = fs::read(format!("/proc/{}/cmdline", controller.pid().unwrap())).unwrap();
    assert!(!String::from_utf8_lossy(&command_line).contains(&controller.token));
    let finished = controller.stop().await;
    finished.assert_success();
    assert_eq!(finished.stdout.lines().count(), 1, "{finished:#?}");
    assert!(!finished.stderr.contains("lgn1_"), "{finished:#?}");
}

/// How long a sandbox may outlive its controller.
const AFTERLIFE: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_sandbox_dies_with_the_controller() {
    for signal in [Signal::TERM, Signal::KILL] {
        let scratch = Scratch::new();
        let alive = scratch.fifo("workspace/alive");
        let mut lifetime = alive.lifetime();
        let controller = Controller::start(&scratch, &[]).await;
        let mut client = client(&controller).await;
        start_for_ever(&mut client, &scratch, &alive).await;
        lifetime.began("the command starts").await;
        let sandbox = Audit::read(&scratch).events("sandboxStarted").next().unwrap()["sandbox"].clone();
        let witness = |name: &str| Witness::of(sandbox[name].as_u64().unwrap().try_into().unwrap());
        let (bwrap, inner) = (witness("pid"), witness("innerPid"));
        controller.signal(signal);
        let signalled = Instant::now();
        lifetime.ended("the command and its children end with the controller").await;
        inner.ended("pid 1 of the sandbox ends").await;
        bwrap.ended("bwrap ends").await;
        let afterlife = signalled.elapsed();
        assert!(afterlife < AFTERLIFE, "{signal:?}: {afterlife:?}");
        client.ended().await;
    }
}

#[tokio::test]
async fn it_stops_in_good_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let scratch = Scratch::new();
        let controller = Controller::start(&scratch, &[]).await;
        let ready = controller.ready.clone();
        let run = ready.control_socket.parent().unwrap().to_owned();
        assert!(
            ready.control_socket.exists() && ready.token_file.exists() && run.join("front.sock").exists()
        );
        controller.signal(signal);
        let finished = controller.finish().await;
        finished.assert_success();
        let audit = Audit::read(&scratch);
        let head = audit.records().last().unwrap();
        assert_eq!(head["event"], "checkpoint");
        assert!(
            finished.stderr.starts_with(&format!("audit head: record {} ", head["seq"])),
            "{finished:#?}"
        );
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:#?}");
        // The lock stays: to remove it would be a race with the next controller.
        let left: Vec<_> = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["controller.lock"]);
        let last = audit.records().iter().rfind(|record| record["event"] != "checkpoint").unwrap();
        assert_eq!(last["event"], "controllerStopped", "{:#?}", audit.lines());
        for event in ["sessionEnded", "sandboxEnded"] {
            assert_eq!(audit.events(event).count(), 1, "{:#?}", audit.lines());
        }
        Audit::verify(&scratch).await;
    }
}

#[tokio::test]
async fn a_command_outlives_its_connection_and_is_found_again() {
    let scratch = Scratch::new();
    let alive = scratch.fifo("workspace/alive");
    let mut lifetime = alive.lifetime();
    let controller = Controller::start(&scratch, &[]).await;
    let upgrade = Upgrade::new(Endpoint::of_url(&controller.ready.url)).token(&controller.token);
    let mut first = upgrade.connect().await.unwrap();
    let session = first.initialize(None).await.unwrap()["sessionId"].as_str().unwrap().to_owned();
    start_for_ever(&mut first, &scratch, &alive).await;
    lifetime.began("the command starts").await;
    drop(first);

    let mut second = upgrade.connect().await.unwrap();
    let resumed = second.initialize(Some(&session)).await.unwrap();
    assert_eq!(resumed["sessionId"], session.as_str());
    let ended = second.call("process/terminate", json!({ "processId": "1" })).await;
    assert_eq!(ended, Ok(json!({ "running": true })));
    assert_eq!(second.wait_for("process/exited").await["exitCode"], 128 + 9);
    controller.stop().await.assert_success();
    lifetime.ended("nothing is left").await;
}
