//! The audit log when things go wrong: it is cut, the disk is full, controllers are killed, start anew, and run side by
//! side.
//!
//! Invariant: what was answered is recorded; what was lost shows.

use std::fs;
use std::path::PathBuf;

use legion_tests::audit::Audit;
use legion_tests::child::Child;
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use legion_tests::settings::settings;
use legion_tests::terminal::Terminal;
use legion_tests::ws_client::{Endpoint, Upgrade, WsClient};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Exit code for a refusal (design.md, after sysexits).
const REFUSED: i32 = 77;

async fn client(controller: &Controller) -> WsClient {
    let upgrade = Upgrade::new(Endpoint::of_url(&controller.ready.url)).token(&controller.token);
    let mut client = upgrade.connect().await.unwrap();
    client.initialize(None).await.unwrap();
    client
}

fn directory(scratch: &Scratch, name: &str) -> Value {
    json!({ "path": format!("file://{}", scratch.workspace().join(name).display()) })
}

fn log(scratch: &Scratch) -> PathBuf {
    Audit::directory(scratch).join("audit-000001.jsonl")
}

async fn verify(scratch: &Scratch, more: &[&str]) -> (i32, String) {
    let finished = legion::run(scratch, &[&["audit", "verify"], more].concat()).await;
    (finished.code(), finished.stdout.clone() + &finished.stderr)
}

async fn exec(scratch: &Scratch, script: &str) -> i32 {
    let workspace = scratch.workspace().display().to_string();
    legion::run(scratch, &["exec", "--workspace", &workspace, "--", "sh", "-c", script]).await.code()
}

#[tokio::test]
async fn a_cut_tail_shows_and_the_log_goes_on() {
    let scratch = Scratch::new();
    assert_eq!(exec(&scratch, "echo one").await, 0);
    let (code, text) = verify(&scratch, &[]).await;
    assert_eq!(code, 0, "{text}");
    let head = text.lines().last().unwrap().rsplit(' ').next().unwrap().to_owned();
    let text = fs::read_to_string(log(&scratch)).unwrap();
    let kept: Vec<_> = text.split_inclusive('\n').take(4).collect();
    fs::write(log(&scratch), kept.concat()).unwrap();

    let (code, text) = verify(&scratch, &[]).await;
    assert!(code == REFUSED && text.contains("records 5 to "), "{code} {text}");
    assert_eq!(exec(&scratch, "echo two").await, 0);
    let (code, text) = verify(&scratch, &[]).await;
    assert!(code == REFUSED && text.contains("records 5 to "), "{code} {text}");
    // Who has looked at it can go on checking the rest; who has noted the head knows better.
    assert_eq!(verify(&scratch, &["--allow-gaps"]).await.0, 0);
    let (code, text) = verify(&scratch, &["--allow-gaps", "--expect-head", &head]).await;
    assert!(code == REFUSED && text.contains(&head), "{code} {text}");
}

#[tokio::test]
async fn a_log_written_anew_does_not_have_the_signatures() {
    let scratch = Scratch::new();
    assert_eq!(exec(&scratch, "echo one").await, 0);
    let key = legion::run(&scratch, &["audit", "key"]).await;
    key.assert_success();
    let file = scratch.write("home/key.pem", &key.stdout);
    let (code, text) = verify(&scratch, &["--pubkey", file.to_str().unwrap()]).await;
    assert!(code == 0 && text.contains(" checkpoints signed by key "), "{code} {text}");
    // The whole state of somebody else: chain, head and key fit each other.
    let other = Scratch::new();
    assert_eq!(exec(&other, "echo two").await, 0);
    let theirs = other.write("home/key.pem", &key.stdout);
    let (code, text) = verify(&other, &["--pubkey", theirs.to_str().unwrap()]).await;
    assert!(code == REFUSED && text.contains("is signed with the key"), "{code} {text}");
}

/// A controller whose disk can be full: it ignores the signal of a file that gets too long, so it gets an error instead.
async fn start_limited(scratch: &Scratch) -> Controller {
    let plain = legion::start_command(scratch, &[]);
    let mut command = scratch.command("/bin/bash");
    command.args(["-c", "trap '' XFSZ; exec \"$@\"", "bash"]);
    command.arg(plain.as_std().get_program()).args(plain.as_std().get_args());
    Controller::launch(command).await
}

/// Limits the length of the files it writes: so much more than the log has now, or not at all.
async fn limit(scratch: &Scratch, controller: &Controller, more: Option<u64>) {
    let bytes = more.map(|more| fs::metadata(log(scratch)).unwrap().len() + more);
    let bytes = bytes.map_or("unlimited".to_owned(), |bytes| bytes.to_string());
    // Only its own user may limit it.
    let mut command = scratch.command("/usr/bin/prlimit");
    command.args(["--pid", &controller.pid().unwrap().to_string(), &format!("--fsize={bytes}:")]);
    Child::spawn("prlimit", command).finish().await.assert_success();
}

