//! The difference that Legion makes: the same attempts at the original server reach the host.

use legion_tests::codex::exit_code;
use legion_tests::mock_model::Script;
use legion_tests::model_items::{exec, say};

use crate::stage::{CANARIES, Stage};

at_every_place!(files_outside_of_the_workspace);

async fn files_outside_of_the_workspace(stage: Stage) {
    let secret = "outside-secret-8251";
    let secret_file = stage.scratch.write("outside/secret", secret);
    let paths = CANARIES.map(|canary| stage.scratch.root().join(canary).display().to_string());
    let cmd = format!(
        "for f in {}; do echo taken > $f; done; cat {}; echo kept > inside.txt",
        paths.join(" "),
        secret_file.display()
    );
    let script = Script::new().item(exec("c1", &cmd)).item(say("done"));
    let played = stage.play(script).await;
    assert_eq!(exit_code(&played.output("c1")), Some(0));
    assert_eq!(stage.scratch.read("workspace/inside.txt").as_deref(), Some("kept\n"));
    let touched = CANARIES.map(|canary| stage.scratch.read(canary).as_deref() == Some("taken\n"));
    let seen = played.output("c1").contains(secret);
    // Without a sandbox every attempt succeeds: so the attempts are real ones.
    let reached = !stage.is_isolated();
    assert_eq!((touched, seen), ([reached; 2], reached));
    if stage.is_isolated() {
        stage.finish(&played).await;
    }
}
