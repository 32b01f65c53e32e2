//! The tools that models know from their harnesses, carried out in a session's sandbox: `bash read write edit
//! apply_patch glob grep`. Whoever serves a harness (`mcp`, `opencode`) hands the model's calls to a [`Toolbox`].
//!
//! Invariant: nothing here touches the host. Every effect is a call of the exec-server protocol on one connection
//! through the session's front door, so it is judged and recorded like those of any other client. When the connection
//! ends, each call under way fails with one clear text, and the next call connects anew.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::net::UnixStream;
use tokio::sync::{Mutex, Semaphore};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;

use crate::client::Client;
use crate::failure::Outcome;
use crate::limits::{MAX_TOOL_CALLS, SESSION_CONNECT_TIMEOUT, TOOL_CALL_TIMEOUT};

mod apply_patch;
mod arguments;
mod bash;
mod clip;
mod edit;
mod lines;
mod list;
mod name_pattern;
mod patch;
mod read;
mod records;
mod remote;
mod replace;
mod search;
mod text;
mod write;

pub use list::Tool;
use remote::Remote;

/// Makes a connection through the front door of the session; called again after one has ended.
pub type Connect = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Outcome<WebSocketStream<UnixStream>>>>>>;

/// What a tool gives the model.
#[derive(Debug, Default)]
pub struct Answer {
    /// A few words for the user's screen: a path, a command's description.
    pub title: String,
    /// What the model reads.
    pub output: String,
    /// Facts for programs, an object.
    pub metadata: Value,
    /// Images for the model to look at.
    pub attachments: Vec<Attachment>,
    /// Files it has changed, for a screen that shows how.
    pub changes: Vec<Change>,
}

/// A file that a tool has changed.
#[derive(Debug)]
pub struct Change {
    /// Where it is, or was when there is none any more; a path of the session.
    pub path: PathBuf,
    /// Where it was before, when it was moved.
    pub moved_from: Option<PathBuf>,
    /// What was in it; none when there was no file.
    pub before: Option<Vec<u8>>,
    /// What is in it.
    pub after: Option<Vec<u8>>,
}

/// A file shown to the model as it is.
#[derive(Debug)]
pub struct Attachment {
    /// e.g. `image/png`
    pub mime: &'static str,
    /// The content.
    pub bytes: Vec<u8>,
}

/// Why a tool has no answer, in words for the model.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct ToolError {
    /// What, why, what to do.
    pub text: String,
}

impl ToolError {
    fn new(text: impl std::fmt::Display) -> Self {
        Self { text: text.to_string() }
    }
}

type Answered = Result<Answer, ToolError>;

/// All tools, on one session.
pub struct Toolbox {
    connect: Connect,
    client_name: String,
    cwd: PathBuf,
    client: Mutex<Option<Client>>,
    calls: Semaphore,
    /// Held by the one call that changes files: it reads, decides and writes.
    changing: Arc<Mutex<()>>,
}

impl Toolbox {
    /// Tools for the session that `connect` leads to. Relative paths and commands start in `cwd`, a path of the
    /// session; the audit names `client_name` as who called. Nothing is connected before the first call.
    pub fn new(connect: Connect, client_name: String, cwd: PathBuf) -> Self {
        let (client, calls) = (Mutex::new(None), Semaphore::new(MAX_TOOL_CALLS));
        Self { connect, client_name, cwd, client, calls, changing: Arc::default() }
    }

    /// The tools, for a harness to offer.
    pub fn list() -> &'static [Tool] {
        list::tools()
    }

    /// Where relative paths start.
    pub fn cwd(&self) -> &Path {
        &self.cwd
    }

    /// Connects, unless there is a connection: whether the tools can be had.
    pub async fn connected(&self) -> Result<(), ToolError> {
        self.client().await.map(drop)
    }

    /// Carries out one call; calls run side by side. `id` is what the harness calls it; the records of its commands have it.
    /// `progress` is given the output of a command as it comes.
    /// Dropping the future cancels: a command is killed at once, with its whole process group; a change of files that
    /// has begun is completed.
    pub async fn call(
        &self,
        name: &str,
        arguments: Value,
        id: Option<String>,
        progress: &mut dyn FnMut(&str),
    ) -> Answered {
        let _call = self.calls.acquire().await.map_err(ToolError::new)?;
        let remote = Remote { client: self.client().await?, cwd: self.cwd.clone(), call: id };
        if name == "bash" {
            return bash::run(&remote, decode(name, arguments)?, progress).await;
        }
        timeout(TOOL_CALL_TIMEOUT, self.file_call(name, arguments, remote)).await.map_err(|_| {
            let allowed = TOOL_CALL_TIMEOUT.as_secs();
            ToolError::new(format_args!("the {name} tool has no answer from the sandbox after {allowed} s"))
        })?
    }

    async fn file_call(&self, name: &str, arguments: Value, remote: Remote) -> Answered {
        match name {
            "read" => read::run(&remote, decode(name, arguments)?).await,
            "write" => {
                let arguments = decode(name, arguments)?;
                self.change(async move { write::run(&remote, arguments).await }).await
            }
            "edit" => {
                let arguments = decode(name, arguments)?;
                self.change(async move { edit::run(&remote, arguments).await }).await
            }
            "apply_patch" => {
                let arguments = decode(name, arguments)?;
                self.change(async move { apply_patch::run(&remote, arguments).await }).await
            }
            "glob" => search::glob(&remote, decode(name, arguments)?).await,
            "grep" => search::grep(&remote, decode(name, arguments)?).await,
            _ => {
                let known: Vec<_> = Self::list().iter().map(|tool| tool.name).collect();
                Err(ToolError::new(format_args!(
                    "there is no tool `{name}`; the tools are {}",
                    known.join(", ")
                )))
            }
        }
    }

    /// One after the other, and each to its end.
    async fn change(&self, change: impl Future<Output = Answered> + 'static) -> Answered {
        let changing = Arc::clone(&self.changing).lock_owned().await;
        let task = tokio::task::spawn_local(async move {
            let answered = change.await;
            drop(changing);
            answered
        });
        task.await.map_err(ToolError::new)?
    }

    async fn client(&self) -> Result<Client, ToolError> {
        let mut kept = self.client.lock().await;
        if let Some(client) = kept.as_ref().filter(|client| client.why_ended().is_none()) {
            return Ok(client.clone());
        }
        let failed = |error: &dyn std::fmt::Display| {
            ToolError::new(format_args!("the sandbox cannot be reached, so nothing was done: {error}"))
        };
        let connecting = async {
            let socket = (self.connect)().await.map_err(|error| failed(&error))?;
            Client::open(socket, &self.client_name).await.map_err(|error| failed(&error))
        };
        let client = timeout(SESSION_CONNECT_TIMEOUT, connecting)
            .await
            .map_err(|_| failed(&"it does not answer"))??;
        *kept = Some(client.clone());
        Ok(client)
    }
}

fn decode<T: DeserializeOwned>(tool: &str, arguments: Value) -> Result<T, ToolError> {
    // Without parameters, some clients send nothing.
    let arguments = if arguments.is_null() { Value::Object(serde_json::Map::new()) } else { arguments };
    if !arguments.is_object() {
        return Err(ToolError::new(format_args!("the arguments of {tool} are an object")));
    }
    serde_json::from_value(arguments).map_err(|error| {
        ToolError::new(format_args!(
            "the arguments do not fit the {tool} tool: {error}; call it again with arguments that match its schema"
        ))
    })
}
