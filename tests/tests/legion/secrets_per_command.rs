//! A variable of `.env` for some commands only, and no secret anywhere it does not belong.
//!
//! Invariant: the secrets are planted by the test; where they may be is said by the persona.

use legion_tests::audit::Audit;
use legion_tests::child::Finished;
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade};
use serde_json::json;

const TOKEN: &str = "npm-token-of-the-test";

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("home/.env", format!("NPM_TOKEN={TOKEN}\nOTHER=another-secret\n"));
    legion::configure(
        &scratch,
        r#"
        [[persona.default.rule]]
        id = "print"
        command = ["printenv", "NPM_TOKEN"]
        decision = "allow"
        secrets = ["NPM_TOKEN"]
        "#,
    );
    scratch
}

async fn exec(scratch: &Scratch, command: &[&str]) -> Finished {
    let workspace = scratch.workspace().display().to_string();
    legion::run(scratch, &[&["exec", "--workspace", &workspace, "--"], command].concat()).await
}

#[tokio::test]
async fn only_the_commands_of_the_rule_get_it() {
    let scratch = scratch();
    for command in [&["printenv", "NPM_TOKEN"][..], &["bash", "-lc", "printenv NPM_TOKEN"]] {
        let finished = exec(&scratch, command).await;
        assert_eq!(finished.stdout, format!("{TOKEN}\n"), "{finished:#?}");
    }
    for command in [
        &["env"][..],
        &["bash", "-c", "echo ${NPM_TOKEN-none}"],
        &["bash", "-c", "printenv NPM_TOKEN; env"],
        &["printenv", "OTHER"],
    ] {
        let finished = exec(&scratch, command).await;
        assert!(!finished.stdout.contains(TOKEN) && !finished.stdout.contains("another"), "{finished:#?}");
    }
    let audit = Audit::read(&scratch);
    let granted: Vec<_> = audit.calls("process/start").map(|call| &call["object"]["secrets"]).collect();
    assert_eq!(granted.iter().filter(|names| ***names == json!(["NPM_TOKEN"])).count(), 2);
    assert_eq!(granted.iter().filter(|names| names.is_null()).count(), 4);
    assert!(!audit.lines().concat().contains(TOKEN));
}

#[tokio::test]
async fn a_client_cannot_turn_the_grant_on_another_program() {
    let scratch = scratch();
    scratch.write("workspace/printenv", "#!/bin/sh\nenv\n");
    let controller = Controller::start(&scratch, &[]).await;
    let upgrade = Upgrade::new(Endpoint::of_url(&controller.ready.url)).token(&controller.token);
    let mut client = upgrade.connect().await.unwrap();
    client.initialize(None).await.unwrap();
    let workspace = scratch.workspace().display().to_string();
    for (id, env, argv) in [
        ("1", json!({ "PATH": workspace }), json!(["printenv", "NPM_TOKEN"])),
        ("2", json!({ "PATH": "/usr/bin", "LD_PRELOAD": "/x.so" }), json!(["printenv", "NPM_TOKEN"])),
        ("3", json!({ "PATH": "/usr/bin" }), json!(["./printenv", "NPM_TOKEN"])),
    ] {
        let params = json!({
            "processId": id, "argv": argv, "env": env, "cwd": format!("file://{workspace}"), "tty": false,
        });
        let _ = client.call("process/start", params).await;
    }
    let audit = Audit::read(&scratch);
    for call in audit.calls("process/start") {
        assert!(call["object"]["secrets"].is_null(), "{call}");
    }
    controller.stop().await.assert_success();
}

#[tokio::test]
async fn no_planted_secret_is_in_a_record_a_log_or_an_error() {
    let scratch = Scratch::new();
    let secrets: Vec<String> =
        (0..20).map(|number| format!("pl4nted/{number:02}+value \"{number}\"")).collect();
    let lines: Vec<_> =
        secrets.iter().zip(0..).map(|(secret, number)| format!("S{number}='{secret}'")).collect();
    scratch.write("home/.env", lines.join("\n"));
    legion::configure(
        &scratch,
        "[persona.default]\nrecord = \"1MiB\"\n[persona.default.env]\nsecrets = [\"S*\"]\n\
         [[persona.default.rule]]\nid = \"r\"\ncommand = [\"never\"]\ndecision = \"deny\"\n",
    );
    let mut command = legion::start_command(&scratch, &[]);
    command.env("LEGION_LOG", "trace");
    let controller = Controller::launch(command).await;
    let upgrade = Upgrade::new(Endpoint::of_url(&controller.ready.url)).token(&controller.token);
    let mut client = upgrade.connect().await.unwrap();
    client.initialize(None).await.unwrap();
    let cwd = format!("file://{}", scratch.workspace().display());
    for (number, secret) in secrets.iter().enumerate() {
        // In an argument, in the environment, in what is printed, in names of processes, files and methods.
        let script =
            format!("echo '{secret}' \"$0\" \"$S{number}\"; printf %s \"$S{number}\" | base64; exit 3");
        let params = json!({
            "processId": format!("p {secret}"), "argv": ["/bin/sh", "-c", script, secret], "cwd": cwd, "tty": false,
            "envPolicy": { "inherit": "all", "ignoreDefaultExcludes": true, "exclude": [], "set": {}, "includeOnly": [] },
            "env": { "PATH": "/usr/bin:/bin", format!("V{number}"): secret },
        });
        client.call("process/start", params).await.unwrap();
        client.wait_for("process/closed").await;
        let file = format!("{cwd}/{}", secret.replace('"', "%22").replace(' ', "%20"));
        let _ = client.call("fs/readFile", json!({ "path": file })).await;
        assert!(client.call(&format!("x/{secret}"), json!({})).await.is_err());
        assert!(client.call("process/start", json!({ "processId": secret, "argv": 5 })).await.is_err());
        // Cut where arguments are: put together it is whole.
        let (first, second) = secret.split_once(' ').unwrap();
        let params = json!({ "processId": format!("cut {number}"), "argv": ["/bin/echo", first, second], "cwd": cwd, "tty": false, "env": {} });
        client.call("process/start", params).await.unwrap();
        client.wait_for("process/closed").await;
    }
    // It breaks the protocol, and its name is told.
    client.send_json(&json!({ "id": secrets[0], "result": {} })).await;
    let is_recorded = |audit: &Audit| audit.lines().concat().contains("which nobody asked");
    Audit::wait(&scratch, "the violation", is_recorded).await;
    let shown = legion::run(&scratch, &["session", "show", &controller.ready.session]).await;
    let finished = controller.stop().await;
    let mut seen =
        finished.stdout + &finished.stderr + &shown.stdout + &Audit::read(&scratch).lines().join("\n");
    for more in [&["audit", "export", "--format", "ocsf"][..], &["audit", "query"], &["doctor"]] {
        let finished = legion::run(&scratch, more).await;
        seen += &(finished.stdout + &finished.stderr);
    }
    let recordings = scratch.root().join("state/legion/recordings");
    for entry in std::fs::read_dir(recordings).unwrap() {
        seen += &std::fs::read_to_string(entry.unwrap().path()).unwrap();
    }
    assert!(seen.contains("<redacted:S0>") && seen.contains("<redacted:S19>"));
    assert!(!seen.contains("pl4nted") && !seen.contains("cGw0bnRlZC"), "{}", at(&seen, "pl4nted"));
}

/// Where it stands.
fn at<'a>(text: &'a str, what: &str) -> &'a str {
    text.lines().find(|line| line.contains(what)).unwrap_or_default()
}
