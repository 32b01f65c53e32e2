//! `run --persona opencode`: the real OpenCode wholly inside, with the persona that Legion comes with.
//!
//! Invariant: what it does to the project lasts, its conversations last, and nothing else; no attempt to get at what is
//! hidden succeeds, whatever the exit code of the attempt.

use std::fs;

use legion_tests::audit::Audit;
use legion_tests::chat_model::{call, say};
use legion_tests::child::{Child, Finished, within};
use legion_tests::legion;
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::opencode;
use legion_tests::scratch::Scratch;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Exit code when the configuration is wrong (design.md, after sysexits).
const CONFIGURATION: i32 = 78;

/// A project laid out as the persona wants it.
pub(crate) fn project(model: &MockModel) -> Scratch {
    let scratch = Scratch::new();
    opencode::install(&scratch);
    let mut config = opencode::provider(&model.base_url());
    config["permission"] = json!({ "*": "allow" });
    scratch.write("workspace/config/opencode.json", config.to_string());
    scratch.write("workspace/roles/reviewer.md", "Review.\n");
    scratch.write("workspace/.env", "OPENAI_API_KEY=named-7101\nDATABASE_URL=dot-env-7102\n");
    scratch.make_directory("workspace/logs");
    scratch.write("outside/secret", "outside-7103");
    scratch.make_directory("home/.local/share/opencode");
    scratch
}

async fn inside(scratch: &Scratch, args: &[&str]) -> Finished {
    let args: Vec<_> =
        ["run", "--persona", "opencode", "--", "opencode"].iter().chain(args).copied().collect();
    opencode::run(scratch, &args).await
}

/// Everything that could lift what lies over `.env`, or lead round it.
const UNCOVER: &str = "cat .env; umount .env; umount -l .env; umount /workspace/.env; unshare -Urm umount .env; \
    mount -o remount,rw /roles; mv .env env; rm -f .env; mount --bind / /tmp; cat .env env; grep -r 710[123] / 2>/dev/null \
    --include=.env --include=env --include=secret; cat \"$OUTSIDE\"; cat /proc/1/environ; true";

#[tokio::test]
async fn it_works_on_the_project_and_its_conversations_stay() {
    let work = "pwd; echo made > made.txt; echo log > /logs/x; cat /roles/reviewer.md; \
        for f in /roles/x /config/x roles/x /usr/x; do (echo x > $f) 2>/dev/null && echo \"wrote $f\"; done; true";
    let script = Script::new()
        .item(call("c1", "bash", &json!({ "command": work, "description": "work" })))
        .item(call("c2", "write", &json!({ "filePath": "/workspace/written.txt", "content": "written\n" })))
        .item(say("remember 815"))
        .item(say("done"));
    let model = MockModel::start(script).await;
    let scratch = project(&model);
    inside(&scratch, &["run", "Do what the script says."]).await.assert_success();
    inside(&scratch, &["run", "--continue", "Go on."]).await.assert_success();
    let requests = opencode::steps(model.finish());
    let output = requests[1].output_text("c1");
    assert!(output.starts_with("/workspace\nReview.\n") && !output.contains("wrote"), "{output}");
    assert_eq!(scratch.read("workspace/made.txt").as_deref(), Some("made\n"));
    assert_eq!(scratch.read("workspace/written.txt").as_deref(), Some("written\n"));
    assert_eq!(scratch.read("workspace/logs/x").as_deref(), Some("log\n"));
    assert!(requests[3].text().contains("remember 815"), "{:#?}", requests[3]);
    Audit::verify(&scratch).await;
}

#[tokio::test]
async fn what_is_hidden_stays_hidden() {
    let script = Script::new()
        .item(call("c1", "bash", &json!({ "command": UNCOVER, "description": "look" })))
        .item(call("c2", "read", &json!({ "filePath": "/workspace/.env" })))
        .item(say("done"));
    let model = MockModel::start(script).await;
    let scratch = project(&model);
    let outside = scratch.outside().join("secret").display().to_string();
    let variable = format!("OUTSIDE={outside}");
    let args = ["run", "--persona", "opencode", "--", "env", &variable, "opencode", "run", "Do it."];
    opencode::run(&scratch, &args).await.assert_success();
    let requests = opencode::steps(model.finish());
    // The attempts were made.
    assert!(requests[1].output_text("c1").contains("umount"), "{:#?}", requests[1]);
    for request in &requests {
        for secret in ["dot-env-7102", "outside-7103"] {
            assert!(!request.text().contains(secret), "{request:#?}");
        }
    }
    let env = scratch.read("workspace/.env").unwrap();
    assert!(env.contains("dot-env-7102"), "it is what it was: {env}");
}

