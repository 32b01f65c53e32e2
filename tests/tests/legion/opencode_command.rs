//! `legion-controller opencode`: the real OpenCode in a sandbox of its own, its tools in the session's.
//!
//! Invariant: whatever the model does happens in the project's sandbox and is on record once; OpenCode itself sees nothing
//! of the project.

mod closed;
mod hostile;
mod lifetime;
mod screen;

use legion_tests::audit::Audit;
use legion_tests::chat_model::{call, offered, say};
use legion_tests::child::{Child, Finished};
use legion_tests::legion::Controller;
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::opencode;
use legion_tests::scratch::Scratch;
use serde_json::{Value, json};

/// What a model is offered, and nothing else: Legion's tools and what of OpenCode's own does nothing by itself.
const TOOLS: [&str; 8] = ["bash", "edit", "glob", "grep", "read", "task", "todowrite", "write"];

/// The same for models that patch.
const TOOLS_OF_GPT: [&str; 7] = ["apply_patch", "bash", "glob", "grep", "read", "task", "todowrite"];

/// A user of OpenCode with a provider of their own.
pub(crate) fn user_of(model: &MockModel) -> Scratch {
    let scratch = Scratch::new();
    opencode::install(&scratch);
    scratch.write("config/opencode/opencode.json", opencode::provider(&model.base_url()).to_string());
    scratch
}

async fn run(scratch: &Scratch, args: &[&str]) -> Finished {
    let args: Vec<_> = ["opencode", "run"].iter().chain(args).copied().collect();
    opencode::run(scratch, &args).await
}

fn bash(id: &str, command: &str) -> Value {
    call(id, "bash", &json!({ "command": command, "description": "a step" }))
}

/// The calls that went through the session of the tools, by method.
fn calls_of_the_model<'a>(audit: &'a Audit, method: &'a str) -> Vec<&'a Value> {
    let tools = audit.events("sessionStarted").find(|record| record["persona"] == "default").unwrap();
    audit.calls(method).filter(|call| call["session"] == tools["session"]).collect()
}

#[tokio::test]
async fn every_tool_acts_on_the_project() {
    let script = Script::new()
        .item(bash("c1", "pwd; id -u; cat .env; cat ../outside/secret; env; ls ~ /run; exit 3"))
        .item(call("c2", "read", &json!({ "filePath": "file.txt" })))
        .item(call("c3", "edit", &json!({ "filePath": "file.txt", "oldString": "two", "newString": "2" })))
        .item(call("c4", "write", &json!({ "filePath": "new.txt", "content": "new\n" })))
        .item(call("c5", "glob", &json!({ "pattern": "**/*.txt" })))
        .item(call("c6", "grep", &json!({ "pattern": "^2$" })))
        .item(call("c7", "read", &json!({ "filePath": ".env" })))
        .item(say("done"));
    let model = MockModel::start(script).await;
    let scratch = user_of(&model);
    scratch.write("workspace/file.txt", "one\ntwo\n");
    scratch.write("workspace/.env", "KEY=dot-env-7201\n");
    scratch.write("workspace/AGENTS.md", "Instructions of the project: 4711.\n");
    scratch.write("outside/secret", "outside-7202");
    let mut command = opencode::command(&scratch, &["opencode", "run", "Do what the script says."]);
    command.env("OPENAI_API_KEY", "own-key-7203");
    let finished = Child::spawn("legion-controller opencode", command).finish().await;
    finished.assert_success();
    assert!(finished.stdout.contains("done"), "{finished:#?}");
    // Its screen shows what an edit has changed, as with its own tool.
    assert!(finished.stderr.contains("-two") && finished.stderr.contains("+2"), "{finished:#?}");
    let requests = opencode::steps(model.finish());
    for request in &requests {
        assert_eq!(offered(&request.body), TOOLS);
        for secret in ["dot-env-7201", "outside-7202", "own-key-7203", "provider-key-7001", "LEGION_TOOLS"] {
            assert!(!request.text().contains(secret), "{secret} in {request:#?}");
        }
    }
    assert!(requests[0].text().contains("Instructions of the project: 4711."), "{:#?}", requests[0]);
    let output = |id: &str| requests.last().unwrap().output_text(id);
    let first = output("c1");
    assert!(first.starts_with(&format!("{}\n1000\n", scratch.workspace().display())), "{first}");
    assert!(first.ends_with("[exit code 3]"), "{first}");
    assert!(output("c2").contains("1: one\n2: two\n"), "{}", output("c2"));
    assert_eq!(scratch.read("workspace/file.txt").as_deref(), Some("one\n2\n"));
    assert_eq!(scratch.read("workspace/new.txt").as_deref(), Some("new\n"));
    assert!(output("c5").contains("new.txt") && output("c5").contains("file.txt"), "{}", output("c5"));
    assert!(output("c6").contains("file.txt"), "{}", output("c6"));
    let audit = Audit::read(&scratch);
    let commands = calls_of_the_model(&audit, "process/start");
    let of_bash: Vec<_> =
        commands.iter().filter(|call| call.to_string().contains("outside/secret")).collect();
    assert_eq!(of_bash.len(), 1, "{:#?}", audit.lines());
    assert_eq!(of_bash[0]["object"]["toolCallId"], "c1", "the id that the model gave the call");
    assert!(commands.iter().all(|call| call["actor"]["client"] == "opencode"), "{commands:#?}");
    for (path, method) in [("file.txt", "fs/writeFile"), ("new.txt", "fs/writeFile")] {
        let of_path = calls_of_the_model(&audit, method);
        let of_path = of_path.iter().filter(|call| call["object"].to_string().contains(path));
        assert_eq!(of_path.count(), 1, "{path}: {:#?}", audit.lines());
    }
    Audit::verify(&scratch).await;
}

