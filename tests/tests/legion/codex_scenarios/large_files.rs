//! Files as large as the real client takes: the original ends the connection at a frame of 16 MiB (SPEC 11.8, 15.3).

use legion_tests::mock_model::Script;
use legion_tests::model_items::{apply_patch, say};

use crate::stage::Stage;

at_place!(original_url OriginalUrl cannot_be_patched);
at_place!(legion_connect LegionConnect are_patched);
at_place!(legion_url LegionUrl are_patched);

/// A message holds 64 MiB, and this is 63.8 MiB of base64.
const FILE_LINES: usize = 49_000;

/// Of a line with its end.
const LINE_BYTES: usize = 1 << 10;

const PATCH: &str = "*** Begin Patch\n*** Update File: large.txt\n@@\n-old\n+new\n*** End Patch\n";

/// Many lines and one to be changed.
fn content(last: &str) -> String {
    let line = "x".repeat(LINE_BYTES - 1) + "\n";
    line.repeat(FILE_LINES) + last + "\n"
}

async fn are_patched(stage: Stage) {
    stage.scratch.write("workspace/large.txt", content("old"));
    let played = stage.play(Script::new().item(apply_patch("c1", PATCH)).item(say("done"))).await;
    let output = played.output("c1");
    assert!(output.contains("M large.txt"), "{output}");
    assert!(
        stage.scratch.read("workspace/large.txt").unwrap() == content("new"),
        "every byte is in its place"
    );
    stage.finish(&played).await;
}

async fn cannot_be_patched(stage: Stage) {
    stage.scratch.write("workspace/large.txt", content("old"));
    let played = stage.play(Script::new().item(apply_patch("c1", PATCH)).item(say("done"))).await;
    assert!(!played.output("c1").contains("M large.txt"), "{}", played.output("c1"));
    assert!(stage.scratch.read("workspace/large.txt").unwrap() == content("old"), "it is as it was");
}
