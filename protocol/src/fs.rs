//! `fs/*`: parameters and results (SPEC 8).

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::frame::Params;
use crate::object::{self, Text};
use crate::sandbox::Sandbox;
use crate::{Chunk, ErrorObject, PathUri};

/// Parameters of `fs/getMetadata`, `fs/readFile`, `fs/canonicalize` and `fs/readDirectory`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OnPath {
    /// What is asked about.
    pub path: PathUri,
    /// The client's own wish for a narrower sandbox.
    #[serde(default, deserialize_with = "object::optional")]
    pub sandbox: Option<Sandbox>,
    /// `false` refuses any symbolic link in the path. Not read by `canonicalize` and `readDirectory`.
    #[serde(default)]
    pub follow_symlinks: Option<bool>,
}

/// Result of `fs/getMetadata`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    /// Of the link's target.
    pub is_directory: bool,
    /// Of the link's target; false for sockets, pipes and devices.
    pub is_file: bool,
    /// Of the path itself.
    pub is_symlink: bool,
    /// Bytes.
    pub size: u64,
    /// Unix milliseconds; 0 as in the original's Linux build.
    pub created_at_ms: i64,
    /// Unix milliseconds.
    pub modified_at_ms: i64,
}

/// Result of `fs/readFile`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileContent {
    /// The whole file.
    pub data_base64: Chunk,
}

/// Parameters of `fs/writeFile`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteFile<D = String> {
    /// Created or truncated; parents are not made.
    pub path: PathUri,
    /// The new content as base64 text: a bad one has an error code of its own, so it is decoded by the server.
    pub data_base64: D,
    /// The client's own wish for a narrower sandbox.
    #[serde(default, deserialize_with = "object::optional")]
    pub sandbox: Option<Sandbox>,
    /// `false` refuses any symbolic link in the path.
    #[serde(default)]
    pub follow_symlinks: Option<bool>,
}

impl<'a> WriteFile<Text<'a>> {
    /// Decodes parameters. The content, which may be megabytes, stays where it lies in the frame.
    ///
    /// # Errors
    /// Those of [`object::params`].
    pub fn from_params(raw: Option<Params<'a>>) -> Result<Self, ErrorObject> {
        let write: Self = object::params_in(raw)?;
        Ok(match raw.and_then(Params::content) {
            Some(content) => Self { data_base64: Text(Cow::Borrowed(content)), ..write },
            None => write,
        })
    }
}

/// Parameters of `fs/createDirectory`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CreateDirectory {
    /// The new directory.
    pub path: PathUri,
    /// Parents too; default true.
    #[serde(default)]
    pub recursive: Option<bool>,
    /// The client's own wish for a narrower sandbox.
    #[serde(default, deserialize_with = "object::optional")]
    pub sandbox: Option<Sandbox>,
    /// `false` refuses any symbolic link in the path.
    #[serde(default)]
    pub follow_symlinks: Option<bool>,
}

/// Parameters of `fs/remove`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remove {
    /// A link is removed itself.
    pub path: PathUri,
    /// Whole trees; default true.
    #[serde(default)]
    pub recursive: Option<bool>,
    /// A missing path is fine; default true.
    #[serde(default)]
    pub force: Option<bool>,
    /// The client's own wish for a narrower sandbox.
    #[serde(default, deserialize_with = "object::optional")]
    pub sandbox: Option<Sandbox>,
    /// `false` refuses any symbolic link in the path.
    #[serde(default)]
    pub follow_symlinks: Option<bool>,
}

/// Result of `fs/canonicalize`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Canonical {
    /// Without links.
    pub path: PathUri,
}

/// One entry of `fs/readDirectory`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DirectoryEntry {
    /// Lossy UTF-8.
    pub file_name: String,
    /// Of the link's target.
    pub is_directory: bool,
    /// Of the link's target.
    pub is_file: bool,
}

/// Result of `fs/readDirectory`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Directory {
    /// In no order.
    pub entries: Vec<DirectoryEntry>,
}

