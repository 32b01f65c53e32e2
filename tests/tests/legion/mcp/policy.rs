//! The tools under a persona with rules: what a rule is about is what the model has written.

use legion_tests::audit::Audit;
use legion_tests::legion;
use legion_tests::mcp_client::McpClient;
use legion_tests::scratch::Scratch;
use serde_json::json;

const DENY_BY_DEFAULT: &str = r#"
[persona.default]
default = "deny"

[[persona.default.rule]]
id       = "reading"
path     = "**"
op       = ["read"]
decision = "allow"

[[persona.default.rule]]
id       = "searching"
command  = ["git"]
decision = "allow"

[[persona.default.rule]]
id       = "looking"
command  = ["stat"]
decision = "allow"

[[persona.default.rule]]
id       = "no-push"
command  = ["git", "push"]
decision = "deny"
message  = "pushes leave the machine"
"#;

#[tokio::test]
async fn rules_see_the_commands_of_the_tools() {
    let scratch = Scratch::new();
    legion::configure(&scratch, DENY_BY_DEFAULT);
    scratch.write("workspace/f.txt", "needle\n");
    let git = scratch.command("git").args(["init", "-q"]).current_dir(scratch.workspace()).status().await;
    assert!(git.unwrap().success());
    let mut client = McpClient::start(&scratch, &[]).await;
    client.call("read", json!({ "filePath": "f.txt" })).await.output();
    let files = client.call("glob", json!({ "pattern": "*.txt" })).await;
    assert!(files.output().ends_with("/f.txt"), "{files:?}");
    let lines = client.call("grep", json!({ "pattern": "need.e" })).await;
    assert!(lines.output().starts_with("Found 1 matches"), "{lines:?}");
    let status = client.call("bash", json!({ "command": "git status --short && git status" })).await;
    assert!(status.output().ends_with("[exit code 0]"), "{status:?}");
    let push = client.call("bash", json!({ "command": "git status; git push" })).await;
    assert!(push.error().contains("pushes leave the machine"), "{push:?}");
    for (tool, arguments) in [
        ("bash", json!({ "command": "touch g" })),
        ("write", json!({ "filePath": "g", "content": "x" })),
        ("edit", json!({ "filePath": "f.txt", "oldString": "needle", "newString": "x" })),
        ("apply_patch", json!({ "patchText": "*** Begin Patch\n*** Add File: g\n+x\n*** End Patch" })),
    ] {
        let answer = client.call(tool, arguments).await;
        assert!(answer.error().contains("Legion's policy refuses"), "{tool}: {answer:?}");
    }
    client.leave().await.assert_success();
    assert_eq!(scratch.read("workspace/g"), None);
    assert_eq!(scratch.read("workspace/f.txt").as_deref(), Some("needle\n"));
    let audit = Audit::read(&scratch);
    let denied: Vec<_> = audit.events("call").filter(|record| record["decision"] == "deny").collect();
    assert_eq!(denied.len(), 5, "{:#?}", audit.lines());
}
