//! What OpenCode's screen shows of changed files: the facts that its own tools give it, differences as unified diffs.
//!
//! Invariant: pure; nothing of it reaches the model, and a change that is too large to be shown is named all the same.

use std::path::Path;

use serde_json::{Map, Value, json};
use similar::{ChangeTag, TextDiff};

use crate::limits::{DIFF_TIMEOUT, MAX_SHOWN_CHANGE_BYTES};
use crate::tools::Change;

/// Members to be added to a tool's metadata.
pub(super) fn facts(tool: &str, changes: &[Change], cwd: &Path) -> Map<String, Value> {
    let mut facts = Map::new();
    if matches!(tool, "edit" | "write" | "apply_patch") {
        // Without it OpenCode takes the file for one that is not written yet.
        facts.insert("diagnostics".to_owned(), json!({}));
    }
    if tool == "edit"
        && let [change] = changes
    {
        let difference = Difference::of(change);
        let file = json!({
            "file": change.path, "patch": difference.patch, "additions": difference.additions, "deletions": difference.deletions,
        });
        facts.insert("filediff".to_owned(), file);
        if let Some(patch) = difference.patch {
            facts.insert("diff".to_owned(), Value::String(patch));
        }
    }
    if tool == "apply_patch" {
        let files: Vec<_> = changes.iter().map(|change| file(change, cwd)).collect();
        facts.insert("files".to_owned(), Value::Array(files));
    }
    facts
}

/// One file of a patch.
fn file(change: &Change, cwd: &Path) -> Value {
    let kind = match (&change.moved_from, &change.before, &change.after) {
        (Some(_), ..) => "move",
        (None, None, _) => "add",
        (None, Some(_), None) => "delete",
        (None, Some(_), Some(_)) => "update",
    };
    let difference = Difference::of(change);
    let mut file = json!({
        "filePath": change.moved_from.as_ref().unwrap_or(&change.path),
        "relativePath": change.path.strip_prefix(cwd).unwrap_or(&change.path),
        "type": kind,
        "patch": difference.patch.unwrap_or_default(),
        "additions": difference.additions,
        "deletions": difference.deletions,
    });
    if change.moved_from.is_some() {
        file["movePath"] = json!(change.path);
    }
    file
}

#[derive(Default)]
struct Difference {
    patch: Option<String>,
    additions: usize,
    deletions: usize,
}

impl Difference {
    fn of(change: &Change) -> Self {
        let text = |content: &Option<Vec<u8>>| {
            content.as_deref().map(String::from_utf8_lossy).unwrap_or_default().into_owned()
        };
        let size = |content: &Option<Vec<u8>>| content.as_ref().map_or(0, Vec::len);
        if size(&change.before) + size(&change.after) > MAX_SHOWN_CHANGE_BYTES {
            return Self::default();
        }
        let (before, after) = (text(&change.before), text(&change.after));
        let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(&before, &after);
        let count = |tag| diff.iter_all_changes().filter(|line| line.tag() == tag).count();
        let (from, to) = (change.moved_from.as_ref().unwrap_or(&change.path), &change.path);
        let patch =
            diff.unified_diff().header(&from.display().to_string(), &to.display().to_string()).to_string();
        Self { patch: Some(patch), additions: count(ChangeTag::Insert), deletions: count(ChangeTag::Delete) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(moved_from: Option<&str>, before: Option<&[u8]>, after: Option<&[u8]>) -> Change {
        Change {
            path: "/w/d/f".into(),
            moved_from: moved_from.map(Into::into),
            before: before.map(Into::into),
            after: after.map(Into::into),
        }
    }

    #[test]
    fn an_edit_is_shown_as_a_diff() {
        let facts = facts("edit", &[change(None, Some(b"a\nb\n"), Some(b"a\nB\nc\n"))], Path::new("/w"));
        let patch = "--- /w/d/f\n+++ /w/d/f\n@@ -1,2 +1,3 @@\n a\n-b\n+B\n+c\n";
        assert_eq!(facts["diff"], patch);
        assert_eq!(
            facts["filediff"],
            json!({ "file": "/w/d/f", "patch": patch, "additions": 2, "deletions": 1 })
        );
    }

    #[test]
    fn each_file_of_a_patch_says_what_became_of_it() {
        let changes = [
            change(None, None, Some(b"new\n")),
            change(None, Some(b"old"), None),
            change(Some("/w/from"), Some(b"same\n"), Some(b"same\n")),
            change(None, Some(b"\xff\n"), Some(b"x\n")),
        ];
        let facts = facts("apply_patch", &changes, Path::new("/w"));
        let of = |name: &str| {
            facts["files"].as_array().unwrap().iter().map(|file| file[name].clone()).collect::<Vec<_>>()
        };
        assert_eq!(of("type"), ["add", "delete", "move", "update"]);
        assert_eq!(of("relativePath"), ["d/f"; 4]);
        assert_eq!(of("additions"), [1, 0, 0, 1]);
        assert_eq!(facts["files"][2]["filePath"], "/w/from");
        assert_eq!(facts["files"][2]["movePath"], "/w/d/f");
    }

    #[test]
    fn what_is_too_large_is_only_named() {
        let large = vec![b'x'; MAX_SHOWN_CHANGE_BYTES + 1];
        let facts = facts("edit", &[change(None, None, Some(&large))], Path::new("/w"));
        assert_eq!((facts.get("diff"), &facts["filediff"]["file"]), (None, &json!("/w/d/f")));
        assert_eq!(super::facts("read", &[], Path::new("/w")), Map::new());
    }
}
