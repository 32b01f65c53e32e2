//! Tokens and sessions of a running controller: issued, expired, revoked, killed.
//!
//! Invariant: the end of a session is seen as the end of its connection and of its commands, not by waiting.

use legion_tests::audit::Audit;
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Refusal, Upgrade};
use serde_json::{Value, json};

struct Scene {
    scratch: Scratch,
    controller: Controller,
}

impl Scene {
    async fn new() -> Self {
        let scratch = Scratch::new();
        let controller = Controller::start(&scratch, &[]).await;
        Self { scratch, controller }
    }

    /// `legion-controller ARGS…`, which must succeed.
    async fn run(&self, args: &[&str]) -> String {
        let finished = legion::run(&self.scratch, args).await;
        finished.assert_success();
        finished.stdout
    }

    /// A token for the directory `name` of the scratch.
    async fn issue(&self, name: &str, more: &[&str]) -> Value {
        let workspace = self.scratch.root().join(name).display().to_string();
        let args = [&["token", "issue", "--json", "--workspace", &workspace], more].concat();
        serde_json::from_str(&self.run(&args).await).unwrap()
    }

    fn upgrade(&self, token: &str) -> Upgrade {
        Upgrade::new(Endpoint::of_url(&self.controller.ready.url)).token(token)
    }

    async fn refusal(&self, token: &str) -> Refusal {
        self.upgrade(token).connect().await.expect_err("this token must not open")
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

#[tokio::test]
async fn each_token_has_a_session_of_its_own() {
    let scene = Scene::new().await;
    scene.scratch.make_directory("second");
    scene.scratch.write("second/file.txt", "of the second\n");
    let issued = scene.issue("second", &[]).await;
    assert_ne!(text(&issued, "token"), scene.controller.token);
    let file = scene.scratch.root().join("second/file.txt");
    let read = json!({ "path": format!("file://{}", file.display()) });
    let mut own = scene.upgrade(text(&issued, "token")).connect().await.unwrap();
    let session = own.initialize(None).await.unwrap();
    assert!(own.call("fs/readFile", read.clone()).await.is_ok());
    let mut other = scene.upgrade(&scene.controller.token).connect().await.unwrap();
    assert!(
        other.initialize(Some(text(&session, "sessionId"))).await.is_err(),
        "taken over with another token"
    );
    other.initialize(None).await.unwrap();
    assert_eq!(other.call("fs/readFile", read).await.unwrap_err()["code"], -32004);
}

#[tokio::test]
async fn a_revoked_token_ends_everything() {
    let scene = Scene::new().await;
    let issued = scene.issue("workspace", &[]).await;
    the_end_ends_everything(&scene, &issued, async || {
        scene.run(&["token", "revoke", text(&issued, "session")]).await;
    })
    .await;
}

#[tokio::test]
async fn a_killed_session_ends_everything() {
    let scene = Scene::new().await;
    let issued = scene.issue("workspace", &[]).await;
    the_end_ends_everything(&scene, &issued, async || {
        scene.run(&["session", "kill", text(&issued, "session")]).await;
    })
    .await;
}

#[tokio::test]
async fn an_expired_token_ends_everything() {
    let scene = Scene::new().await;
    let issued = scene.issue("workspace", &["--ttl", "3s"]).await;
    the_end_ends_everything(&scene, &issued, async || {}).await;
}

async fn the_end_ends_everything(scene: &Scene, issued: &Value, end: impl AsyncFnOnce()) {
    let mut lifetime = scene.scratch.fifo("workspace/alive").lifetime();
    let (token, session) = (text(issued, "token"), text(issued, "session"));
    let mut client = scene.upgrade(token).connect().await.unwrap();
    client.initialize(None).await.unwrap();
    let workspace = scene.scratch.workspace().display().to_string();
    let params = json!({
        "processId": "1", "argv": ["/bin/bash", "-c", "exec 9> alive; echo here >&9; sleep 300"],
        "env": { "PATH": "/usr/bin:/bin" }, "cwd": format!("file://{workspace}"), "tty": false,
    });
    client.call("process/start", params).await.unwrap();
    lifetime.began("the command starts").await;
    end().await;
    lifetime.ended("the command ends").await;
    client.ended().await;
    let (known, unknown) = (scene.refusal(token).await, scene.refusal("lgn1_nobodyss_0").await);
    assert_eq!(known.status, 401);
    assert_eq!(known, unknown, "the answer tells that the token was good once");
    let ended = |audit: &Audit| audit.events("sessionEnded").any(|record| record["session"] == session);
    Audit::wait(&scene.scratch, "the end of the session", ended).await;
    Audit::verify(&scene.scratch).await;
}

#[tokio::test]
async fn listings_and_records_hold_no_secret() {
    let scene = Scene::new().await;
    let issued = scene.issue("workspace", &[]).await;
    let token = text(&issued, "token");
    let secret = token.rsplit('_').next().unwrap();
    let mut seen = String::new();
    for args in [&["token", "list"][..], &["token", "list", "--json"], &["session", "list", "--json"]] {
        seen += &scene.run(args).await;
    }
    seen += &scene.run(&["session", "show", text(&issued, "session"), "--json"]).await;
    assert!(seen.matches(text(&issued, "session")).count() >= 4, "{seen}");
    scene.refusal(&format!("{token}x")).await;
    seen += &Audit::read(&scene.scratch).lines().join("\n");
    assert!(!seen.contains(secret), "{seen}");
}
