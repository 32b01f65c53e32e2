//! Commands that run to their end by themselves (SPEC 11.3).

use legion_tests::codex::{assert_ran, exit_code, printed, session_id};
use legion_tests::mock_model::Script;
use legion_tests::model_items::{exec, exec_in_background, say, write_stdin};

use crate::stage::Stage;

at_every_place!(
    output_and_exit_code,
    death_by_signal,
    standard_input_is_empty,
    a_missing_program_is_reported,
    output_after_the_yield,
    commands_in_parallel,
    two_megabytes_of_output,
    left_running_at_the_end,
);

async fn output_and_exit_code(stage: Stage) {
    let script = Script::new().item(exec("c1", "pwd; echo oops >&2; exit 3")).item(say("done"));
    let played = stage.play(script).await;
    let output = played.output("c1");
    assert_eq!(exit_code(&output), Some(3), "{output}");
    // Between the two streams there is no order (SPEC 4.2).
    let mut lines: Vec<_> = printed(&output).lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, [stage.scratch.workspace().to_str().unwrap(), "oops"]);
    stage.finish(&played).await;
}

async fn death_by_signal(stage: Stage) {
    let script = Script::new().item(exec("c1", "echo before; kill -TERM $$; echo after")).item(say("done"));
    let played = stage.play(script).await;
    let output = played.output("c1");
    assert_ran(&output, 128 + 15, "before\n");
    stage.finish(&played).await;
}

async fn standard_input_is_empty(stage: Stage) {
    let script = Script::new().item(exec("c1", "cat; echo end")).item(say("done"));
    let played = stage.play(script).await;
    let output = played.output("c1");
    assert_ran(&output, 0, "end\n");
    stage.finish(&played).await;
}

async fn a_missing_program_is_reported(stage: Stage) {
    let script = Script::new().item(exec("c1", "no-such-program-here")).item(say("done"));
    let played = stage.play(script).await;
    let output = played.output("c1");
    assert_eq!(exit_code(&output), Some(127), "{output}");
    assert!(printed(&output).contains("no-such-program-here: command not found"), "{output}");
    stage.finish(&played).await;
}

async fn output_after_the_yield(stage: Stage) {
    let gate = stage.scratch.fifo("workspace/go").gate();
    let opened = gate.clone();
    let script = Script::new()
        .item(exec_in_background("c1", "echo first; read -r _ < go; echo second", false))
        .answer(move |request| async move {
            let session = session_id(&request.output_text("c1"));
            opened.open();
            vec![write_stdin("c2", session, "")]
        })
        .item(say("done"));
    let played = stage.play(script).await;
    let (early, late) = (played.output("c1"), played.output("c2"));
    assert_eq!(exit_code(&early), None, "it should have been running: {early}");
    assert_eq!(exit_code(&late), Some(0), "{late}");
    // A slow machine may print `first` only after the yield; nothing may be lost or doubled either way.
    assert_eq!(format!("{}{}", printed(&early), printed(&late)), "first\nsecond\n");
    stage.finish(&played).await;
}

async fn commands_in_parallel(stage: Stage) {
    // Each waits for the other: one after the other they would never end.
    stage.scratch.fifo("workspace/ab");
    stage.scratch.fifo("workspace/ba");
    let calls = vec![
        exec("c1", "echo from-a > ab; read -r x < ba; echo a got $x"),
        exec("c2", "read -r x < ab; echo from-b > ba; echo b got $x"),
    ];
    let played = stage.play(Script::new().items(calls).item(say("done"))).await;
    let (a, b) = (played.output("c1"), played.output("c2"));
    assert_ran(&a, 0, "a got from-b\n");
    assert_ran(&b, 0, "b got from-a\n");
    stage.finish(&played).await;
}

async fn two_megabytes_of_output(stage: Stage) {
    /// Lines of seven bytes: 2.1 MB.
    const LINES: usize = 300_000;
    /// Codex estimates a token as four bytes; it counts all output, also what it does not show to the model.
    const TOKENS: usize = LINES * 7 / 4;
    let script = Script::new().item(exec("c1", &format!("seq -w 1 {LINES}"))).item(say("done"));
    let played = stage.play(script).await;
    let output = played.output("c1");
    assert_eq!(exit_code(&output), Some(0), "{output}");
    assert!(output.contains(&format!("Original token count: {TOKENS}\n")), "{}", &output[..200]);
    assert!(printed(&output).contains("000001\n000002\n"), "the beginning is missing");
    assert!(output.ends_with(&format!("{}\n{LINES}\n", LINES - 1)), "the end is missing");
    stage.finish(&played).await;
}

async fn left_running_at_the_end(stage: Stage) {
    let mut lifetime = stage.scratch.fifo("workspace/alive").lifetime();
    let script = Script::new()
        .item(exec_in_background("c1", "exec 9> alive; echo here >&9; sleep 300 & wait", false))
        .item(say("done"));
    let played = stage.play(script).await;
    session_id(&played.output("c1"));
    assert_eq!(lifetime.began("the command starts").await, "here");
    lifetime.ended("the command and its child end with the harness").await;
    stage.finish(&played).await;
}
