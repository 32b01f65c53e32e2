//! `bash` through MCP.

use legion_tests::mcp_client::McpClient;
use legion_tests::scratch::Scratch;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::PROMPT;

async fn bash(client: &mut McpClient, command: &str) -> String {
    client.call("bash", json!({ "command": command })).await.output().to_owned()
}

#[tokio::test]
async fn output_and_exit_code() {
    let scratch = Scratch::new();
    scratch.write("workspace/sub/f", "");
    let mut client = McpClient::start(&scratch, &[]).await;
    let workspace = scratch.workspace().display().to_string();
    assert_eq!(bash(&mut client, "pwd; exit 3").await, format!("{workspace}\n[exit code 3]"));
    assert_eq!(bash(&mut client, "true").await, "[exit code 0]");
    assert_eq!(bash(&mut client, "printf 'no end'").await, "no end\n[exit code 0]");
    assert_eq!(bash(&mut client, "kill -TERM $$").await, "[exit code 143]");
    assert_eq!(bash(&mut client, "cat; echo read").await, "read\n[exit code 0]");
    let both = bash(&mut client, "echo out; echo err >&2").await;
    // Between the two streams there is no order (SPEC 4.2).
    assert!(["out\nerr\n[exit code 0]", "err\nout\n[exit code 0]"].contains(&both.as_str()), "{both}");
    let answer =
        client.call("bash", json!({ "command": "ls", "workdir": "sub", "description": "Lists" })).await;
    assert_eq!((answer.output(), answer.fact("title")), ("f\n[exit code 0]", &json!("Lists")));
    assert_eq!((answer.fact("exit"), answer.fact("output")), (&json!(0), &json!("f\n[exit code 0]")));
    let nowhere = client.call("bash", json!({ "command": "ls", "workdir": "nowhere" })).await;
    assert!(nowhere.error().contains("cannot start a command in"), "{nowhere:?}");
    assert!(bash(&mut client, "printf 'a\\377b'").await.starts_with("a\u{FFFD}b"));
    client.leave().await.assert_success();
}

#[tokio::test]
async fn it_runs_in_the_sandbox() {
    let scratch = Scratch::new();
    let secret = scratch.write("outside/secret", "canary-93\n");
    scratch.write("home/.env", "TOKEN=canary-94\n");
    let mut client = McpClient::start(&scratch, &[]).await;
    let script = format!("cat {}; env; echo changed > {0}; echo in > inside", secret.display());
    let output = bash(&mut client, &script).await;
    assert!(!output.contains("canary-9"), "{output}");
    for path in [secret.display().to_string(), scratch.home().join(".env").display().to_string()] {
        let read = client.call("read", json!({ "filePath": path })).await;
        assert!(read.error().contains("does not exist"), "{read:?}");
        let write = client.call("write", json!({ "filePath": path, "content": "x" })).await;
        assert!(!write.text().contains("canary"), "{write:?}");
    }
    client.leave().await.assert_success();
    assert_eq!(scratch.read("outside/secret").as_deref(), Some("canary-93\n"));
    assert_eq!(scratch.read("home/.env").as_deref(), Some("TOKEN=canary-94\n"));
    assert_eq!(scratch.read("workspace/inside").as_deref(), Some("in\n"));
}

#[tokio::test]
async fn long_output_has_its_middle_left_out() {
    let scratch = Scratch::new();
    let mut client = McpClient::start(&scratch, &[]).await;
    let answer = client.call("bash", json!({ "command": "seq 1 100000; exit 1" })).await;
    let output = answer.output();
    assert!(output.starts_with("1\n2\n") && output.ends_with("\n99999\n100000\n[exit code 1]"), "{output}");
    assert!(output.len() < 60_000 && output.contains(" bytes are left out here"), "{} bytes", output.len());
    assert_eq!((answer.fact("truncated"), answer.fact("bytes")), (&json!(true), &json!(588_895)));
    client.leave().await.assert_success();
}

