//! `http/request` through the whole path (SPEC 9.6): it leaves as a command's request would, and the log says where to.

use std::net::SocketAddr;

use legion_tests::audit::Audit;
use legion_tests::http1::{read_request, respond};
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade, WsClient};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// A server on loopback that answers every request, and tells the value of `authorization` it came with.
async fn server() -> (SocketAddr, mpsc::UnboundedReceiver<Option<String>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
    let address = listener.local_addr().expect("it is bound");
    let (sender, requests) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let request = read_request(&mut stream).await.expect("a whole request");
            let _ = sender.send(request.header("authorization").map(str::to_owned));
            respond(&mut stream, "200 OK", "text/plain", b"answer").await.expect("the client waits");
        }
    });
    (address, requests)
}

async fn connected(scratch: &Scratch) -> (Controller, WsClient) {
    let controller = Controller::start(scratch, &[]).await;
    let upgrade = Upgrade::new(Endpoint::of_url(&controller.ready.url)).token(&controller.token);
    let mut client = upgrade.connect().await.expect("the token is right");
    client.initialize(None).await.expect("a session");
    (controller, client)
}

fn request(url: &str) -> Value {
    json!({
        "method": "GET", "url": url, "requestId": "r",
        "headers": [{ "name": "Authorization", "value": "Bearer ", "valueEnvVar": "SERVICE_TOKEN" }]
    })
}

const SECRET: &str = "SERVICE_TOKEN=s3cret-of-the-service\n";

#[tokio::test]
async fn a_session_without_network_reaches_nobody() {
    let scratch = Scratch::new();
    legion::configure(&scratch, "[persona.default.env]\nset = { SERVICE_TOKEN = \"x\" }\n");
    let (address, mut requests) = server().await;
    let (controller, mut client) = connected(&scratch).await;
    let url = format!("http://{address}/path");
    let error = client.call("http/request", request(&url)).await.expect_err("there is no network");
    let expected = format!("http/request failed: error sending request for url ({url})");
    assert_eq!((error["code"].as_i64(), error["message"].as_str()), (Some(-32603), Some(expected.as_str())));
    controller.stop().await.assert_success();
    let audit = Audit::read(&scratch);
    let call = audit.calls("http/request").next().expect("the call is in the log");
    assert_eq!(call["object"]["url"], format!("GET {url}"));
    assert_eq!(audit.outcome(call).expect("its outcome, too")["outcome"]["ok"], false);
    assert!(requests.try_recv().is_err(), "the server was reached");
}

#[tokio::test]
async fn a_session_with_network_sends_its_secret_and_the_log_keeps_it() {
    let scratch = Scratch::new();
    legion::configure(
        &scratch,
        "[persona.default]\nnetwork = \"host\"\n[persona.default.env]\nsecrets = [\"SERVICE_*\"]\n",
    );
    scratch.write("home/.env", SECRET);
    let (address, mut requests) = server().await;
    let (controller, mut client) = connected(&scratch).await;
    let url = format!("http://{address}/path?token=s3cret-of-the-service");
    let mut streamed = request(&url);
    streamed["streamResponse"] = true.into();
    let head = client.call("http/request", streamed).await.expect("a response");
    assert_eq!((head["status"].as_i64(), head["bodyBase64"].as_str()), (Some(200), Some("")));
    let (body, end) =
        (client.wait_for("http/request/bodyDelta").await, client.wait_for("http/request/bodyDelta").await);
    assert_eq!(body["deltaBase64"], "YW5zd2Vy");
    assert_eq!((end["seq"].as_i64(), end["done"].as_bool()), (Some(2), Some(true)));
    let authorization = requests.recv().await.expect("one request");
    assert_eq!(authorization.as_deref(), Some("Bearer s3cret-of-the-service"));
    controller.stop().await.assert_success();
    let audit = Audit::read(&scratch);
    let call = audit.calls("http/request").next().expect("the call is in the log");
    assert_eq!(call["object"]["url"], format!("GET http://{address}/path?token=<redacted:SERVICE_TOKEN>"));
    assert!(!audit.lines().iter().any(|line| line.contains("s3cret")), "{:#?}", audit.lines());
    Audit::verify(&scratch).await;
}
