//! `apply_patch` through MCP.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use legion_tests::codex::Codex;
use legion_tests::legion;
use legion_tests::mcp_client::{Answer, McpClient};
use legion_tests::mock_model::{MockModel, Script};
use legion_tests::model_items::{apply_patch, say};
use legion_tests::scratch::Scratch;
use serde_json::json;

async fn apply(client: &mut McpClient, body: &str) -> Answer {
    let text = format!("*** Begin Patch\n{body}\n*** End Patch");
    client.call("apply_patch", json!({ "patchText": text })).await
}

#[tokio::test]
async fn files_are_made_changed_moved_and_deleted() {
    let scratch = Scratch::new();
    scratch.write("workspace/change", "one\r\ntwo\r\nthree");
    let moved = scratch.write("workspace/move", "#!/bin/sh\nold\n");
    fs::set_permissions(moved, fs::Permissions::from_mode(0o755)).unwrap();
    scratch.write("workspace/delete", "x");
    let mut client = McpClient::start(&scratch, &[]).await;
    let body = "*** Add File: new/a\n+first\n+second\n*** Update File: change\n one\n-two\n+2\n*** Update File: move\n*** Move to: to/here\n-old\n+new\n*** Delete File: delete";
    let answer = apply(&mut client, body).await;
    let at = |path: &str| scratch.workspace().join(path).display().to_string();
    let lines = [("M", "change"), ("D", "delete"), ("D", "move"), ("A", "new/a"), ("A", "to/here")];
    let lines: Vec<_> = lines.iter().map(|(letter, path)| format!("{letter} {}", at(path))).collect();
    assert_eq!(answer.output(), format!("Done:\n{}", lines.join("\n")));
    assert_eq!(scratch.read("workspace/new/a").as_deref(), Some("first\nsecond\n"));
    assert_eq!(scratch.read("workspace/change").as_deref(), Some("one\r\n2\r\nthree"));
    assert_eq!(scratch.read("workspace/to/here").as_deref(), Some("#!/bin/sh\nnew\n"));
    let mode = fs::metadata(scratch.workspace().join("to/here")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755, "a moved program can still be run");
    assert_eq!((scratch.read("workspace/move"), scratch.read("workspace/delete")), (None, None));
    client.leave().await.assert_success();
}

#[tokio::test]
async fn a_patch_that_does_not_fit_changes_nothing() {
    let scratch = Scratch::new();
    scratch.write("workspace/a", "one\n");
    scratch.write("workspace/b", "two\n");
    scratch.write("workspace/bin", b"\0\0");
    let mut client = McpClient::start(&scratch, &[]).await;
    for (last, what) in [
        ("*** Update File: b\n-three\n+x", "the lines `three` are not there"),
        ("*** Update File: c\n-two\n+x", "does not exist"),
        ("*** Delete File: c", "does not exist"),
        ("*** Update File: b\n*** Move to: bin\n-two\n+x", "exists"),
        ("*** Update File: bin\n-x\n+y", "binary"),
    ] {
        let body = format!("*** Update File: a\n-one\n+1\n*** Add File: new\n+x\n{last}");
        let answer = apply(&mut client, &body).await;
        assert!(
            answer.error().starts_with("nothing was changed: ") && answer.error().contains(what),
            "{answer:?}"
        );
        assert_eq!(scratch.read("workspace/a").as_deref(), Some("one\n"), "{last}");
        assert_eq!(scratch.read("workspace/new"), None, "{last}");
    }
    client.leave().await.assert_success();
}

/// What is read-only inside shows only when it is written: the rest is put back.
#[tokio::test]
async fn a_write_that_fails_takes_the_others_back() {
    let scratch = Scratch::new();
    legion::configure(&scratch, "[persona.default]\nprotect = [\"+locked\"]\n");
    scratch.write("workspace/a", "one\n");
    scratch.write("workspace/locked/f", "two\n");
    let mut client = McpClient::start(&scratch, &[]).await;
    let body = "*** Update File: a\n-one\n+1\n*** Add File: b\n+x\n*** Update File: locked/f\n-two\n+2";
    let answer = apply(&mut client, body).await;
    assert!(
        answer.error().contains("locked/f") && answer.error().ends_with("; nothing was changed"),
        "{answer:?}"
    );
    assert_eq!(scratch.read("workspace/a").as_deref(), Some("one\n"));
    assert_eq!(scratch.read("workspace/b"), None);
    assert_eq!(scratch.read("workspace/locked/f").as_deref(), Some("two\n"));
    client.leave().await.assert_success();
}