#[tokio::test]
async fn models_that_patch_are_given_apply_patch() {
    let patch = "*** Begin Patch\n*** Add File: made.txt\n+made\n*** Update File: file.txt\n@@\n-two\n+2\n*** End Patch\n";
    let script = Script::new()
        .item(call("c1", "apply_patch", &json!({ "patchText": patch })))
        .item(bash("c2", "cat file.txt"))
        .item(say("done"));
    let model = MockModel::start(script).await;
    let scratch = user_of(&model);
    scratch.write("workspace/file.txt", "one\ntwo\n");
    run(&scratch, &["--model", "mock/gpt-5-mock", "Do what the script says."]).await.assert_success();
    let requests = opencode::steps(model.finish());
    assert_eq!(offered(&requests[0].body), TOOLS_OF_GPT);
    assert_eq!(requests[2].output_text("c2"), "one\n2\n[exit code 0]");
    assert_eq!(scratch.read("workspace/made.txt").as_deref(), Some("made\n"));
}

#[tokio::test]
async fn subagents_have_the_same_tools() {
    let task = json!({ "description": "a part", "prompt": "Do your part.", "subagent_type": "general" });
    let script = Script::new()
        .item(call("t1", "task", &task))
        .item(bash("c1", "id -u; echo part > part.txt"))
        .item(say("the part is done"))
        .item(say("done"));
    let model = MockModel::start(script).await;
    let scratch = user_of(&model);
    run(&scratch, &["Do what the script says."]).await.assert_success();
    let requests = opencode::steps(model.finish());
    let of_subagent = offered(&requests[1].body);
    assert!(of_subagent.iter().all(|name| TOOLS.contains(&name.as_str())), "{of_subagent:?}");
    assert_eq!(requests[2].output_text("c1"), "1000\n[exit code 0]");
    assert!(requests[3].output_text("t1").contains("the part is done"), "{:#?}", requests[3]);
    assert_eq!(scratch.read("workspace/part.txt").as_deref(), Some("part\n"));
    let audit = Audit::read(&scratch);
    assert_eq!(calls_of_the_model(&audit, "process/start").len(), 1, "{:#?}", audit.lines());
}

#[tokio::test]
async fn the_agent_that_plans_cannot_edit() {
    let model = MockModel::start(Script::new().item(say("a plan"))).await;
    let scratch = user_of(&model);
    run(&scratch, &["--agent", "plan", "Make a plan."]).await.assert_success();
    let requests = opencode::steps(model.finish());
    let tools = offered(&requests[0].body);
    assert!(tools.contains(&"read".to_owned()), "{tools:?}");
    assert!(!tools.iter().any(|name| ["edit", "write", "apply_patch"].contains(&name.as_str())), "{tools:?}");
}