#[tokio::test]
async fn calls_run_side_by_side() {
    let scratch = Scratch::new();
    scratch.fifo("workspace/ab");
    scratch.fifo("workspace/ba");
    let mut client = McpClient::start(&scratch, &[]).await;
    // Each waits for the other: one after the other they would never end.
    let a =
        client.begin("bash", json!({ "command": "echo from-a > ab; read -r x < ba; echo a got $x" })).await;
    let b =
        client.begin("bash", json!({ "command": "read -r x < ab; echo from-b > ba; echo b got $x" })).await;
    assert_eq!(client.answer(a).await.output(), "a got from-b\n[exit code 0]");
    assert_eq!(client.answer(b).await.output(), "b got from-a\n[exit code 0]");
    client.leave().await.assert_success();
}

#[tokio::test]
async fn progress_is_seen_while_it_runs() {
    let scratch = Scratch::new();
    let gate = scratch.fifo("workspace/go").gate();
    let mut client = McpClient::start(&scratch, &[]).await;
    let id = client.begin("bash", json!({ "command": "echo first; read -r _ < go; echo second" })).await;
    client.progress(id, "first\n").await;
    gate.open();
    assert_eq!(client.answer(id).await.output(), "first\nsecond\n[exit code 0]");
    client.leave().await.assert_success();
}

/// A command that holds a pipe open, in its own process and in a child of it.
fn holding(arguments: Value) -> Value {
    let mut arguments = arguments;
    arguments["command"] = json!("exec 9> alive; echo begun >&9; echo seen; sleep 1000 & sleep 1000; wait");
    arguments
}

#[tokio::test]
async fn a_timeout_kills_the_whole_group() {
    let scratch = Scratch::new();
    let mut alive = scratch.fifo("workspace/alive").lifetime();
    let mut client = McpClient::start(&scratch, &[]).await;
    let id = client.begin("bash", holding(json!({ "timeout": 700 }))).await;
    alive.began("it runs").await;
    let answer = client.answer(id).await;
    let began = Instant::now();
    alive.ended("it is gone").await;
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    assert!(
        answer.output().starts_with("seen\n[killed: it took longer than the timeout of 700 ms"),
        "{answer:?}"
    );
    assert_eq!((answer.fact("timedOut"), answer.fact("exit")), (&json!(true), &Value::Null));
    client.leave().await.assert_success();
}

#[tokio::test]
async fn a_cancelled_command_is_gone_within_a_second() {
    let scratch = Scratch::new();
    let mut alive = scratch.fifo("workspace/alive").lifetime();
    let mut client = McpClient::start(&scratch, &[]).await;
    let id = client.begin("bash", holding(json!({}))).await;
    alive.began("it runs").await;
    let began = Instant::now();
    client.abort(id).await;
    alive.ended("it is gone").await;
    assert!(began.elapsed() < PROMPT, "{:?}", began.elapsed());
    assert!(client.failure(id).await.contains("no longer wanted"));
    assert_eq!(bash(&mut client, "echo on").await, "on\n[exit code 0]");
    client.leave().await.assert_success();
}

#[tokio::test]
async fn what_is_left_in_the_background_stays_and_is_said() {
    let scratch = Scratch::new();
    let mut alive = scratch.fifo("workspace/alive").lifetime();
    let mut client = McpClient::start(&scratch, &[]).await;
    // What it goes on printing holds nothing up.
    let command =
        "(exec 9> alive; echo begun >&9; while sleep 0.05; do echo more; done) & echo $! > pid; echo started";
    let id = client.begin("bash", json!({ "command": command })).await;
    alive.began("it runs").await;
    let answer = client.answer(id).await;
    let output = answer.output();
    assert!(output.starts_with("started\n"), "{output}");
    assert!(
        output.ends_with("more\n[what it started in the background still runs]\n[exit code 0]"),
        "{output}"
    );
    assert!(bash(&mut client, "kill -0 $(cat pid)").await.ends_with("[exit code 0]"));
    client.leave().await.assert_success();
    alive.ended("it ends with the session").await;
}
