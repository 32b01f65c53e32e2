//! Questions to a person: the call waits, the others go on, and only an answer in time lets it pass.
//!
//! Invariant: the real Codex waits and goes on by itself.

mod scopes;
mod terminals;
mod watching;
mod withdrawn;

use legion_tests::audit::Audit;
use legion_tests::child::{Child, Finished};
use legion_tests::codex::{Codex, assert_ran};
use legion_tests::legion::{self, Controller};
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::model_items::{apply_patch, exec, say};
use legion_tests::scratch::Scratch;
use legion_tests::settings::settings;
use legion_tests::terminal::Terminal;
use legion_tests::ws_client::{Endpoint, Upgrade, WsClient};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::played::Played;

/// Exit codes (design.md, after sysexits).
const USAGE: i32 = 64;
const REFUSED: i32 = 77;

/// What the protocol calls a refused call.
const REFUSED_CODE: i64 = -32077;

const RULES: &str = r#"
[persona.default]
ask_timeout = "10m"
[[persona.default.rule]]
id = "ask-touch"
command = ["touch"]
decision = "ask"
message = "it makes a file"
[[persona.default.rule]]
id = "ask-docs"
path = "docs/**"
op = "write"
decision = "ask"
"#;

/// The next question that `approvals watch --json` tells of.
struct Watch(Child, usize);

impl Watch {
    fn start(scratch: &Scratch) -> Self {
        Self(Child::spawn("approvals watch", legion::command(scratch, &["approvals", "watch", "--json"])), 0)
    }

    async fn next(&mut self) -> Value {
        let seen = self.1;
        self.0.until_stdout("a question", |text| text.lines().count() > seen).await;
        self.1 += 1;
        let text = self.0.stdout().text();
        serde_json::from_str(text.lines().nth(seen).unwrap()).unwrap()
    }
}

/// A controller, a client of its session, and somebody who sees what is asked.
struct Scene {
    scratch: Scratch,
    controller: Controller,
    watch: Watch,
    started: u32,
}

impl Scene {
    async fn new() -> Self {
        let scratch = Scratch::new();
        legion::configure(&scratch, RULES);
        let controller = Controller::start(&scratch, &[]).await;
        let watch = Watch::start(&scratch);
        Self { scratch, controller, watch, started: 0 }
    }

    async fn client(&self, token: &str) -> WsClient {
        let upgrade = Upgrade::new(Endpoint::of_url(&self.controller.ready.url)).token(token);
        let mut client = upgrade.connect().await.unwrap();
        client.initialize(None).await.unwrap();
        client
    }

    /// Parameters that start `touch FILE` in the workspace.
    fn touch(&mut self, file: &str) -> Value {
        self.started += 1;
        json!({
            "processId": format!("p{}", self.started), "argv": ["touch", file], "env": { "PATH": "/usr/bin:/bin" },
            "cwd": format!("file://{}", self.scratch.workspace().display()), "tty": false,
        })
    }

    /// Asks for `touch FILE`, without waiting for what becomes of it.
    async fn post(&mut self, client: &mut WsClient, file: &str) -> Value {
        let params = self.touch(file);
        client
            .send_json(&json!({ "id": params["processId"], "method": "process/start", "params": params }))
            .await;
        params["processId"].clone()
    }

