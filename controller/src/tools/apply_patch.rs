//! `apply_patch`: several files in one go.
//!
//! Invariant: every operation is worked out before the first byte is written, so a patch that does not fit changes
//! nothing; when a write fails all the same, what was written before is put back.

use std::collections::BTreeMap;

use legion_protocol::PathUri;
use serde::Deserialize;
use serde_json::json;

use super::patch::{Operation, apply, parse};
use super::read::missing;
use super::remote::Remote;
use super::text::{SAMPLE_BYTES, is_binary};
use super::{Answer, Answered, Change, ToolError};
use crate::limits::MAX_PATCH_BYTES;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Arguments {
    patch_text: String,
}

/// A file before the patch and after it; `None` where there is none.
struct File {
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
    /// The file it was.
    moved_from: Option<PathUri>,
}

/// What the patch comes to. Operations see what those before them have done.
struct Plan<'a> {
    remote: &'a Remote,
    files: BTreeMap<PathUri, File>,
    bytes: usize,
}

pub(super) async fn run(remote: &Remote, arguments: Arguments) -> Answered {
    let refused = |why: &dyn std::fmt::Display| ToolError::new(format_args!("nothing was changed: {why}"));
    let operations = parse(&arguments.patch_text).map_err(|why| refused(&why))?;
    let mut plan = Plan { remote, files: BTreeMap::new(), bytes: 0 };
    for operation in operations {
        plan.add(operation).await.map_err(|error| refused(&error))?;
    }
    plan.carry_out().await?;
    let lines: Vec<String> = plan.files.iter().filter_map(|(path, file)| file.line(path)).collect();
    let files: Vec<_> = plan.files.keys().map(PathUri::path).collect();
    let title = match &files[..] {
        [_] => plan.files.keys().map(|path| remote.title(path)).collect(),
        files => format!("{} files", files.len()),
    };
    let output = if lines.is_empty() {
        "The patch leaves everything as it is".to_owned()
    } else {
        format!("Done:\n{}", lines.join("\n"))
    };
    let metadata = json!({ "files": files });
    Ok(Answer { title, output, metadata, changes: changes(plan.files), ..Answer::default() })
}

/// A moved file is one change, not two.
fn changes(mut files: BTreeMap<PathUri, File>) -> Vec<Change> {
    let moves: Vec<_> =
        files.iter().filter_map(|(to, file)| Some((to.clone(), file.moved_from.clone()?))).collect();
    for (to, from) in &moves {
        let before = files.remove(from).and_then(|file| file.before);
        if let Some(file) = files.get_mut(to) {
            file.before = before;
        }
    }
    let changed = files.into_iter().filter(|(_, file)| file.moved_from.is_some() || file.is_changed());
    let change = |(path, file): (PathUri, File)| Change {
        path: path.path().to_owned(),
        moved_from: file.moved_from.map(|from| from.path().to_owned()),
        before: file.before,
        after: file.after,
    };
    changed.map(change).collect()
}

impl File {
    /// Letter and path, as version control says it.
    fn line(&self, path: &PathUri) -> Option<String> {
        let letter = match (&self.before, &self.after) {
            (None, Some(_)) => 'A',
            (Some(_), None) => 'D',
            (Some(before), Some(after)) if before != after => 'M',
            _ => return None,
        };
        Some(format!("{letter} {}", path.path().display()))
    }

    fn is_changed(&self) -> bool {
        self.before != self.after
    }
}

