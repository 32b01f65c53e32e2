//! The exec-server is killed while a command of the real Codex runs: Codex is told once, its next call runs in a new
//! sandbox, nothing runs twice, and the log says all of it.
//!
//! Invariant: what ran is counted in the workspace, which outlives the sandbox.

use legion_tests::audit::Audit;
use legion_tests::child::{Witness, within};
use legion_tests::codex::{Codex, Reach, assert_ran, session_id};
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::model_items::{exec, exec_in_background, say, write_stdin};
use legion_tests::scratch::Scratch;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::oneshot;

use crate::faults::exec_server;
use crate::played::Played;
use crate::stage::Stage;

at_place!(legion_connect LegionConnect under_a_command_that_is_waited_for under_a_command_in_the_background);
at_place!(legion_url LegionUrl under_a_command_that_is_waited_for under_a_command_in_the_background);

/// It leaves a line, says so, and goes on until something ends it.
const COMMAND: &str = "echo first >> runs; echo started > reports; exec sleep 300";

/// What is asked for next. It shows all that ran.
const NEXT: &str = "echo second >> runs; cat runs";

/// Kills the exec-server that runs now and waits for its end.
async fn kill(scratch: &Scratch) {
    let server = exec_server(scratch);
    let gone = Witness::of(server);
    kill_process(Pid::from_raw(server.cast_signed()).unwrap(), Signal::KILL).unwrap();
    gone.ended("the exec-server is killed").await;
}

async fn under_a_command_that_is_waited_for(stage: Stage) {
    let mut reports = stage.scratch.fifo("workspace/reports").signals();
    let script = Script::new().item(exec("failed", COMMAND)).item(exec("next", NEXT)).item(say("done"));
    let model = MockModel::start(script).await;
    let codex = Codex::new(&stage.scratch).spawn(stage.reach(), &model);
    assert_eq!(reports.next("the command starts").await, "started");
    kill(&stage.scratch).await;
    codex.finish().await.assert_success();
    assert_recovered(stage, &Played::of(model)).await;
}

async fn under_a_command_in_the_background(stage: Stage) {
    let mut reports = stage.scratch.fifo("workspace/reports").signals();
    let (running, known) = oneshot::channel();
    let (killed, go_on) = oneshot::channel();
    let script = Script::new()
        .item(exec_in_background("started", COMMAND, false))
        .answer(move |request| async move {
            running.send(()).unwrap();
            within("the exec-server is killed", go_on).await.unwrap();
            vec![write_stdin("failed", session_id(&request.output_text("started")), "")]
        })
        .item(exec("next", NEXT))
        .item(say("done"));
    let model = MockModel::start(script).await;
    let codex = Codex::new(&stage.scratch).spawn(stage.reach(), &model);
    assert_eq!(reports.next("the command starts").await, "started");
    within("Codex knows that it runs", known).await.unwrap();
    kill(&stage.scratch).await;
    killed.send(()).unwrap();
    codex.finish().await.assert_success();
    assert_recovered(stage, &Played::of(model)).await;
}

async fn assert_recovered(stage: Stage, played: &Played) {
    // A URL can be connected to again; a program is started once. What follows depends on whether Codex knew already that
    // the command had started.
    let error = match stage.reach() {
        Reach::Program { .. } => "the exec-server died",
        _ => "exec-server transport disconnected",
    };
    assert!(played.output("failed").contains(error), "{}", played.output("failed"));
    assert_ran(&played.output("next"), 0, "first\nsecond\n");

    let audit = Audit::read(&stage.stop().await);
    assert_eq!((audit.events("sessionStarted").count(), audit.events("sandboxStarted").count()), (1, 2));
    let starts: Vec<_> = audit.calls("process/start").collect();
    let [killed, next] = starts[..] else { panic!("started: {starts:#?}") };
    let outcome = |call| &audit.outcome(call).unwrap_or_else(|| panic!("no outcome of {call}"))["outcome"];
    let died = outcome(killed);
    assert!(died["message"].is_string() && died["exitCode"].is_null(), "{died}");
    assert_eq!(outcome(next)["exitCode"], 0);
}
