//! A session whose connection is cut again and again, anywhere: between frames, in the middle of one, in a handshake.
//!
//! Invariant: at the end everything has happened that was asked for, in order, and nothing has happened twice.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use legion_tests::audit::Audit;
use legion_tests::child::Witness;
use legion_tests::cut_proxy::CutProxy;
use legion_tests::legion::{self, Controller};
use legion_tests::process_table::descendants_of;
use legion_tests::scratch::Scratch;
use serde_json::{Value, json};

use super::resuming::Resuming;
use crate::sandbox::uri;

/// Connections lost in all.
const CUTS: usize = 200;

/// What decides where. Half of the cuts each.
const SEEDS: [u64; 2] = [1, 0x5eed_0f1e_9104];

/// Lines that commands print: seldom some kilobytes, so that output is cut, too, mostly few, so that it is not only that.
const LINES: [usize; 8] = [2, 2, 2, 2, 2, 2, 2, 400];

/// Files that are written in turn.
const FILES: usize = 5;

#[tokio::test]
async fn nothing_is_lost_and_nothing_is_done_twice() {
    let mut repeated = 0;
    for seed in SEEDS {
        let scratch = Scratch::new();
        let controller = Controller::start(&scratch, &[]).await;
        let address = controller.ready.url.strip_prefix("ws://").unwrap().trim_end_matches('/');
        let proxy = CutProxy::start(address.parse().unwrap()).await;
        let mut script =
            Played { client: Resuming::new(proxy, &controller.token, seed), scratch: &scratch, steps: 0 };
        script.start_writer().await;
        while script.client.lost < CUTS / SEEDS.len() {
            script.step().await;
        }
        script.client.calm_down();
        repeated += script.client.repeated;
        let steps = script.steps;
        script.finish().await;
        check(&scratch, steps, seed);

        // The writer goes on, and something that has left its group.
        let inside = descendants_of(controller.pid().unwrap()).unwrap();
        assert!(inside.len() > 3, "{inside:?}");
        let witnesses: Vec<_> = inside.into_iter().map(Witness::of).collect();
        legion::run(&scratch, &["session", "kill", &controller.ready.session]).await.assert_success();
        for witness in witnesses {
            witness.ended("every process of the session ends with it").await;
        }
        controller.stop().await.assert_success();
        Audit::verify(&scratch).await;
    }
    assert!(repeated > 0, "no answer to a start was cut off, so nothing was shown");
}

/// The script, as far as it has been played.
struct Played<'a> {
    client: Resuming,
    scratch: &'a Scratch,
    steps: usize,
}

impl Played<'_> {
    fn command(&self, name: &str, script: &str, stdin: bool) -> Value {
        json!({
            "processId": name, "argv": ["/bin/bash", "-c", script], "env": { "PATH": "/usr/bin:/bin" },
            "cwd": uri(&self.scratch.workspace()), "tty": false, "pipeStdin": stdin,
        })
    }

    /// Notes every line it is given, and says so.
    async fn start_writer(&mut self) {
        let script = "setsid sleep 1000 > /dev/null 2>&1 & \
                      while read -r line; do echo $line >> log; echo noted $line; done";
        let start = self.command("writer", script, true);
        self.client.start(start).await;
    }

    /// A command with an effect, a write with an effect, a file.
    async fn step(&mut self) {
        let step = self.steps;
        self.steps += 1;
        let name = format!("command-{step}");
        let lines = LINES[step % LINES.len()];
        let start = self.command(&name, &format!("echo {name} >> log; seq 1 {lines}; exit 3"), false);
        self.client.start(start).await;
        let write = json!({ "processId": "writer", "writeId": step.to_string(),
            "chunk": STANDARD.encode(format!("line-{step}\n")) });
        let status = self.client.call("process/write", write).await;
        assert_eq!(status, Ok(json!({ "status": "accepted" })));
        let file = uri(&self.scratch.workspace().join(format!("file-{}", step % FILES)));
        let content = STANDARD.encode(format!("content {step}"));
        let answer = self.client.call("fs/writeFile", json!({ "path": file, "dataBase64": content })).await;
        assert_eq!(answer, Ok(json!({})));
        let read = self.client.call("fs/readFile", json!({ "path": file })).await;
        assert_eq!(read, Ok(json!({ "dataBase64": content })));
        let expected = (1..=lines).map(|line| format!("{line}\n")).collect::<Vec<_>>().concat();
        assert_eq!(self.client.end_of(&name).await, (Some(3), expected), "{name}");
    }

    async fn finish(&mut self) {
        let lines = (0..self.steps).map(|step| format!("noted line-{step}\n"));
        let expected = lines.collect::<Vec<_>>().concat();
        let noted = self.client.until("writer", |output, _| output.len() >= expected.len()).await;
        assert_eq!(String::from_utf8(noted).unwrap(), expected);
    }
}

/// What the session has left behind.
fn check(scratch: &Scratch, steps: usize, seed: u64) {
    let log = scratch.read("workspace/log").expect("there is one");
    let mut entries = BTreeMap::<&str, usize>::new();
    log.lines().for_each(|line| *entries.entry(line).or_default() += 1);
    for step in 0..steps {
        for entry in [format!("command-{step}"), format!("line-{step}")] {
            assert_eq!(entries.remove(entry.as_str()), Some(1), "{entry}, seed {seed}");
        }
    }
    assert!(entries.is_empty(), "{entries:?}, seed {seed}");
    let written = log.lines().filter(|line| line.starts_with("line-"));
    assert!(written.eq((0..steps).map(|step| format!("line-{step}"))), "order of writes, seed {seed}");
    for file in 0..FILES.min(steps) {
        let last = (0..steps).rfind(|step| step % FILES == file).expect("it was written");
        let content = scratch.read(format!("workspace/file-{file}"));
        assert_eq!(content, Some(format!("content {last}")), "seed {seed}");
    }
}
