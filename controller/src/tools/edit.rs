//! `edit`: one text in a file for another.
//!
//! Invariant: a file is changed only where the text was found, and only when it is clear where; every other byte of it
//! stays as it was, whatever its encoding and its line ends.

use serde::Deserialize;
use serde_json::json;

use super::arguments::flag;
use super::read::missing;
use super::remote::Remote;
use super::replace::{Mismatch, replace};
use super::text::{SAMPLE_BYTES, is_binary};
use super::{Answer, Answered, Change, ToolError};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Arguments {
    file_path: String,
    old_string: String,
    new_string: String,
    #[serde(default, deserialize_with = "flag")]
    replace_all: bool,
}

pub(super) async fn run(remote: &Remote, arguments: Arguments) -> Answered {
    let Arguments { file_path, old_string: old, new_string: new, replace_all } = arguments;
    let path = remote.path(&file_path)?;
    let shown = path.path().display();
    if old == new {
        return Err(ToolError::new("oldString and newString are the same, so there is nothing to change"));
    }
    let before = remote.text(&path).await?;
    let (content, count) = match &before {
        None if old.is_empty() => (new.into_bytes(), 0),
        None => return Err(missing(remote, &path).await),
        Some(before) if old.is_empty() && before.is_empty() => (new.into_bytes(), 0),
        Some(_) if old.is_empty() => {
            return Err(ToolError::new(format_args!(
                "{shown} is not empty: give the text to replace as oldString, or use write to replace all of it"
            )));
        }
        Some(before) if is_binary(&before[..before.len().min(SAMPLE_BYTES)]) => {
            return Err(ToolError::new(format_args!(
                "{shown} is a binary file, which edit does not change; use bash with a program that understands it"
            )));
        }
        Some(before) => replace(before, &old, &new, replace_all).map_err(|mismatch| {
            ToolError::new(format_args!("{shown} was not changed: {}", Explained(&mismatch)))
        })?,
    };
    remote.write(&path, &content).await?;
    let output = match count {
        0 => format!("Created {shown}"),
        1 => format!("Edited {shown}"),
        _ => format!("Edited {shown}: {count} occurrences replaced"),
    };
    let metadata = json!({ "path": path.path(), "replacements": count, "bytes": content.len() });
    let change = Change { path: path.path().to_owned(), moved_from: None, before, after: Some(content) };
    Ok(Answer { title: remote.title(&path), output, metadata, changes: vec![change], ..Answer::default() })
}

/// A mismatch in words for the model.
struct Explained<'a>(&'a Mismatch);

impl std::fmt::Display for Explained<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Mismatch::Nowhere { similar: None } => f.write_str(
                "oldString is not in it; it must match exactly, white space and indentation included. Read the file again",
            ),
            Mismatch::Nowhere { similar: Some(line) } => write!(
                f,
                "oldString is not in it exactly, but the text from line {line} on differs from it in white space only. Read \
                 these lines again and give them as they are"
            ),
            Mismatch::Several { count, lines } => {
                let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
                let more = if *count > lines.len() { ", ..." } else { "" };
                write!(
                    f,
                    "oldString is in it {count} times, at the lines {}{more}. Give more of the text around the place, or set \
                     replaceAll to change every one",
                    lines.join(", ")
                )
            }
        }
    }
}