    /// The questions that wait.
    async fn waiting(&self) -> Vec<Value> {
        let listed = answer(&self.scratch, &["list", "--json"]).await;
        listed.assert_success();
        listed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// The answer to the request of this id.
async fn answered(client: &mut WsClient, id: &Value) -> Result<Value, Value> {
    loop {
        let mut message = client.notification().await.expect("an answer");
        if message["id"] == *id {
            let error = message["error"].take();
            return if error.is_null() { Ok(message["result"].take()) } else { Err(error) };
        }
    }
}

async fn answer(scratch: &Scratch, words: &[&str]) -> Finished {
    legion::run(scratch, &[&["approvals"], words].concat()).await
}

async fn codex(scratch: &Scratch, script: Script) -> (Child, MockModel) {
    let model = MockModel::start(script).await;
    let codex = Codex::new(scratch).spawn(&legion::connect(scratch), &model);
    (codex, model)
}

#[tokio::test]
async fn codex_waits_and_goes_on_after_an_approval() {
    let scratch = Scratch::new();
    legion::configure(&scratch, RULES);
    let mut watch = Watch::start(&scratch);
    let patch = "*** Begin Patch\n*** Add File: docs/a.md\n+text\n*** End Patch\n";
    let script = Script::new()
        .item(exec("c1", "touch made && echo made"))
        .item(apply_patch("c2", patch))
        .item(say("done"));
    let (codex, model) = codex(&scratch, script).await;
    let question = watch.next().await;
    assert_eq!((&question["rule"], &question["why"]), (&"ask-touch".into(), &"it makes a file".into()));
    assert!(question["call"].as_str().unwrap().contains("touch made && echo made"), "{question}");
    assert_eq!(scratch.read("workspace/made"), None, "nothing has happened yet");
    answer(&scratch, &["approve", question["id"].as_str().unwrap()]).await.assert_success();
    let question = watch.next().await;
    assert_eq!(question["rule"], "ask-docs", "{question}");
    answer(&scratch, &["approve", "--session", question["id"].as_str().unwrap()]).await.assert_success();
    codex.finish().await.assert_success();
    let played = Played::of(model);
    assert_ran(&played.output("c1"), 0, "made\n");
    assert!(played.output("c2").contains("Success"), "{}", played.output("c2"));
    assert_eq!(scratch.read("workspace/docs/a.md").as_deref(), Some("text\n"));

    let audit = Audit::read(&scratch);
    let calls: Vec<_> = audit.calls("process/start").map(|call| call["decision"].clone()).collect();
    assert_eq!(calls, ["ask", "allow"]);
    let approval = audit.events("approval").next().unwrap();
    assert_eq!((&approval["decision"], &approval["reason"]), (&"allow".into(), &"approved once".into()));
    // From the question to the end, and back.
    let calls: Vec<_> = audit.calls("process/start").collect();
    assert_eq!(calls[1]["asked"], calls[0]["seq"]);
    let end = audit.outcome(calls[1]).unwrap();
    for from in [calls[0], approval, calls[1], end] {
        let shown = legion::run(&scratch, &["audit", "show", "--json", &from["seq"].to_string()]).await;
        for record in [calls[0], approval, calls[1], end] {
            let line = format!("{{\"seq\":{},", record["seq"]);
            assert!(shown.stdout.contains(&line), "{line} from {from}: {shown:#?}");
        }
    }
    watch.0.stop().await;
}

#[tokio::test]
async fn codex_is_told_of_a_denial_and_of_silence() {
    let scratch = Scratch::new();
    legion::configure(&scratch, &RULES.replace("10m", "2s"));
    let mut watch = Watch::start(&scratch);
    let script = Script::new().item(exec("c1", "touch a")).item(exec("c2", "touch b")).item(say("done"));
    let (codex, model) = codex(&scratch, script).await;
    let question = watch.next().await;
    answer(&scratch, &["deny", question["id"].as_str().unwrap()]).await.assert_success();
    watch.next().await;
    codex.finish().await.assert_success();
    let played = Played::of(model);
    let denied = played.output("c1");
    assert!(denied.contains("did not approve") && denied.contains("it makes a file"), "{denied}");
    assert!(played.output("c2").contains("no answer in time"), "{}", played.output("c2"));
    assert_eq!((scratch.read("workspace/a"), scratch.read("workspace/b")), (None, None));
    let audit = Audit::read(&scratch);
    let said: Vec<_> = audit.events("approval").map(|record| record["reason"].clone()).collect();
    assert_eq!(said, ["denied", "no answer in time"]);
    watch.0.stop().await;
}

#[tokio::test]
async fn an_approval_for_good_is_bound_to_every_byte() {
    let scratch = Scratch::new();
    legion::configure(&scratch, RULES);
    let workspace = scratch.workspace().display().to_string();
    let exec = |file: &'static str| {
        let mut command =
            legion::command(&scratch, &["exec", "--workspace", &workspace, "--", "touch", file]);
        // No controlling terminal: nobody is asked there.
        command.process_group(0);
        Child::spawn("exec", command)
    };
    let mut watch = Watch::start(&scratch);
    let first = exec("kept");
    let question = watch.next().await;
    answer(&scratch, &["approve", "--workspace", question["id"].as_str().unwrap()]).await.assert_success();
    first.finish().await.assert_success();
    // The same call passes, in another session of another controller; another byte does not.
    exec("kept").finish().await.assert_success();
    let other = exec("keptx");
    let question = watch.next().await;
    assert!(question["call"].as_str().unwrap().ends_with("keptx"));
    answer(&scratch, &["deny", question["id"].as_str().unwrap()]).await.assert_success();
    let refused = other.finish().await;
    assert_eq!(refused.code(), REFUSED, "{refused:#?}");
    assert!(scratch.read("state/legion/approvals.json").unwrap().contains("kept"));
    watch.0.stop().await;
}

#[tokio::test]
async fn other_calls_go_on_while_one_waits() {
    let scratch = Scratch::new();
    legion::configure(&scratch, RULES);
    let controller = Controller::start(&scratch, &[]).await;
    let script = Script::new()
        .items(vec![exec("c1", "touch waits"), exec("c2", "echo at once > second")])
        .item(say("done"));
    let model = MockModel::start(script).await;
    let codex = Codex::new(&scratch).spawn(&controller.reach(), &model);
    let mut watch = Watch::start(&scratch);
    let question = watch.next().await;
    Audit::wait(&scratch, "the second command has ended", |audit| {
        audit.events("outcome").any(|outcome| outcome["outcome"]["exitCode"] == 0)
    })
    .await;
    assert_eq!(scratch.read("workspace/second").as_deref(), Some("at once\n"));
    assert_eq!(scratch.read("workspace/waits"), None);
    let listed = answer(&scratch, &["list"]).await;
    assert!(listed.stdout.contains("ask-touch"), "{listed:#?}");
    answer(&scratch, &["approve", question["id"].as_str().unwrap()]).await.assert_success();
    codex.finish().await.assert_success();
    assert_eq!(scratch.read("workspace/waits").as_deref(), Some(""));
    watch.0.stop().await;
    controller.stop().await.assert_success();
}

#[tokio::test]
async fn a_question_is_answered_at_the_terminal_that_runs_the_command() {
    let scratch = Scratch::new();
    legion::configure(&scratch, RULES);
    let workspace = scratch.workspace().display().to_string();
    let program = settings().legion_binary("legion-controller").display().to_string();
    for (key, made) in [("o\r", Some("")), ("n\r", None)] {
        let name = if made.is_some() { "yes" } else { "no" };
        let args = ["exec", "--workspace", &workspace, "--", "touch", name];
        let mut terminal = Terminal::spawn(&scratch, &program, &args, 24, 80);
        terminal.shows("[n]o?").await;
        terminal.keys(key).await;
        let left = terminal.finish().await;
        assert_eq!(left.status.code(), Some(if made.is_some() { 0 } else { REFUSED }), "{left:?}");
        assert_eq!(scratch.read(format!("workspace/{name}")).as_deref(), made, "{left:?}");
    }
}

#[tokio::test]
async fn the_agent_cannot_answer_its_own_question() {
    let scratch = Scratch::new();
    legion::configure(&scratch, RULES);
    let workspace = scratch.workspace().display().to_string();
    let binary = settings().legion_binary("legion-controller");
    std::fs::copy(&binary, scratch.workspace().join("legion-controller")).unwrap();
    let state = scratch.root().join("state").display().to_string();
    let script = format!(
        "XDG_STATE_HOME={state} ./legion-controller approvals list; ls -A {state} {state}/legion/run"
    );
    let inside = legion::run(&scratch, &["exec", "--workspace", &workspace, "--", "sh", "-c", &script]).await;
    assert!(!inside.stdout.contains("control.sock") && !inside.stdout.contains("sandboxes-"), "{inside:#?}");
    let unknown = answer(&scratch, &["approve", "abcdefgh-1"]).await;
    assert_eq!(unknown.code(), USAGE, "{unknown:#?}");
    let mixed = answer(&scratch, &["approve", "x", "--session", "--workspace"]).await;
    assert_eq!(mixed.code(), USAGE, "{mixed:#?}");
}

#[tokio::test]
async fn a_desktop_is_told_without_secrets() {
    let scratch = Scratch::new();
    scratch.write("home/.env", "TOKEN=hunter2hunter2\n");
    legion::configure(&scratch, &format!("[controller]\nenv_file = \"~/.env\"\n{RULES}"));
    let told = scratch.fifo("told");
    let program =
        scratch.write("bin/notify-send", format!("#!/bin/sh\necho $* > {}\n", told.path().display()));
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut told = told.signals();
    let workspace = scratch.workspace().display().to_string();
    let args = ["exec", "--workspace", &workspace, "--", "touch", "hunter2hunter2"];
    let mut command = legion::command(&scratch, &args);
    let path = format!("{}:/usr/bin:/bin", scratch.root().join("bin").display());
    command.env("DISPLAY", ":0").env("PATH", path);
    let exec = Child::spawn("exec", command);
    let mut watch = Watch::start(&scratch);
    let question = watch.next().await;
    let text = told.next("a notification").await;
    assert!(text.contains("touch <redacted:TOKEN>") || text.contains("&lt;redacted:TOKEN&gt;"), "{text}");
    assert!(!text.contains("hunter2") && !question.to_string().contains("hunter2"));
    answer(&scratch, &["deny", question["id"].as_str().unwrap()]).await.assert_success();
    exec.finish().await;
    watch.0.stop().await;
}

/// Without an answer there is nothing to interrupt but the question.
#[tokio::test]
async fn whoever_asks_can_take_it_back() {
    let scratch = Scratch::new();
    legion::configure(&scratch, RULES);
    let workspace = scratch.workspace().display().to_string();
    let args = ["exec", "--workspace", &workspace, "--", "touch", "made"];
    // There is a log to watch.
    legion::run(&scratch, &["exec", "--workspace", &workspace, "--", "true"]).await.assert_success();
    let child = Child::spawn("exec", legion::command(&scratch, &args));
    Audit::wait(&scratch, "the question", |audit| {
        audit.events("call").any(|record| record["decision"] == "ask")
    })
    .await;
    child.signal(Signal::INT);
    let finished = child.finish().await;
    assert_eq!(finished.code(), 128 + 2, "{finished:#?}");
    assert!(!scratch.workspace().join("made").exists());
}
