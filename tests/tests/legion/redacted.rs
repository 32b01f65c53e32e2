//! Secrets in what commands print: taken out for the client where the persona says so, and always out of recordings.
//!
//! Invariant: the secrets are planted in `.env`; what is asserted is what the client got, byte for byte.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use legion_tests::audit::Audit;
use legion_tests::child::Finished;
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade, WsClient};
use serde_json::{Value, json};

const SECRET: &str = "s3cret/with+odd \"chars\"";

fn scratch(persona: &str) -> Scratch {
    let scratch = Scratch::new();
    scratch.write("home/.env", format!("API_KEY='{SECRET}'\nOTHER='never-shown-1'\n"));
    legion::configure(
        &scratch,
        &format!("[persona.default]\n{persona}\n[persona.default.env]\nsecrets = [\"API_KEY\"]\n"),
    );
    scratch
}

async fn exec(scratch: &Scratch, script: &str) -> Finished {
    let workspace = scratch.workspace().display().to_string();
    legion::run(scratch, &["exec", "--workspace", &workspace, "--", "bash", "-c", script]).await
}

#[tokio::test]
async fn every_form_is_taken_out_and_the_rest_stays() {
    let scratch = scratch("redact = true");
    scratch.write("workspace/bytes", (0..=255).cycle().take(300_000).collect::<Vec<u8>>());
    let finished = exec(&scratch, "printf 'x%sy' \"$API_KEY\"; printf 'z%sz' \"$API_KEY\" >&2").await;
    assert_eq!(
        (finished.stdout.as_str(), finished.stderr.as_str()),
        ("x<redacted:API_KEY>y", "z<redacted:API_KEY>z")
    );
    for script in [
        "printf %s \"$API_KEY\" | base64 -w0",
        "printf 'ab%scd' \"$API_KEY\" | base64 -w0",
        "printf %s \"$API_KEY\" | od -An -v -tx1 | tr -d ' \\n'",
        "printf %s \"$API_KEY\" | sed 's/\"/\\\\\"/g'",
        // Over the end of a line.
        "{ head -c 50 /dev/zero; printf %s \"$API_KEY\"; } | base64",
        "{ head -c 20 /dev/zero; printf %s \"$API_KEY\"; } | od -An -v -tx1 | tr -d ' \\n' | fold -w 60",
        "echo 's3cret%2Fwith%2Bodd%20%22chars%22'",
    ] {
        let finished = exec(&scratch, script).await;
        assert!(finished.stdout.contains("<redacted:API_KEY>"), "{script}: {finished:#?}");
    }
    let same = exec(&scratch, "cat bytes | sha256sum; cat bytes > /dev/null; sha256sum < bytes").await;
    let sums: Vec<_> = same.stdout.lines().collect();
    assert_eq!(sums[0], sums[1]);
    // Through the relay, too.
    let finished = exec(&scratch, "cat bytes | base64 -w0").await;
    assert_eq!(
        STANDARD.decode(finished.stdout).unwrap(),
        fs::read(scratch.workspace().join("bytes")).unwrap()
    );
    let audit = Audit::read(&scratch).lines().concat();
    assert!(!audit.contains("s3cret") && !audit.contains("never-shown"), "{audit}");
}

#[tokio::test]
async fn nothing_is_taken_out_unless_the_persona_says_so() {
    let scratch = scratch("");
    assert_eq!(exec(&scratch, "printf %s \"$API_KEY\"").await.stdout, SECRET);
}

struct Scene {
    scratch: Scratch,
    controller: Controller,
    client: WsClient,
}

impl Scene {
    async fn new(persona: &str) -> Self {
        let scratch = scratch(persona);
        let controller = Controller::start(&scratch, &[]).await;
        let upgrade = Upgrade::new(Endpoint::of_url(&controller.ready.url)).token(&controller.token);
        let mut client = upgrade.connect().await.unwrap();
        client.initialize(None).await.unwrap();
        Self { scratch, controller, client }
    }

    async fn start(&mut self, script: &str, tty: bool) {
        let params = json!({
            "processId": "p", "argv": ["/bin/bash", "-c", script],
            "envPolicy": { "inherit": "all", "ignoreDefaultExcludes": true, "exclude": [], "set": {}, "includeOnly": [] },
            "env": { "PATH": "/usr/bin:/bin" }, "tty": tty, "pipeStdin": true,
            "cwd": format!("file://{}", self.scratch.workspace().display()),
        });
        self.client.call("process/start", params).await.unwrap();
    }

    async fn output(&mut self) -> (u64, String) {
        let output = self.client.wait_for("process/output").await;
        (output["seq"].as_u64().unwrap(), decoded(&output["chunk"]))
    }
}

fn decoded(chunk: &Value) -> String {
    String::from_utf8(STANDARD.decode(chunk.as_str().unwrap()).unwrap()).unwrap()
}

