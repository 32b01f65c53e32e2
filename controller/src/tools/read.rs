//! `read`: lines of a text file with their numbers, the names in a directory, an image.
//!
//! Invariant: a file of any size is read piece by piece and only as far as asked; the answer is bounded and says what
//! it leaves out.

use legion_protocol::PathUri;
use legion_protocol::fs::Metadata;
use serde::Deserialize;
use serde_json::json;

use super::arguments::whole;
use super::lines::{Lines, Stopped};
use super::remote::Remote;
use super::text::{SAMPLE_BYTES, image_type, is_binary};
use super::{Answer, Answered, Attachment, ToolError};
use crate::limits::{DEFAULT_READ_LINES, MAX_IMAGE_BYTES, MAX_READ_SCAN_BYTES};

/// Bytes asked for at a time, the first time; most files end there.
const FIRST_BLOCK: u64 = 64 << 10;

/// Later ones: the most the protocol allows.
const NEXT_BLOCK: u64 = 1 << 20;

/// Names suggested for one that does not exist.
const SUGGESTIONS: usize = 3;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Arguments {
    file_path: String,
    #[serde(default, deserialize_with = "whole")]
    offset: Option<u64>,
    #[serde(default, deserialize_with = "whole")]
    limit: Option<u64>,
}

pub(super) async fn run(remote: &Remote, arguments: Arguments) -> Answered {
    let path = remote.path(&arguments.file_path)?;
    let first = arguments.offset.unwrap_or(1).max(1);
    let count = arguments.limit.unwrap_or(DEFAULT_READ_LINES).max(1);
    match remote.metadata(&path).await? {
        None => Err(missing(remote, &path).await),
        Some(Metadata { is_directory: true, .. }) => directory(remote, &path, first, count).await,
        Some(Metadata { is_file: true, .. }) => file(remote, &path, first, count).await,
        Some(_) => Err(ToolError::new(format_args!(
            "{} is neither a file nor a directory, so it cannot be read",
            path.path().display()
        ))),
    }
}

/// What the model may have meant instead.
pub(super) async fn missing(remote: &Remote, path: &PathUri) -> ToolError {
    let shown = path.path().display();
    let mut text = format!("{shown} does not exist");
    let name = path.path().file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let parent = path.path().parent().and_then(PathUri::from_path);
    if let Some(parent) = parent.filter(|_| !name.is_empty())
        && let Ok(names) = remote.names(&parent).await
    {
        let similar = |other: &String| {
            let other = other.trim_end_matches('/').to_lowercase();
            !other.is_empty() && (other.contains(&name) || name.contains(&other))
        };
        let paths = names.iter().filter(|name| similar(name)).take(SUGGESTIONS);
        let paths: Vec<_> = paths.map(|name| parent.path().join(name).display().to_string()).collect();
        if !paths.is_empty() {
            text.push_str(". Did you mean one of these?\n");
            text.push_str(&paths.join("\n"));
        }
    }
    ToolError::new(text)
}

async fn directory(remote: &Remote, path: &PathUri, first: u64, count: u64) -> Answered {
    let names = remote.names(path).await?;
    let mut lines = Lines::new(first, count);
    for name in &names {
        lines.push(name.as_bytes());
        lines.push(b"\n");
    }
    lines.end();
    let total = names.len();
    let shown = lines.bare();
    let output = format!(
        "<path>{}</path>\n<type>directory</type>\n<entries>\n{shown}\n({})\n</entries>",
        path.path().display(),
        lines.note("entries")
    );
    let metadata =
        json!({ "path": path.path(), "type": "directory", "entries": total, "truncated": !lines.is_whole() });
    Ok(Answer { title: remote.title(path), output, metadata, ..Answer::default() })
}

async fn file(remote: &Remote, path: &PathUri, first: u64, count: u64) -> Answered {
    let mut open = remote.open(path).await?;
    let (mut block, mut last) = open.next(FIRST_BLOCK).await?;
    if let Some(mime) = image_type(&block) {
        return image(remote, path, mime).await;
    }
    if is_binary(&block[..block.len().min(SAMPLE_BYTES)]) {
        return Err(ToolError::new(format_args!(
            "{} is a binary file; use bash with a program that understands it (file, xxd, strings)",
            path.path().display()
        )));
    }
    let mut lines = Lines::new(first, count);
    let mut scanned = 0;
    loop {
        scanned += block.len() as u64;
        let full = lines.push(&block) == Stopped::Yes;
        if full || last {
            break;
        }
        if scanned > MAX_READ_SCAN_BYTES {
            return Err(ToolError::new(format_args!(
                "line {first} is more than {MAX_READ_SCAN_BYTES} bytes into {}; use bash, e.g. with tail",
                path.path().display()
            )));
        }
        (block, last) = open.next(NEXT_BLOCK).await?;
    }
    if last {
        lines.end();
    }
    if lines.taken() == 0 && first > 1 {
        return Err(ToolError::new(format_args!(
            "there is no line {first} in {}: {}",
            path.path().display(),
            lines.note("lines")
        )));
    }
    let output = format!(
        "<path>{}</path>\n<type>file</type>\n<content>\n{}\n({})\n</content>",
        path.path().display(),
        lines.numbered(),
        lines.note("lines")
    );
    let metadata = json!({ "path": path.path(), "type": "file", "firstLine": first, "lines": lines.taken(), "truncated": !lines.is_whole() });
    Ok(Answer { title: remote.title(path), output, metadata, ..Answer::default() })
}

async fn image(remote: &Remote, path: &PathUri, mime: &'static str) -> Answered {
    let size = remote.metadata(path).await?.map_or(0, |metadata| metadata.size);
    if size > MAX_IMAGE_BYTES {
        return Err(ToolError::new(format_args!(
            "{} is an image of {size} bytes; models take {MAX_IMAGE_BYTES} at most, so make it smaller first",
            path.path().display()
        )));
    }
    let bytes = remote.content(path).await?;
    let output =
        format!("{} is an image ({mime}, {} bytes); it is attached", path.path().display(), bytes.len());
    let metadata = json!({ "path": path.path(), "type": mime, "bytes": bytes.len(), "truncated": false });
    Ok(Answer {
        title: remote.title(path),
        output,
        metadata,
        attachments: vec![Attachment { mime, bytes }],
        ..Answer::default()
    })
}