#[tokio::test]
async fn models_and_keys_of_the_own_configuration_are_used_and_nothing_else_of_it() {
    let model = MockModel::start(Script::new().item(say("done"))).await;
    let scratch = user_of(&model);
    let mut config = opencode::provider(&model.base_url());
    config["provider"]["mock"]["options"]["apiKey"] = json!("{env:KEY_OF_MINE}");
    config["provider"]["mock"]["options"]["headers"] = json!({ "x-file": "{file:./key}" });
    config["mcp"] =
        json!({ "mine": { "type": "local", "command": ["touch", scratch.outside().join("mcp")] } });
    config["permission"] = json!({ "*": "allow" });
    scratch.write("config/opencode/key", "from-a-file-7301\n");
    scratch.write("config/opencode/opencode.json", format!("// mine\n{config},\n").replace("},\n", "}\n"));
    scratch.write("config/opencode/opencode.jsonc", "{ \"username\": \"me\", /* more */ }");
    scratch.write("config/opencode/plugin/own.js", "export const Own = async () => ({})\n");
    let mut command = opencode::command(&scratch, &["opencode", "run", "Say done."]);
    command.env("KEY_OF_MINE", "from-the-environment-7302");
    let finished = Child::spawn("legion-controller opencode", command).finish().await;
    finished.assert_success();
    assert!(
        finished.stderr.lines().any(|line| line.contains("mcp") && line.contains("not used")),
        "{finished:#?}"
    );
    let requests = opencode::steps(model.finish());
    assert_eq!(offered(&requests[0].body), TOOLS);
    let headers = &requests[0].headers;
    let header =
        |name: &str| headers.iter().find(|(found, _)| found == name).map(|(_, value)| value.as_str());
    assert_eq!(header("authorization"), Some("Bearer from-the-environment-7302"), "{headers:?}");
    assert_eq!(header("x-file"), Some("from-a-file-7301"), "{headers:?}");
    assert!(!scratch.outside().join("mcp").exists());
    let log = Audit::read(&scratch).lines().join("\n");
    assert!(!log.contains("-7301") && !log.contains("-7302"), "{log}");
}

#[tokio::test]
async fn conversations_stay_and_a_running_controller_is_used() {
    let script = Script::new().item(bash("c1", "echo inside")).item(say("remember 815")).item(say("done"));
    let model = MockModel::start(script).await;
    let scratch = user_of(&model);
    let controller = Controller::start(&scratch, &[]).await;
    run(&scratch, &["Do what the script says."]).await.assert_success();
    run(&scratch, &["--continue", "Go on."]).await.assert_success();
    let requests = opencode::steps(model.finish());
    assert_eq!(requests[1].output_text("c1"), "inside\n[exit code 0]");
    assert!(requests[2].text().contains("remember 815"), "{:#?}", requests[2]);
    let audit = Audit::read(&scratch);
    let personas: Vec<_> = audit.events("sessionStarted").map(|record| &record["persona"]).collect();
    assert_eq!(personas, ["default", "default", "opencode-client", "default", "opencode-client"]);
    controller.stop().await.assert_success();
}

#[tokio::test]
async fn arguments_and_exit_codes_are_those_of_opencode() {
    let model = MockModel::start(Script::new()).await;
    let scratch = user_of(&model);
    let version = opencode::run(&scratch, &["opencode", "--version"]).await;
    assert_eq!((version.code(), version.stdout.trim()), (0, "1.18.33"), "{version:#?}");
    let models = opencode::run(&scratch, &["opencode", "models", "mock"]).await;
    assert_eq!((models.code(), models.stdout.contains("mock/gpt-5-mock")), (0, true), "{models:#?}");
    let wrong = opencode::run(&scratch, &["opencode", "run", "--no-such-option"]).await;
    assert_eq!(wrong.code(), 1, "{wrong:#?}");
    let mut missing = opencode::command(&scratch, &["opencode"]);
    missing.env("PATH", "/usr/bin:/bin");
    let missing = Child::spawn("legion-controller opencode", missing).finish().await;
    assert_eq!((missing.code(), missing.stderr.lines().count()), (69, 1), "{missing:#?}");
}