#[tokio::test]
async fn without_a_place_for_its_conversations_it_says_what_to_do() {
    let model = MockModel::start(Script::new()).await;
    let scratch = project(&model);
    fs::remove_dir(scratch.home().join(".local/share/opencode")).unwrap();
    let finished = inside(&scratch, &["run", "Do it."]).await;
    assert_eq!((finished.code(), finished.stderr.lines().count()), (CONFIGURATION, 1), "{finished:#?}");
    assert!(
        finished.stderr.contains(".local/share/opencode") && finished.stderr.contains("make it"),
        "{finished:#?}"
    );
}

/// `opencode serve` inside; gives where it listens.
async fn serving(scratch: &Scratch, persona: &str) -> (Child, String) {
    let args = ["run", "--persona", persona, "--", "opencode", "serve", "--port", "0"];
    let mut server = Child::spawn("opencode serve", opencode::command(scratch, &args));
    server.until_stdout("it listens", |text| text.contains("listening on http://")).await;
    let said = server.stdout().text();
    let address = said.split("http://").nth(1).unwrap().split_whitespace().next().unwrap();
    (server, address.to_owned())
}

/// OpenCode outside that only shows what the one inside does.
async fn attached(scratch: &Scratch, address: &str, password: &str) -> Finished {
    let url = format!("http://{address}");
    let args = ["run", "--attach", &url, "--dir", "/workspace", "-p", password, "Do what the script says."];
    let mut command = opencode::plain(scratch, &args);
    command.current_dir(scratch.outside()).env("HOME", scratch.root().join("another-home"));
    Child::spawn("opencode run --attach", command).finish().await
}

#[tokio::test]
async fn it_serves_from_inside_to_an_opencode_outside() {
    let (worked, has_worked) = oneshot::channel();
    let script = Script::new()
        .item(call(
            "c1",
            "bash",
            &json!({ "command": "pwd; cat .env; echo made > made.txt", "description": "work" }),
        ))
        .answer(move |_| async move {
            worked.send(()).unwrap();
            vec![say("done")]
        });
    let model = MockModel::start(script).await;
    let scratch = project(&model);
    scratch.make_directory("another-home");
    scratch.write("workspace/.env", "OPENCODE_SERVER_PASSWORD=opener-7104\nDATABASE_URL=dot-env-7102\n");
    let (server, address) = serving(&scratch, "opencode").await;
    let stranger = attached(&scratch, &address, "guessed").await;
    assert!(!stranger.status.success(), "{stranger:#?}");
    let finished = attached(&scratch, &address, "opener-7104").await;
    finished.assert_success();
    // This version leaves before it has shown everything, with or without Legion; where it is attached the work goes on.
    within("the model has seen what was done", has_worked).await.unwrap();
    let requests = opencode::steps(model.finish());
    let output = requests[1].output_text("c1");
    assert!(output.starts_with("/workspace\n") && !output.contains("710"), "{output}");
    assert_eq!(scratch.read("workspace/made.txt").as_deref(), Some("made\n"));
    assert!(fs::read_dir(scratch.outside()).unwrap().count() == 1, "nothing was done outside");
    server.stop().await;
    assert!(TcpStream::connect(&address).await.is_err(), "it ends with its sandbox");
}

/// A sandbox without a network has a loopback of its own.
#[tokio::test]
async fn without_the_hosts_network_nobody_outside_reaches_it() {
    let model = MockModel::start(Script::new()).await;
    let scratch = project(&model);
    legion::configure(&scratch, "[persona.shut]\nextends = \"opencode\"\nnetwork = \"none\"\n");
    let (server, address) = serving(&scratch, "shut").await;
    assert!(TcpStream::connect(&address).await.is_err());
    server.stop().await;
}
