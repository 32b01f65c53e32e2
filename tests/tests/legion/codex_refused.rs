//! Codex with a token that does not open: no command runs anywhere, and nobody is told the token.

use legion_tests::codex::Codex;
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::model_items::{apply_patch, exec, say};

use crate::played::Played;
use crate::stage::Stage;

at_every_url!(a_wrong_token);

async fn a_wrong_token(mut stage: Stage) {
    const WRONG: &str = "lgn1_wrongone_not-the-token-of-any-session-6213";
    stage.set_token(WRONG);
    let patch = "*** Begin Patch\n*** Add File: patched.txt\n+one\n*** End Patch\n";
    let script = Script::new().item(exec("c1", "touch ran")).item(apply_patch("c2", patch)).item(say("done"));
    let model = MockModel::start(script).await;
    let finished = Codex::new(&stage.scratch).run(stage.reach(), &model).await;
    finished.assert_success();

    let played = Played::of(model);
    assert!(played.output("c1").contains("No usable execution environment"), "{}", played.output("c1"));
    assert_eq!(stage.scratch.read("workspace/ran"), None);
    assert_eq!(stage.scratch.read("workspace/patched.txt"), None, "{}", played.output("c2"));
    assert!(!played.last_request().text().contains(WRONG), "the model has seen the token");
    assert!(!finished.stderr.contains(WRONG), "the token is on the screen");
    stage.finish(&played).await;
}
