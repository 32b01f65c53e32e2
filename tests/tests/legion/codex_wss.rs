//! Codex over TLS, with a certificate that it is told to trust.

use legion_tests::certificate::Certificates;
use legion_tests::codex::{Codex, assert_ran};
use legion_tests::legion::{self, Controller};
use legion_tests::mock_model::Script;
use legion_tests::model_items::{exec, say};
use legion_tests::scratch::Scratch;
use legion_tests::tls::TlsFront;
use serde_json::json;

use crate::stage::{Place, Stage};

/// The variable by which Codex 0.171.0 is told whom to trust on this connection, a PEM file. Its own
/// `CODEX_CA_CERTIFICATE` has no effect on it.
const TRUST_VARIABLE: &str = "SSL_CERT_FILE";

#[tokio::test]
async fn original_behind_tls() {
    let mut stage = Stage::at(Place::OriginalUrl).await;
    let certificates = Certificates::generate();
    let front = TlsFront::start(&certificates, stage.address()).await;
    stage.set_url(front.url());
    a_command_over_tls(stage, &certificates).await;
}

#[tokio::test]
async fn original_with_an_unknown_authority() {
    let mut stage = Stage::at(Place::OriginalUrl).await;
    let front = TlsFront::start(&Certificates::generate(), stage.address()).await;
    stage.set_url(front.url());
    an_unknown_authority_is_refused(stage).await;
}

#[tokio::test]
async fn legion_wss() {
    let certificates = Certificates::generate();
    a_command_over_tls(legion_over_tls(&certificates).await, &certificates).await;
}

#[tokio::test]
async fn legion_with_an_unknown_authority() {
    an_unknown_authority_is_refused(legion_over_tls(&Certificates::generate()).await).await;
}

async fn legion_over_tls(certificates: &Certificates) -> Stage {
    let scratch = Scratch::new();
    let cert = scratch.write("tls/cert.pem", &certificates.certificate);
    let key = scratch.write("tls/key.pem", &certificates.key);
    // A JSON string is a valid TOML string.
    let config = format!(
        "[controller]\nlisten = [\"wss://127.0.0.1:0\"]\n[controller.tls]\ncert = {}\nkey = {}\n",
        json!(cert),
        json!(key)
    );
    legion::configure(&scratch, &config);
    let controller = Controller::start(&scratch, &[]).await;
    assert!(controller.ready.url.starts_with("wss://127.0.0.1:"), "{:?}", controller.ready);
    Stage::legion(scratch, controller.reach(), controller)
}

async fn a_command_over_tls(stage: Stage, certificates: &Certificates) {
    let authority = stage.scratch.write("authority.pem", &certificates.authority);
    let codex = Codex::new(&stage.scratch).env(TRUST_VARIABLE, &authority);
    let played = stage.play_with(codex, Script::new().item(exec("c1", "echo hello")).item(say("done"))).await;
    let output = played.output("c1");
    assert_ran(&output, 0, "hello\n");
    stage.finish(&played).await;
}

async fn an_unknown_authority_is_refused(stage: Stage) {
    let other = stage.scratch.write("authority.pem", Certificates::generate().authority);
    let codex = Codex::new(&stage.scratch).env(TRUST_VARIABLE, &other);
    let played = stage.play_with(codex, Script::new().item(exec("c1", "touch ran")).item(say("done"))).await;
    assert!(played.output("c1").contains("No usable execution environment"), "{}", played.output("c1"));
    assert_eq!(stage.scratch.read("workspace/ran"), None);
    stage.finish(&played).await;
}
