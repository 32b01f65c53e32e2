//! The command line as people and scripts use it: what is listed is readable, what is asked for as JSON is JSON, and what
//! cannot be done is said in one line.

use legion_tests::audit::Audit;
use legion_tests::child::{Child, Finished};
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use legion_tests::settings::settings;
use legion_tests::terminal::Terminal;
use legion_tests::ws_client::{Endpoint, Upgrade, WsClient};
use serde_json::{Value, json};

/// Exit codes (design.md, after sysexits).
const USAGE: i32 = 64;
const UNAVAILABLE: i32 = 69;
const CONFIGURATION: i32 = 78;

struct Scene {
    scratch: Scratch,
    controller: Controller,
}

impl Scene {
    async fn new() -> Self {
        let scratch = Scratch::new();
        let controller = Controller::start(&scratch, &[]).await;
        Self { scratch, controller }
    }

    async fn client(&self) -> WsClient {
        let upgrade = Upgrade::new(Endpoint::of_url(&self.controller.ready.url));
        let mut client = upgrade.token(&self.controller.token).connect().await.unwrap();
        client.initialize(None).await.unwrap();
        client
    }

    /// Starts a command that goes on for ever.
    async fn start(&self, client: &mut WsClient, id: &str, extra: &str) {
        let params = json!({
            "processId": id, "argv": ["/bin/sh", "-c", "sleep 300", extra], "env": { "PATH": "/usr/bin:/bin" },
            "cwd": format!("file://{}", self.scratch.workspace().display()), "tty": false,
        });
        client.call("process/start", params).await.unwrap();
    }

    async fn run(&self, args: &[&str]) -> Finished {
        let mut command = legion::command(&self.scratch, args);
        command.current_dir(self.scratch.workspace());
        Child::spawn("legion-controller", command).finish().await
    }

    fn attach(&self, more: &[&str]) -> Child {
        let args = [&["session", "attach", &self.controller.ready.session], more].concat();
        Child::spawn("session attach", legion::command(&self.scratch, &args))
    }

    /// `legion-controller ARGS…` out of a shell that says where its output goes.
    async fn to(&self, args: &[&str], redirection: &str) -> Finished {
        let mut command = self.scratch.command("/bin/bash");
        command.args(["-c", &format!("set -o pipefail; \"$@\" {redirection}"), "bash"]);
        command.arg(settings().legion_binary("legion-controller")).args(args);
        Child::spawn("out of a shell", command).finish().await
    }
}

/// Everything that lists or shows something of a running controller.
fn listings(session: &str) -> [Vec<&str>; 4] {
    [
        vec!["session", "list"],
        vec!["session", "show", session],
        vec!["token", "list"],
        vec!["approvals", "list"],
    ]
}

#[tokio::test]
async fn what_is_listed_is_readable_and_its_json_is_json() {
    let scene = Scene::new().await;
    let mut client = scene.client().await;
    scene.start(&mut client, "red", "a\n\u{1b}[31mb\u{202e}c").await;
    let session = scene.controller.ready.session.clone();
    for args in listings(&session) {
        let shown = scene.run(&args).await;
        shown.assert_success();
        let words: Vec<_> = shown.stdout.lines().next().unwrap().split_whitespace().collect();
        assert!(words.iter().all(|word| *word == word.to_uppercase()), "no header: {shown:#?}");
        assert!(!shown.stdout.replace('\n', "").contains(char::is_control), "{shown:#?}");
        assert!(shown.stdout.lines().all(|line| line == line.trim_end()), "{shown:#?}");

        let printed = scene.run(&[&args[..], &["--json"]].concat()).await;
        printed.assert_success();
        let objects: Vec<Value> = printed
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).expect("one object a line"))
            .collect();
        assert!(objects.iter().all(Value::is_object), "{printed:#?}");
        if args[0] != "approvals" {
            assert_eq!(objects[0]["id"], session, "{printed:#?}");
        }
        for redirection in ["| true", "> /dev/null"] {
            let left = scene.to(&args, redirection).await;
            assert_eq!((left.code(), left.stderr.as_str()), (0, ""), "{args:?} {redirection}: {left:#?}");
        }
        let full = scene.to(&args, "> /dev/full").await;
        assert_eq!((full.code(), full.stderr.lines().count()), (UNAVAILABLE, 1), "{full:#?}");
    }
    let shown = scene.run(&["session", "show", &session]).await;
    let command = shown.stdout.lines().find(|line| line.starts_with("command ")).unwrap();
    assert!(command.contains("id red: /bin/sh -c sleep 300 a"), "{command}");
    assert!(shown.stdout.contains("\nidle limit        8h\n"), "{shown:#?}");
    scene.controller.stop().await.assert_success();
}

