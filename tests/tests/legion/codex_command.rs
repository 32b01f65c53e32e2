//! `legion-controller codex`: the real Codex, started with a private configuration that selects Legion.
//!
//! Invariant: the user's own configuration is what it was, byte for byte; whatever else Codex keeps is where the user
//! expects it; nothing of the run is left.

use std::fs;
use std::path::PathBuf;

use legion_tests::audit::Audit;
use legion_tests::child::{Child, Finished};
use legion_tests::clients::CodexVersion;
use legion_tests::codex::assert_ran;
use legion_tests::legion::{self, Controller};
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::model_items::{apply_patch, exec, say};
use legion_tests::scratch::Scratch;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Exit code when something needed is not there (design.md, after sysexits).
const UNAVAILABLE: i32 = 69;

/// `environments.toml` of a user who had something else.
const OWN_ENVIRONMENTS: &str = "[[environments]]\nid = \"mine\"\nurl = \"ws://127.0.0.1:1\"\n";

/// A user of Codex with a provider of their own.
pub(crate) fn user_of(model: &MockModel) -> Scratch {
    let scratch = Scratch::new();
    let config = format!(
        "# mine\nmodel = \"gpt-5.5\"\nmodel_provider = \"mock\"\n[model_providers.mock]\nname = \"mock\"\nbase_url = {:?}\n\
         wire_api = \"responses\"\nrequires_openai_auth = false\nrequest_max_retries = 0\nstream_max_retries = 0\n",
        model.base_url()
    );
    scratch.write("home/.codex/config.toml", config);
    scratch.write("home/.codex/environments.toml", OWN_ENVIRONMENTS);
    scratch.write("home/.codex/AGENTS.md", "Instructions of my own: 4711.\n");
    scratch
}

pub(crate) fn command(scratch: &Scratch, args: &[&str]) -> Command {
    let program = CodexVersion::V0_171.program();
    let mut command = legion::command(scratch, &["codex"]);
    command
        .args(args)
        .env("PATH", format!("{}:/usr/bin:/bin", program.parent().unwrap().display()))
        .env("TMPDIR", scratch.tmp())
        .current_dir(scratch.workspace());
    command
}

async fn codex(scratch: &Scratch, args: &[&str]) -> Finished {
    Child::spawn("legion-controller codex", command(scratch, args)).finish().await
}

/// The conversations that Codex keeps in the user's own directory.
fn conversations(scratch: &Scratch) -> Vec<PathBuf> {
    fn files(directory: PathBuf, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                files(entry.path(), found);
            } else {
                found.push(entry.path());
            }
        }
    }
    let mut found = Vec::new();
    files(scratch.home().join(".codex/sessions"), &mut found);
    found
}

fn nothing_of_the_run_is_left(scratch: &Scratch) {
    for directory in ["run/legion", "home/.codex"] {
        let found = fs::read_dir(scratch.root().join(directory)).into_iter().flatten();
        let names: Vec<_> = found.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        let left = |name: &String| name.starts_with("sandboxes-") || name.contains("legion");
        assert!(!names.iter().any(left), "{names:?}");
    }
}

#[tokio::test]
async fn commands_go_through_legion_and_the_own_configuration_stays() {
    let patch = "*** Begin Patch\n*** Add File: made.txt\n+made\n*** End Patch\n";
    let script = Script::new()
        .item(exec("c1", "id -u; cat ../outside/secret || echo kept"))
        .item(apply_patch("c2", patch))
        .item(say("remember 815"))
        .item(say("done"));
    let model = MockModel::start(script).await;
    let scratch = user_of(&model);
    scratch.write("outside/secret", "outside-secret-6201");
    let config = scratch.read("home/.codex/config.toml");
    let first = codex(&scratch, &["exec", "--skip-git-repo-check", "Do what the script says."]).await;
    first.assert_success();
    assert_eq!(scratch.read("workspace/made.txt").as_deref(), Some("made\n"));
    // What was said is there the next time, with Legion or without.
    assert_eq!(conversations(&scratch).len(), 1, "{first:#?}");
    nothing_of_the_run_is_left(&scratch);
    codex(&scratch, &["exec", "resume", "--last", "--skip-git-repo-check", "Go on."]).await.assert_success();
    let requests = model.finish();
    let output = requests[1].output_text("c1");
    assert!(output.contains("1000\n") && output.ends_with("kept\n"), "{output}");
    assert!(requests[3].text().contains("remember 815"), "{:#?}", requests[3]);
    assert!(requests[0].text().contains("Instructions of my own: 4711."), "{:#?}", requests[0]);
    assert!(!requests.iter().any(|request| request.text().contains("outside-secret-6201")));
    assert_eq!(scratch.read("home/.codex/config.toml"), config);
    assert_eq!(scratch.read("home/.codex/environments.toml").as_deref(), Some(OWN_ENVIRONMENTS));
    assert_eq!(conversations(&scratch).len(), 1);
    nothing_of_the_run_is_left(&scratch);
    let audit = Audit::read(&scratch);
    assert_eq!(audit.calls("process/start").count(), 1, "{:#?}", audit.lines());
    Audit::verify(&scratch).await;
}

