//! Older clients, which know no token setting (SPEC section 13): a command and a patch.

use legion_tests::clients::CodexVersion;
use legion_tests::codex::{Codex, Reach, assert_ran};
use legion_tests::legion::Controller;
use legion_tests::mock_model::Script;
use legion_tests::model_items::{exec, say};
use legion_tests::original::Original;
use legion_tests::scratch::Scratch;

use crate::stage::{Place, Stage};

#[tokio::test]
async fn original_v0_150() {
    let scratch = Scratch::new();
    let server = Original::start_open(&scratch, CodexVersion::V0_171).await;
    let reach = Reach::UrlVariable(server.url.clone());
    command_and_patch(Stage::original(scratch, reach, server), CodexVersion::V0_150).await;
}

/// 0.150 knows programs in `environments.toml`, 0.130 does not know that file.
#[tokio::test]
async fn original_v0_150_as_a_program() {
    command_and_patch(Stage::at(Place::OriginalStdio).await, CodexVersion::V0_150).await;
}

#[tokio::test]
async fn legion_v0_150_by_connect() {
    command_and_patch(Stage::at(Place::LegionConnect).await, CodexVersion::V0_150).await;
}

#[tokio::test]
async fn original_v0_130() {
    let scratch = Scratch::new();
    // 0.171 does not take the plain paths of 0.130.
    let server = Original::start_open(&scratch, CodexVersion::V0_130).await;
    let reach = Reach::UrlVariable(server.url.clone());
    command_and_patch(Stage::original(scratch, reach, server), CodexVersion::V0_130).await;
}

#[tokio::test]
async fn legion_v0_150() {
    command_and_patch(legion_by_query().await, CodexVersion::V0_150).await;
}

#[tokio::test]
async fn legion_v0_130() {
    command_and_patch(legion_by_query().await, CodexVersion::V0_130).await;
}

async fn legion_by_query() -> Stage {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &["--listen", "ws://127.0.0.1:0?query_token=true"]).await;
    Stage::legion(scratch, controller.reach_by_query(), controller)
}

async fn command_and_patch(stage: Stage, version: CodexVersion) {
    stage.scratch.write("workspace/changed.txt", "old\n");
    let patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: new/er/file.txt\n+one\n\
                 *** Update File: changed.txt\n@@\n-old\n+new\n*** End Patch\nEOF";
    let script = Script::new()
        .item(exec("c1", "pwd; exit 3"))
        .item(exec("patch", patch))
        .item(exec("c2", "cat new/er/file.txt changed.txt"))
        .item(say("done"));
    let played = stage.play_with(Codex::new(&stage.scratch).version(version), script).await;
    let [first, patched, second] = ["c1", "patch", "c2"].map(|call| played.output(call));
    let workspace = format!("{}\n", stage.scratch.workspace().display());
    assert_ran(&first, 3, workspace.as_str());
    assert!(patched.contains("A new/er/file.txt") && patched.contains("M changed.txt"), "{patched}");
    assert_ran(&second, 0, "one\nnew\n");
    assert_eq!(stage.scratch.read("workspace/new/er/file.txt").as_deref(), Some("one\n"));
    stage.finish(&played).await;
}
