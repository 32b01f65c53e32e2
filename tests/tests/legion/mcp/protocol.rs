//! What a client is offered, what is recorded of it, and what never reaches stdout.

use legion_tests::audit::Audit;
use legion_tests::child::Child;
use legion_tests::legion::{self, Controller};
use legion_tests::mcp_client::McpClient;
use legion_tests::scratch::Scratch;
use serde_json::{Value, json};

/// Exit code for a configuration that is wrong (design.md, after sysexits).
const CONFIGURATION: i32 = 78;

const TOOLS: [&str; 7] = ["apply_patch", "bash", "edit", "glob", "grep", "read", "write"];

#[tokio::test]
async fn the_tools_are_described() {
    let scratch = Scratch::new();
    let mut client = McpClient::start(&scratch, &[]).await;
    let ready = client.ready().await;
    assert_eq!(ready["server"]["name"], "legion");
    assert!(
        ready["instructions"].as_str().unwrap().contains(scratch.workspace().to_str().unwrap()),
        "{ready:#}"
    );
    let tools = ready["tools"].as_array().unwrap();
    let mut names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, TOOLS);
    for tool in tools {
        let only_reads = ["read", "glob", "grep"].contains(&tool["name"].as_str().unwrap());
        assert_eq!(tool["annotations"]["readOnlyHint"], only_reads, "{tool:#}");
        assert_eq!(tool["annotations"]["destructiveHint"], !only_reads, "{tool:#}");
        assert_eq!(tool["inputSchema"]["type"], "object", "{tool:#}");
        assert!(tool["description"].as_str().unwrap().len() > 40, "{tool:#}");
    }
    client.leave().await.assert_success();
}

#[tokio::test]
async fn each_remote_call_is_recorded_once_with_the_client_named() {
    let scratch = Scratch::new();
    scratch.write("workspace/f", "text\n");
    let mut client = McpClient::start(&scratch, &[]).await;
    client.call("bash", json!({ "command": "echo $((6*7))" })).await.output();
    client.call("read", json!({ "filePath": "f" })).await.output();
    client.call("grep", json!({ "pattern": "te.t" })).await.output();
    client.leave().await.assert_success();
    let audit = Audit::read(&scratch);
    let programs = audit.calls("process/start").map(|call| call["object"]["argv"].as_array().unwrap());
    let [bash, ignored, search, ages] = &programs.collect::<Vec<_>>()[..] else {
        panic!("{:#?}", audit.lines())
    };
    assert_eq!(bash[1..], [json!("-c"), json!("echo $((6*7))")]);
    assert_eq!(ignored[..2], [json!("git"), json!("check-ignore")]);
    assert!(search[..2] == [json!("git"), json!("grep")] && search.contains(&json!("te.t")), "{search:?}");
    assert_eq!(ages[0], "stat");
    assert_eq!(audit.calls("fs/open").count(), 1);
    // The SDK numbers its requests; the first two made the connection.
    let ids: Vec<_> = audit.calls("process/start").map(|call| call["object"]["toolCallId"].clone()).collect();
    let first: u64 = ids[0].as_str().unwrap().parse().unwrap();
    let expected = [first, first + 2, first + 2, first + 2].map(|id| json!(id.to_string()));
    assert_eq!(ids, expected);
    for call in audit.events("call") {
        assert_eq!(call["actor"]["client"], "mcp legion-tests 1.2.3", "{call:#}");
        assert!(audit.outcome(call).is_some(), "no outcome: {call:#}");
    }
    let closed = audit.events("connectionClosed").next().unwrap();
    assert_eq!(closed["reason"], "the harness left", "{closed:#}");
    Audit::verify(&scratch).await;
}

