//! The difference that Legion makes: the same attempts at the original server reach the host.

use legion_tests::codex::exit_code;
use legion_tests::mock_model::Script;
use legion_tests::model_items::{exec, say};

use crate::stage::Stage;

at_every_place!(files_outside_of_the_workspace);

async fn files_outside_of_the_workspace(stage: Stage) {
    let secret = "outside-secret-8251";
    let secret_file = stage.scratch.write("outside/secret", secret);
    let canaries: Vec<_> = stage.canaries.paths().iter().map(|path| path.display().to_string()).collect();
    let cmd = format!(
        "for f in {}; do echo taken > $f; done; cat {}; echo kept > inside.txt",
        canaries.join(" "),
        secret_file.display()
    );
    let script = Script::new().item(exec("c1", &cmd)).item(say("done"));
    let played = stage.play(script).await;
    let output = played.output("c1");
    assert_eq!(exit_code(&output), Some(0), "{output}");
    assert_eq!(stage.scratch.read("workspace/inside.txt").as_deref(), Some("kept\n"));
    if stage.is_isolated() {
        assert!(!output.contains(secret), "{output}");
        stage.finish(&played).await;
    } else {
        // Without a sandbox every attempt succeeds: so the attempts are real ones.
        assert_eq!(stage.canaries.touched(), stage.canaries.paths());
        assert!(output.contains(secret), "{output}");
    }
}
