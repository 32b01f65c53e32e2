//! OpenCode's other faces: its screen at a terminal, its server, the shell it would start.

use legion_tests::chat_model::{call, say};
use legion_tests::child::Child;
use legion_tests::http1;
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::opencode;
use legion_tests::scratch::Scratch;
use legion_tests::settings::settings;
use legion_tests::terminal::Terminal;
use serde_json::json;

use super::user_of;

/// OpenCode at a terminal.
fn at_terminal(scratch: &Scratch, args: &str) -> Terminal {
    let program = settings().legion_binary("legion-controller").display().to_string();
    let script = format!(
        "cd {} && PATH=~/.opencode/bin:$PATH exec {program} opencode {args}",
        scratch.workspace().display()
    );
    Terminal::spawn(scratch, "/bin/bash", &["-c", &script], 40, 120)
}

/// As its own tools show it.
#[tokio::test]
async fn it_shows_what_a_patch_has_changed() {
    let patch = "*** Begin Patch\n*** Add File: made.txt\n+brand-new-line\n*** Update File: file.txt\n*** Move to: moved.txt\n@@\n-two\n+zwei-line\n*** End Patch\n";
    let script =
        Script::new().item(call("c1", "apply_patch", &json!({ "patchText": patch }))).item(say("4321"));
    let model = MockModel::start(script).await;
    let scratch = user_of(&model);
    scratch.write("workspace/file.txt", "one\ntwo\n");
    let mut terminal = at_terminal(&scratch, "--model mock/gpt-5-mock");
    terminal.shows("Ask anything").await;
    terminal.keys("Patch it.").await;
    terminal.shows("Patch it.").await;
    terminal.keys("\r").await;
    for shown in ["4321", "Created made.txt", "brand-new-line", "moved.txt", "zwei-line"] {
        terminal.shows(shown).await;
    }
    terminal.keys("\u{3}").await;
    terminal.keys("\u{3}").await;
    terminal.finish().await;
}

#[tokio::test]
async fn the_screen_works() {
    let model = MockModel::start(Script::new().item(say("an answer of 1234"))).await;
    let scratch = user_of(&model);
    let mut terminal = at_terminal(&scratch, "");
    let before = terminal.modes();
    terminal.shows("Ask anything").await;
    terminal.keys("Say something.").await;
    terminal.shows("Say something.").await;
    terminal.keys("\r").await;
    terminal.shows("1234").await;
    terminal.keys("\u{3}").await;
    terminal.keys("\u{3}").await;
    let left = terminal.finish().await;
    assert!(left.status.success(), "{left:?}");
    assert_eq!(left.modes, before);
}

/// What bypasses tools sees an empty directory, and starts no shell.
#[tokio::test]
async fn its_server_sees_nothing_of_the_project() {
    let model = MockModel::start(Script::new()).await;
    let scratch = user_of(&model);
    scratch.write("workspace/file.txt", "of-the-project-7501");
    scratch.write("workspace/.env", "KEY=dot-env-7502\n");
    let mut command = opencode::command(&scratch, &["opencode", "serve", "--port", "0"]);
    command.env("OPENCODE_SERVER_PASSWORD", "opener");
    let mut server = Child::spawn("legion-controller opencode serve", command);
    server.until_stdout("it listens", |text| text.contains("listening on http://")).await;
    let said = server.stdout().text();
    let address = said.split("http://").nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    let ask = async |method: &str, target: &str, body: &str| {
        // opencode:opener
        let authorization = "Basic b3BlbmNvZGU6b3BlbmVy";
        http1::ask(&address, method, target, &[("authorization", authorization)], body).await
    };
    let (status, listing) = ask("GET", "/file?path=.", "").await;
    assert_eq!((status, listing.trim()), (200, "[]"));
    for path in ["file.txt", ".env", "../outside/secret"] {
        let (_, content) = ask("GET", &format!("/file/content?path={path}"), "").await;
        assert!(!content.contains("-750"), "{content}");
    }
    let (_, session) = ask("POST", "/session", "{}").await;
    let session: serde_json::Value = serde_json::from_str(&session).unwrap();
    let target = format!("/session/{}/shell", session["id"].as_str().unwrap());
    let body = json!({ "agent": "build", "command": "echo ran; cat file.txt" }).to_string();
    let (_, shell) = ask("POST", &target, &body).await;
    assert!(shell.contains("there is no shell here") && !shell.contains("-750"), "{shell}");
    let without = http1::ask(&address, "GET", "/file?path=.", &[], "").await;
    assert_eq!(without.0, 401, "{without:?}");
    server.stop().await;
    drop(model);
}