#[tokio::test]
async fn a_running_controller_is_used() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let mut client = McpClient::start(&scratch, &[]).await;
    client.call("write", json!({ "filePath": "new", "content": "x" })).await.output();
    let sessions = legion::run(&scratch, &["session", "list", "--json"]).await;
    // The controller's own, and this one.
    assert_eq!(sessions.stdout.lines().count(), 2, "{sessions:#?}");
    client.leave().await.assert_success();
    assert_eq!(scratch.read("workspace/new").as_deref(), Some("x"));
    controller.stop().await.assert_success();
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_answered_in_words() {
    let scratch = Scratch::new();
    let mut client = McpClient::start(&scratch, &[]).await;
    for (tool, arguments, what) in [
        ("bash", json!({}), "missing field `command`"),
        ("read", json!({ "filePath": "f", "offset": -1 }), "no whole number"),
        ("read", json!({ "filePath": "" }), "the path is empty"),
        ("edit", json!({ "filePath": "f", "oldString": "a" }), "missing field `newString`"),
        ("bash", json!({ "command": "true", "timeout": 0 }), "between 1 and"),
        ("apply_patch", json!({ "patchText": "hello" }), "begins with"),
        ("glob", json!({ "pattern": "[" }), "unclosed"),
        ("grep", json!({ "pattern": "a", "path": "nowhere" }), "does not exist"),
    ] {
        let answer = client.call(tool, arguments).await;
        assert!(answer.error().contains(what), "{tool}: {answer:?}");
    }
    let unknown = client.begin("rm", json!({})).await;
    assert!(client.failure(unknown).await.contains("there is no tool `rm`"));
    client.leave().await.assert_success();
}

#[tokio::test]
async fn a_cancellation_of_nothing_is_ignored() {
    let scratch = Scratch::new();
    let mut client = McpClient::start(&scratch, &[]).await;
    client.call("bash", json!({ "command": "true" })).await.output();
    for id in [json!(2), json!(999), json!("x")] {
        let params = json!({ "requestId": id, "reason": "late" });
        client.notify(json!({ "method": "notifications/cancelled", "params": params })).await;
    }
    assert_eq!(client.call("bash", json!({ "command": "echo on" })).await.output(), "on\n[exit code 0]");
    client.leave().await.assert_success();
}

/// Everything on stdout is a message, whatever the log level; the log is on stderr and holds no frames.
#[tokio::test]
async fn stdout_is_for_the_protocol_only() {
    let scratch = Scratch::new();
    let mut command = legion::command(&scratch, &["mcp", "--workspace"]);
    command.arg(scratch.workspace()).env("LEGION_LOG", "trace");
    let mut child = Child::spawn_with_stdin("legion-controller mcp", command);
    let mut stdin = child.take_stdin().unwrap();
    let client = json!({ "name": "raw", "version": "0" });
    let initialize = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client });
    let call = json!({ "name": "bash", "arguments": { "command": "echo canary-$((40+2))" } });
    for message in [
        json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": initialize }),
        json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }),
        json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call }),
    ] {
        tokio::io::AsyncWriteExt::write_all(&mut stdin, format!("{message}\n").as_bytes()).await.unwrap();
    }
    child.until_stdout("the answer", |text| text.contains("canary-42")).await;
    drop(stdin);
    let finished = child.finish().await;
    finished.assert_success();
    for line in finished.stdout.lines() {
        let message: Value = serde_json::from_str(line).unwrap();
        assert_eq!(message["jsonrpc"], "2.0", "{line}");
    }
    assert!(!finished.stderr.contains("canary-"), "{}", finished.stderr);
}

#[tokio::test]
async fn without_a_sandbox_there_are_no_tools() {
    let scratch = Scratch::new();
    legion::configure(&scratch, "[persona.default]\nnetwrok = \"none\"\n");
    let mut client = McpClient::launch(&scratch, &[]);
    assert!(client.refused().await.contains("closed"), "{client:?}");
    let finished = client.leave().await;
    assert!(
        finished.stderr.contains("legion.toml:2:1:") && !finished.stderr.contains("panicked"),
        "{finished:#?}"
    );
    let alone = legion::run(&scratch, &["mcp"]).await;
    assert_eq!(alone.code(), CONFIGURATION, "{alone:#?}");
    assert_eq!(alone.stdout, "");
}
