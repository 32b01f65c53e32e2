//! `mcp`: the tools of a session as a server of the Model Context Protocol on stdin and stdout, for any harness that
//! speaks it.
//!
//! Invariant: stdout carries the protocol only. A call that is cancelled is dropped, which kills its command; a
//! cancellation of anything else is ignored.

use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use legion_protocol::Chunk;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, ListToolsResult,
    PaginatedRequestParams, ProgressNotificationParam, ServerCapabilities, ServerConfig, ToolAnnotations,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, ServerHandler, ServiceExt};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};

use super::access::Lease;
use super::{Context, Wanted, connect};
use crate::failure::{Failure, Outcome};
use crate::limits::{
    LAST_ANSWERS_TIMEOUT, MAX_CLIENT_NAME_BYTES, MAX_PROGRESS_BYTES, PROGRESS_HEARTBEAT, PROGRESS_INTERVAL,
};
use crate::tools::{Answer, Tool, Toolbox};

mod peer;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
}

pub(super) async fn run(context: Context, args: Args) -> Outcome<u8> {
    let lease = Rc::new(Lease::open(&context, &args.wanted).await?);
    let cwd = lease.cwd_for(&context.environment.cwd);
    let (gone, left) = watch::channel(false);
    let server = Server { lease: Rc::clone(&lease), cwd, toolbox: OnceCell::new(), left };
    let ended = connect::until_signal(Box::pin(serve(server))).await;
    // The SDK lets calls go on for a while.
    gone.send_replace(true);
    lease.release().await;
    ended.map(|()| 0)
}

/// Until the client leaves. One that is there no more has its calls given up at once; to one that only has nothing more
/// to ask they are still answered.
async fn serve(server: Server) -> Outcome<()> {
    let failed = |error: String| Failure::unavailable(format_args!("the MCP client is gone: {error}"));
    let (input, ended) = peer::Input::new();
    let starting = server.serve((input, tokio::io::stdout()));
    let running = starting.await.map_err(|error| failed(error.to_string()))?;
    tokio::select! {
        ended = running.waiting() => ended.map(drop).map_err(|error| failed(error.to_string())),
        () = peer::gone(ended, LAST_ANSWERS_TIMEOUT) => Ok(()),
    }
}

/// One client; its calls run side by side.
struct Server {
    lease: Rc<Lease>,
    /// Where the tools start, in the session.
    cwd: std::path::PathBuf,
    /// Made at the first call: only then is the client known by name.
    toolbox: OnceCell<Toolbox>,
    /// Whether the client is gone.
    left: watch::Receiver<bool>,
}

impl Server {
    fn toolbox(&self, client: Option<&Implementation>) -> &Toolbox {
        self.toolbox.get_or_init(|| {
            let mut name =
                client.map_or("mcp".to_owned(), |client| format!("mcp {} {}", client.name, client.version));
            name.truncate(name.floor_char_boundary(MAX_CLIENT_NAME_BYTES));
            let lease = Rc::clone(&self.lease);
            let connect = move || {
                let lease = Rc::clone(&lease);
                Box::pin(async move { lease.websocket().await }) as _
            };
            Toolbox::new(Box::new(connect), name, self.cwd.clone())
        })
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let workspace = self.cwd.display();
        let instructions = format!(
            "These tools work in a sandbox of their own. The project is at {workspace}; nothing else that they write lasts, \
             and no other tool should be used to run commands or to touch files of the project."
        );
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("legion", env!("CARGO_PKG_VERSION")).with_title("Legion"))
            .with_instructions(instructions)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let toolbox = self.toolbox(context.client_info().as_ref());
        toolbox.connected().await.map_err(|error| ErrorData::internal_error(error.text, None))?;
        Ok(ListToolsResult::with_all_items(Toolbox::list().iter().map(described).collect()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if !Toolbox::list().iter().any(|tool| tool.name == request.name) {
            return Err(ErrorData::invalid_params(format!("there is no tool `{}`", request.name), None));
        }
        let toolbox = self.toolbox(context.client_info().as_ref());
        let reports = Reports::default();
        let mut left = self.left.clone();
        let mut progress = |text: &str| reports.add(text);
        let arguments = request.arguments.map_or(Value::Null, Value::Object);
        let answered = tokio::select! {
            answered = toolbox.call(&request.name, arguments, Some(context.id.to_string()), &mut progress) => answered,
            never = reports.send(&context) => match never {},
            // Nobody reads these two answers.
            _ = left.wait_for(|left| *left) => return Err(ErrorData::internal_error("the client is gone", None)),
            () = context.ct.cancelled() => return Err(ErrorData::internal_error("cancelled", None)),
        };
        Ok(match answered {
            Ok(answer) => result(answer),
            Err(error) => CallToolResult::error(vec![ContentBlock::text(error.text)]),
        }
        .into())
    }
}

fn described(tool: &Tool) -> rmcp::model::Tool {
    let schema = tool.schema.as_object().cloned().unwrap_or_default();
    let annotations = ToolAnnotations::from_raw(
        Some(tool.title.to_owned()),
        Some(tool.read_only),
        Some(!tool.read_only),
        Some(tool.idempotent),
        Some(tool.open_world),
    );
    rmcp::model::Tool::new(tool.name, tool.description, Arc::new(schema)).with_annotations(annotations)
}

/// Some clients give the model the structured result instead of the text, so the text is in it.
fn result(answer: Answer) -> CallToolResult {
    let mut structured = json!({ "title": answer.title, "output": answer.output });
    if let (Some(structured), Value::Object(metadata)) = (structured.as_object_mut(), answer.metadata) {
        structured.extend(metadata);
    }
    let images = answer
        .attachments
        .iter()
        .map(|image| ContentBlock::image(Chunk::to_base64(&image.bytes), image.mime));
    let content = std::iter::once(ContentBlock::text(answer.output)).chain(images);
    let mut result = CallToolResult::success(content.collect());
    result.structured_content = Some(structured);
    result
}

/// The output of a command on its way to the client, the newest of it when there is too much.
#[derive(Default)]
struct Reports {
    text: RefCell<String>,
    added: Notify,
}

impl Reports {
    fn add(&self, text: &str) {
        let mut kept = self.text.borrow_mut();
        kept.push_str(text);
        let surplus = kept.len().saturating_sub(MAX_PROGRESS_BYTES);
        let start = kept.ceil_char_boundary(surplus);
        kept.drain(..start);
        self.added.notify_one();
    }

    /// Sends what comes, to a client that asked for it. A heartbeat tells it that a silent command is alive.
    async fn send(&self, context: &RequestContext<RoleServer>) -> std::convert::Infallible {
        let Some(token) = context.meta.get_progress_token() else { return std::future::pending().await };
        let started = Instant::now();
        loop {
            let _ = timeout(PROGRESS_HEARTBEAT, self.added.notified()).await;
            let text = self.text.take();
            let mut report = ProgressNotificationParam::new(token.clone(), started.elapsed().as_secs_f64());
            report.message = Some(text).filter(|text| !text.is_empty());
            // A client that is gone shows where its requests are read.
            let _ = context.peer.notify_progress(report).await;
            sleep(PROGRESS_INTERVAL).await;
        }
    }
}