#[tokio::test]
async fn what_could_not_be_written_is_written_as_soon_as_it_can_be() {
    let scratch = Scratch::new();
    let mut controller = start_limited(&scratch).await;
    let mut client = client(&controller).await;
    limit(&scratch, &controller, Some(1)).await;
    client.call("fs/noSuchMethod", json!({})).await.unwrap_err();
    // Also the signature that comes in time could not be written; nothing else would happen from here on.
    controller.until_stderr("the failed signature", |text| text.contains("cannot be signed")).await;
    limit(&scratch, &controller, None).await;
    Audit::wait(&scratch, "the refusal", |audit| audit.lines().concat().contains("fs/noSuchMethod")).await;
    controller.stop().await.assert_success();
    let (code, text) = verify(&scratch, &[]).await;
    assert_eq!(code, 0, "{text}");
}

#[tokio::test]
async fn without_room_for_a_record_nothing_is_done() {
    let scratch = Scratch::new();
    let controller = start_limited(&scratch).await;
    let mut client = client(&controller).await;
    client.call("fs/createDirectory", directory(&scratch, "before")).await.unwrap();
    // Room for a part of a record.
    limit(&scratch, &controller, Some(100)).await;
    let refused = client.call("fs/createDirectory", directory(&scratch, "during")).await.unwrap_err();
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("cannot record this call") && message.contains("room"), "{message}");
    assert!(!message.contains(scratch.root().to_str().unwrap()), "{message}");
    assert!(!scratch.workspace().join("during").exists());
    assert!(fs::read_to_string(log(&scratch)).unwrap().ends_with('\n'), "half a record is left");
    // What cannot be undone by refusing it is recorded when there is room again.
    client.call("fs/noSuchMethod", json!({})).await.unwrap_err();

    limit(&scratch, &controller, None).await;
    client.call("fs/createDirectory", directory(&scratch, "after")).await.unwrap();
    assert!(scratch.workspace().join("after").exists());
    controller.stop().await.assert_success();
    let (code, text) = verify(&scratch, &[]).await;
    assert_eq!(code, 0, "{text}");
    let audit = Audit::read(&scratch);
    let refused = audit.records().iter().filter(|record| record["decision"] == "deny").count();
    assert_eq!(refused, 1, "{:#?}", audit.lines());
    let paths = audit.lines().concat();
    assert!(paths.contains("/before") && paths.contains("/after") && !paths.contains("/during"), "{paths}");
}

#[tokio::test]
async fn what_was_answered_survives_kills_and_restarts() {
    let scratch = Scratch::new();
    legion::configure(&scratch, "[audit]\nfile_size = \"8KiB\"\n");
    let mut answered = Vec::new();
    for round in 0..3 {
        let controller = Controller::start(&scratch, &[]).await;
        let mut client = client(&controller).await;
        for number in 0..40 {
            let name = format!("r{round}-{number}");
            client.call("fs/createDirectory", directory(&scratch, &name)).await.unwrap();
            answered.push(format!("/{name}\""));
        }
        // One more is on its way when the controller dies.
        let last =
            json!({ "id": 1000, "method": "fs/createDirectory", "params": directory(&scratch, "last") });
        client.send_json(&last).await;
        controller.signal(Signal::KILL);
        controller.finish().await;
    }
    assert_eq!(exec(&scratch, "true").await, 0);
    let (code, text) = verify(&scratch, &["--allow-gaps"]).await;
    assert_eq!(code, 0, "{text}");
    assert!(!text.contains("missing"), "{text}");
    let records = Audit::read(&scratch).lines().concat();
    for name in answered {
        assert!(records.contains(&name), "{name} was answered and is not recorded");
    }
}

#[tokio::test]
async fn controllers_side_by_side_write_one_log() {
    let scratch = Scratch::new();
    legion::configure(&scratch, "[audit]\nfile_size = \"4KiB\"\nsync = \"always\"\n");
    let runs = (0..4).map(|number| {
        let workspace = scratch.workspace().display().to_string();
        let script = format!("echo {number}");
        let args = ["exec", "--workspace", &workspace, "--", "sh", "-c", &script];
        Child::spawn("exec", legion::command(&scratch, &args))
    });
    for child in runs.collect::<Vec<_>>() {
        child.finish().await.assert_success();
    }
    let (code, text) = verify(&scratch, &[]).await;
    assert_eq!(code, 0, "{text}");
    let audit = Audit::read(&scratch);
    assert_eq!(audit.events("outcome").filter(|record| record["outcome"]["exitCode"] == 0).count(), 4);
    assert!(audit.events("logRotated").count() > 1, "{:#?}", audit.lines());
    // Looking back goes over the borders of files.
    for count in [3, 1000] {
        let tail = legion::run(&scratch, &["audit", "tail", "--json", "-n", &count.to_string()]).await;
        let shown: Vec<Value> = tail.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let from = audit.records().len().saturating_sub(count);
        assert_eq!(shown, audit.records()[from..]);
    }
}

#[tokio::test]
async fn the_end_of_the_session_tells_the_head_on_a_terminal() {
    let scratch = Scratch::new();
    let workspace = scratch.workspace().display().to_string();
    let program = settings().legion_binary("legion-controller").display().to_string();
    let args = ["exec", "--workspace", &workspace, "--", "true"];
    let left = Terminal::spawn(&scratch, &program, &args, 24, 80).finish().await;
    assert!(left.status.success(), "{left:?}");
    let audit = Audit::read(&scratch);
    let head = &audit.records().last().unwrap()["seq"];
    assert!(left.screen.contains(&format!("audit head: record {head} ")), "{left:?}");
}
