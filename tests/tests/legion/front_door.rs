//! Who is let in (SPEC 1.3, security.md section 6), by a hand-driven client.

use legion_tests::codex::Reach;
use legion_tests::ws_client::{Endpoint, Refusal, Upgrade, WsClient};
use serde_json::json;

use crate::stage::Stage;

at_every_url!(
    the_token_opens,
    without_a_token,
    with_a_wrong_token,
    a_token_in_the_query_does_not_count,
    a_web_page,
);

fn upgrade(stage: &Stage) -> Upgrade {
    Upgrade::new(Endpoint::of_url(stage.url()))
}

fn token(stage: &Stage) -> String {
    match stage.reach() {
        Reach::Url { token: Some(token), .. } => token.clone(),
        other => panic!("no token in {other:?}"),
    }
}

fn status(answer: Result<WsClient, Refusal>) -> u16 {
    answer.map_or_else(|refusal| refusal.status, |_| 101)
}

async fn the_token_opens(stage: Stage) {
    let mut client = upgrade(&stage).token(&token(&stage)).connect().await.unwrap();
    let initialized = client.initialize(None).await.unwrap();
    assert!(initialized["sessionId"].is_string(), "{initialized}");
    let status = client.call("environment/status", json!(null)).await;
    assert_eq!(status, Ok(json!({ "status": "ready" })));
}

async fn without_a_token(stage: Stage) {
    assert_eq!(status(upgrade(&stage).connect().await), 401);
}

async fn with_a_wrong_token(stage: Stage) {
    let wrong = format!("{}x", token(&stage));
    assert_eq!(status(upgrade(&stage).token(&wrong).connect().await), 401);
}

async fn a_token_in_the_query_does_not_count(stage: Stage) {
    let target = format!("/?token={}", token(&stage));
    assert_eq!(status(upgrade(&stage).target(&target).connect().await), 401);
}

async fn a_web_page(stage: Stage) {
    let with_origin = upgrade(&stage).token(&token(&stage)).header("Origin", "http://localhost");
    assert_eq!(status(with_origin.connect().await), 403);
}
