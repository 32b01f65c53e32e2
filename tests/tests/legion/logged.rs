//! What the audit log has to say after a scenario: every command and every changed file, once, with its end.
//!
//! Invariant: expectations come from what the client told the model, never from the log itself.

use std::path::Path;

use legion_tests::audit::Audit;
use legion_tests::scratch::Scratch;
use serde_json::Value;

use crate::played::{CommandRun, Played};

/// Compares, once the session has ended.
pub(crate) async fn assert_logged(scratch: &Scratch, played: &Played) {
    let commands = played.commands();
    let audit = Audit::read(scratch);
    assert_eq!(audit.calls("process/start").count(), commands.len(), "{:#?}", audit.lines());
    for command in &commands {
        assert_command(&audit, command, &scratch.workspace());
    }
    let (written, deleted) = played.patched();
    for (method, paths) in [("fs/writeFile", written), ("fs/remove", deleted)] {
        for path in paths {
            assert_file(&audit, method, &scratch.workspace().join(path));
        }
    }
    Audit::verify(scratch).await;
}

fn assert_command(audit: &Audit, command: &CommandRun, workspace: &Path) {
    let is_it = |call: &&Value| call["object"]["argv"][2] == command.cmd;
    let found: Vec<_> = audit.calls("process/start").filter(is_it).collect();
    let [call] = found[..] else { panic!("{} records of {command:?}: {:#?}", found.len(), audit.lines()) };
    assert_eq!(call["decision"], "allow", "{call}");
    assert_eq!(call["object"]["argv"][1], "-lc", "{call}");
    assert!(is_path(&call["object"]["cwd"], workspace), "{call}");
    assert!(call["session"].is_string() && call["time"].is_string(), "{call}");
    let outcome = audit.outcome(call).unwrap_or_else(|| panic!("no outcome of {call}"));
    assert!(outcome["seq"].as_u64() > call["seq"].as_u64(), "decided after the fact: {call} {outcome}");
    match command.exit_code {
        Some(code) => assert_eq!(outcome["outcome"]["exitCode"], code, "{command:?}: {outcome}"),
        // The client has left before the end, and so the controller may not have seen it; then it says so.
        None => assert!(
            outcome["outcome"]["exitCode"].is_i64() || outcome["outcome"]["message"].is_string(),
            "{command:?}: {outcome}"
        ),
    }
    assert!(outcome["outcome"]["durationMs"].is_u64(), "{outcome}");
}

fn assert_file(audit: &Audit, method: &str, path: &Path) {
    let is_it = |call: &&Value| call["decision"] == "allow" && is_path(&call["object"]["path"], path);
    let mut calls = audit.calls(method).filter(is_it);
    assert!(calls.next().is_some(), "no {method} of {}: {:#?}", path.display(), audit.lines());
}

/// Whether a record's text names this path, plainly or as a `file:` URI.
fn is_path(text: &Value, path: &Path) -> bool {
    let path = path.to_str().expect("scratch paths are UTF-8");
    let text = text.as_str().unwrap_or_default();
    text == path || text == format!("file://{}", path.replace(' ', "%20"))
}
