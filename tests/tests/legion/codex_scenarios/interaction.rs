//! Commands that the model types into or interrupts (SPEC 11.3).

use legion_tests::codex::{assert_ran, exit_code, printed, session_id};
use legion_tests::mock_model::Script;
use legion_tests::model_items::{exec_in_background, say, write_stdin};

use crate::stage::Stage;

at_every_place!(
    typing_into_a_terminal,
    control_c_on_a_terminal,
    control_c_without_a_terminal,
    text_without_a_terminal_is_refused,
);

/// Ends with 7 when interrupted; reports when it is ready for that. The child reports: what interrupts it as well is
/// noticed whenever it comes.
const INTERRUPTIBLE: &str =
    "trap 'echo interrupted; exit 7' INT; (echo ready > ready; exec sleep 60); echo slept";

async fn typing_into_a_terminal(stage: Stage) {
    let mut ready = stage.scratch.fifo("workspace/ready").signals();
    let cmd =
        "test -t 0 && test -t 1 && echo a terminal; echo ready > ready; read -r a; read -r b; echo \"$b $a\"";
    let script = Script::new()
        .item(exec_in_background("c1", cmd, true))
        .answer(move |request| async move {
            ready.next("the command is ready").await;
            vec![write_stdin("c2", session_id(&request.output_text("c1")), "one\ntwo\n")]
        })
        .item(say("done"));
    let played = stage.play(script).await;
    let seen =
        [played.output("c1"), played.output("c2")].map(|output| printed(&output).replace('\r', "")).concat();
    assert_eq!(exit_code(&played.output("c2")), Some(0));
    assert!(seen.starts_with("a terminal\n"), "{seen}");
    assert!(seen.ends_with("two one\n"), "{seen}");
    stage.finish(&played).await;
}

async fn control_c_on_a_terminal(stage: Stage) {
    control_c(stage, true).await;
}

async fn control_c_without_a_terminal(stage: Stage) {
    control_c(stage, false).await;
}

async fn control_c(stage: Stage, tty: bool) {
    let mut ready = stage.scratch.fifo("workspace/ready").signals();
    let script = Script::new()
        .item(exec_in_background("c1", INTERRUPTIBLE, tty))
        .answer(move |request| async move {
            ready.next("the command is ready").await;
            vec![write_stdin("c2", session_id(&request.output_text("c1")), "\u{3}")]
        })
        .item(say("done"));
    let played = stage.play(script).await;
    let output = played.output("c2");
    assert_eq!(exit_code(&output), Some(7), "{output}");
    assert!(printed(&output).contains("interrupted"), "{output}");
    stage.finish(&played).await;
}

async fn text_without_a_terminal_is_refused(stage: Stage) {
    let gate = stage.scratch.fifo("workspace/go").gate();
    let opened = gate.clone();
    let script =
        Script::new()
            .item(exec_in_background("c1", "read -r _ < go; echo went on", false))
            .answer(|request| async move {
                vec![write_stdin("c2", session_id(&request.output_text("c1")), "text\n")]
            })
            .answer(move |request| async move {
                opened.open();
                vec![write_stdin("c3", session_id(&request.output_text("c1")), "")]
            })
            .item(say("done"));
    let played = stage.play(script).await;
    assert!(played.output("c2").contains("stdin is closed"), "{}", played.output("c2"));
    let last = played.output("c3");
    assert_ran(&last, 0, "went on\n");
    stage.finish(&played).await;
}
