//! Rules that change: a workspace narrows them, the configuration is edited, and running sessions follow at once.
//!
//! Invariant: a mistake leaves the rules as they were, and is told.

use legion_tests::audit::Audit;
use legion_tests::child::Finished;
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade, WsClient};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Exit codes (design.md, after sysexits).
const REFUSED: i32 = 77;
const CONFIG: i32 = 78;

async fn exec(scratch: &Scratch, words: &str) -> Finished {
    let workspace = scratch.workspace().display().to_string();
    let line = format!("exec --workspace {workspace} -- {words}");
    legion::run(scratch, &line.split(' ').collect::<Vec<_>>()).await
}

const NARROW: &str =
    "[[rule]]\nid = \"no-date\"\ncommand = [\"date\"]\ndecision = \"deny\"\nmessage = \"time is up\"\n";

#[tokio::test]
async fn a_workspace_narrows_and_cannot_widen() {
    let scratch = Scratch::new();
    legion::configure(
        &scratch,
        "[[persona.default.rule]]\nid = \"no-who\"\ncommand = [\"whoami\"]\ndecision = \"deny\"\n",
    );
    let widening =
        "network = \"host\"\n[[rule]]\nid = \"who\"\ncommand = [\"whoami\"]\ndecision = \"allow\"\n";
    scratch.write(
        "workspace/.legion.toml",
        format!("network = \"host\"\n{NARROW}{}", widening.split_once('\n').unwrap().1),
    );
    let refused = exec(&scratch, "date").await;
    assert_eq!(refused.code(), REFUSED, "{refused:#?}");
    assert!(refused.stderr.contains("rule no-date") && refused.stderr.contains("time is up"), "{refused:#?}");
    assert!(refused.stderr.contains("`network` is not for a workspace"), "{refused:#?}");
    assert!(refused.stderr.contains("rule who would allow something"), "{refused:#?}");
    assert_eq!(exec(&scratch, "whoami").await.code(), REFUSED);
    let inside = exec(&scratch, "rm .legion.toml").await;
    assert_ne!(inside.code(), 0, "the agent cannot take it away: {inside:#?}");
    let audit = Audit::read(&scratch);
    let notes = audit.events("policyAdopted").next().unwrap()["notes"].to_string();
    assert!(notes.contains("`network`") && notes.contains("rule who"), "{notes}");
}

#[tokio::test]
async fn a_workspace_whose_rules_cannot_be_read_gets_no_session() {
    let scratch = Scratch::new();
    let secret = scratch.write("home/secret.toml", NARROW);
    let file = scratch.workspace().join(".legion.toml");
    for prepare in [
        Box::new(|| std::fs::write(&file, "nonsense").unwrap()) as Box<dyn Fn()>,
        Box::new(|| std::os::unix::fs::symlink(&secret, &file).unwrap()),
        Box::new(|| std::fs::write(&file, "# ".repeat(40_000)).unwrap()),
    ] {
        let _ = std::fs::remove_file(&file);
        prepare();
        let refused = exec(&scratch, "true").await;
        assert_eq!(refused.code(), CONFIG, "{refused:#?}");
        assert!(refused.stderr.contains("cannot use .legion.toml of the workspace"), "{refused:#?}");
    }
}

/// A client of a session that `start` has opened.
async fn client(controller: &Controller) -> WsClient {
    let endpoint = Endpoint::of_url(&controller.ready.url);
    let mut client = Upgrade::new(endpoint).token(&controller.token).connect().await.unwrap();
    client.initialize(None).await.unwrap();
    client
}

/// Whether reading a path that is not there is refused by a rule.
async fn is_refused(client: &mut WsClient, scratch: &Scratch) -> bool {
    let path = format!("file://{}/secret/x", scratch.workspace().display());
    let error: Value = client.call("fs/readFile", json!({ "path": path })).await.unwrap_err();
    error["code"] == -32077
}

const CLOSED: &str = "[[persona.default.rule]]\nid = \"closed\"\npath = \"secret/**\"\ndecision = \"deny\"\n";

#[tokio::test]
async fn running_sessions_follow_the_configuration() {
    let scratch = Scratch::new();
    legion::configure(&scratch, "");
    let controller = Controller::start(&scratch, &[]).await;
    let mut client = client(&controller).await;
    assert!(!is_refused(&mut client, &scratch).await);
    let adopted = |audit: &Audit, count| audit.events("policyAdopted").count() >= count;
    legion::configure(&scratch, CLOSED);
    let audit = Audit::wait(&scratch, "the new rules", |audit| adopted(audit, 2)).await;
    assert!(is_refused(&mut client, &scratch).await);
    let digests: Vec<_> = audit.events("policyAdopted").map(|record| record["policy"].clone()).collect();
    assert_ne!(digests[0], digests[1]);
    let shown = legion::run(&scratch, &["session", "show", &controller.ready.session, "--json"]).await;
    let shown: Value = serde_json::from_str(&shown.stdout).unwrap();
    assert_eq!(shown["policy"], digests[1]);
    // A mistake changes nothing, and says so.
    legion::configure(&scratch, "[[persona.default.rule]]\nid = 1\n");
    let audit = Audit::wait(&scratch, "the mistake", |audit| audit.events("policyKept").count() > 0).await;
    let why = audit.events("policyKept").next().unwrap()["reason"].to_string();
    assert!(why.contains("legion.toml:2:"), "{why}");
    assert!(is_refused(&mut client, &scratch).await);
    // Without a terminal, SIGHUP reads it again.
    let before = Audit::read(&scratch).events("policyKept").count();
    controller.signal(Signal::HUP);
    Audit::wait(&scratch, "the signal", |audit| audit.events("policyKept").count() > before).await;
    assert!(is_refused(&mut client, &scratch).await);
    let finished = controller.stop().await;
    finished.assert_success();
    assert!(finished.stderr.contains("the rules stay as they were"), "{finished:#?}");
}

