//! Codex with a sandbox of its own wish (`--sandbox`): the environment holds it, here as at the original (SPEC 10).
//!
//! What is refused has the same words at both: a confined command meets a file system that seems to be mounted read-only.

use std::net::TcpListener;

use legion_tests::codex::{Codex, exit_code, printed};
use legion_tests::mock_model::Script;
use legion_tests::model_items::{apply_patch, exec, say};
use tokio::sync::Mutex;

use crate::played::Played;
use crate::stage::Stage;

at_every_place!(reading_only, writing_the_workspace, patching_the_workspace, no_network);

/// The original's sandbox makes its mount points in the host's `/tmp` and removes them at its end, under another one.
static TURN: Mutex<()> = Mutex::const_new(());

const READ_ONLY: &str = "Read-only file system";

async fn play(stage: &Stage, mode: &'static str, script: Script) -> Played {
    let _turn = TURN.lock().await;
    stage.play_with(Codex::new(&stage.scratch).sandbox(mode), script).await
}

async fn reading_only(stage: Stage) {
    stage.scratch.write("workspace/inside.txt", "content\n");
    let script = Script::new()
        .item(exec("read", "cat inside.txt"))
        .item(exec("write", "echo changed > inside.txt"))
        .item(exec("create", "touch new.txt"))
        .item(exec("attributes", "chmod 600 inside.txt"))
        .item(say("done"));
    let played = play(&stage, "read-only", script).await;
    let output = played.output("read");
    assert_eq!((exit_code(&output), printed(&output)), (Some(0), "content\n"));
    for call in ["write", "create", "attributes"] {
        let output = played.output(call);
        assert!(exit_code(&output) == Some(1) && output.contains(READ_ONLY), "{call}: {output}");
    }
    assert_eq!(stage.scratch.read("workspace/inside.txt").as_deref(), Some("content\n"));
    assert_eq!(stage.scratch.read("workspace/new.txt"), None);
    stage.finish(&played).await;
}

async fn writing_the_workspace(stage: Stage) {
    stage.scratch.write("workspace/.git/HEAD", "ref: refs/heads/main\n");
    stage.scratch.write("workspace/src/old.txt", "old\n");
    let canary = stage.canaries.paths()[0].display().to_string();
    let script = Script::new()
        .item(exec("new", "echo top > top.txt && mkdir -p d/e && echo deep > d/e/f && cat top.txt d/e/f"))
        .item(exec("old", "echo more >> src/old.txt && mv src lib && echo tmp > /tmp/legion-test-$$ && rm /tmp/legion-test-$$"))
        .item(exec("git", "echo evil > .git/HEAD"))
        .item(exec("hook", "mkdir .git/hooks && echo evil > .git/hooks/pre-commit"))
        .item(exec("move", "mv .git elsewhere"))
        .item(exec("settings", "mkdir .codex && echo evil > .codex/config.toml"))
        .item(exec("outside", &format!("echo taken > {canary}")))
        .item(say("done"));
    let played = play(&stage, "workspace-write", script).await;
    let output = played.output("new");
    assert_eq!((exit_code(&output), printed(&output)), (Some(0), "top\ndeep\n"));
    assert_eq!(exit_code(&played.output("old")), Some(0), "{}", played.output("old"));
    for call in ["git", "hook", "move", "settings", "outside"] {
        let output = played.output(call);
        assert_ne!(exit_code(&output), Some(0), "{call}: {output}");
    }
    assert!(played.output("git").contains(READ_ONLY), "{}", played.output("git"));
    assert_eq!(stage.scratch.read("workspace/lib/old.txt").as_deref(), Some("old\nmore\n"));
    assert_eq!(stage.scratch.read("workspace/.git/HEAD").as_deref(), Some("ref: refs/heads/main\n"));
    assert_eq!(stage.scratch.read("workspace/.codex/config.toml"), None);
    stage.finish(&played).await;
}

async fn patching_the_workspace(stage: Stage) {
    stage.scratch.write("workspace/.git/HEAD", "ref: refs/heads/main\n");
    stage.scratch.write("workspace/changed.txt", "old\n");
    let text = "*** Begin Patch\n*** Add File: added/new.txt\n+new\n*** Add File: top.txt\n+top\n\
                *** Update File: changed.txt\n@@\n-old\n+new\n*** End Patch\n";
    let script = Script::new().item(apply_patch("c1", text)).item(say("done"));
    let played = play(&stage, "workspace-write", script).await;
    assert!(played.output("c1").contains("Success. Updated the following files:"), "{}", played.output("c1"));
    for (file, content) in [("added/new.txt", "new\n"), ("top.txt", "top\n"), ("changed.txt", "new\n")] {
        let path = format!("workspace/{file}");
        assert_eq!(stage.scratch.read(&path).as_deref(), Some(content), "{file}");
    }
    stage.finish(&played).await;
}

async fn no_network(stage: Stage) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let script = Script::new()
        .item(exec("tcp", &format!("exec 3<>/dev/tcp/127.0.0.1/{port}")))
        .item(exec(
            "pair",
            "python3 -c 'import socket; a, b = socket.socketpair(); a.sendmsg([b\"x\"]); print(b.recv(1))'",
        ))
        .item(say("done"));
    let played = play(&stage, "workspace-write", script).await;
    let output = played.output("tcp");
    assert!(exit_code(&output) == Some(1) && output.contains("Operation not permitted"), "{output}");
    let output = played.output("pair");
    assert_eq!((exit_code(&output), printed(&output)), (Some(0), "b'x'\n"));
    listener.set_nonblocking(true).expect("it is a socket");
    assert!(listener.accept().is_err(), "somebody connected");
    stage.finish(&played).await;
}
