//! What happens around a running sandbox: the host replaces protected files, links are pulled away, processes are killed.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use legion_tests::audit::Audit;
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{Connected, inside, outside, uri};

/// What is promised for the end of everything inside.
const PROMPT: Duration = Duration::from_secs(1);

/// Waits until the log says that a path was protected again, `times` times.
async fn protected_again(scratch: &Scratch, path: &str, times: usize) {
    let path = scratch.workspace().join(path);
    let of_path = |record: &&Value| record["object"]["path"] == *path.to_string_lossy();
    let reached = |audit: &Audit| audit.events("pathProtected").filter(of_path).count() >= times;
    Audit::wait(scratch, "the path is protected again", reached).await;
}

/// Replaces a file as editors and git do it.
fn replace(scratch: &Scratch, path: &str, content: &str) {
    let fresh = scratch.write("outside/fresh", content);
    fs::rename(fresh, scratch.root().join(path)).unwrap();
}

#[tokio::test]
async fn a_secret_file_the_host_replaces_is_hidden_again() {
    let scratch = Scratch::new();
    scratch.write("workspace/.env", "KEY=first-secret-6601\n");
    let mut session = Connected::new(&scratch, &[]).await;
    assert_eq!(session.run(&scratch, "cat .env /workspace/.env").await.output, "");
    replace(&scratch, "workspace/.env", "KEY=second-secret-6602\n");
    protected_again(&scratch, ".env", 1).await;
    let seen = session.run(&scratch, "cat .env /workspace/.env; echo x >> .env").await;
    assert!(!seen.output.contains("secret"), "{seen:?}");
    // Removed and made anew.
    fs::remove_file(scratch.workspace().join(".env")).unwrap();
    scratch.write("workspace/.env", "KEY=third-secret-6603\n");
    protected_again(&scratch, ".env", 2).await;
    let seen = session.run(&scratch, "cat .env /workspace/.env; echo x >> .env").await;
    assert!(!seen.output.contains("secret"), "{seen:?}");
    assert_eq!(scratch.read("workspace/.env").as_deref(), Some("KEY=third-secret-6603\n"));
    session.controller.stop().await.assert_success();
    Audit::verify(&scratch).await;
}

#[tokio::test]
async fn the_hosts_git_config_is_seen_and_stays_read_only() {
    let scratch = Scratch::new();
    outside(&scratch, &scratch.workspace(), "git init -q").await.assert_success();
    let mut session = Connected::new(&scratch, &[]).await;
    for (number, name) in ["Ada", "Grace", "Barbara"].into_iter().enumerate() {
        let set = format!("git config user.name {name}");
        outside(&scratch, &scratch.workspace(), &set).await.assert_success();
        protected_again(&scratch, ".git/config", number + 1).await;
        let script = "git config user.name; git status --short; git config core.fsmonitor false || echo refused; \
                      (echo x >> .git/config) || echo refused; mv .git .git2 || echo refused";
        let ran = session.run(&scratch, script).await;
        assert!(ran.output.starts_with(&format!("{name}\n")), "{ran:?}");
        assert_eq!(ran.output.matches("refused").count(), 3, "{ran:?}");
    }
    session.controller.stop().await.assert_success();
}

#[tokio::test]
async fn of_a_protected_link_the_target_cannot_be_written() {
    let scratch = Scratch::new();
    scratch.write("workspace/editor/tasks.json", "{}\n");
    std::os::unix::fs::symlink("editor", scratch.workspace().join(".vscode")).unwrap();
    let script = "echo x > .vscode/tasks.json; echo x > editor/launch.json; mv editor old";
    let finished = inside(&scratch, &[], script).await;
    assert_ne!(finished.code(), 0, "{finished:#?}");
    assert_eq!(scratch.read("workspace/editor/tasks.json").as_deref(), Some("{}\n"));
    assert_eq!(scratch.read("workspace/editor/launch.json"), None);
    assert_eq!(scratch.read("workspace/old/tasks.json"), None);
}

