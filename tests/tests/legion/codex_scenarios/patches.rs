//! `apply_patch` as a tool and as a command (SPEC 11.4).

use legion_tests::mock_model::Script;
use legion_tests::model_items::{apply_patch, exec, say};

use crate::played::Played;
use crate::stage::Stage;

at_every_place!(
    adds_a_file_in_a_new_directory,
    updates_a_file,
    moves_a_file,
    deletes_a_file,
    one_patch_with_everything,
    a_patch_that_does_not_fit_changes_nothing,
    as_a_command,
);

async fn patch(stage: &Stage, patch: &str) -> Played {
    stage.play(Script::new().item(apply_patch("c1", patch)).item(say("done"))).await
}

fn assert_success(played: &Played, expected: &[&str]) {
    let output = played.output("c1");
    assert!(output.contains("Success. Updated the following files:"), "{output}");
    for line in expected {
        assert!(output.lines().any(|found| found == *line), "no {line:?} in {output}");
    }
}

async fn adds_a_file_in_a_new_directory(stage: Stage) {
    let text = "*** Begin Patch\n*** Add File: new/er/file.txt\n+one\n+zwei é\n*** End Patch\n";
    let played = patch(&stage, text).await;
    assert_success(&played, &["A new/er/file.txt"]);
    assert_eq!(stage.scratch.read("workspace/new/er/file.txt").as_deref(), Some("one\nzwei é\n"));
    stage.finish(&played).await;
}

async fn updates_a_file(stage: Stage) {
    stage.scratch.write("workspace/with space.txt", "a\nb\nc\n");
    let text = "*** Begin Patch\n*** Update File: with space.txt\n@@\n a\n-b\n+B\n c\n*** End Patch\n";
    let played = patch(&stage, text).await;
    assert_success(&played, &["M with space.txt"]);
    assert_eq!(stage.scratch.read("workspace/with space.txt").as_deref(), Some("a\nB\nc\n"));
    stage.finish(&played).await;
}

async fn moves_a_file(stage: Stage) {
    stage.scratch.write("workspace/from.txt", "a\nb\n");
    let text = "*** Begin Patch\n*** Update File: from.txt\n*** Move to: there/to.txt\n@@\n a\n-b\n+B\n*** End Patch\n";
    let played = patch(&stage, text).await;
    assert_success(&played, &["M there/to.txt"]);
    assert_eq!(stage.scratch.read("workspace/from.txt"), None);
    assert_eq!(stage.scratch.read("workspace/there/to.txt").as_deref(), Some("a\nB\n"));
    stage.finish(&played).await;
}

async fn deletes_a_file(stage: Stage) {
    stage.scratch.write("workspace/gone.txt", "a\n");
    stage.scratch.write("workspace/stays.txt", "b\n");
    let played = patch(&stage, "*** Begin Patch\n*** Delete File: gone.txt\n*** End Patch\n").await;
    assert_success(&played, &["D gone.txt"]);
    assert_eq!(stage.scratch.read("workspace/gone.txt"), None);
    assert_eq!(stage.scratch.read("workspace/stays.txt").as_deref(), Some("b\n"));
    stage.finish(&played).await;
}

async fn one_patch_with_everything(stage: Stage) {
    stage.scratch.write("workspace/changed.txt", "old\n");
    stage.scratch.write("workspace/gone.txt", "a\n");
    let text = "*** Begin Patch\n*** Add File: added.txt\n+new\n*** Update File: changed.txt\n@@\n-old\n+new\n\
                *** Delete File: gone.txt\n*** End Patch\n";
    let played = patch(&stage, text).await;
    assert_success(&played, &["A added.txt", "M changed.txt", "D gone.txt"]);
    assert_eq!(stage.scratch.read("workspace/added.txt").as_deref(), Some("new\n"));
    assert_eq!(stage.scratch.read("workspace/changed.txt").as_deref(), Some("new\n"));
    assert_eq!(stage.scratch.read("workspace/gone.txt"), None);
    stage.finish(&played).await;
}

async fn a_patch_that_does_not_fit_changes_nothing(stage: Stage) {
    stage.scratch.write("workspace/a.txt", "other\n");
    let text = "*** Begin Patch\n*** Update File: a.txt\n@@\n-expected\n+new\n*** End Patch\n";
    let played = patch(&stage, text).await;
    assert!(played.output("c1").contains("Failed to find expected lines"), "{}", played.output("c1"));
    assert_eq!(stage.scratch.read("workspace/a.txt").as_deref(), Some("other\n"));
    stage.finish(&played).await;
}

async fn as_a_command(stage: Stage) {
    let cmd = "apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: dir/a.txt\n+one\n*** End Patch\nEOF";
    // Codex takes this for the tool and starts no process, so there is no command in the log.
    let script = Script::new().item(exec("patch", cmd)).item(say("done"));
    let played = stage.play(script).await;
    assert!(played.output("patch").contains("A dir/a.txt"), "{}", played.output("patch"));
    assert_eq!(stage.scratch.read("workspace/dir/a.txt").as_deref(), Some("one\n"));
    stage.finish(&played).await;
}
