//! `setup opencode`: OpenCode as people start it, with the tools of `legion-controller mcp` and none of its own.
//!
//! Invariant: a file of the user's own is never changed.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use legion_tests::audit::Audit;
use legion_tests::chat_model::{call, offered, say};
use legion_tests::child::Child;
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::opencode;
use legion_tests::scratch::Scratch;
use serde_json::json;

/// Exit code when the configuration is wrong (design.md, after sysexits).
const CONFIGURATION: i32 = 78;

const WRITTEN: &str = "config/opencode/opencode.jsonc";

#[tokio::test]
async fn opencode_has_the_tools_of_legion() {
    let run = json!({ "command": "pwd; id -u; cat .env", "description": "look" });
    let script = Script::new()
        .item(call("c1", "legion_bash", &run))
        .item(call("c2", "legion_write", &json!({ "filePath": "made.txt", "content": "made\n" })))
        .item(call("c3", "bash", &json!({ "command": "touch ../outside/mark", "description": "try" })))
        .item(say("done"));
    let model = MockModel::start(script).await;
    let scratch = Scratch::new();
    opencode::install(&scratch);
    scratch.git_init();
    // What the user has decided before, in a file of their own.
    let mut own = opencode::provider(&model.base_url());
    own["permission"] = json!({ "*": "allow", "bash": "allow", "webfetch": "allow" });
    scratch.write("config/opencode/opencode.json", own.to_string());
    scratch.write("workspace/.env", "KEY=dot-env-7601\n");
    let set_up = opencode::run(&scratch, &["setup", "opencode"]).await;
    set_up.assert_success();
    for part in [WRITTEN, "Not covered", "@", "!", ".opencode", "legion-controller opencode"] {
        assert!(set_up.stdout.contains(part), "no {part}: {set_up:#?}");
    }
    let mode = fs::metadata(scratch.root().join(WRITTEN)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    Child::spawn("opencode", opencode::plain(&scratch, &["run", "Do what the script says."]))
        .finish()
        .await
        .assert_success();
    let requests = opencode::steps(model.finish());
    let tools = offered(&requests[0].body);
    let own = tools.iter().filter(|name| !name.starts_with("legion_"));
    assert_eq!(own.collect::<Vec<_>>(), ["task", "todowrite"]);
    assert!(
        ["legion_bash", "legion_read", "legion_write", "legion_edit"]
            .iter()
            .all(|name| tools.iter().any(|tool| tool == name))
    );
    let output = requests[1].output_text("c1");
    for part in [&scratch.workspace().display().to_string(), "1000"] {
        assert!(output.contains(part), "no {part} in {output}");
    }
    assert_eq!(scratch.read("workspace/made.txt").as_deref(), Some("made\n"));
    assert!(!scratch.outside().join("mark").exists(), "OpenCode's own bash ran");
    assert!(!requests.iter().any(|request| request.text().contains("dot-env-7601")));
    let audit = Audit::read(&scratch);
    assert_eq!(audit.calls("process/start").count(), 1, "{:#?}", audit.lines());
    assert!(
        audit
            .calls("process/start")
            .all(|call| call["actor"]["client"].as_str().unwrap().contains("opencode"))
    );
}

#[tokio::test]
async fn a_file_of_somebody_else_is_kept_and_printing_writes_nothing() {
    let scratch = Scratch::new();
    let printed = opencode::run(&scratch, &["setup", "opencode", "--print", "--persona", "mine"]).await;
    printed.assert_success();
    assert_eq!(scratch.read(WRITTEN), None);
    assert!(
        printed.stdout.contains("\"--persona\"") && printed.stdout.contains("Not covered"),
        "{printed:#?}"
    );
    opencode::run(&scratch, &["setup", "opencode", "--persona", "mine"]).await.assert_success();
    assert_eq!(scratch.read(WRITTEN).unwrap(), printed.stdout);
    // Once more changes nothing.
    opencode::run(&scratch, &["setup", "opencode", "--persona", "mine"]).await.assert_success();
    assert_eq!(scratch.read(WRITTEN).unwrap(), printed.stdout);
    scratch.write(WRITTEN, "{}\n");
    let refused = opencode::run(&scratch, &["setup", "opencode"]).await;
    assert_eq!((refused.code(), refused.stderr.lines().count()), (CONFIGURATION, 1), "{refused:#?}");
    assert!(refused.stderr.contains("--print"), "{refused:#?}");
    assert_eq!(scratch.read(WRITTEN).as_deref(), Some("{}\n"));
}