#[tokio::test]
async fn a_secret_cut_by_time_is_found_and_what_begins_one_goes_on_in_the_end() {
    let mut scene = Scene::new("redact = true").await;
    scene.start("printf 'a %s' \"${API_KEY:0:9}\"; sleep 0.2; printf '%s b' \"${API_KEY:9}\"; read -r x; printf s3cre; read -r x", false).await;
    assert_eq!(scene.output().await, (1, "a <redacted:API_KEY>".to_owned()));
    assert_eq!(scene.output().await, (2, " b".to_owned()));
    let write = json!({ "processId": "p", "chunk": "Cg==", "writeId": "w" });
    scene.client.call("process/write", write).await.unwrap();
    // Nothing more comes, and nothing ends.
    assert_eq!(scene.output().await, (3, "s3cre".to_owned()));
    let read = scene.client.call("process/read", json!({ "processId": "p", "afterSeq": 0 })).await.unwrap();
    let chunks: Vec<_> =
        read["chunks"].as_array().unwrap().iter().map(|chunk| decoded(&chunk["chunk"])).collect();
    assert_eq!(chunks, ["a <redacted:API_KEY>", " b", "s3cre"]);
    scene.controller.stop().await.assert_success();
}

#[tokio::test]
async fn what_a_command_printed_can_be_played_and_holds_no_secret() {
    let mut scene = Scene::new("record = \"64KiB\"").await;
    scene.start("printf 'one\\n%s\\ntwo\\n' \"$API_KEY\"; exit 3", true).await;
    // The client of this persona gets it.
    let mut seen = String::new();
    while !seen.contains("two") {
        seen += &scene.output().await.1;
    }
    assert!(seen.contains(SECRET), "{seen}");
    scene.client.wait_for("process/closed").await;
    let session = scene.controller.ready.session.clone();
    scene.controller.stop().await.assert_success();
    let audit = Audit::read(&scene.scratch);
    let call = audit.calls("process/start").next().unwrap();
    let recording = &audit.outcome(call).unwrap()["outcome"]["recording"];
    let path = scene.scratch.root().join("state/legion/recordings").join(recording["file"].as_str().unwrap());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.len() as u64, recording["bytes"].as_u64().unwrap());
    assert!(!text.contains("s3cret"), "{text}");
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let header = lines.next().unwrap();
    assert_eq!(
        (&header["version"], &header["width"], &header["height"]),
        (&json!(2), &json!(80), &json!(24))
    );
    assert!(lines.all(|event| event[0].is_f64() && event[1] == "o" && event[2].is_string()));
    let sum = fs::read(&path).map(|bytes| ring::digest::digest(&ring::digest::SHA256, &bytes)).unwrap();
    let hex = sum.as_ref().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    assert_eq!(recording["sha256"], hex);

    let played = legion::run(&scene.scratch, &["audit", "replay", &session]).await;
    played.assert_success();
    assert!(played.stdout.ends_with("one\r\n<redacted:API_KEY>\r\ntwo\r\n"), "{played:#?}");
    assert_eq!(legion::run(&scene.scratch, &["audit", "replay", "nobodyss"]).await.code(), 64);
}

#[tokio::test]
async fn a_secret_is_found_where_the_connection_was_lost_in_the_middle_of_it() {
    let mut scene = Scene::new("redact = true\nrecord = \"64KiB\"").await;
    let upgrade = Upgrade::new(Endpoint::of_url(&scene.controller.ready.url)).token(&scene.controller.token);
    let mut client = upgrade.connect().await.unwrap();
    let id = client.initialize(None).await.unwrap()["sessionId"].as_str().unwrap().to_owned();
    scene.client = client;
    let mut reports = scene.scratch.fifo("workspace/reports").signals();
    let gate = scene.scratch.fifo("workspace/gate").gate();
    let script = "printf 'one.'; read -r _ < gate; printf 'a.%s' \"${API_KEY:0:9}\"; echo half > reports; \
                  read -r _; printf '%s b' \"${API_KEY:9}\"";
    scene.start(script, false).await;
    assert_eq!(scene.output().await, (1, "one.".to_owned()));
    scene.client = upgrade.connect().await.unwrap();
    gate.open();
    assert_eq!(reports.next("half of it is printed").await, "half");
    // Its client comes back, and reads what was printed meanwhile.
    scene.client.initialize(Some(&id)).await.unwrap();
    let read = scene.client.call("process/read", json!({ "processId": "p", "afterSeq": 1 })).await.unwrap();
    let read: Vec<_> =
        read["chunks"].as_array().unwrap().iter().map(|chunk| decoded(&chunk["chunk"])).collect();
    assert_eq!(read.concat(), "", "it may go on");
    let write = json!({ "processId": "p", "chunk": "Cg==", "writeId": "x" });
    scene.client.call("process/write", write).await.unwrap();
    let mut seen = String::new();
    while !seen.ends_with(" b") {
        seen += &scene.output().await.1;
    }
    assert_eq!(seen, "a.<redacted:API_KEY> b");
    scene.client.wait_for("process/closed").await;
    let session = scene.controller.ready.session.clone();
    scene.controller.stop().await.assert_success();
    let played = legion::run(&scene.scratch, &["audit", "replay", &session]).await;
    assert!(played.stdout.ends_with("one.a.<redacted:API_KEY> b"), "{played:#?}");
}
