//! The real OpenCode with Legion as its MCP server and its own tools denied, as opencode.md has it.

use legion_tests::audit::Audit;
use legion_tests::chat_model::{call, offered, say};
use legion_tests::child::{Child, Finished};
use legion_tests::mock_model::{MockModel, ModelRequest, Script};
use legion_tests::opencode;
use legion_tests::scratch::Scratch;
use legion_tests::settings::settings;
use rustix::process::Signal;
use serde_json::json;
use tokio::time::Instant;

use super::PROMPT;

/// What the model is offered: nothing that acts on the host.
const TOOLS: [&str; 9] = [
    "legion_apply_patch",
    "legion_bash",
    "legion_edit",
    "legion_glob",
    "legion_grep",
    "legion_read",
    "legion_write",
    "task",
    "todowrite",
];

/// OpenCode in the workspace, at work on a script of the mock model.
fn spawn(scratch: &Scratch, model: &MockModel) -> Child {
    let controller = settings().legion_binary("legion-controller");
    let mut config = opencode::provider(&model.base_url());
    config["permission"] = json!({ "*": "deny", "legion_*": "allow", "task": "allow", "todowrite": "allow" });
    let legion =
        json!({ "type": "local", "command": [controller, "mcp"], "enabled": true, "timeout": 3_600_000 });
    config["mcp"] = json!({ "legion": legion });
    scratch.write("config/opencode/opencode.json", config.to_string());
    opencode::install(scratch);
    scratch.git_init();
    let command = opencode::plain(scratch, &["run", "Do what the script says."]);
    Child::spawn("opencode", command)
}

async fn play(scratch: &Scratch, script: Script) -> (Vec<ModelRequest>, Finished) {
    let model = MockModel::start(script).await;
    let finished = spawn(scratch, &model).finish().await;
    finished.assert_success();
    (model.finish(), finished)
}

#[tokio::test]
async fn every_tool_works_in_the_session_and_no_other_is_offered() {
    let patch = "*** Begin Patch\n*** Update File: f.txt\n-2\n+two again\n*** End Patch";
    let script = Script::new()
        .item(call("c1", "legion_bash", &json!({ "command": "pwd; cat ../outside/secret; exit 3" })))
        .item(call("c2", "legion_read", &json!({ "filePath": "f.txt" })))
        .item(call(
            "c3",
            "legion_edit",
            &json!({ "filePath": "f.txt", "oldString": "two", "newString": "2" }),
        ))
        .item(call("c4", "legion_apply_patch", &json!({ "patchText": patch })))
        .item(call("c5", "legion_write", &json!({ "filePath": "d/new.txt", "content": "new\n" })))
        .item(call("c6", "legion_glob", &json!({ "pattern": "*.txt" })))
        .item(call("c7", "legion_grep", &json!({ "pattern": "aga.n$" })))
        .item(call("c8", "bash", &json!({ "command": "touch ../outside/mark", "description": "try" })))
        .item(call("c9", "legion_read", &json!({ "filePath": "nowhere" })))
        .item(say("done"));
    let scratch = Scratch::new();
    scratch.write("workspace/f.txt", "one\ntwo\n");
    scratch.write("outside/secret", "canary-81\n");
    let (requests, finished) = play(&scratch, script).await;
    assert!(finished.stdout.contains("done"), "{finished:#?}");
    let steps = opencode::steps(requests.clone());
    for request in &steps {
        assert_eq!(offered(&request.body), TOOLS);
    }
    assert!(!requests.iter().any(|request| request.text().contains("canary-81")));
    let output = |id: &str| steps.last().unwrap().output_text(id);
    assert!(output("c1").starts_with(scratch.workspace().to_str().unwrap()), "{}", output("c1"));
    assert!(output("c1").ends_with("[exit code 3]"), "{}", output("c1"));
    assert!(output("c2").contains("<content>\n1: one\n2: two\n"), "{}", output("c2"));
    assert!(output("c6").contains("/f.txt") && output("c6").contains("/d/new.txt"), "{}", output("c6"));
    assert!(output("c7").contains("  Line 2: two again"), "{}", output("c7"));
    assert!(output("c9").contains("does not exist"), "{}", output("c9"));
    assert_eq!(scratch.read("workspace/f.txt").as_deref(), Some("one\ntwo again\n"));
    assert_eq!(scratch.read("workspace/d/new.txt").as_deref(), Some("new\n"));
    assert_eq!(scratch.read("outside/mark"), None, "OpenCode's own bash ran");
    let audit = Audit::read(&scratch);
    for record in audit.events("call") {
        assert!(record["actor"]["client"].as_str().unwrap().starts_with("mcp opencode "), "{record:#}");
    }
}

#[tokio::test]
async fn a_subagent_has_the_same_tools() {
    let task = json!({ "description": "look around", "prompt": "Look.", "subagent_type": "general" });
    let script = Script::new()
        .item(call("c1", "task", &task))
        .item(call("s1", "legion_bash", &json!({ "command": "echo by-$((40+1)) > made" })))
        .item(say("The subagent has looked."))
        .item(say("done"));
    let scratch = Scratch::new();
    let (requests, _) = play(&scratch, script).await;
    let of_subagent = requests.iter().find(|request| request.text().contains("\"s1\"")).unwrap();
    let tools = offered(&of_subagent.body);
    assert!(tools.iter().all(|tool| TOOLS.contains(&tool.as_str())), "{tools:?}");
    assert!(tools.iter().any(|tool| tool == "legion_bash"), "{tools:?}");
    assert_eq!(scratch.read("workspace/made").as_deref(), Some("by-41\n"));
}

#[tokio::test]
async fn what_runs_is_killed_with_opencode() {
    for signal in [Signal::INT, Signal::KILL] {
        let scratch = Scratch::new();
        let mut alive = scratch.fifo("workspace/alive").lifetime();
        let command = "exec 9> alive; echo begun >&9; sleep 1000 & sleep 1000";
        let script = Script::new().item(call("c1", "legion_bash", &json!({ "command": command })));
        let model = MockModel::start(script).await;
        let opencode = spawn(&scratch, &model);
        alive.began("the command runs").await;
        let began = Instant::now();
        opencode.signal(signal);
        alive.ended("the command is gone").await;
        assert!(began.elapsed() < PROMPT, "after {signal:?}: {:?}", began.elapsed());
    }
}