/// Parameters of `fs/walk`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Walk {
    /// The root, which is not listed.
    pub path: PathUri,
    /// Bounds and choices.
    #[serde(deserialize_with = "object::nested")]
    pub options: WalkOptions,
    /// The client's own wish for a narrower sandbox.
    #[serde(default, deserialize_with = "object::optional")]
    pub sandbox: Option<Sandbox>,
}

/// Options of `fs/walk`; each bound is at least 1 and at most that of `limits`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WalkOptions {
    /// 1 lists direct children.
    pub max_depth: u64,
    /// Directories read.
    pub max_directories: u64,
    /// Entries listed.
    pub max_entries: u64,
    /// List and enter links to directories.
    pub follow_directory_symlinks: bool,
    /// List, but do not enter, dot-directories.
    #[serde(default, deserialize_with = "object::or_default")]
    pub prune_hidden_directories: bool,
}

/// What a walk found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum WalkKind {
    /// A regular file.
    File,
    /// A directory, or a followed link to one.
    Directory,
}

/// One entry of a walk.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WalkEntry {
    /// Below the root.
    pub path: PathUri,
    /// Links to files and special files are left out.
    pub kind: WalkKind,
}

/// A directory that could not be read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WalkError {
    /// The directory.
    pub path: PathUri,
    /// The operating system's text.
    pub message: String,
}

/// Result of `fs/walk`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WalkResult {
    /// Breadth first, sorted inside a directory.
    pub entries: Vec<WalkEntry>,
    /// Directories that could not be read.
    pub errors: Vec<WalkError>,
    /// A bound was reached.
    pub truncated: bool,
}

/// Parameters of `fs/copy`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Copy {
    /// A file, directory or link.
    pub source_path: PathUri,
    /// Overwritten, or merged into.
    pub destination_path: PathUri,
    /// Required for a directory.
    pub recursive: bool,
    /// The client's own wish for a narrower sandbox.
    #[serde(default, deserialize_with = "object::optional")]
    pub sandbox: Option<Sandbox>,
}

/// How a stream is opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum OpenMode {
    /// For `fs/readBlock`.
    #[default]
    Read,
    /// Created or truncated, for `fs/writeBlock`.
    Replace,
}

/// Parameters of `fs/open`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Open {
    /// The file.
    pub path: PathUri,
    /// The client's name for the handle, at most 32 bytes.
    pub handle_id: String,
    /// Default `read`.
    #[serde(default, deserialize_with = "object::or_default")]
    pub mode: OpenMode,
    /// The client's own wish for a narrower sandbox.
    #[serde(default, deserialize_with = "object::optional")]
    pub sandbox: Option<Sandbox>,
}

/// Parameters of `fs/close`, result of `fs/open`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Handle {
    /// The client's name for the handle.
    pub handle_id: String,
}

/// Parameters of `fs/readBlock`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReadBlock {
    /// The client's name for the handle.
    pub handle_id: String,
    /// Bytes from the start.
    pub offset: u64,
    /// 1 to 1 MiB.
    pub len: u64,
}

/// Result of `fs/readBlock`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Block {
    /// Up to `len` bytes.
    pub chunk: Chunk,
    /// Fewer bytes than asked were there.
    pub eof: bool,
}

/// Parameters of `fs/writeBlock`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WriteBlock {
    /// The client's name for the handle.
    pub handle_id: String,
    /// Bytes from the start; a gap becomes zeros.
    pub offset: u64,
    /// 1 byte to 1 MiB.
    pub chunk: Chunk,
}

/// Parameters of `fs/watchMissing`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchMissing {
    /// Greater than any used before on the connection.
    pub watch_id: u64,
    /// 1 to 64 paths that do not exist.
    pub missing: Vec<PathUri>,
    /// A path that exists.
    #[serde(default)]
    pub present: Option<PathUri>,
}

/// Result of `fs/watchMissing`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Watching {
    /// Whether a notification will come.
    pub watching: bool,
}

/// Notification `fs/missingChanged`: the watch is over.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MissingChanged {
    /// As in the request.
    pub watch_id: u64,
}
