//! `legion-controller audit`: reading the log, and noticing that somebody has changed it.
//!
//! Invariant: the log under test was written by real commands.

use std::fs;
use std::path::PathBuf;

use legion_tests::audit::Audit;
use legion_tests::child::Child;
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use legion_tests::settings::settings;
use rustix::process::Signal;
use serde_json::Value;

/// Exit code for a refusal (design.md, after sysexits).
const REFUSED: i32 = 77;

async fn with_two_commands() -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let workspace = scratch.workspace().display().to_string();
    for script in ["echo one", "exit 2"] {
        let code = if script == "exit 2" { 2 } else { 0 };
        let args = ["exec", "--workspace", &workspace, "--", "sh", "-c", script];
        assert_eq!(legion::run(&scratch, &args).await.code(), code);
    }
    let files = fs::read_dir(Audit::directory(&scratch)).unwrap().map(|entry| entry.unwrap().path());
    let mut logs = files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let file = logs.next().unwrap();
    assert_eq!(logs.next(), None, "one file is enough for so little");
    (scratch, file)
}

async fn verify(scratch: &Scratch) -> i32 {
    legion::run(scratch, &["audit", "verify"]).await.code()
}

#[tokio::test]
async fn tail_prints_one_record_a_line() {
    let (scratch, _) = with_two_commands().await;
    let finished = legion::run(&scratch, &["audit", "tail", "--json", "-n", "1000"]).await;
    finished.assert_success();
    let shown: Vec<Value> = finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(shown, Audit::read(&scratch).records());
    let numbers: Vec<_> = shown.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=shown.len() as u64).collect::<Vec<_>>());
}

#[tokio::test]
async fn tail_follows() {
    let (scratch, _) = with_two_commands().await;
    let mut all = follow(&scratch, &["--json", "-n", "1"]);
    let first: Value = serde_json::from_str(&all.first_line().await).unwrap();
    assert_eq!(first["event"], "checkpoint");
    let controller = Controller::start(&scratch, &[]).await;
    let session = controller.ready.session.clone();
    let mut of_one = follow(&scratch, &["--session", &session]);
    all.until_stdout("the session's start", |text| text.contains(&session)).await;
    let workspace = scratch.workspace().display().to_string();
    let command = ["exec", "--workspace", &workspace, "--", "sh", "-c", "echo followed; exit 5"];
    assert_eq!(legion::run(&scratch, &command).await.code(), 5);
    all.until_stdout("the call and its outcome", |text| {
        text.contains("echo followed") && text.contains("\"exitCode\":5")
    })
    .await;
    controller.stop().await.assert_success();
    of_one.until_stdout("the session's end", |text| text.contains("sessionEnded controller stopped")).await;
    all.until_stdout("the last record", |text| {
        text.lines().last().is_some_and(|line| line.contains("checkpoint"))
            && text.contains("controllerStopped")
    })
    .await;

    // All of them, each once, in their order; of one session nothing else.
    let shown: Vec<Value> =
        all.stdout().text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let audit = Audit::read(&scratch);
    let from = audit.records().len() - shown.len();
    assert_eq!(shown, audit.records()[from..]);
    let one = of_one.stdout().text();
    assert!(one.lines().all(|line| line.split(' ').nth(2) == Some(session.as_str())), "{one}");
    for child in [all, of_one] {
        child.signal(Signal::INT);
        assert!(!child.finish().await.status.success());
    }
}

#[tokio::test]
async fn tail_ends_with_its_reader() {
    let (scratch, _) = with_two_commands().await;
    let mut command = scratch.command("/bin/bash");
    command
        .args(["-c", "\"$1\" audit tail -f --json | head -n 1; echo \"ended: ${PIPESTATUS[0]}\"", "bash"])
        .arg(settings().legion_binary("legion-controller"));
    // Nothing new is written: that the reader is gone is enough.
    let finished = Child::spawn("audit tail -f | head", command).finish().await;
    assert!(finished.stdout.ends_with("ended: 0\n"), "{finished:#?}");
    assert_eq!(finished.stderr, "");
}

fn follow(scratch: &Scratch, args: &[&str]) -> Child {
    let mut command = legion::command(scratch, &["audit", "tail", "-f"]);
    command.args(args);
    Child::spawn("audit tail -f", command)
}

#[tokio::test]
async fn the_chain_goes_on_from_one_controller_to_the_next() {
    let (scratch, _) = with_two_commands().await;
    assert_eq!(Audit::read(&scratch).events("controllerStarted").count(), 2);
    assert_eq!(verify(&scratch).await, 0);
}

#[tokio::test]
async fn a_changed_record_is_noticed() {
    let (scratch, file) = with_two_commands().await;
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("echo one", "echo two", 1)).unwrap();
    assert_eq!(verify(&scratch).await, REFUSED);
}

#[tokio::test]
async fn a_removed_record_is_noticed() {
    let (scratch, file) = with_two_commands().await;
    let text = fs::read_to_string(&file).unwrap();
    let kept: String = text.split_inclusive('\n').filter(|line| !line.contains("echo one")).collect();
    assert!(kept.len() < text.len());
    fs::write(&file, kept).unwrap();
    assert_eq!(verify(&scratch).await, REFUSED);
}

#[tokio::test]
async fn records_in_another_order_are_noticed() {
    let (scratch, file) = with_two_commands().await;
    let text = fs::read_to_string(&file).unwrap();
    let mut lines: Vec<_> = text.split_inclusive('\n').collect();
    lines.swap(2, 3);
    fs::write(&file, lines.concat()).unwrap();
    assert_eq!(verify(&scratch).await, REFUSED);
}

#[tokio::test]
async fn a_torn_last_line_is_cut_and_recorded() {
    let (scratch, file) = with_two_commands().await;
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text + "{\"e\":{\"seq\":").unwrap();
    let workspace = scratch.workspace().display().to_string();
    legion::run(&scratch, &["exec", "--workspace", &workspace, "--", "true"]).await.assert_success();
    assert_eq!(Audit::read(&scratch).events("tornTail").count(), 1);
    assert_eq!(verify(&scratch).await, 0);
}
