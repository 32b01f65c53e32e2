//! Whatever is missing, there are no tools rather than the host's.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use legion_tests::audit::Audit;
use legion_tests::chat_model::{offered, say};
use legion_tests::child::Child;
use legion_tests::legion::Controller;
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::opencode;
use legion_tests::scratch::Scratch;
use rustix::process::Signal;

use super::{bash, run, user_of};

/// Puts a script in the place of OpenCode, which runs the real one as `$REAL "$@"`.
fn instead(scratch: &Scratch, script: &str) {
    let programs = scratch.home().join(".opencode/bin");
    fs::rename(programs.join("opencode"), programs.join("real")).unwrap();
    let real = programs.join("real").display().to_string();
    let script = format!("#!/bin/bash\nset -e\nREAL={real}\n{script}\n");
    let path = scratch.write("home/.opencode/bin/opencode", script);
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// OpenCode asks the model, which is offered nothing.
async fn no_tools(prepare: impl FnOnce(&Scratch), args: &[&str]) {
    // A request without tools may look like one for a title, which is no step.
    let model = MockModel::start(Script::new()).await;
    let scratch = user_of(&model);
    prepare(&scratch);
    let finished = run(&scratch, args).await;
    let requests = model.requests();
    assert!(!requests.is_empty(), "{finished:#?}");
    for request in requests {
        assert!(offered(&request.body).is_empty(), "{request:#?}");
    }
    let audit = Audit::read(&scratch);
    assert_eq!(audit.calls("process/start").count(), 1, "OpenCode alone: {:#?}", audit.lines());
}

#[tokio::test]
async fn without_plugins() {
    no_tools(|_| {}, &["--pure", "Do something."]).await;
}

#[tokio::test]
async fn without_our_plugin() {
    let script = "cp -r $OPENCODE_CONFIG_DIR /tmp/config; rm /tmp/config/plugin/legion.js; \
                  OPENCODE_CONFIG_DIR=/tmp/config exec $REAL \"$@\"";
    no_tools(|scratch| instead(scratch, script), &["Do something."]).await;
}

#[tokio::test]
async fn with_a_broken_plugin() {
    let script = "cp -r $OPENCODE_CONFIG_DIR /tmp/config; echo 'export const Legion = (' > /tmp/config/plugin/legion.js; \
                  OPENCODE_CONFIG_DIR=/tmp/config exec $REAL \"$@\"";
    no_tools(|scratch| instead(scratch, script), &["Do something."]).await;
}

#[tokio::test]
async fn without_the_controller() {
    let script = "LEGION_TOOLS_SOCKET=/run/nobody exec $REAL \"$@\"";
    no_tools(|scratch| instead(scratch, script), &["Do something."]).await;
}

#[tokio::test]
async fn without_the_secret() {
    let script = "LEGION_TOOLS_SECRET=guessed exec $REAL \"$@\"";
    no_tools(|scratch| instead(scratch, script), &["Do something."]).await;
}

#[tokio::test]
async fn with_a_controller_that_says_nothing() {
    // A socket that takes connections and never answers: the greeting has a time limit.
    let script = "python3 -c 'import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(\"/tmp/mute\"); s.listen(); \
                  print(\"ready\", flush=True); time.sleep(100)' > /tmp/ready 2>&1 & \
                  until [ -s /tmp/ready ]; do :; done; LEGION_TOOLS_SOCKET=/tmp/mute exec $REAL \"$@\"";
    no_tools(|scratch| instead(scratch, script), &["Do something."]).await;
}

#[tokio::test]
async fn a_controller_killed_in_the_middle_is_one_clear_error() {
    let script = Script::new()
        .item(bash("c1", "echo began > began; echo x > canary-1; sleep 1000"))
        .item(bash("c2", "echo x > canary-2"))
        .item(say("done"));
    let model = MockModel::start(script).await;
    let scratch = user_of(&model);
    let mut began = scratch.fifo("workspace/began").signals();
    let controller = Controller::start(&scratch, &[]).await;
    let child = Child::spawn(
        "legion-controller opencode",
        opencode::command(&scratch, &["opencode", "run", "Do it."]),
    );
    began.next("the command runs").await;
    controller.signal(Signal::KILL);
    let finished = child.finish().await;
    finished.assert_success();
    let requests = opencode::steps(model.finish());
    for id in ["c1", "c2"] {
        let output = requests[2].output_text(id);
        assert_eq!(output.lines().count(), 1, "{output}");
        assert!(output.contains("session") || output.contains("sandbox"), "{output}");
    }
    assert_eq!(scratch.read("workspace/canary-2"), None, "nothing ran without a sandbox");
}