impl Plan<'_> {
    async fn add(&mut self, operation: Operation) -> Result<(), ToolError> {
        match operation {
            Operation::Add { path, content } => {
                let path = self.remote.path(&path)?;
                self.file(&path).await?;
                self.set(&path, Some(content.into_bytes()))
            }
            Operation::Delete { path } => {
                let path = self.remote.path(&path)?;
                self.existing(&path).await?;
                self.set(&path, None)
            }
            Operation::Update { path, move_to, changes } => {
                let path = self.remote.path(&path)?;
                let content = self.existing(&path).await?;
                let shown = path.path().display();
                if is_binary(&content[..content.len().min(SAMPLE_BYTES)]) {
                    return Err(ToolError::new(format_args!("{shown} is a binary file")));
                }
                let content = apply(&content, &changes)
                    .map_err(|what| ToolError::new(format_args!("{shown}: {what}")))?;
                let Some(to) = move_to else { return self.set(&path, Some(content)) };
                let to = self.remote.path(&to)?;
                if to == path {
                    return self.set(&path, Some(content));
                }
                self.remote.no_link(&to).await?;
                if self.file(&to).await?.is_some() {
                    return Err(ToolError::new(format_args!(
                        "{} exists, so {shown} cannot be moved there",
                        to.path().display()
                    )));
                }
                self.set(&path, None)?;
                self.set(&to, Some(content))?;
                if let Some(file) = self.files.get_mut(&to) {
                    file.moved_from = Some(path);
                }
                Ok(())
            }
        }
    }

    /// The content of a file as the operations so far leave it.
    async fn file(&mut self, path: &PathUri) -> Result<Option<Vec<u8>>, ToolError> {
        if let Some(file) = self.files.get(path) {
            return Ok(file.after.clone());
        }
        let before = self.remote.text(path).await?;
        self.count(before.as_ref())?;
        let file = File { before: before.clone(), after: before.clone(), moved_from: None };
        self.files.insert(path.clone(), file);
        Ok(before)
    }

    async fn existing(&mut self, path: &PathUri) -> Result<Vec<u8>, ToolError> {
        match self.file(path).await? {
            Some(content) => Ok(content),
            None => Err(missing(self.remote, path).await),
        }
    }

    fn set(&mut self, path: &PathUri, content: Option<Vec<u8>>) -> Result<(), ToolError> {
        self.count(content.as_ref())?;
        if let Some(file) = self.files.get_mut(path) {
            file.after = content;
        }
        Ok(())
    }

    fn count(&mut self, content: Option<&Vec<u8>>) -> Result<(), ToolError> {
        self.bytes += content.map_or(0, Vec::len);
        if self.bytes > MAX_PATCH_BYTES {
            return Err(ToolError::new(format_args!(
                "the files of one patch may have {MAX_PATCH_BYTES} bytes together, before and after; use several"
            )));
        }
        Ok(())
    }

    /// New content first, so that a moved file is never nowhere.
    async fn carry_out(&self) -> Result<(), ToolError> {
        let changed = || self.files.iter().filter(|(_, file)| file.is_changed());
        let writes = changed().filter(|(_, file)| file.after.is_some());
        let removals = changed().filter(|(_, file)| file.after.is_none());
        let mut begun: Vec<(&PathUri, &File)> = Vec::new();
        for (path, file) in writes.chain(removals) {
            begun.push((path, file));
            if let Err(error) = self.bring(path, file).await {
                let mut text = format!("{error}; nothing was changed");
                for (path, file) in begun.iter().rev() {
                    if let Err(error) = self.bring_back(path, file).await {
                        text = format!(
                            "{error}, after a part of the patch had been applied: look at each of its files"
                        );
                    }
                }
                return Err(ToolError::new(text));
            }
        }
        Ok(())
    }

    async fn bring(&self, path: &PathUri, file: &File) -> Result<(), ToolError> {
        let Some(content) = &file.after else { return self.remote.remove(path).await };
        // A moved file keeps its mode. A link is not moved, as Codex does not: what it led to stays as it was.
        if let Some(from) = &file.moved_from
            && self.remote.metadata(from).await?.is_some_and(|metadata| !metadata.is_symlink)
        {
            self.remote.copy(from, path).await?;
        }
        self.remote.write(path, content).await
    }

    async fn bring_back(&self, path: &PathUri, file: &File) -> Result<(), ToolError> {
        match &file.before {
            Some(content) => {
                if self.remote.metadata(path).await?.is_some() && self.remote.content(path).await? == *content
                {
                    return Ok(());
                }
                self.remote.write(path, content).await
            }
            None if self.remote.metadata(path).await?.is_some() => self.remote.remove(path).await,
            None => Ok(()),
        }
    }
}