#[tokio::test]
async fn operations_see_what_those_before_did() {
    let scratch = Scratch::new();
    scratch.write("workspace/a", "one\ntwo\n");
    let mut client = McpClient::start(&scratch, &[]).await;
    let body = "*** Update File: a\n-one\n+1\n*** Update File: a\n 1\n-two\n+2\n*** Add File: b\n+x\n*** Delete File: b";
    apply(&mut client, body).await.output();
    assert_eq!(scratch.read("workspace/a").as_deref(), Some("1\n2\n"));
    assert_eq!(scratch.read("workspace/b"), None);
    client.leave().await.assert_success();
}

const MOVED: &str = "*** Update File: link\n*** Move to: moved\n@@\n-one\n+two";

fn with_links() -> Scratch {
    let scratch = Scratch::new();
    scratch.write("workspace/target", "one\n");
    scratch.write("outside/kept", "one\n");
    let outside = scratch.outside();
    for (to, link) in [
        (Path::new("target"), "link"),
        (Path::new("not-there"), "dangling"),
        (&outside.join("new"), "away"),
        (&outside, "away-directory"),
    ] {
        symlink(to, scratch.workspace().join(link)).unwrap();
    }
    scratch
}

/// Codex writes a new file, and removes the link; what it led to stays as it was.
#[tokio::test]
async fn a_link_is_moved_as_codex_moves_it() {
    for by_codex in [true, false] {
        let scratch = with_links();
        if by_codex {
            let patch = format!("*** Begin Patch\n{MOVED}\n*** End Patch\n");
            let model =
                MockModel::start(Script::new().item(apply_patch("c1", &patch)).item(say("done"))).await;
            Codex::new(&scratch).run(&legion::connect(&scratch), &model).await.assert_success();
            drop(model);
        } else {
            let mut client = McpClient::start(&scratch, &[]).await;
            let answer = apply(&mut client, MOVED).await;
            assert!(answer.output().contains("/moved"), "{answer:?}");
            client.leave().await.assert_success();
        }
        let file =
            |name: &str| fs::symlink_metadata(scratch.workspace().join(name)).map(|found| found.is_file());
        assert!(matches!(file("moved"), Ok(true)), "by Codex: {by_codex}");
        assert!(file("link").is_err(), "by Codex: {by_codex}");
        assert_eq!(scratch.read("workspace/moved").as_deref(), Some("two\n"));
        assert_eq!(scratch.read("workspace/target").as_deref(), Some("one\n"), "by Codex: {by_codex}");
    }
}

/// Codex writes wherever a link leads; here nothing is moved to where a link is.
#[tokio::test]
async fn nothing_is_moved_to_a_link_or_out_of_the_workspace() {
    let scratch = with_links();
    let mut client = McpClient::start(&scratch, &[]).await;
    let outside = scratch.outside().join("new").display().to_string();
    for to in ["link", "dangling", "away", "away-directory/new", "../outside/new", &outside] {
        let body = format!("*** Update File: target\n*** Move to: {to}\n@@\n-one\n+two");
        let answer = apply(&mut client, &body).await;
        assert!(answer.error().contains("nothing was changed"), "{to}: {answer:?}");
        assert_eq!(scratch.read("workspace/target").as_deref(), Some("one\n"), "{to}");
        assert!(fs::symlink_metadata(scratch.workspace().join("not-there")).is_err(), "{to}");
    }
    let left: Vec<_> =
        fs::read_dir(scratch.outside()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["kept"]);
    client.leave().await.assert_success();
}
