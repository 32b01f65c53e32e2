//! The session as the tools see it: paths, files and processes, each a call of the protocol.
//!
//! Invariant: an error is one line that names the path or the command, and says so when the sandbox itself is gone.

use std::path::{Path, PathBuf};

use legion_protocol::fs::{
    self, Block, Copy, CreateDirectory, Directory, FileContent, Handle, OnPath, Open, OpenMode, ReadBlock,
    Remove, WriteFile,
};
use legion_protocol::limits::MAX_MESSAGE_BYTES;
use legion_protocol::process::{Metadata, Start};
use legion_protocol::{Chunk, ErrorCode, Method, PathUri};
use serde::Serialize;
use serde::de::{DeserializeOwned, IgnoredAny as Ignored};

use super::ToolError;
use crate::client::{CallError, Client, command};
use crate::limits::MAX_EDIT_BYTES;

/// Room for a path and the envelope around a file's content.
const MAX_WRITE_OVERHEAD: usize = 64 << 10;

/// One connection to the session, and where relative paths start.
#[derive(Clone)]
pub(super) struct Remote {
    pub(super) client: Client,
    pub(super) cwd: PathBuf,
    /// What the harness calls the tool call.
    pub(super) call: Option<String>,
}

/// What went wrong with `subject`.
pub(super) fn failed(what: &str, subject: &Path, error: &CallError) -> ToolError {
    match error {
        CallError::Answered(error) => {
            ToolError::new(format_args!("cannot {what} {}: {}", subject.display(), error.message))
        }
        CallError::Gone(why) => gone(why),
    }
}

/// The connection ended in the middle.
pub(super) fn gone(why: &str) -> ToolError {
    ToolError::new(format_args!("the sandbox is gone, and what ran in it: {why}"))
}

impl Remote {
    /// A path from the model; relative ones start in the working directory.
    pub(super) fn path(&self, text: &str) -> Result<PathUri, ToolError> {
        if text.is_empty() {
            return Err(ToolError::new("the path is empty"));
        }
        PathUri::from_path(&self.cwd.join(text))
            .ok_or_else(|| ToolError::new(format_args!("{text:?} is no path")))
    }

    /// The path as it is shown to the user: relative to the working directory when it lies in it.
    pub(super) fn title(&self, path: &PathUri) -> String {
        let path = path.path();
        let short = path.strip_prefix(&self.cwd).ok().filter(|rest| !rest.as_os_str().is_empty());
        short.unwrap_or(path).display().to_string()
    }

    /// A command of this tool call.
    pub(super) fn command(&self, argv: Vec<String>, cwd: PathUri) -> Start {
        let metadata = self.call.clone().map(|id| Metadata { thread_id: None, tool_call_id: Some(id) });
        Start { metadata, ..command(self.client.process_id(), argv, cwd) }
    }

    /// One call about a path.
    pub(super) async fn call<P: Serialize, R: DeserializeOwned>(
        &self,
        what: &str,
        path: &PathUri,
        method: Method,
        params: &P,
    ) -> Result<R, ToolError> {
        self.client.call(method, params).await.map_err(|error| failed(what, path.path(), &error))
    }

    /// Type, size and times; `None` when there is nothing.
    pub(super) async fn metadata(&self, path: &PathUri) -> Result<Option<fs::Metadata>, ToolError> {
        match self.client.call(Method::FsGetMetadata, &on(path)).await {
            Ok(metadata) => Ok(Some(metadata)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(failed("look at", path.path(), &error)),
        }
    }

    /// An error when there is a link, wherever it leads: what is written there would be written somewhere else.
    pub(super) async fn no_link(&self, path: &PathUri) -> Result<(), ToolError> {
        let itself = OnPath { follow_symlinks: Some(false), ..on(path) };
        match self.client.call::<_, fs::Metadata>(Method::FsGetMetadata, &itself).await {
            Err(CallError::Answered(error)) if error.code == ErrorCode::InvalidRequest.number() => {
                Err(failed("write", path.path(), &CallError::Answered(error)))
            }
            _ => Ok(()),
        }
    }

    /// A whole file.
    pub(super) async fn content(&self, path: &PathUri) -> Result<Vec<u8>, ToolError> {
        let content: FileContent = self.call("read", path, Method::FsReadFile, &on(path)).await?;
        Ok(content.data_base64.0)
    }

    /// The content of a text file that is to be changed; `None` when there is none.
    pub(super) async fn text(&self, path: &PathUri) -> Result<Option<Vec<u8>>, ToolError> {
        let shown = path.path().display();
        match self.metadata(path).await? {
            None => Ok(None),
            Some(metadata) if !metadata.is_file => {
                Err(ToolError::new(format_args!("{shown} is not a regular file, so it cannot be changed")))
            }
            Some(metadata) if metadata.size > MAX_EDIT_BYTES => Err(ToolError::new(format_args!(
                "{shown} has {} bytes; the tools change files of {MAX_EDIT_BYTES} at most, so use bash",
                metadata.size
            ))),
            Some(_) => self.content(path).await.map(Some),
        }
    }

    /// Writes a whole file, making the directories it lies in.
    pub(super) async fn write(&self, path: &PathUri, content: &[u8]) -> Result<(), ToolError> {
        let file = WriteFile {
            path: path.clone(),
            data_base64: Chunk::to_base64(content),
            sandbox: None,
            follow_symlinks: None,
        };
        if file.data_base64.len() > MAX_MESSAGE_BYTES - MAX_WRITE_OVERHEAD {
            return Err(ToolError::new(format_args!(
                "{} bytes are too many for one file; use bash",
                content.len()
            )));
        }
        match self.client.call::<_, Ignored>(Method::FsWriteFile, &file).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => {
                self.make_parent(path).await?;
                self.call::<_, Ignored>("write", path, Method::FsWriteFile, &file).await.map(drop)
            }
            Err(error) => Err(failed("write", path.path(), &error)),
        }
    }

