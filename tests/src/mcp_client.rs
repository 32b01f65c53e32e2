//! A client of the Model Context Protocol that is not ours: the official SDK for JavaScript, which starts
//! `legion-controller mcp` and speaks to it over its standard streams.
//!
//! Invariant: each call has a number, and everything the SDK reports is kept in the order it came.

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, Command};

use crate::child::{Child, Finished};
use crate::scratch::Scratch;
use crate::settings::settings;

/// The SDK at work.
#[derive(Debug)]
pub struct McpClient {
    node: Child,
    stdin: ChildStdin,
    next: u64,
}

/// A tool's answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// `CallToolResult`, as the SDK gives it.
    pub result: Value,
}

impl Answer {
    /// The text of the answer.
    pub fn text(&self) -> &str {
        self.result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {:#}", self.result))
    }

    /// The text of an answer that is no error.
    pub fn output(&self) -> &str {
        assert_ne!(self.result["isError"], true, "{:#}", self.result);
        self.text()
    }

    /// The text of an error.
    pub fn error(&self) -> &str {
        assert_eq!(self.result["isError"], true, "{:#}", self.result);
        self.text()
    }

    /// A member of the structured result.
    pub fn fact(&self, name: &str) -> &Value {
        &self.result["structuredContent"][name]
    }
}

impl McpClient {
    /// Starts `legion-controller mcp` for the test's workspace, through the SDK, and waits until it is initialized.
    pub async fn start(scratch: &Scratch, args: &[&str]) -> Self {
        let mut client = Self::launch(scratch, args);
        client.event("ready", |event| event.get("ready").is_some()).await;
        client
    }

    /// As [`Self::start`], without waiting.
    pub fn launch(scratch: &Scratch, args: &[&str]) -> Self {
        let program = settings().legion_binary("legion-controller").display().to_string();
        let workspace = scratch.workspace().display().to_string();
        let args = [&["mcp", "--workspace", &workspace], args].concat();
        Self::of(scratch, scratch.command("node"), &program, &args)
    }

    /// Starts the server as a client's configuration says, in the workspace, with the program in `PATH`.
    pub fn configured(scratch: &Scratch, program: &str, args: &[&str]) -> Self {
        let binaries = settings().legion_binary("legion-controller");
        let binaries = binaries.parent().expect("it lies in a directory").display();
        let mut command = scratch.command("node");
        command
            .env("PATH", format!("{binaries}:/usr/local/bin:/usr/bin:/bin"))
            .current_dir(scratch.workspace());
        Self::of(scratch, command, program, args)
    }

    fn of(scratch: &Scratch, mut node: Command, program: &str, args: &[&str]) -> Self {
        let script = scratch.write("mcp_client.mjs", include_str!("mcp_client.mjs"));
        let sdk = settings().node_modules().join("@modelcontextprotocol/sdk");
        node.arg(script).arg(sdk).arg(program).args(args);
        let mut node = Child::spawn_with_stdin("the MCP client", node);
        let stdin = node.take_stdin().expect("it is piped");
        Self { node, stdin, next: 1 }
    }

    /// What the server said of itself: `server`, `instructions`, `tools`.
    pub async fn ready(&mut self) -> Value {
        self.event("ready", |event| event.get("ready").is_some()).await["ready"].take()
    }

    /// Why the server could not be used.
    pub async fn refused(&mut self) -> String {
        let event = self.event("refused", |event| event.get("refused").is_some()).await;
        event["refused"].as_str().expect("a text").to_owned()
    }

    /// Calls a tool and waits for its answer.
    pub async fn call(&mut self, name: &str, arguments: Value) -> Answer {
        let id = self.begin(name, arguments).await;
        self.answer(id).await
    }

    /// Calls a tool; its number.
    pub async fn begin(&mut self, name: &str, arguments: Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.order(&json!({ "call": { "id": id, "name": name, "arguments": arguments } })).await;
        id
    }

    /// Waits for the answer to a call.
    pub async fn answer(&mut self, id: u64) -> Answer {
        let mut event =
            self.event("the answer", |event| event["id"] == id && event["progress"].is_null()).await;
        assert!(event["error"].is_null(), "call {id}: {event}");
        Answer { result: event["result"].take() }
    }

    /// Waits for a call to fail in the protocol, and gives the SDK's text.
    pub async fn failure(&mut self, id: u64) -> String {
        let event = self.event("the failure", |event| event["id"] == id && event["progress"].is_null()).await;
        event["error"].as_str().unwrap_or_else(|| panic!("no error: {event}")).to_owned()
    }

    /// Waits until the messages of a call's progress, joined, contain this.
    pub async fn progress(&mut self, id: u64, part: &str) {
        self.until("progress", |events| joined(events, id).contains(part)).await;
    }

    /// Gives a call up.
    pub async fn abort(&mut self, id: u64) {
        self.order(&json!({ "abort": id })).await;
    }

    /// Sends a notification.
    pub async fn notify(&mut self, notification: Value) {
        self.order(&json!({ "notify": notification })).await;
    }

    /// Waits until the server has gone.
    pub async fn closed(&mut self) {
        self.event("closed", |event| event["closed"] == true).await;
    }

    /// Leaves, and waits until the server has ended, too.
    pub async fn leave(self) -> Finished {
        drop(self.stdin);
        self.node.finish().await
    }

    /// Kills the client alone, without telling the server.
    pub fn kill(&self) {
        self.node.signal(Signal::KILL);
    }

    /// Waits until the client and the server have ended.
    pub async fn finish(self) -> Finished {
        self.node.finish().await
    }

    async fn order(&mut self, order: &Value) {
        self.stdin.write_all(format!("{order}\n").as_bytes()).await.expect("the client reads");
    }

    async fn event(&mut self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.until(what, |events| events.iter().any(&wanted)).await;
        let events = events(&self.node.stdout().text());
        events.into_iter().find(&wanted).expect("it was there")
    }

    async fn until(&mut self, what: &str, reached: impl Fn(&[Value]) -> bool) {
        self.node.until_stdout(what, |text| reached(&events(text))).await;
    }
}

fn events(text: &str) -> Vec<Value> {
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    complete.lines().map(parse).collect()
}

fn joined(events: &[Value], id: u64) -> String {
    let of_call = events.iter().filter(|event| event["id"] == id);
    of_call.filter_map(|event| event["progress"]["message"].as_str()).collect()
}
