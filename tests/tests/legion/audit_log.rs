//! `legion-controller audit`: reading the log, and noticing that somebody has changed it.
//!
//! Invariant: the log under test was written by real commands.

use std::fs;
use std::path::PathBuf;

use legion_tests::audit::Audit;
use legion_tests::legion;
use legion_tests::scratch::Scratch;
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
    let mut text = fs::read_to_string(&file).unwrap();
    text.truncate(text.len() - 20);
    fs::write(&file, text).unwrap();
    let workspace = scratch.workspace().display().to_string();
    legion::run(&scratch, &["exec", "--workspace", &workspace, "--", "true"]).await.assert_success();
    assert_eq!(Audit::read(&scratch).events("tornTail").count(), 1);
    assert_eq!(verify(&scratch).await, 0);
}
