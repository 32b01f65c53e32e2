//! Where the plugin's calls arrive: a Unix socket that only OpenCode's own sandbox shows.
//!
//! One call a connection, JSON a line: the call, then the output of a command as it comes, then the answer. A connection
//! that closes cancels its call. Invariant: nothing is done for who does not know the secret of this one run.

use std::cell::RefCell;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::rc::Rc;

use legion_protocol::Chunk;
use legion_protocol::limits::MAX_MESSAGE_BYTES;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use zeroize::Zeroizing;

use super::screen;
use crate::audit::chain::hex;
use crate::failure::{Failure, Outcome};
use crate::limits::{CONTROL_TIMEOUT, MAX_PROGRESS_BYTES, MAX_TOOL_CONNECTIONS, PROGRESS_INTERVAL};
use crate::sandbox::launch::fill_random;
use crate::token::{Digest, Digester};
use crate::tools::{Answer, ToolError, Toolbox};

/// A line from the plugin.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    secret: String,
    #[serde(default)]
    hello: bool,
    call: Option<Call>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    tool: String,
    arguments: Value,
    /// OpenCode's id of it.
    id: Option<String>,
}

/// A secret for one run.
pub(super) fn secret() -> Outcome<Zeroizing<String>> {
    let mut random = Zeroizing::new([0u8; 32]);
    fill_random(&mut *random).map_err(Failure::internal)?;
    Ok(Zeroizing::new(hex(&*random)))
}

/// The listening side.
pub(super) struct Bridge {
    listener: UnixListener,
    digester: Digester,
    digest: Digest,
    toolbox: Toolbox,
}

impl Bridge {
    /// Listens at a path in a private directory.
    pub(super) fn listen(path: &Path, toolbox: Toolbox, secret: &str) -> Outcome<Rc<Self>> {
        let failed = |error: std::io::Error| {
            Failure::unavailable(format_args!("cannot listen at {}: {error}", path.display()))
        };
        let listener = UnixListener::bind(path).map_err(failed)?;
        // A sandbox of root's runs as somebody else; the directory is what keeps others out.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666)).map_err(failed)?;
        let mut key = Zeroizing::new([0u8; 32]);
        fill_random(&mut *key).map_err(Failure::internal)?;
        let digester = Digester::new(&key);
        let digest = digester.digest(secret);
        Ok(Rc::new(Self { listener, digester, digest, toolbox }))
    }

    /// Serves until dropped, and with it every call.
    pub(super) async fn serve(self: Rc<Self>) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if connections.len() < MAX_TOOL_CONNECTIONS => match accepted {
                    Ok((stream, _)) => {
                        let bridge = Rc::clone(&self);
                        connections.spawn_local(async move { bridge.connection(stream).await });
                    }
                    Err(error) => {
                        return tracing::error!(%error, "OpenCode's tools cannot be reached any more");
                    }
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn connection(&self, stream: UnixStream) {
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        let answered = match timeout(CONTROL_TIMEOUT, request(&mut read)).await {
            Ok(Ok(request)) if !self.digester.verify(&request.secret, &self.digest) => {
                Err(ToolError { text: "the secret is not that of this run".to_owned() })
            }
            Ok(Ok(Request { call: Some(call), .. })) => {
                let tool = call.tool.clone();
                tokio::select! {
                    answered = self.call(call, &mut write) => answered.map(|answer| self.described(&tool, answer)),
                    // Whoever asked is gone, and with this future the call.
                    () = closed(&mut read) => return,
                }
            }
            Ok(Ok(Request { hello: true, .. })) => self.greet().await,
            Ok(Ok(_)) => Err(ToolError { text: "there is neither a call nor a greeting".to_owned() }),
            Ok(Err(error)) => Err(ToolError { text: format!("the request makes no sense: {error}") }),
            Err(_) => return,
        };
        let answer = match answered {
            Ok(answer) => json!({ "answer": answer }),
            Err(error) => json!({ "error": error.text }),
        };
        // A plugin that is gone reads nothing.
        let _ = write_line(&mut write, &answer).await;
    }

    async fn greet(&self) -> Result<Value, ToolError> {
        self.toolbox.connected().await?;
        let tools = Toolbox::list().iter();
        let tools = tools
            .map(|tool| json!({ "name": tool.name, "description": tool.description, "schema": tool.schema }));
        Ok(json!({ "tools": tools.collect::<Vec<_>>() }))
    }

    async fn call(&self, call: Call, write: &mut OwnedWriteHalf) -> Result<Answer, ToolError> {
        let (text, added) = (RefCell::new(String::new()), Notify::new());
        let mut progress = |new: &str| {
            let mut text = text.borrow_mut();
            text.push_str(new);
            // Of what a plugin cannot take fast enough it gets the end.
            let surplus = text.len().saturating_sub(MAX_PROGRESS_BYTES);
            let start = text.ceil_char_boundary(surplus);
            text.drain(..start);
            added.notify_one();
        };
        let report = async {
            loop {
                added.notified().await;
                let text = text.take();
                if write_line(write, &json!({ "progress": text })).await.is_err() {
                    return;
                }
                sleep(PROGRESS_INTERVAL).await;
            }
        };
        tokio::select! {
            answered = self.toolbox.call(&call.tool, call.arguments, call.id, &mut progress) => answered,
            () = report => Err(ToolError { text: "OpenCode is gone".to_owned() }),
        }
    }

    fn described(&self, tool: &str, answer: Answer) -> Value {
        let mut metadata = answer.metadata;
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.extend(screen::facts(tool, &answer.changes, self.toolbox.cwd()));
        }
        let attachments = answer.attachments.iter();
        let attachments = attachments.map(
            |attachment| json!({ "mime": attachment.mime, "base64": Chunk::to_base64(&attachment.bytes) }),
        );
        json!({
            "title": answer.title,
            "output": answer.output,
            "metadata": metadata,
            "attachments": attachments.collect::<Vec<_>>()
        })
    }
}

/// The one line that a connection begins with.
async fn request(read: &mut BufReader<OwnedReadHalf>) -> std::io::Result<Request> {
    let mut line = Vec::new();
    read.take(MAX_MESSAGE_BYTES as u64).read_until(b'\n', &mut line).await?;
    Ok(serde_json::from_slice(&line)?)
}

/// Resolves when the other side has closed the connection; what it still sends means nothing.
async fn closed(read: &mut BufReader<OwnedReadHalf>) {
    while let Ok(buffer) = read.fill_buf().await {
        let count = buffer.len();
        if count == 0 {
            return;
        }
        read.consume(count);
    }
}

async fn write_line(write: &mut OwnedWriteHalf, value: &Value) -> std::io::Result<()> {
    let mut line = value.to_string().into_bytes();
    line.push(b'\n');
    write.write_all(&line).await
}
