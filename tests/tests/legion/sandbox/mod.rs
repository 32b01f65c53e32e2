//! The sandbox around the abuse suite (`tests/abuse`): what the host does meanwhile, git and its traps, the tools people
//! use, limits, whole harnesses inside.
//!
//! Invariant: what must not happen is shown by something on the host that would show it, a canary or a git command, never
//! by an error message inside alone.

mod around;
mod fs_calls;
mod limits;
mod persistence;
mod repositories;
mod setups;
mod shapes;
mod tools;
mod wishes;

use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use legion_tests::child::{Child, Finished};
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use legion_tests::ws_client::{Endpoint, Upgrade, WsClient};
use serde_json::{Value, json};

/// Runs a script inside, in a session of its own.
async fn inside(scratch: &Scratch, options: &[&str], script: &str) -> Finished {
    let workspace = scratch.workspace().display().to_string();
    let args = [&["exec", "--workspace", &workspace], options, &["--", "bash", "-c", script]].concat();
    legion::run(scratch, &args).await
}

/// Runs a script on the host, as the user whose project it is.
async fn outside(scratch: &Scratch, directory: &Path, script: &str) -> Finished {
    let mut command = scratch.command("bash");
    command.args(["-c", script]).current_dir(directory);
    Child::spawn("bash", command).finish().await
}

/// A running controller with one connection to its session.
pub(crate) struct Connected {
    pub(crate) controller: Controller,
    pub(crate) client: WsClient,
    started: u32,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i64,
    pub(crate) output: String,
}

impl Connected {
    pub(crate) async fn new(scratch: &Scratch, options: &[&str]) -> Self {
        let controller = Controller::start(scratch, options).await;
        let upgrade = Upgrade::new(Endpoint::of_url(&controller.ready.url)).token(&controller.token);
        let mut client = upgrade.connect().await.unwrap();
        client.initialize(None).await.unwrap();
        Self { controller, client, started: 0 }
    }

    /// Starts a script and gives the name of its process.
    pub(crate) async fn start(&mut self, scratch: &Scratch, script: &str) -> String {
        self.started += 1;
        let name = format!("script-{}", self.started);
        let params = json!({
            "processId": name, "argv": ["bash", "-c", script], "env": { "PATH": "/usr/local/bin:/usr/bin:/bin" },
            "cwd": uri(&scratch.workspace()), "tty": false,
        });
        self.client.call("process/start", params).await.unwrap();
        name
    }

    /// Runs a script to its end.
    pub(crate) async fn run(&mut self, scratch: &Scratch, script: &str) -> Ran {
        let name = self.start(scratch, script).await;
        self.end_of(&name).await
    }

    /// Waits for the end of a process; its output counts from now.
    pub(crate) async fn end_of(&mut self, name: &str) -> Ran {
        let (mut output, mut code) = (Vec::new(), None);
        loop {
            let mut message = self.client.notification().await.expect("the connection goes on");
            let params = message["params"].take();
            if params["processId"] != name {
                continue;
            }
            match message["method"].as_str() {
                Some("process/output") => output.extend(STANDARD.decode(text(&params["chunk"])).unwrap()),
                Some("process/exited") => code = params["exitCode"].as_i64(),
                Some("process/closed") => break,
                _ => {}
            }
        }
        let output = String::from_utf8_lossy(&output).into_owned();
        Ran { code: code.expect("a closed process has exited"), output }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("not a text: {value}"))
}

/// The `file:` URI of a path without special characters.
pub(crate) fn uri(path: &Path) -> String {
    format!("file://{}", path.display())
}
