//! How far an approval goes: once, so many times, until a time, for a session, for a workspace.
//!
//! Invariant: every call that is not covered any more is asked about again.

use std::time::Duration;

use legion_tests::audit::Audit;
use legion_tests::legion;
use legion_tests::ws_client::WsClient;
use serde_json::{Value, json};

use super::{REFUSED_CODE, Scene, USAGE, answer, answered};

impl Scene {
    /// Asks, and gives the question.
    async fn question(&mut self, client: &mut WsClient, file: &str) -> (Value, String) {
        let id = self.post(client, file).await;
        let question = self.watch.next().await;
        assert!(question["call"].as_str().unwrap().ends_with(file), "{question}");
        (id, question["id"].as_str().unwrap().to_owned())
    }

    /// The call is asked about, and approved so far.
    async fn approved(&mut self, client: &mut WsClient, file: &str, scope: &[&str]) {
        let (id, question) = self.question(client, file).await;
        let said = answer(&self.scratch, &[&["approve"], scope, &[&question]].concat()).await;
        said.assert_success();
        assert!(said.stdout.starts_with(&format!("{question}: approved ")), "{said:#?}");
        answered(client, &id).await.unwrap();
    }

    /// The call passes without a question.
    async fn passes(&mut self, client: &mut WsClient, file: &str) {
        let params = self.touch(file);
        client.call("process/start", params).await.unwrap();
        assert_eq!(self.waiting().await, Vec::<Value>::new());
    }

    /// The call is asked about; it is denied.
    async fn asks(&mut self, client: &mut WsClient, file: &str) {
        let (id, question) = self.question(client, file).await;
        answer(&self.scratch, &["deny", &question]).await.assert_success();
        assert_eq!(answered(client, &id).await.unwrap_err()["code"], REFUSED_CODE);
    }

    async fn another_session(&self, directory: &str) -> WsClient {
        let workspace = self.scratch.root().join(directory).display().to_string();
        let issued =
            legion::run(&self.scratch, &["token", "issue", "--json", "--workspace", &workspace]).await;
        issued.assert_success();
        let issued: Value = serde_json::from_str(&issued.stdout).unwrap();
        self.client(issued["token"].as_str().unwrap()).await
    }
}

/// An agent that asks and asks.
#[tokio::test]
async fn one_session_does_not_take_all_the_places_of_the_others() {
    let mut scene = Scene::new().await;
    let token = scene.controller.token.clone();
    let mut client = scene.client(&token).await;
    let mut last = Value::Null;
    for number in 0..33 {
        last = scene.post(&mut client, &format!("file{number}")).await;
    }
    let refused = answered(&mut client, &last).await.unwrap_err();
    assert_eq!(refused["data"]["kind"], "approvalUnavailable", "{refused}");
    std::fs::create_dir(scene.scratch.root().join("elsewhere")).unwrap();
    let mut other = scene.another_session("elsewhere").await;
    let params = json!({ "processId": "o", "argv": ["touch", "x"], "env": { "PATH": "/usr/bin" },
        "cwd": format!("file://{}", scene.scratch.root().join("elsewhere").display()), "tty": false });
    other.send_json(&json!({ "id": "o", "method": "process/start", "params": params })).await;
    while scene.watch.next().await["call"] != "touch x" {}
    scene.watch.0.stop().await;
    scene.controller.stop().await.assert_success();
}

#[tokio::test]
async fn each_scope_goes_as_far_as_it_says() {
    let mut scene = Scene::new().await;
    let token = scene.controller.token.clone();
    let mut client = scene.client(&token).await;

    scene.approved(&mut client, "once", &[]).await;
    scene.asks(&mut client, "once").await;

    scene.approved(&mut client, "thrice", &["--times", "3"]).await;
    scene.passes(&mut client, "thrice").await;
    scene.asks(&mut client, "other").await;
    scene.passes(&mut client, "thrice").await;
    scene.asks(&mut client, "thrice").await;

    scene.approved(&mut client, "later", &["--until", "2999-01-01T00:00:00Z"]).await;
    scene.passes(&mut client, "later").await;
    scene.approved(&mut client, "soon", &["--until", "3s"]).await;
    scene.passes(&mut client, "soon").await;
    // It is the time itself that has to pass.
    tokio::time::sleep(Duration::from_secs(3)).await;
    scene.asks(&mut client, "soon").await;

    scene.approved(&mut client, "session", &["--session"]).await;
    scene.approved(&mut client, "good", &["--workspace"]).await;
    let mut other = scene.another_session("workspace").await;
    for file in ["session", "good"] {
        scene.passes(&mut client, file).await;
    }
    scene.asks(&mut other, "session").await;
    scene.passes(&mut other, "good").await;
    scene.scratch.make_directory("elsewhere");
    let mut elsewhere = scene.another_session("elsewhere").await;
    let (id, question) = {
        // The same words in the same directory, of a session for another workspace.
        let mut params = scene.touch("good");
        params["cwd"] = json!(format!("file://{}/elsewhere", scene.scratch.root().display()));
        elsewhere.send_json(&json!({ "id": "e", "method": "process/start", "params": params })).await;
        (json!("e"), scene.watch.next().await)
    };
    answer(&scene.scratch, &["deny", question["id"].as_str().unwrap()]).await.assert_success();
    answered(&mut elsewhere, &id).await.unwrap_err();

    let audit = Audit::read(&scene.scratch);
    let said: Vec<_> =
        audit.events("approval").map(|record| record["reason"].as_str().unwrap().to_owned()).collect();
    for expected in ["approved once", "approved 3 times", "approved until 2", "approved for the session"] {
        assert!(said.iter().any(|said| said.starts_with(expected)), "{expected}: {said:?}");
    }
    let passed: Vec<_> = audit.calls("process/start").map(|call| call["reason"].to_string()).collect();
    assert!(passed.iter().any(|said| said.contains("for good")), "{passed:?}");
    scene.watch.0.stop().await;
    scene.controller.stop().await.assert_success();
}

#[tokio::test]
async fn what_makes_no_sense_approves_nothing() {
    let mut scene = Scene::new().await;
    let token = scene.controller.token.clone();
    let mut client = scene.client(&token).await;
    let (id, question) = scene.question(&mut client, "made").await;
    for (scope, said) in [
        (&["--times", "0"][..], "0"),
        (&["--times", "-1"], "-1"),
        (&["--until", "soon"], "write 30m"),
        (&["--until", "2020-01-01T00:00:00Z"], "is over"),
        (&["--session", "--times", "2"], "cannot be used with"),
    ] {
        let refused = answer(&scene.scratch, &[&["approve", &question], scope].concat()).await;
        assert_eq!((refused.code(), refused.stderr.lines().count()), (USAGE, 1), "{refused:#?}");
        assert!(refused.stderr.contains(said), "{refused:#?}");
    }
    assert_eq!(scene.waiting().await.len(), 1);
    answer(&scene.scratch, &["approve", "--until", "30m", &question]).await.assert_success();
    answered(&mut client, &id).await.unwrap();
    scene.watch.0.stop().await;
}
