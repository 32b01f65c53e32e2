//! `write`: a whole file.

use serde::Deserialize;
use serde_json::json;

use super::remote::Remote;
use super::{Answer, Answered, ToolError};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Arguments {
    file_path: String,
    content: String,
}

pub(super) async fn run(remote: &Remote, arguments: Arguments) -> Answered {
    let path = remote.path(&arguments.file_path)?;
    let shown = path.path().display();
    let before = remote.metadata(&path).await?;
    if before.as_ref().is_some_and(|metadata| !metadata.is_file) {
        return Err(ToolError::new(format_args!("{shown} is not a regular file, so it cannot be written")));
    }
    remote.write(&path, arguments.content.as_bytes()).await?;
    let (bytes, existed) = (arguments.content.len(), before.is_some());
    let output = format!("{} {shown} ({bytes} bytes)", if existed { "Replaced" } else { "Created" });
    let metadata = json!({ "path": path.path(), "existed": existed, "bytes": bytes });
    Ok(Answer { title: remote.title(&path), output, metadata, ..Answer::default() })
}
