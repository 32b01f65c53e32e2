//! Time-outs, cancelling, signals: a command does not outlive what it was run for.

use legion_tests::audit::Audit;
use legion_tests::chat_model::{call, say};
use legion_tests::child::{Child, Witness};
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::opencode;
use rustix::process::Signal;
use serde_json::json;

use super::{bash, run, user_of};

/// Holds the FIFO `life` open for as long as it lives.
const LIVES: &str = "exec 9> life; echo began >&9; sleep 1000";

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed() {
    let arguments = json!({ "command": LIVES, "timeout": 300, "description": "wait" });
    let script = Script::new().item(call("c1", "bash", &arguments)).item(say("done"));
    let model = MockModel::start(script).await;
    let scratch = user_of(&model);
    let mut life = scratch.fifo("workspace/life").lifetime();
    let ran = run(&scratch, &["Do what the script says."]);
    let died = async {
        life.began("the command runs").await;
        life.ended("the command is dead").await;
    };
    let (finished, ()) = tokio::join!(ran, died);
    finished.assert_success();
    let output = opencode::steps(model.finish())[1].output_text("c1");
    assert!(output.contains("timeout of 300 ms"), "{output}");
}

/// The signal that a terminal sends, and the two that end a service.
#[tokio::test]
async fn a_signal_ends_the_command_too() {
    for signal in [Signal::INT, Signal::TERM, Signal::KILL] {
        let model = MockModel::start(Script::new().item(bash("c1", LIVES)).item(say("done"))).await;
        let scratch = user_of(&model);
        let mut life = scratch.fifo("workspace/life").lifetime();
        let command = opencode::command(&scratch, &["opencode", "run", "Do what the script says."]);
        let child = Child::spawn("legion-controller opencode", command);
        life.began("the command runs").await;
        let audit = Audit::read(&scratch);
        let harness = audit.events("sandboxStarted").nth(1).unwrap()["sandbox"]["pid"].as_u64().unwrap();
        let harness = Witness::of(u32::try_from(harness).unwrap());
        child.signal(signal);
        life.ended(&format!("the command is dead after {signal:?}")).await;
        harness.ended("OpenCode is gone").await;
        let finished = child.finish().await;
        assert!(!finished.status.success(), "{signal:?}: {finished:#?}");
    }
}