    async fn make_parent(&self, path: &PathUri) -> Result<(), ToolError> {
        let Some(parent) = path.path().parent().and_then(PathUri::from_path) else { return Ok(()) };
        let make = CreateDirectory {
            path: parent.clone(),
            recursive: Some(true),
            sandbox: None,
            follow_symlinks: None,
        };
        self.call::<_, Ignored>("make", &parent, Method::FsCreateDirectory, &make).await.map(drop)
    }

    /// A copy of a file with its mode, at a place where there is nothing.
    pub(super) async fn copy(&self, from: &PathUri, to: &PathUri) -> Result<(), ToolError> {
        self.make_parent(to).await?;
        let copy =
            Copy { source_path: from.clone(), destination_path: to.clone(), recursive: false, sandbox: None };
        self.call::<_, Ignored>("write", to, Method::FsCopy, &copy).await.map(drop)
    }

    /// Removes a file.
    pub(super) async fn remove(&self, path: &PathUri) -> Result<(), ToolError> {
        let remove = Remove {
            path: path.clone(),
            recursive: Some(false),
            force: Some(false),
            sandbox: None,
            follow_symlinks: None,
        };
        self.call::<_, Ignored>("remove", path, Method::FsRemove, &remove).await.map(drop)
    }

    /// The names in a directory, sorted, those of directories with a slash.
    pub(super) async fn names(&self, path: &PathUri) -> Result<Vec<String>, ToolError> {
        let directory: Directory = self.call("list", path, Method::FsReadDirectory, &on(path)).await?;
        let slash = |is_directory| if is_directory { "/" } else { "" };
        let entries = directory.entries.into_iter();
        let mut names: Vec<_> = entries.map(|entry| entry.file_name + slash(entry.is_directory)).collect();
        names.sort();
        Ok(names)
    }

    /// Opens a file to be read piece by piece.
    pub(super) async fn open(&self, path: &PathUri) -> Result<OpenFile<'_>, ToolError> {
        let handle_id = self.client.unique("file");
        let open =
            Open { path: path.clone(), handle_id: handle_id.clone(), mode: OpenMode::Read, sandbox: None };
        self.call::<_, Handle>("open", path, Method::FsOpen, &open).await?;
        Ok(OpenFile { remote: self, path: path.clone(), handle_id, offset: 0 })
    }
}

fn on(path: &PathUri) -> OnPath {
    OnPath { path: path.clone(), sandbox: None, follow_symlinks: None }
}

/// An open file; dropping it closes it.
pub(super) struct OpenFile<'a> {
    remote: &'a Remote,
    path: PathUri,
    handle_id: String,
    offset: u64,
}

impl OpenFile<'_> {
    /// The next piece, and whether it is the last.
    pub(super) async fn next(&mut self, len: u64) -> Result<(Vec<u8>, bool), ToolError> {
        let read = ReadBlock { handle_id: self.handle_id.clone(), offset: self.offset, len };
        let block: Block = self.remote.call("read", &self.path, Method::FsReadBlock, &read).await?;
        self.offset += block.chunk.0.len() as u64;
        let last = block.eof || block.chunk.0.is_empty();
        Ok((block.chunk.0, last))
    }
}

impl Drop for OpenFile<'_> {
    fn drop(&mut self) {
        self.remote.client.post(Method::FsClose, &Handle { handle_id: self.handle_id.clone() });
    }
}
