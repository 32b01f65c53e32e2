//! Rules, as the real Codex and people at a shell meet them.
//!
//! Invariant: what is refused has not happened, and who asked is told why.

use legion_tests::audit::Audit;
use legion_tests::codex::{Codex, assert_ran};
use legion_tests::legion::{self, Controller};
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::model_items::{apply_patch, exec, say};
use legion_tests::scratch::Scratch;

use crate::played::Played;

/// Exit code for a refusal (design.md, after sysexits).
const REFUSED: i32 = 77;

const RULES: &str = r#"
[[persona.default.rule]]
id = "no-push"
command = ["git", "push"]
decision = "deny"
message = "pushes leave the machine; leave the branch and say so"
[[persona.default.rule]]
id = "ci"
path = "write/**"
op = ["write", "remove"]
decision = "deny"
message = "workflows are changed by people"
[[persona.default.rule]]
id = "closed"
path = "read/**"
decision = "deny"
message = "this is not for agents"
"#;

/// One run of Codex under these rules.
async fn play(scratch: &Scratch, rules: &str, script: Script) -> Played {
    legion::configure(scratch, rules);
    let model = MockModel::start(script).await;
    let finished = Codex::new(scratch).run(&legion::connect(scratch), &model).await;
    finished.assert_success();
    Played::of(model)
}

#[tokio::test]
async fn codex_is_told_why_a_command_is_refused() {
    let scratch = Scratch::new();
    let script = Script::new()
        .item(exec("c1", "touch before && git -C . push origin main"))
        .item(exec("c2", "echo allowed"))
        .item(say("done"));
    let played = play(&scratch, RULES, script).await;
    let told = played.output("c1");
    for part in ["-32077", "git -C . push origin main", "rule no-push", "pushes leave the machine"] {
        assert!(told.contains(part), "no {part:?} in {told}");
    }
    assert_eq!(scratch.read("workspace/before"), None, "no part of a refused script runs");
    assert_ran(&played.output("c2"), 0, "allowed\n");
    let audit = Audit::read(&scratch);
    let denied = audit.calls("process/start").find(|call| call["decision"] == "deny").unwrap();
    assert_eq!(denied["rule"], "no-push");
    assert_eq!(denied["object"]["argv"][2], "touch before && git -C . push origin main");
}

/// Codex reads a file before it changes it, and shows the model the text of an error then. When writing fails it shows the
/// path only, whatever the exec-server says: that text is in the answer and in the log.
#[tokio::test]
async fn a_refused_patch_changes_nothing_and_codex_is_told() {
    let scratch = Scratch::new();
    let files = ["read/a.yml", "write/a.yml"];
    for file in files {
        scratch.write(format!("workspace/{file}"), "on: push\n");
    }
    let update = |file: &str| {
        format!("*** Begin Patch\n*** Update File: {file}\n@@\n-on: push\n+on: x\n*** End Patch\n")
    };
    let add = "*** Begin Patch\n*** Add File: write/b.yml\n+x\n*** End Patch\n";
    let script = Script::new()
        .item(apply_patch("c1", &update(files[0])))
        .item(apply_patch("c2", &update(files[1])))
        .item(apply_patch("c3", add))
        .item(say("done"));
    let played = play(&scratch, RULES, script).await;
    let told = played.output("c1");
    assert!(told.contains("rule closed") && told.contains("not for agents"), "{told}");
    for call in ["c2", "c3"] {
        assert!(played.output(call).contains("Failed to write file"), "{}", played.output(call));
    }
    for file in files {
        assert_eq!(scratch.read(format!("workspace/{file}")).as_deref(), Some("on: push\n"));
    }
    assert_eq!(scratch.read("workspace/write/b.yml"), None);
    let audit = Audit::read(&scratch);
    let refused: Vec<_> = audit.calls("fs/writeFile").filter(|call| call["decision"] == "deny").collect();
    assert_eq!(refused.len(), 2);
    for call in refused {
        assert!(call["reason"].as_str().unwrap().contains("workflows are changed by people"), "{call}");
    }
}