#[tokio::test]
async fn running_sessions_follow_the_workspace() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let mut client = client(&controller).await;
    assert!(!is_refused(&mut client, &scratch).await);
    scratch.write("workspace/.legion.toml", CLOSED.replace("persona.default.", ""));
    Audit::wait(&scratch, "the workspace's rules", |audit| {
        audit
            .events("policyAdopted")
            .any(|record| record["reason"].to_string().contains("1 of the workspace"))
    })
    .await;
    assert!(is_refused(&mut client, &scratch).await);
    // What a person has added the agent cannot take away.
    Audit::wait(&scratch, "its protection", |audit| audit.events("pathProtected").count() > 0).await;
    let path = format!("file://{}/.legion.toml", scratch.workspace().display());
    for (method, params) in [
        ("fs/remove", json!({ "path": path, "recursive": false })),
        ("fs/writeFile", json!({ "path": path, "dataBase64": "" })),
    ] {
        client.call(method, params).await.unwrap_err();
    }
    assert!(is_refused(&mut client, &scratch).await);
    controller.stop().await.assert_success();
}

#[tokio::test]
async fn a_configuration_that_is_a_link_is_followed() {
    let scratch = Scratch::new();
    let real = scratch.write("home/dotfiles/rules.toml", "");
    let link = scratch.write("config/legion/legion.toml", "");
    std::fs::remove_file(&link).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let controller = Controller::start(&scratch, &[]).await;
    let mut client = client(&controller).await;
    assert!(!is_refused(&mut client, &scratch).await);
    scratch.write("home/dotfiles/rules.toml", CLOSED);
    Audit::wait(&scratch, "the new rules", |audit| audit.events("policyAdopted").count() >= 2).await;
    assert!(is_refused(&mut client, &scratch).await);
    controller.stop().await.assert_success();
}

#[tokio::test]
async fn every_spelling_of_a_path_gets_the_same_answer() {
    let scratch = Scratch::new();
    legion::configure(&scratch, CLOSED);
    scratch.write("workspace/secret/x", "hidden");
    scratch.write("workspace/open/x", "seen");
    std::os::unix::fs::symlink("secret", scratch.workspace().join("link")).unwrap();
    let controller = Controller::start(&scratch, &[]).await;
    let mut client = client(&controller).await;
    let workspace = scratch.workspace().display().to_string();
    for spelling in [
        "secret/x",
        "secret//x",
        "./secret/./x",
        "open/../secret/x",
        "open/%2e%2e/secret/x",
        "open/%2E./secret/x",
        "secret%2Fx",
        "%73ecret/x",
        "secret/x/",
        "secret/x/.",
        "link/x",
        "open/../link/x",
        "secret\\\\x",
    ] {
        for root in [workspace.as_str(), "/workspace"] {
            let path = format!("file://{root}/{spelling}");
            let error = client.call("fs/readFile", json!({ "path": path })).await.unwrap_err();
            assert_eq!(error["code"], -32077, "{path}: {error}");
            assert_eq!(error["data"]["rule"], "closed", "{path}: {error}");
        }
    }
    for refused in ["secret/x%00", "secret/x?", "secret/x#y"] {
        let path = format!("file://{workspace}/{refused}");
        let error = client.call("fs/readFile", json!({ "path": path })).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{path}: {error}");
    }
    // Another case is another file, and no bytes of a name are the same as others.
    for other in ["SECRET/x", "s%ffcret/x"] {
        let path = format!("file://{workspace}/{other}");
        let error = client.call("fs/readFile", json!({ "path": path })).await.unwrap_err();
        assert_eq!(error["code"], -32004, "{path}: {error}");
    }
    for (method, params) in [
        ("fs/remove", json!({ "path": format!("file://{workspace}"), "recursive": true })),
        (
            "fs/copy",
            json!({ "sourcePath": format!("file://{workspace}/secret"),
            "destinationPath": format!("file://{workspace}/open/y"), "recursive": true }),
        ),
        (
            "fs/copy",
            json!({ "sourcePath": format!("file://{workspace}/open/x"),
            "destinationPath": format!("file://{workspace}/link/y"), "recursive": false }),
        ),
        (
            "fs/walk",
            json!({ "path": format!("file://{workspace}"), "options": { "maxDepth": 3,
            "maxDirectories": 9, "maxEntries": 9, "followDirectorySymlinks": false } }),
        ),
    ] {
        let error = client.call(method, params).await.unwrap_err();
        assert_eq!(error["data"]["rule"], "closed", "{method}: {error}");
    }
    assert_eq!(scratch.read("workspace/secret/x").as_deref(), Some("hidden"));
    controller.stop().await.assert_success();
}
