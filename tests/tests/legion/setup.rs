//! `setup codex`, `token issue`, listings, completions: what people and scripts set Legion up with.
//!
//! Invariant: a token is printed only when asked for, to the one who asks, and stored only in private files.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use legion_tests::child::{Child, Finished};
use legion_tests::codex::{Codex, assert_ran};
use legion_tests::legion::{self, Controller};
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::model_items::{exec, say};
use legion_tests::scratch::Scratch;
use legion_tests::settings::settings;
use legion_tests::ws_client::{Endpoint, Upgrade};
use serde_json::{Value, json};

use crate::played::Played;

/// Exit codes of the command line (design.md, after sysexits).
const USAGE: i32 = 64;
const UNAVAILABLE: i32 = 69;
const CONFIGURATION: i32 = 78;

/// `setup codex` with Codex's directory where the harness has it.
async fn setup(scratch: &Scratch, args: &[&str]) -> Finished {
    let mut command = legion::command(scratch, &["setup", "codex"]);
    command.args(args).env("CODEX_HOME", scratch.root().join("codex"));
    Child::spawn("legion-controller setup", command).finish().await
}

fn written(scratch: &Scratch) -> Option<String> {
    scratch.read("codex/environments.toml")
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The real Codex runs a command with what `setup` has written, and nothing else.
async fn codex_works(scratch: &Scratch) {
    let model = MockModel::start(Script::new().item(exec("c1", "pwd; id -u")).item(say("done"))).await;
    Codex::new(scratch).as_set_up(&model).finish().await.assert_success();
    let output = Played::of(model).output("c1");
    // Inside, everybody has this number.
    assert_ran(&output, 0, &format!("{}\n1000\n", scratch.workspace().display()));
}

#[tokio::test]
async fn codex_starts_legion_by_itself() {
    let scratch = Scratch::new();
    let finished = setup(&scratch, &[]).await;
    finished.assert_success();
    let file = scratch.root().join("codex/environments.toml");
    assert!(finished.stdout.contains(file.to_str().unwrap()), "{finished:#?}");
    assert_eq!(mode(&file), 0o600);
    let program = json!(settings().legion_binary("legion-controller").canonicalize().unwrap());
    let text = written(&scratch).unwrap();
    for line in ["include_local = false", &format!("program = {program}"), "args = [\"connect\"]"] {
        assert!(text.lines().any(|found| found == line), "no {line} in {text}");
    }
    codex_works(&scratch).await;
    // Once more changes nothing.
    setup(&scratch, &[]).await.assert_success();
    assert_eq!(written(&scratch).unwrap(), text);
    let left: Vec<_> =
        fs::read_dir(file.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.iter().all(|path| !path.to_string_lossy().contains(".new")), "{left:?}");
}

#[tokio::test]
async fn printing_writes_nothing_and_is_what_would_be_written() {
    let scratch = Scratch::new();
    let printed =
        setup(&scratch, &["--print", "--persona", "it's \"odd\"", "--workspace", "rel", "--ttl", "30m"])
            .await;
    printed.assert_success();
    assert_eq!(written(&scratch), None);
    let workspace = scratch.home().join("rel").display().to_string();
    // Codex starts the program elsewhere.
    assert!(printed.stdout.contains(&workspace), "{printed:#?}");
    setup(&scratch, &["--persona", "it's \"odd\"", "--workspace", "rel", "--ttl", "30m"])
        .await
        .assert_success();
    assert_eq!(written(&scratch).unwrap(), printed.stdout);
}

#[tokio::test]
async fn a_file_of_somebody_else_is_kept() {
    let scratch = Scratch::new();
    let own = "[[environments]]\nid = \"mine\"\nurl = \"ws://127.0.0.1:1\"\n";
    scratch.write("codex/environments.toml", own);
    for args in [&[][..], &["--url"]] {
        let finished = setup(&scratch, args).await;
        assert_eq!((finished.code(), finished.stdout.as_str()), (CONFIGURATION, ""), "{finished:#?}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:#?}");
        assert!(finished.stderr.contains("--print"), "{finished:#?}");
        assert_eq!(written(&scratch).unwrap(), own);
    }
    // What is to be added by hand can still be seen.
    setup(&scratch, &["--print"]).await.assert_success();
}

#[tokio::test]
async fn codex_uses_the_url_of_the_running_controller() {
    let scratch = Scratch::new();
    let without = setup(&scratch, &["--url"]).await;
    assert_eq!(without.code(), UNAVAILABLE, "{without:#?}");
    assert!(without.stderr.contains("legion-controller start"), "{without:#?}");
    assert_eq!(written(&scratch), None);

    let controller = Controller::start(&scratch, &[]).await;
    let workspace = scratch.workspace().display().to_string();
    let finished = setup(&scratch, &["--url", "--workspace", &workspace]).await;
    finished.assert_success();
    let text = written(&scratch).unwrap();
    let token = text.split('"').find(|part| part.starts_with("lgn1_")).unwrap();
    assert_ne!(token, controller.token, "a session of its own");
    assert!(!finished.stdout.contains(token) && !finished.stderr.contains("lgn1_"), "{finished:#?}");
    assert_eq!(mode(&scratch.root().join("codex/environments.toml")), 0o600);
    codex_works(&scratch).await;
    controller.stop().await.assert_success();
}

#[tokio::test]
async fn a_token_in_a_new_private_file() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let workspace = scratch.workspace().display().to_string();
    let file = scratch.home().join("my-token");
    let args = ["token", "issue", "--workspace", &workspace, "--token-file", "my-token"];
    let finished = legion::run(&scratch, &args).await;
    finished.assert_success();
    let token = fs::read_to_string(&file).unwrap();
    assert_eq!((mode(&file), token.lines().count()), (0o600, 1));
    assert!(
        finished.stdout.contains(file.to_str().unwrap()) && !finished.stdout.contains("lgn1_"),
        "{finished:#?}"
    );
    let upgrade = Upgrade::new(Endpoint::of_url(&controller.ready.url)).token(token.trim());
    upgrade.connect().await.unwrap().initialize(None).await.unwrap();

    // A file that exists is kept, a link to nowhere is not followed, and no token stays good that nobody has.
    let sessions = async || {
        legion::run(&scratch, &["session", "list", "--json"]).await.stdout.matches("\"live\"").count()
    };
    let before = sessions().await;
    let again = legion::run(&scratch, &args).await;
    assert_eq!((again.code(), fs::read_to_string(&file).unwrap()), (USAGE, token), "{again:#?}");
    std::os::unix::fs::symlink(scratch.home().join("nowhere"), scratch.home().join("link")).unwrap();
    for (name, code) in [("link", USAGE), ("missing/file", UNAVAILABLE)] {
        let args = ["token", "issue", "--workspace", &workspace, "--token-file", name];
        let finished = legion::run(&scratch, &args).await;
        assert_eq!((finished.code(), finished.stdout.contains("lgn1_")), (code, false), "{finished:#?}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:#?}");
    }
    assert!(!scratch.home().join("nowhere").exists());
    assert_eq!(sessions().await, before);
}

