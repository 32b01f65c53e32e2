//! The connection is lost while a command runs (SPEC 11.7): nothing is lost, nothing is done twice.
//!
//! Invariant: the order of events is forced by pipes between the command and the test, not by time.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use legion_tests::child::within;
use legion_tests::codex::{Codex, assert_ran, exit_code, printed, session_id};
use legion_tests::cut_proxy::CutProxy;
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::model_items::{
    SHORT_YIELD_MS, exec, exec_in_background, say, write_stdin, write_stdin_and_yield,
};
use tokio::sync::oneshot;

use crate::played::Played;
use crate::stage::Stage;

at_every_url!(
    output_during_an_outage,
    the_end_during_an_outage,
    a_write_in_flight_is_done_once,
    a_start_in_flight_is_called_off,
);

/// The stage, reached through a proxy.
async fn behind_a_proxy(stage: &mut Stage) -> CutProxy {
    let proxy = CutProxy::start(stage.address()).await;
    stage.set_url(proxy.url());
    proxy
}

/// A script that runs `cmd` and waits for its end in a second call; and the moment at which the client knows that the
/// command runs. A start in flight would be lost with the connection (SPEC 11.7), and that is not what is tried here.
fn run_and_wait(cmd: &str) -> (Script, oneshot::Receiver<()>) {
    let (running, known) = oneshot::channel();
    let script = Script::new()
        .item(exec_in_background("c1", cmd, false))
        .answer(move |request| async move {
            let session = session_id(&request.output_text("c1"));
            running.send(()).expect("the test waits for it");
            vec![write_stdin("c2", session, "")]
        })
        .item(say("done"));
    (script, known)
}

fn all_printed(played: &Played) -> String {
    ["c1", "c2"].map(|call| printed(&played.output(call)).to_owned()).concat()
}

async fn output_during_an_outage(mut stage: Stage) {
    /// Lines printed while there is no connection: less than Codex shows to the model without cutting.
    const MISSED: usize = 2_000;
    let proxy = behind_a_proxy(&mut stage).await;
    let mut reports = stage.scratch.fifo("workspace/reports").signals();
    let gate = stage.scratch.fifo("workspace/gate").gate();
    let cmd = format!(
        "echo before; read -r _ < gate; seq 1 {MISSED}; echo printed > reports; read -r _ < gate; echo after; exit 4"
    );
    let (script, running) = run_and_wait(&cmd);
    let model = MockModel::start(script).await;
    let codex = Codex::new(&stage.scratch).spawn(stage.reach(), &model);

    within("the command runs", running).await.unwrap();
    proxy.cut().await;
    gate.open();
    assert_eq!(reports.next("the command goes on without a connection").await, "printed");
    proxy.mend();
    proxy.connections(2).await;
    gate.open();
    codex.finish().await.assert_success();

    let played = Played::of(model);
    let mut expected = "before\n".to_owned();
    (1..=MISSED).for_each(|line| writeln!(expected, "{line}").unwrap());
    expected.push_str("after\n");
    assert_eq!(all_printed(&played), expected);
    assert_eq!(exit_code(&played.output("c2")), Some(4));
    stage.finish(&played).await;
}

async fn the_end_during_an_outage(mut stage: Stage) {
    let proxy = behind_a_proxy(&mut stage).await;
    let mut lifetime = stage.scratch.fifo("workspace/alive").lifetime();
    let gate = stage.scratch.fifo("workspace/gate").gate();
    let cmd = "exec 9> alive; echo here >&9; read -r _ < gate; echo last words; exit 5";
    let (script, running) = run_and_wait(cmd);
    let model = MockModel::start(script).await;
    let codex = Codex::new(&stage.scratch).spawn(stage.reach(), &model);

    within("the command runs", running).await.unwrap();
    lifetime.began("the command starts").await;
    proxy.cut().await;
    gate.open();
    lifetime.ended("the command ends without a connection").await;
    proxy.mend();
    codex.finish().await.assert_success();

    let played = Played::of(model);
    assert_eq!(all_printed(&played), "last words\n");
    assert_eq!(exit_code(&played.output("c2")), Some(5));
    stage.finish(&played).await;
}

async fn a_write_in_flight_is_done_once(mut stage: Stage) {
    let proxy = Arc::new(behind_a_proxy(&mut stage).await);
    let mut reports = stage.scratch.fifo("workspace/reports").signals();
    let mut ready = stage.scratch.fifo("workspace/ready").signals();
    let cmd = "stty -echo; echo ready > ready; while read -r line; do echo got $line; echo $line > reports; \
               test $line = end && break; done";
    let holding = Arc::clone(&proxy);
    let script = Script::new()
        .item(exec_in_background("c1", cmd, true))
        .answer(move |request| async move {
            ready.next("the command is ready").await;
            holding.hold_replies();
            let session = session_id(&request.output_text("c1"));
            vec![write_stdin_and_yield("c2", session, "once\n", SHORT_YIELD_MS)]
        })
        .answer(
            |request| async move { vec![write_stdin("c3", session_id(&request.output_text("c1")), "end\n")] },
        )
        .item(say("done"));
    let model = MockModel::start(script).await;
    let codex = Codex::new(&stage.scratch).spawn(stage.reach(), &model);

    // The server has done the write, and the client has no answer to it: after the cut it sends the write again.
    assert_eq!(reports.next("the write arrives").await, "once");
    proxy.cut().await;
    proxy.mend();
    assert_eq!(reports.next("the second write arrives").await, "end");
    codex.finish().await.assert_success();

    let played = Played::of(model);
    let outputs = ["c1", "c2", "c3"].map(|call| played.output(call));
    let seen = outputs.iter().map(|output| printed(output).replace('\r', "")).collect::<String>();
    assert_eq!((exit_code(&outputs[2]), seen.as_str()), (Some(0), "got once\ngot end\n"));
    stage.finish(&played).await;
}

async fn a_start_in_flight_is_called_off(mut stage: Stage) {
    let proxy = Arc::new(behind_a_proxy(&mut stage).await);
    let mut lifetime = stage.scratch.fifo("workspace/alive").lifetime();
    let holding = Arc::clone(&proxy);
    let script = Script::new()
        .answer(move |_| async move {
            holding.hold_replies();
            vec![exec("c1", "exec 9> alive; echo here >&9; sleep 300")]
        })
        .item(exec("c2", "echo next"))
        .item(say("done"));
    let model = MockModel::start(script).await;
    let codex = Codex::new(&stage.scratch).spawn(stage.reach(), &model);

    lifetime.began("the command starts").await;
    proxy.cut().await;
    proxy.mend();
    lifetime.ended("the client calls the command off").await;
    codex.finish().await.assert_success();

    let played = Played::of(model);
    assert!(played.output("c1").contains("exec-server transport disconnected"), "{}", played.output("c1"));
    assert_ran(&played.output("c2"), 0, "next\n");
    assert_eq!(stage.canaries.touched(), [] as [&Path; 0]);
}
