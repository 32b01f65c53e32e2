//! `legion-controller audit query|show|export|tail` and copies to syslog: finding what happened.
//!
//! Invariant: the log under test was written by real commands.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use legion_tests::audit::Audit;
use legion_tests::child::Child;
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade};
use rustix::process::Signal;
use serde_json::{Value, json};

async fn exec(scratch: &Scratch, more: &[&str], script: &str) -> i32 {
    let workspace = scratch.workspace().display().to_string();
    let args = [&["exec", "--workspace", &workspace], more, &["--", "sh", "-c", script]].concat();
    legion::run(scratch, &args).await.code()
}

/// What `audit ARGS…` prints, a JSON object a line.
async fn objects(scratch: &Scratch, args: &[&str]) -> Vec<Value> {
    let finished = legion::run(scratch, &[&["audit"], args].concat()).await;
    finished.assert_success();
    finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

async fn query(scratch: &Scratch, args: &[&str]) -> Vec<Value> {
    objects(scratch, &[&["query", "--json"], args].concat()).await
}

fn seqs(records: &[Value]) -> Vec<u64> {
    records.iter().map(|record| record["seq"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn records_are_found_by_what_they_are_about() {
    let scratch = Scratch::new();
    legion::configure(&scratch, "[persona.other]\n");
    assert_eq!(exec(&scratch, &[], "echo one").await, 0);
    assert_eq!(exec(&scratch, &["--persona", "other"], "echo two; exit 3").await, 3);
    let audit = Audit::read(&scratch);
    let all: Vec<_> = audit.records().to_vec();
    assert_eq!(query(&scratch, &[]).await, all);

    let failed = query(&scratch, &["--exit-code", "3"]).await;
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(query(&scratch, &["--argv", "echo two", "--event", "outcome"]).await, failed);
    let of_other = query(&scratch, &["--persona", "other"]).await;
    assert!(of_other.iter().all(|record| record["session"] == failed[0]["session"]) && of_other.len() > 3);
    let session = failed[0]["session"].as_str().unwrap();
    assert_eq!(query(&scratch, &["--session", session]).await, of_other);
    let calls =
        query(&scratch, &["--method", "process/start", "--decision", "allow", "--event", "call"]).await;
    assert_eq!(seqs(&calls), seqs(&audit.calls("process/start").cloned().collect::<Vec<_>>()));

    let at = failed[0]["time"].as_str().unwrap();
    let until = query(&scratch, &["--until", at]).await;
    let since = query(&scratch, &["--since", at]).await;
    assert!(until.last().unwrap()["seq"].as_u64() >= failed[0]["seq"].as_u64());
    assert!(since.first().unwrap()["seq"].as_u64() <= failed[0]["seq"].as_u64());
    assert_eq!(query(&scratch, &["--since", "1h"]).await, all);
    assert_eq!(query(&scratch, &["--until", "1h"]).await, [Value::Null; 0]);
    let wrong = legion::run(&scratch, &["audit", "query", "--since", "yesterday"]).await;
    assert!(wrong.code() == 64 && wrong.stderr.contains("`yesterday`"), "{wrong:#?}");
}

#[tokio::test]
async fn one_number_leads_from_the_request_to_the_end() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let upgrade = Upgrade::new(Endpoint::of_url(&controller.ready.url)).token(&controller.token);
    let mut client = upgrade.connect().await.unwrap();
    client.initialize(None).await.unwrap();
    let start = json!({
        "processId": "p1", "argv": ["/bin/sh", "-c", "read -r line; exit 4"], "env": { "PATH": "/usr/bin:/bin" },
        "cwd": format!("file://{}", scratch.workspace().display()), "tty": false, "pipeStdin": true,
    });
    client.send_json(&json!({ "id": "mine-7", "method": "process/start", "params": start })).await;
    client
        .call("process/write", json!({ "processId": "p1", "chunk": "YQo=", "writeId": "w" }))
        .await
        .unwrap();
    assert_eq!(client.wait_for("process/exited").await["exitCode"], 4);
    drop(client);
    controller.stop().await.assert_success();
    let audit = Audit::read(&scratch);
    let call = audit.calls("process/start").next().unwrap();
    assert_eq!(call["request"], "mine-7");
    let seq = call["seq"].to_string();
    let shown = objects(&scratch, &["show", "--json", &seq]).await;
    assert_eq!(&shown[0], call);
    let write = shown.iter().find(|record| record["method"] == "process/write").unwrap();
    assert_eq!(write["process"], call["seq"]);
    assert_eq!(shown.last().unwrap()["outcome"]["exitCode"], 4, "{shown:?}");
    // Any of them leads to the others.
    let from_write = objects(&scratch, &["show", "--json", &write["seq"].to_string()]).await;
    assert!(from_write.contains(call), "{from_write:?}");
    let people = legion::run(&scratch, &["audit", "show", &seq]).await;
    assert!(
        people.stdout.contains("\"request\": \"mine-7\"") && people.stdout.contains("\nhash "),
        "{people:#?}"
    );
    assert_eq!(legion::run(&scratch, &["audit", "show", "99999"]).await.code(), 64);
}

#[tokio::test]
async fn exports_hold_every_record() {
    let scratch = Scratch::new();
    assert_eq!(exec(&scratch, &[], "exit 2").await, 2);
    let audit = Audit::read(&scratch);
    let lines = objects(&scratch, &["export", "--format", "jsonl"]).await;
    assert_eq!(lines.iter().map(|line| line["e"].clone()).collect::<Vec<_>>(), audit.records());
    assert!(lines.windows(2).all(|pair| pair[0]["h"] == pair[1]["p"]));
    let events = objects(&scratch, &["export", "--format", "ocsf"]).await;
    assert_eq!(events.len(), audit.records().len());
    for event in &events {
        let number = |name: &str| event[name].as_u64().unwrap_or_else(|| panic!("no {name} in {event}"));
        assert_eq!(number("type_uid"), number("class_uid") * 100 + number("activity_id"));
        assert_eq!(number("category_uid"), number("class_uid") / 1000);
        assert!(number("time") > 0 && event["metadata"]["uid"].is_string(), "{event}");
    }
    let ended = events.iter().find(|event| event["type_uid"] == 100_702).unwrap();
    assert_eq!(ended["exit_code"], 2);
}

#[tokio::test]
async fn tail_waits_for_a_log_that_does_not_exist_yet() {
    let scratch = Scratch::new();
    let mut command = legion::command(&scratch, &["audit", "tail", "-f", "--json"]);
    command.kill_on_drop(true);
    let mut tail = Child::spawn("audit tail -f", command);
    assert_eq!(exec(&scratch, &[], "echo there").await, 0);
    tail.until_stdout("the whole log", |text| text.contains("controllerStopped")).await;
    assert!(tail.stdout().text().starts_with("{\"seq\":1,"));
    tail.signal(Signal::INT);
    tail.finish().await;
}

#[tokio::test]
async fn copies_reach_syslog_with_their_place_in_the_chain() {
    let scratch = Scratch::new();
    let path = scratch.outside().join("log");
    let receiver = UnixDatagram::bind(&path).unwrap();
    scratch.identity().own(&path);
    receiver.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    legion::configure(&scratch, &format!("[audit]\nsyslog = \"{}\"\n", path.display()));
    let reading = std::thread::spawn(move || {
        let mut lines = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        while !lines.last().is_some_and(|line: &String| line.contains("\"controllerStopped\"")) {
            let count = receiver.recv(&mut buffer).unwrap();
            let message = String::from_utf8(buffer[..count].to_vec()).unwrap();
            let (head, line) = message.split_once(" audit - ").unwrap();
            assert!(head.starts_with("<86>1 20") && head.contains(" legion-controller "), "{head}");
            lines.push(line.to_owned());
        }
        lines
    });
    assert_eq!(exec(&scratch, &[], "echo there").await, 0);
    let sent = reading.join().unwrap();
    let file = Audit::directory(&scratch).join("audit-000001.jsonl");
    let text = std::fs::read_to_string(file).unwrap();
    assert_eq!(sent, text.lines().take(sent.len()).collect::<Vec<_>>());
}

#[tokio::test]
async fn two_clients_may_call_their_commands_the_same() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let upgrade = Upgrade::new(Endpoint::of_url(&controller.ready.url)).token(&controller.token);
    let mut clients = Vec::new();
    for code in [3, 4] {
        let mut client = upgrade.connect().await.unwrap();
        client.initialize(None).await.unwrap();
        let params = json!({
            "processId": "1", "argv": ["/bin/sh", "-c", format!("read -r line; echo {code}; exit {code}")],
            "env": { "PATH": "/usr/bin:/bin" }, "tty": false, "pipeStdin": true,
            "cwd": format!("file://{}", scratch.workspace().display()),
        });
        client.call("process/start", params).await.unwrap();
        clients.push(client);
    }
    for client in &mut clients {
        let write = json!({ "processId": "1", "chunk": "Cg==", "writeId": "w" });
        client.call("process/write", write).await.unwrap();
        client.wait_for("process/closed").await;
    }
    let ended = |audit: &Audit| {
        audit.events("outcome").filter(|record| record["outcome"]["exitCode"].is_i64()).count() == 2
    };
    let audit = Audit::wait(&scratch, "both ends", ended).await;
    for (call, code) in audit.calls("process/start").zip([3, 4]) {
        let outcome = &audit.outcome(call).unwrap()["outcome"];
        assert_eq!((&outcome["exitCode"], &outcome["outputBytes"]), (&json!(code), &json!(2)), "{call}");
    }
    for (write, call) in audit.calls("process/write").zip(audit.calls("process/start")) {
        assert_eq!(write["process"], call["seq"]);
    }
    controller.stop().await.assert_success();
}

#[tokio::test]
async fn the_blocks_of_a_file_are_found_by_its_path() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let upgrade = Upgrade::new(Endpoint::of_url(&controller.ready.url)).token(&controller.token);
    let mut client = upgrade.connect().await.unwrap();
    client.initialize(None).await.unwrap();
    let uri = |name: &str| format!("file://{}", scratch.workspace().join(name).display());
    let block = json!({ "handleId": "h", "offset": 0, "chunk": "YQ==" });
    // The same handle for two files, one after the other; the second time it is taken already.
    for (name, is_closed) in [("one", true), ("two", false), ("three", false)] {
        let open = json!({ "handleId": "h", "path": uri(name), "mode": "replace" });
        assert_eq!(client.call("fs/open", open).await.is_ok(), name != "three");
        client.call("fs/writeBlock", block.clone()).await.unwrap();
        if is_closed {
            client.call("fs/close", json!({ "handleId": "h" })).await.unwrap();
        }
    }
    drop(client);
    controller.stop().await.assert_success();
    let opened: Vec<_> = Audit::read(&scratch).calls("fs/open").cloned().collect();
    for (name, open, blocks) in [("one", &opened[0], 1), ("two", &opened[1], 2), ("three", &opened[2], 0)] {
        let path = scratch.workspace().join(name).display().to_string();
        let found = query(&scratch, &["--path", &path, "--method", "fs/writeBlock", "--event", "call"]).await;
        assert_eq!(found.len(), blocks, "{name}: {found:?}");
        assert!(found.iter().all(|block| block["file"] == open["seq"]), "{found:?}");
        let shown = objects(&scratch, &["show", "--json", &open["seq"].to_string()]).await;
        let shown = shown.iter().filter(|record| record["method"] == "fs/writeBlock");
        assert_eq!(shown.count(), blocks, "{name}");
    }
}

#[tokio::test]
async fn the_head_can_be_noted_and_asked_for() {
    let scratch = Scratch::new();
    assert_eq!(legion::run(&scratch, &["audit", "head"]).await.code(), 69);
    assert_eq!(exec(&scratch, &[], "true").await, 0);
    let head = legion::run(&scratch, &["audit", "head"]).await;
    head.assert_success();
    let last = Audit::read(&scratch).records().last().unwrap()["seq"].clone();
    assert!(head.stdout.starts_with(&format!("{last} ")) && head.stdout.lines().count() == 1, "{head:#?}");
    assert_eq!(exec(&scratch, &[], "true").await, 0);
    let verify = legion::run(&scratch, &["audit", "verify", "--expect-head", head.stdout.trim()]).await;
    verify.assert_success();
}