#[tokio::test]
async fn tokens_and_sessions_are_listed() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let workspace = scratch.workspace().display().to_string();
    let run = async |args: &[&str]| {
        let finished = legion::run(&scratch, args).await;
        finished.assert_success();
        finished.stdout
    };
    let plain = run(&["token", "issue", "--workspace", &workspace]).await;
    assert!(plain.starts_with("lgn1_") && plain.lines().count() == 1, "a script can use it as it is");
    let issued: Value =
        serde_json::from_str(&run(&["token", "issue", "--json", "--workspace", &workspace]).await).unwrap();
    let id = issued["session"].as_str().unwrap();
    assert_eq!((&issued["urls"], &issued["workspace"]), (&json!([controller.ready.url]), &json!(workspace)));
    run(&["token", "revoke", id]).await;

    let states = |text: &str| -> Vec<(String, String)> {
        let session = |line: &str| -> Value { serde_json::from_str(line).unwrap() };
        let pair = |session: Value| {
            (session["id"].as_str().unwrap().to_owned(), session["state"].as_str().unwrap().to_owned())
        };
        text.lines().map(session).map(pair).collect()
    };
    let [tokens, sessions] =
        [run(&["token", "list", "--json"]).await, run(&["session", "list", "--json"]).await];
    assert_eq!(states(&tokens), states(&sessions));
    let states = states(&sessions);
    assert_eq!(states.len(), 3, "{sessions}");
    assert_eq!(states.last().unwrap(), &(id.to_owned(), "revoked".to_owned()));
    for table in [run(&["token", "list"]).await, run(&["session", "list"]).await] {
        let mut lines = table.lines();
        assert!(lines.next().unwrap().starts_with("ID "), "{table}");
        assert_eq!(lines.filter(|line| line.contains(&workspace)).count(), 3, "{table}");
    }
    let shown = run(&["session", "show", &controller.ready.session]).await;
    for part in [&controller.ready.session, "default", &workspace, "live", "expires"] {
        assert!(shown.contains(part), "no {part} in {shown}");
    }
    let shown: Value = serde_json::from_str(&run(&["session", "show", id, "--json"]).await).unwrap();
    assert_eq!((&shown["state"], &shown["sandboxPid"]), (&json!("revoked"), &Value::Null));
    for args in
        [["session", "show", "nobodyss"], ["session", "kill", "nobodyss"], ["token", "revoke", "nobodyss"]]
    {
        let finished = legion::run(&scratch, &args).await;
        assert_eq!(finished.code(), USAGE, "{finished:#?}");
        assert!(finished.stderr.contains("session list"), "{finished:#?}");
    }
    controller.stop().await.assert_success();
    assert_eq!(legion::run(&scratch, &["session", "list"]).await.code(), UNAVAILABLE);
}

#[tokio::test]
async fn completions() {
    let scratch = Scratch::new();
    for (shell, word) in [
        ("bash", "complete -F"),
        ("zsh", "#compdef legion-controller"),
        ("fish", "complete -c legion-controller"),
    ] {
        let finished = legion::run(&scratch, &["completions", shell]).await;
        finished.assert_success();
        assert!(finished.stdout.contains(word), "{shell}");
        for subcommand in
            ["start", "connect", "exec", "run", "token", "session", "audit", "setup", "doctor", "codex"]
        {
            assert!(finished.stdout.contains(subcommand), "{subcommand} in {shell}");
        }
    }
    // It is a script that bash takes, and that knows the flags.
    let script = "source <(\"$1\" completions bash) && function=$(complete -p legion-controller | grep -o -e '-F [^ ]*') && \
                  COMP_WORDS=(legion-controller exec --t) COMP_CWORD=2 && \
                  ${function#-F } legion-controller --t exec && printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut command = scratch.command("/bin/bash");
    command.args(["-c", script, "bash"]).arg(settings().legion_binary("legion-controller"));
    let finished = Child::spawn("bash", command).finish().await;
    finished.assert_success();
    let words: Vec<_> = finished.stdout.lines().collect();
    assert_eq!(words, ["--ttl", "--tty"], "{finished:#?}");
}