#[tokio::test]
async fn what_cannot_be_done_is_said_in_one_line() {
    let scene = Scene::new().await;
    let session = scene.controller.ready.session.clone();
    let gone = scene.scratch.root().join("no/such").display().to_string();
    let file = scene.scratch.write("taken", "").display().to_string();
    for (args, code, said) in [
        (vec!["session", "show", "nobodyss"], USAGE, "session list"),
        (vec!["session", "show", "a\nb\u{1b}[31m"], USAGE, "no session a b"),
        (vec!["session", "attach", "nobodyss"], USAGE, "session list"),
        (vec!["session", "attach", &session, "nothing"], USAGE, "no command nothing runs"),
        (vec!["session", "extend", "nobodyss", "1h"], USAGE, "session list"),
        (vec!["session", "extend", &session, "long"], USAGE, "write 8h"),
        (vec!["session", "kill", &session[..4]], USAGE, "session list"),
        (vec!["session"], USAGE, "a subcommand is missing: Usage: legion-controller session"),
        (vec![], USAGE, "a subcommand is missing: Usage: legion-controller"),
        (vec!["token", "revoke", "nobodyss"], USAGE, "session list"),
        (vec!["token", "issue", "--ttl", "0"], USAGE, "write 8h"),
        (vec!["token", "issue", "--persona", "nobody"], CONFIGURATION, "the configuration has"),
        (vec!["token", "issue", "--workspace", &gone], CONFIGURATION, "cannot use the workspace"),
        (vec!["token", "issue", "--token-file", &file], USAGE, "name a new file"),
        (vec!["token", "issue", "--token-file", &gone], UNAVAILABLE, "cannot write"),
        (vec!["completions", "tcsh"], USAGE, "tcsh"),
        (vec!["doctor", "--persona", "nobody", "extra"], USAGE, "extra"),
    ] {
        let refused = scene.run(&args).await;
        let shape = (refused.code(), refused.stdout.as_str(), refused.stderr.lines().count());
        assert_eq!(shape, (code, "", 1), "{args:?}: {refused:#?}");
        assert!(refused.stderr.contains(said), "{args:?}: {refused:#?}");
        assert!(!refused.stderr.trim_end().contains(char::is_control), "{args:?}: {refused:#?}");
    }
    // The token that could not be written is good for nothing.
    let issued = scene.run(&["token", "list", "--json"]).await;
    let states: Vec<_> = issued.stdout.lines().map(|line| line.contains("\"state\":\"live\"")).collect();
    assert_eq!(states, [true, false], "{issued:#?}");
    scene.controller.stop().await.assert_success();
}

#[tokio::test]
async fn who_watches_is_told_when_the_session_ends() {
    let scene = Scene::new().await;
    let mut client = scene.client().await;
    scene.start(&mut client, "one", "").await;
    let (all, one) = (scene.attach(&[]), scene.attach(&["one"]));
    Audit::wait(&scene.scratch, "both watch", |audit| audit.events("watched").count() == 2).await;
    let session = scene.controller.ready.session.clone();
    let killed = scene.run(&["session", "kill", &session]).await;
    assert_eq!((killed.code(), killed.stdout), (0, format!("session {session}: killed\n")));
    for watching in [all, one] {
        let finished = watching.finish().await;
        assert_eq!((finished.code(), finished.stdout.as_str()), (0, ""), "{finished:#?}");
        assert!(finished.stderr.ends_with("nothing more will come\n"), "{finished:#?}");
    }
    // It can be killed once only, and shown all the same.
    let again = scene.run(&["session", "kill", &session]).await;
    assert_eq!((again.code(), again.stdout), (0, format!("session {session}: killed\n")));
    let shown = scene.run(&["session", "show", &session]).await;
    assert!(shown.stdout.contains("state             killed\n"), "{shown:#?}");
    let late = scene.run(&["session", "attach", &session]).await;
    assert_eq!((late.code(), late.stderr.lines().count()), (USAGE, 1), "{late:#?}");
    scene.controller.stop().await.assert_success();
}

