//! The end of things in the middle: of the controller, of the sandbox, of the client.

use legion_tests::audit::Audit;
use legion_tests::child::Child;
use legion_tests::legion::{self, Controller};
use legion_tests::mcp_client::McpClient;
use legion_tests::scratch::Scratch;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::PROMPT;

/// Says where it runs: the host's name for the pid namespace is another one.
const WHERE: &str = "readlink /proc/self/ns/pid > where; echo ran >> runs";

#[tokio::test]
async fn a_killed_controller_is_one_clear_error_and_nothing_runs_outside() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let mut alive = scratch.fifo("workspace/alive").lifetime();
    let mut client = McpClient::start(&scratch, &[]).await;
    client.call("bash", json!({ "command": WHERE })).await.output();
    let id = client.begin("bash", json!({ "command": "exec 9> alive; echo begun >&9; sleep 1000" })).await;
    alive.began("it runs").await;
    controller.signal(Signal::KILL);
    let answer = client.answer(id).await;
    assert!(answer.error().starts_with("the sandbox is gone"), "{answer:?}");
    assert_eq!(answer.text().lines().count(), 1, "{answer:?}");
    alive.ended("the command is gone").await;
    for (tool, arguments) in [
        ("bash", json!({ "command": WHERE })),
        ("write", json!({ "filePath": "written", "content": "x" })),
        ("edit", json!({ "filePath": "runs", "oldString": "ran", "newString": "x" })),
        ("read", json!({ "filePath": "/etc/hostname" })),
        ("glob", json!({ "pattern": "*" })),
    ] {
        let answer = client.call(tool, arguments).await;
        assert!(
            answer.error().starts_with("the sandbox cannot be reached, so nothing was done"),
            "{answer:?}"
        );
    }
    client.leave().await.assert_success();
    assert_eq!(scratch.read("workspace/runs").as_deref(), Some("ran\n"));
    assert_eq!(scratch.read("workspace/written"), None);
    let host = std::fs::read_link("/proc/self/ns/pid").unwrap();
    assert_ne!(scratch.read("workspace/where").unwrap().trim(), host.to_str().unwrap());
}

#[tokio::test]
async fn a_revoked_session_says_so() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let mut client = McpClient::start(&scratch, &[]).await;
    client.call("bash", json!({ "command": "true" })).await.output();
    let audit = Audit::read(&scratch);
    let session = audit.calls("process/start").next().unwrap()["session"].as_str().unwrap().to_owned();
    legion::run(&scratch, &["session", "kill", &session]).await.assert_success();
    let answer = client.call("bash", json!({ "command": "true" })).await;
    assert!(answer.error().contains("the sandbox"), "{answer:?}");
    client.leave().await.assert_success();
    controller.stop().await.assert_success();
}

#[tokio::test]
async fn a_sandbox_that_dies_is_replaced_at_the_next_call() {
    let scratch = Scratch::new();
    let mut alive = scratch.fifo("workspace/alive").lifetime();
    let mut client = McpClient::start(&scratch, &[]).await;
    let id = client.begin("bash", json!({ "command": "exec 9> alive; echo begun >&9; sleep 1000" })).await;
    alive.began("it runs").await;
    let audit = Audit::read(&scratch);
    let pid = &audit.events("sandboxStarted").next().expect("it was recorded")["sandbox"]["pid"];
    let pid = Pid::from_raw(i32::try_from(pid.as_i64().unwrap()).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    alive.ended("the command is gone").await;
    let answer = client.answer(id).await;
    assert!(answer.error().starts_with("the sandbox is gone"), "{answer:?}");
    let again = client.call("bash", json!({ "command": "echo again" })).await;
    assert_eq!(again.output(), "again\n[exit code 0]");
    client.leave().await.assert_success();
}

#[tokio::test]
async fn nothing_outlives_the_client() {
    let scratch = Scratch::new();
    let mut alive = scratch.fifo("workspace/alive").lifetime();
    let mut client = McpClient::start(&scratch, &[]).await;
    client.begin("bash", json!({ "command": "exec 9> alive; echo begun >&9; sleep 1000" })).await;
    alive.began("it runs").await;
    let began = Instant::now();
    client.kill();
    alive.ended("the command is gone").await;
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    client.finish().await;
    assert_eq!(Audit::read(&scratch).events("controllerStopped").count(), 1);
}

/// Who only has nothing more to ask is answered.
#[tokio::test]
async fn the_end_of_the_input_is_no_cancellation() {
    let scratch = Scratch::new();
    let mut command = legion::command(&scratch, &["mcp", "--workspace"]);
    command.arg(scratch.workspace());
    let mut child = Child::spawn_with_stdin("legion-controller mcp", command);
    let mut stdin = child.take_stdin().unwrap();
    let client = json!({ "name": "raw", "version": "0" });
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let call = json!({ "name": "bash", "arguments": { "command": "echo begun > begun; sleep 0.3; echo end-$((40+2))" } });
    let mut begun = scratch.fifo("workspace/begun").signals();
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }),
    ] {
        stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }
    begun.next("the command runs").await;
    drop(stdin);
    let finished = child.finish().await;
    finished.assert_success();
    assert!(finished.stdout.contains("end-42"), "{finished:#?}");
}

#[tokio::test]
async fn a_signal_ends_it_in_good_order() {
    let scratch = Scratch::new();
    let mut command = legion::command(&scratch, &["mcp", "--workspace"]);
    command.arg(scratch.workspace());
    let mut child = Child::spawn_with_stdin("legion-controller mcp", command);
    let mut stdin = child.take_stdin().unwrap();
    stdin.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n").await.unwrap();
    child.first_line().await;
    child.stop().await.assert_success();
    let audit = Audit::read(&scratch);
    assert_eq!(audit.events("sessionEnded").count(), 1, "{:#?}", audit.lines());
}
