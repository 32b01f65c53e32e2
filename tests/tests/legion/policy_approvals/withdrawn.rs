//! Questions that nobody needs an answer to any more.
//!
//! Invariant: the list is empty afterwards, the log says what became of the question, and an answer that comes too late
//! is told so.

use legion_tests::audit::Audit;
use legion_tests::legion;
use legion_tests::mock_model::Script;
use legion_tests::model_items::{exec, say};
use legion_tests::scratch::Scratch;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{REFUSED_CODE, RULES, Scene, USAGE, Watch, answer, answered, codex};

/// Waits until the question was put away with these words; it is answered no more.
async fn put_away(scratch: &Scratch, question: &Value, why: &str) {
    let recorded = |audit: &Audit| audit.events("approval").count() == 1;
    let audit = Audit::wait(scratch, "the end of the question", recorded).await;
    let record = audit.events("approval").next().unwrap();
    assert!(record["reason"].as_str().unwrap().contains(why), "{record}");
    assert_eq!(record["decision"], "deny", "{record}");
    let listed = answer(scratch, &["list"]).await;
    assert_eq!(listed.stdout.lines().count(), 1, "the header alone: {listed:#?}");
    let late = answer(scratch, &["approve", question["id"].as_str().unwrap()]).await;
    assert_eq!((late.code(), late.stderr.lines().count()), (USAGE, 1), "{late:#?}");
    assert!(late.stderr.contains("no question") && late.stderr.contains("approvals list"), "{late:#?}");
    assert_eq!(scratch.read("workspace/made"), None);
    Audit::verify(scratch).await;
}

#[tokio::test]
async fn a_command_that_is_terminated_before_it_was_approved_is_not_asked_about() {
    let mut scene = Scene::new().await;
    let token = scene.controller.token.clone();
    let mut client = scene.client(&token).await;
    let id = scene.post(&mut client, "made").await;
    let question = scene.watch.next().await;
    client
        .send_json(&json!({ "id": "t", "method": "process/terminate", "params": { "processId": id } }))
        .await;
    let error = answered(&mut client, &id).await.unwrap_err();
    assert_eq!(error["code"], REFUSED_CODE, "{error}");
    put_away(&scene.scratch, &question, "the client gave it up").await;
    scene.watch.0.stop().await;
    scene.controller.stop().await.assert_success();
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_question_along() {
    let mut scene = Scene::new().await;
    let token = scene.controller.token.clone();
    let mut client = scene.client(&token).await;
    scene.post(&mut client, "made").await;
    let question = scene.watch.next().await;
    drop(client);
    put_away(&scene.scratch, &question, "not answered: the harness").await;
    scene.watch.0.stop().await;
    scene.controller.stop().await.assert_success();
}

#[tokio::test]
async fn a_session_that_is_killed_takes_its_question_along() {
    let mut scene = Scene::new().await;
    let token = scene.controller.token.clone();
    let mut client = scene.client(&token).await;
    scene.post(&mut client, "made").await;
    let question = scene.watch.next().await;
    let session = scene.controller.ready.session.clone();
    legion::run(&scene.scratch, &["session", "kill", &session]).await.assert_success();
    client.ended().await;
    put_away(&scene.scratch, &question, "not answered: session killed").await;
    scene.watch.0.stop().await;
    scene.controller.stop().await.assert_success();
}

#[tokio::test]
async fn codex_that_is_killed_takes_its_question_along() {
    let scratch = Scratch::new();
    legion::configure(&scratch, RULES);
    let mut watch = Watch::start(&scratch);
    let (codex, _model) =
        codex(&scratch, Script::new().item(exec("c1", "touch made")).item(say("done"))).await;
    let question = watch.next().await;
    codex.signal(Signal::KILL);
    put_away(&scratch, &question, "not answered: ").await;
    watch.0.stop().await;
}