#[tokio::test]
async fn a_command_two_clients_have_is_named_by_its_record() {
    let scene = Scene::new().await;
    let (mut first, mut second) = (scene.client().await, scene.client().await);
    scene.start(&mut first, "same", "of the first").await;
    scene.start(&mut second, "same", "of the second").await;
    let session = scene.controller.ready.session.clone();
    let unclear = scene.run(&["session", "attach", &session, "same"]).await;
    assert_eq!((unclear.code(), unclear.stderr.lines().count()), (USAGE, 1), "{unclear:#?}");
    let shown = scene.run(&["session", "show", &session, "--json"]).await;
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    let calls: Vec<_> =
        shown["processes"].as_array().unwrap().iter().map(|process| process["call"].to_string()).collect();
    assert!(unclear.stderr.contains(&calls.join(" or ")), "{calls:?}: {unclear:#?}");
    let watching = scene.attach(&[&calls[1]]);
    Audit::wait(&scene.scratch, "it watches", |audit| audit.events("watched").count() == 1).await;
    second.call("process/terminate", json!({ "processId": "same" })).await.unwrap();
    let finished = watching.finish().await;
    assert_eq!(finished.stderr.lines().count(), 3, "{finished:#?}");
    assert!(finished.stderr.contains("of the second") && !finished.stderr.contains("of the first"));
    scene.controller.stop().await.assert_success();
}

#[tokio::test]
async fn the_doctor_looks_at_the_sandbox_whatever_the_rules_say() {
    let scratch = Scratch::new();
    legion::configure(&scratch, "[persona.strict]\ndefault = \"deny\"\n");
    let workspace = scratch.workspace().display().to_string();
    let doctor = async |more: &[&str]| {
        let args = [&["doctor", "--json", "--persona", "strict", "--workspace", &workspace], more].concat();
        let finished = legion::run(&scratch, &args).await;
        assert_eq!(finished.stderr, "", "{finished:#?}");
        let checks: Vec<Value> =
            finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        (finished.code(), checks)
    };
    let failed = |checks: &[Value]| -> Vec<String> {
        let failed = checks.iter().filter(|check| check["result"] == "failed");
        failed.map(|check| format!("{}: {}", check["check"], check["detail"])).collect()
    };
    let (code, checks) = doctor(&[]).await;
    assert_eq!((code, failed(&checks)), (0, Vec::new()), "{checks:#?}");
    let keys = |check: &Value| check.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert!(checks.len() > 15 && checks.iter().all(|check| keys(check) == "check detail result"));

    scratch.write("workspace/.legion.toml", "default = \"deny\"\n");
    let (code, checks) = doctor(&[]).await;
    let found = failed(&checks);
    assert_eq!((code, found.len()), (UNAVAILABLE, 1), "{checks:#?}");
    assert!(found[0].starts_with("\"commands run\": ") && found[0].contains("policy"), "{found:?}");

    let (code, checks) = doctor(&["--config", "/no/such"]).await;
    assert_eq!((code, failed(&checks).len()), (UNAVAILABLE, 1), "{checks:#?}");
}

/// What the shells make of the completions; where a shell is not installed, there is nobody to complete for.
#[tokio::test]
async fn completions_complete() {
    let program = settings().legion_binary("legion-controller").display().to_string();
    if std::path::Path::new("/usr/bin/fish").exists() {
        let scratch = Scratch::new();
        let mut command = scratch.command("/usr/bin/fish");
        command.args(["--no-config", "-c"]).arg(format!(
            "{program} completions fish | source; complete -C 'legion-controller exec --per'; \
             complete -C 'legion-controller session ex'"
        ));
        let finished = Child::spawn("fish", command).finish().await;
        finished.assert_success();
        let words: Vec<_> =
            finished.stdout.lines().map(|line| line.split('\t').next().unwrap_or_default()).collect();
        assert_eq!(words, ["--persona", "extend"], "{finished:#?}");
    }
    if std::path::Path::new("/usr/bin/zsh").exists() {
        let scratch = Scratch::new();
        let mut terminal = Terminal::spawn(&scratch, "/usr/bin/zsh", &["-f", "-i"], 24, 200);
        let prepare = format!(
            "autoload -U compinit; compinit -u -D; source <({program} completions zsh); \
             legion-controller() {{ print -r -- \"got:$*\" }}; print re''ady\r"
        );
        terminal.keys(&prepare).await;
        terminal.shows("\nready").await;
        terminal.keys("legion-controller exec --per\t\r").await;
        terminal.shows("\ngot:exec --persona").await;
        terminal.keys("legion-controller session ex\t\r").await;
        terminal.shows("\ngot:session extend").await;
        terminal.keys("exit\r").await;
        terminal.finish().await;
    }
}
