//! Looking into a running session: what it shows of itself, watching a command, letting it live longer.

use legion_tests::audit::Audit;
use legion_tests::child::Child;
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade, WsClient};
use serde_json::{Value, json};

struct Scene {
    scratch: Scratch,
    controller: Controller,
    client: WsClient,
}

impl Scene {
    async fn new(toml: &str) -> Self {
        let scratch = Scratch::new();
        legion::configure(&scratch, toml);
        let controller = Controller::start(&scratch, &[]).await;
        let upgrade = Upgrade::new(Endpoint::of_url(&controller.ready.url)).token(&controller.token);
        let mut client = upgrade.connect().await.unwrap();
        client.initialize(None).await.unwrap();
        Self { scratch, controller, client }
    }

    async fn start(&mut self, id: &str, script: &str, tty: bool) {
        let params = json!({
            "processId": id, "argv": ["/bin/sh", "-c", script], "env": { "PATH": "/usr/bin:/bin" },
            "cwd": format!("file://{}", self.scratch.workspace().display()), "tty": tty, "pipeStdin": true,
        });
        self.client.call("process/start", params).await.unwrap();
    }

    async fn go_on(&mut self, id: &str) {
        let write = json!({ "processId": id, "chunk": "Cg==", "writeId": "w" });
        self.client.call("process/write", write).await.unwrap();
    }

    fn session(&self) -> String {
        self.controller.ready.session.clone()
    }

    async fn show(&self) -> Value {
        let finished = legion::run(&self.scratch, &["session", "show", &self.session(), "--json"]).await;
        finished.assert_success();
        serde_json::from_str(&finished.stdout).unwrap()
    }

    fn attach(&self, more: &[&str]) -> Child {
        let session = self.session();
        let args = [&["session", "attach", &session], more].concat();
        Child::spawn("session attach", legion::command(&self.scratch, &args))
    }
}

#[tokio::test]
async fn a_command_is_watched_to_its_end() {
    let mut scene = Scene::new("").await;
    scene.start("first", "read -r a; echo visible; echo loud >&2; read -r b; exit 3", false).await;
    scene.start("second", "read -r a; echo unseen; read -r b", false).await;
    let mut watching = scene.attach(&["first"]);
    let all = scene.attach(&[]);
    let watched = |audit: &Audit| audit.events("watched").count() == 2;
    Audit::wait(&scene.scratch, "both watch", watched).await;
    for id in ["second", "first"] {
        scene.go_on(id).await;
        scene.client.wait_for("process/output").await;
    }
    watching
        .until_stdout("what the command printed", |text| text.contains("visible") && text.contains("loud"))
        .await;
    let shown = scene.show().await;
    let ids: Vec<_> = shown["processes"].as_array().unwrap().iter().map(|process| &process["id"]).collect();
    assert_eq!(ids, ["first", "second"]);
    assert_eq!(shown["processes"][0]["outputBytes"], 13);
    assert!(shown["processes"][0]["command"].as_str().unwrap().starts_with("/bin/sh -c read"), "{shown}");
    assert!(shown["sandbox"]["bwrap"].as_str().unwrap().contains("bubblewrap"), "{shown}");
    assert_eq!(shown["sandbox"]["argumentsSha256"].as_str().unwrap().len(), 64);

    let call = shown["processes"][0]["call"].to_string();
    let write = json!({ "processId": "first", "chunk": "Cg==", "writeId": "w2" });
    scene.client.call("process/write", write).await.unwrap();
    let finished = watching.finish().await;
    finished.assert_success();
    assert!(!finished.stdout.contains("unseen"), "{finished:#?}");
    assert!(finished.stderr.contains(&format!("{call} ended with 3")), "{finished:#?}");
    scene.controller.stop().await.assert_success();
    let finished = all.finish().await;
    assert!(finished.stdout.contains("unseen") && finished.stdout.contains("visible"), "{finished:#?}");
}

#[tokio::test]
async fn who_watches_and_does_not_read_delays_nobody() {
    let mut scene = Scene::new("").await;
    scene.start("flood", "read -r a; head -c 33554432 /dev/zero; echo; read -r b; echo end", false).await;
    // A watcher whose output goes nowhere.
    let session = scene.session();
    let mut command = scene.scratch.command("/bin/bash");
    command.args(["-c", "\"$@\" | { read -r -d x; }", "bash"]);
    let plain = legion::command(&scene.scratch, &["session", "attach", &session]);
    command.arg(plain.as_std().get_program()).args(plain.as_std().get_args());
    let mut watching = Child::spawn("a stopped watcher", command);
    Audit::wait(&scene.scratch, "it watches", |audit| audit.events("watched").count() == 1).await;
    watching.signal(rustix::process::Signal::STOP);
    scene.go_on("flood").await;
    let mut bytes = 0;
    while bytes < 33_554_432 {
        let chunk = scene.client.wait_for("process/output").await["chunk"].as_str().unwrap().len();
        bytes += chunk / 4 * 3;
    }
    watching.signal(rustix::process::Signal::CONT);
    let _ = watching.take_stdin();
}

#[tokio::test]
async fn a_session_is_extended_and_ends_all_the_same() {
    let scene = Scene::new("[persona.default]\nttl = \"1h\"\n").await;
    let before = scene.show().await["expires"].as_str().unwrap().to_owned();
    let session = scene.session();
    let extended = legion::run(&scene.scratch, &["session", "extend", &session, "9h"]).await;
    extended.assert_success();
    assert!(scene.show().await["expires"].as_str().unwrap() > before.as_str());
    for (ttl, code) in [("0s", 64), ("900d", 64), ("soon", 64)] {
        assert_eq!(
            legion::run(&scene.scratch, &["session", "extend", &session, ttl]).await.code(),
            code,
            "{ttl}"
        );
    }
    legion::run(&scene.scratch, &["session", "extend", &session, "1s"]).await.assert_success();
    let ended = |audit: &Audit| audit.events("sessionEnded").any(|record| record["reason"] == "expired");
    Audit::wait(&scene.scratch, "its end", ended).await;
    let late = legion::run(&scene.scratch, &["session", "extend", &session, "1h"]).await;
    assert!(late.code() == 64 && late.stderr.contains("has ended: expired"), "{late:#?}");
    let late = legion::run(&scene.scratch, &["session", "attach", &session]).await;
    assert!(late.code() == 64 && late.stderr.contains("has ended"), "{late:#?}");
    assert_eq!(Audit::read(&scene.scratch).events("sessionExtended").count(), 2);
}