/// The model is told which file it was; the person in front of `start` is told why.
#[tokio::test]
async fn whoever_runs_start_sees_why_a_patch_was_refused() {
    let scratch = Scratch::new();
    legion::configure(&scratch, RULES);
    scratch.write("workspace/write/old.yml", "on: push\n");
    scratch.write("workspace/a.yml", "on: push\n");
    let patch = |body: &str| format!("*** Begin Patch\n{body}*** End Patch\n");
    let change = "@@\n-on: push\n+on: x\n";
    let cases = [
        (patch("*** Add File: write/new/b.yml\n+x\n"), "Failed to write file", "write/new/b.yml"),
        (patch("*** Delete File: write/old.yml\n"), "Failed to delete file", "write/old.yml"),
        (
            patch(&format!("*** Update File: write/old.yml\n*** Move to: b.yml\n{change}")),
            "Failed to remove original",
            "write/old.yml",
        ),
        (
            patch(&format!("*** Update File: a.yml\n*** Move to: write/c.yml\n{change}")),
            "Failed to write file",
            "write/c.yml",
        ),
    ];
    let calls: Vec<_> = (0..cases.len()).map(|number| format!("c{number}")).collect();
    let patches = calls.iter().zip(&cases);
    let script =
        patches.fold(Script::new(), |script, (call, (patch, ..))| script.item(apply_patch(call, patch)));
    let controller = Controller::start(&scratch, &[]).await;
    let model = MockModel::start(script.item(say("done"))).await;
    Codex::new(&scratch).run(&controller.reach(), &model).await.assert_success();
    let played = Played::of(model);
    let said = controller.stop().await.stderr;
    let lines: Vec<_> =
        said.lines().filter(|line| line.contains("workflows are changed by people")).collect();
    assert_eq!(lines.len(), cases.len(), "{said}");
    for ((call, (_, text, path)), line) in calls.iter().zip(&cases).zip(lines) {
        let expected = format!("{text} {}/{path}\n", scratch.workspace().display());
        assert!(played.output(call).ends_with(&expected), "{}", played.output(call));
        assert!(line.contains(path) && line.contains("rule ci"), "{path}: {line}");
    }
    assert_eq!(scratch.read("workspace/write/old.yml").as_deref(), Some("on: push\n"));
    for file in ["write/new", "write/c.yml"] {
        assert!(!scratch.workspace().join(file).exists(), "{file}");
    }
}

#[tokio::test]
async fn exec_tells_why_and_exits_as_refused() {
    let scratch = Scratch::new();
    legion::configure(&scratch, RULES);
    let workspace = scratch.workspace().display().to_string();
    let exec = |words: &'static str| {
        let args = format!("exec --workspace {workspace} -- {words}");
        let scratch = &scratch;
        async move { legion::run(scratch, &args.split(' ').collect::<Vec<_>>()).await }
    };
    let refused = exec("git push").await;
    assert_eq!(refused.code(), REFUSED, "{refused:#?}");
    assert!(
        refused.stderr.contains("rule no-push") && refused.stderr.contains("leave the branch"),
        "{refused:#?}"
    );
    exec("git --version").await.assert_success();
}

#[tokio::test]
async fn no_secret_is_in_a_refusal() {
    let scratch = Scratch::new();
    scratch.write("workspace/x", "");
    scratch.write("home/.env", "TOKEN=hunter2hunter2\n");
    legion::configure(
        &scratch,
        r#"
        [controller]
        env_file = "~/.env"
        [persona.default]
        default = "deny"
        "#,
    );
    let workspace = scratch.workspace().display().to_string();
    let args = ["exec", "--workspace", &workspace, "--", "curl", "-H", "hunter2hunter2"];
    let refused = legion::run(&scratch, &args).await;
    assert_eq!(refused.code(), REFUSED, "{refused:#?}");
    assert!(refused.stderr.contains("<redacted:TOKEN>"), "{refused:#?}");
    let log = Audit::read(&scratch).lines().join("\n");
    assert!(!refused.stderr.contains("hunter2") && !log.contains("hunter2"), "{log}");
}
