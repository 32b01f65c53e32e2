//! Runs `legion-controller` as its users do: the command line, the configuration file, what `start --json` says.
//!
//! Invariant: state, run-time files and configuration are the test's own, through the XDG variables that
//! [`Scratch::command`] sets; the workspace is always named.

use std::path::PathBuf;

use rustix::process::Signal;
use serde::Deserialize;
use tokio::process::Command;

use crate::child::{Child, Finished};
use crate::codex::Reach;
use crate::scratch::Scratch;
use crate::settings::settings;

/// The line that `start --json` prints when the controller is ready.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    /// The first listener, for clients.
    pub url: String,
    /// The admin socket.
    pub control_socket: PathBuf,
    /// Holds the token of the session that `start` has opened.
    pub token_file: PathBuf,
    /// Public id of that session.
    pub session: String,
}

/// Writes the configuration file that every later command of this test reads.
pub fn configure(scratch: &Scratch, toml: &str) {
    scratch.write("config/legion/legion.toml", toml);
}

/// `legion-controller ARGS…`, ready to be spawned.
pub fn command(scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = scratch.command(settings().legion_binary("legion-controller"));
    command.args(args);
    command
}

/// `legion-controller start ARGS…` for the test's workspace, ready to be spawned.
pub fn start_command(scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = command(scratch, &["start", "--json", "--workspace"]);
    command.arg(scratch.workspace()).args(args);
    command
}

/// Runs `legion-controller ARGS…` to its end.
pub async fn run(scratch: &Scratch, args: &[&str]) -> Finished {
    Child::spawn("legion-controller", command(scratch, args)).finish().await
}

/// Codex starts `legion-controller connect` by itself; nothing else has to run.
pub fn connect(scratch: &Scratch) -> Reach {
    let workspace = scratch.workspace().display().to_string();
    Reach::Program {
        program: settings().legion_binary("legion-controller"),
        args: vec!["connect".to_owned(), "--workspace".to_owned(), workspace],
        env: Vec::new(),
    }
}

/// A running `legion-controller start`.
#[derive(Debug)]
pub struct Controller {
    child: Child,
    /// What it said when it was ready.
    pub ready: Ready,
    /// The content of the token file.
    pub token: String,
}

impl Controller {
    /// Starts it for the test's workspace and waits until it is ready.
    pub async fn start(scratch: &Scratch, args: &[&str]) -> Self {
        Self::launch(start_command(scratch, args)).await
    }

    /// Starts a prepared [`start_command`] and waits until it is ready.
    pub async fn launch(command: Command) -> Self {
        let mut child = Child::spawn("legion-controller start", command);
        let line = child.first_line().await;
        let ready: Ready = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("start --json printed {line:?}: {error}"));
        let token = std::fs::read_to_string(&ready.token_file)
            .unwrap_or_else(|error| panic!("no token in {}: {error}", ready.token_file.display()));
        Self { child, token: token.trim().to_owned(), ready }
    }

    /// A URL, and the token in the header.
    pub fn reach(&self) -> Reach {
        Reach::Url { url: self.ready.url.clone(), token: Some(self.token.clone()) }
    }

    /// A URL with the token in its query, for clients that can send no header. The listener has to allow it.
    pub fn reach_by_query(&self) -> Reach {
        Reach::UrlVariable(format!("{}/?token={}", self.ready.url.trim_end_matches('/'), self.token))
    }

    /// Process id.
    pub fn pid(&self) -> Option<u32> {
        self.child.pid()
    }

    /// Sends a signal to the controller alone.
    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Waits until its standard error satisfies `reached`.
    pub async fn until_stderr(&mut self, what: &str, reached: impl Fn(&str) -> bool) {
        self.child.until_stderr(what, reached).await;
    }

    /// Waits until it has ended.
    pub async fn finish(self) -> Finished {
        self.child.finish().await
    }

    /// Asks it to end and waits until it has.
    pub async fn stop(self) -> Finished {
        self.child.stop().await
    }
}