#[tokio::test]
async fn a_running_controller_is_used() {
    let script = Script::new().item(exec("c1", "echo inside")).item(say("done"));
    let model = MockModel::start(script).await;
    let scratch = user_of(&model);
    let controller = Controller::start(&scratch, &[]).await;
    codex(&scratch, &["exec", "--skip-git-repo-check", "Do what the script says."]).await.assert_success();
    assert_ran(&model.finish()[1].output_text("c1"), 0, "inside\n");
    let audit = Audit::read(&scratch);
    assert_eq!(audit.events("controllerStarted").count(), 1, "{:#?}", audit.lines());
    controller.stop().await.assert_success();
}

#[tokio::test]
async fn a_login_is_kept_and_a_logout_too() {
    let model = MockModel::start(Script::new()).await;
    let scratch = user_of(&model);
    let login = async |key: &str| {
        let mut child =
            Child::spawn_with_stdin("codex login", command(&scratch, &["login", "--with-api-key"]));
        child.take_stdin().unwrap().write_all(key.as_bytes()).await.unwrap();
        child.finish().await.assert_success();
        scratch.read("home/.codex/auth.json").unwrap()
    };
    assert!(login("sk-first").await.contains("sk-first"));
    assert!(login("sk-second").await.contains("sk-second"), "a new one takes its place");
    codex(&scratch, &["login", "status"]).await.assert_success();
    codex(&scratch, &["logout"]).await.assert_success();
    assert_eq!(scratch.read("home/.codex/auth.json"), None);
    nothing_of_the_run_is_left(&scratch);
}

#[tokio::test]
async fn exit_codes_and_signals_are_those_of_codex() {
    let waiting = Script::new().item(exec("c1", "echo began > running; sleep 1000")).item(say("done"));
    let model = MockModel::start(waiting).await;
    let scratch = user_of(&model);
    let mut began = scratch.fifo("workspace/running").signals();
    let wrong = codex(&scratch, &["exec", "--no-such-option"]).await;
    assert_eq!(wrong.code(), 2, "{wrong:#?}");
    let mut missing = command(&scratch, &["exec"]);
    missing.env("PATH", "/nowhere");
    let missing = Child::spawn("legion-controller codex", missing).finish().await;
    assert_eq!((missing.code(), missing.stderr.lines().count()), (UNAVAILABLE, 1), "{missing:#?}");
    let running = command(&scratch, &["exec", "--skip-git-repo-check", "Do what the script says."]);
    let child = Child::spawn("legion-controller codex", running);
    assert_eq!(began.next("the command runs").await, "began");
    let finished = child.stop().await;
    assert_ne!(finished.code(), 0, "{finished:#?}");
    let ended = |audit: &Audit| audit.events("sandboxEnded").count() == 1;
    Audit::wait(&scratch, "nothing runs on", ended).await;
    nothing_of_the_run_is_left(&scratch);
}

#[tokio::test]
async fn codex_itself_in_a_sandbox() {
    let look = "cat whole.txt; cat ../outside/secret; ls -A ~ | grep codex; true";
    let model = MockModel::start(Script::new().item(exec("c1", look)).item(say("done"))).await;
    let scratch = user_of(&model);
    scratch.write("workspace/whole.txt", "whole\n");
    scratch.write("outside/secret", "outside-secret-6202");
    let config = scratch.read("home/.codex/config.toml");
    let args = ["--boxed", "exec", "--skip-git-repo-check", "Do what the script says."];
    let finished = codex(&scratch, &args).await;
    finished.assert_success();
    let requests = model.finish();
    let output = requests[1].output_text("c1");
    assert!(output.contains("whole\n") && !output.contains(".codex"), "{output}");
    assert!(!requests.iter().any(|request| request.text().contains("outside-secret-6202")));
    assert_eq!(scratch.read("home/.codex/config.toml"), config);
    assert_eq!(scratch.read("home/.codex/environments.toml").as_deref(), Some(OWN_ENVIRONMENTS));
    assert_eq!(conversations(&scratch).len(), 1, "{finished:#?}");
    assert!(!format!("{finished:?}{requests:?}").contains("lgn1_"), "the token was told");
    nothing_of_the_run_is_left(&scratch);
    let audit = Audit::read(&scratch);
    let personas: Vec<_> = audit.events("sessionStarted").map(|record| record["persona"].clone()).collect();
    assert_eq!(personas, ["codex-exec", "codex-client"]);
    Audit::verify(&scratch).await;
}