#[tokio::test]
async fn a_protected_link_that_is_replaced_is_put_back_and_ends_the_session() {
    for replacement in
        ["rm .vscode; mkdir .vscode; echo x > .vscode/tasks.json", "ln -sfn mine .vscode", "rm .vscode"]
    {
        let scratch = Scratch::new();
        scratch.write("workspace/editor/tasks.json", "{}\n");
        scratch.write("workspace/mine/tasks.json", "a trap\n");
        let link = scratch.workspace().join(".vscode");
        std::os::unix::fs::symlink("editor", &link).unwrap();
        let mut session = Connected::new(&scratch, &[]).await;
        session.start(&scratch, &format!("{replacement}; sleep 300")).await;
        session.client.ended().await;
        let tampered = |audit: &Audit| {
            let mut ends = audit.events("sessionEnded");
            ends.any(|record| record["reason"] == "tampered with the repository")
        };
        let audit = Audit::wait(&scratch, "the end of the session", tampered).await;
        assert_eq!(audit.events("violation").count(), 1, "{:#?}", audit.lines());
        assert_eq!(fs::read_link(&link).unwrap(), Path::new("editor"), "after {replacement}");
    }
}

#[tokio::test]
async fn whoever_is_killed_takes_everything_along() {
    for target in ["legion-controller", "bwrap", "the exec-server"] {
        let scratch = Scratch::new();
        let alive = scratch.fifo("workspace/alive");
        let mut lifetime = alive.lifetime();
        let mut session = Connected::new(&scratch, &[]).await;
        // One child in a session of its own, one that ignores what can be ignored.
        let script =
            "exec 9> alive; setsid sleep 300 & (trap '' TERM HUP INT; sleep 300) & echo here >&9; wait";
        session.start(&scratch, script).await;
        lifetime.began("the command starts").await;
        let audit = Audit::read(&scratch);
        let sandbox = &audit.events("sandboxStarted").next().expect("it was recorded")["sandbox"];
        let number =
            |value: &Value| value.as_i64().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let pid = match target {
            "legion-controller" => session.controller.pid().and_then(|pid| Pid::from_raw(pid.cast_signed())),
            "bwrap" => number(&sandbox["pid"]),
            _ => number(&sandbox["innerPid"]),
        };
        let killed = Instant::now();
        kill_process(pid.expect("it runs"), Signal::KILL).unwrap();
        lifetime.ended("everything inside ends").await;
        assert!(killed.elapsed() < PROMPT, "after the end of {target} it took {:?}", killed.elapsed());
    }
}

#[tokio::test]
async fn after_the_death_of_a_sandbox_the_session_gets_another() {
    let scratch = Scratch::new();
    let mut session = Connected::new(&scratch, &[]).await;
    assert_eq!(session.run(&scratch, "echo one > file; echo one > /tmp/file").await.code, 0);
    let audit = Audit::read(&scratch);
    let sandbox = &audit.events("sandboxStarted").next().expect("it was recorded")["sandbox"];
    let pid = sandbox["pid"].as_i64().and_then(|pid| Pid::from_raw(i32::try_from(pid).unwrap()));
    kill_process(pid.unwrap(), Signal::KILL).unwrap();
    session.client.ended().await;
    let ready = &session.controller.ready;
    let upgrade = Upgrade::new(Endpoint::of_url(&ready.url)).token(&session.controller.token);
    session.client = upgrade.connect().await.unwrap();
    session.client.initialize(None).await.unwrap();
    let ran = session.run(&scratch, "cat file; cat /tmp/file 2>/dev/null || echo gone").await;
    assert!(ran.output.starts_with("one\n") && ran.output.ends_with("gone\n"), "{ran:?}");
}

#[tokio::test]
async fn a_session_does_not_see_the_files_of_another() {
    let scratch = Scratch::new();
    let mut first = Connected::new(&scratch, &[]).await;
    assert_eq!(
        first.run(&scratch, "echo x > /tmp/mine; echo x > /dev/shm/mine; echo x > ~/mine").await.code,
        0
    );
    let finished = inside(&scratch, &[], "ls /tmp /dev/shm ~; ls /proc | grep -c '^[0-9]'").await;
    assert!(!finished.stdout.contains("mine"), "{finished:#?}");
    let read = json!({ "path": uri(Path::new("/tmp/mine")) });
    assert!(first.client.call("fs/readFile", read).await.is_ok());
}
