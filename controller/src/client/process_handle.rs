//! A process that this client has started: its events in order, and its end.
//!
//! Invariant: it does not outlive its handle; dropping the handle kills its process group unless it has exited.

use legion_protocol::process::{Closed, EnvPolicy, Exited, Inherit, Output, ProcessRef, Start, Stream};
use legion_protocol::{Method, PathUri, StringMap, object};
use tokio::sync::mpsc;

use super::Client;

/// What happens to a process (SPEC 7.3).
#[derive(Debug)]
pub enum Event {
    /// A piece of output.
    Output(Stream, Vec<u8>),
    /// The direct child has ended; output may follow.
    Exited {
        /// 128+N for a signal.
        code: i32,
        /// Which limit of the persona ended it.
        limit: Option<String>,
    },
    /// All output was received.
    Closed,
}

impl Event {
    /// The event in a notification, and whose it is; `None` for a notification about something else.
    pub(super) fn parse(method: &str, params: &str) -> serde_json::Result<Option<(String, Self)>> {
        Ok(match Method::from_name(method) {
            Some(Method::ProcessOutput) => {
                let output: Output = object::from_object(params)?;
                Some((output.process_id, Self::Output(output.stream, output.chunk.0)))
            }
            Some(Method::ProcessExited) => {
                let exited: Exited = object::from_object(params)?;
                let code = exited.signal.map_or(exited.exit_code, |signal| 128 + signal);
                Some((exited.process_id, Self::Exited { code, limit: exited.limit }))
            }
            Some(Method::ProcessClosed) => {
                let closed: Closed = object::from_object(params)?;
                Some((closed.process_id, Self::Closed))
            }
            _ => None,
        })
    }
}

/// A command as our own clients start it: with all of the session's environment, without a terminal or an input.
pub fn command(process_id: String, argv: Vec<String>, cwd: PathUri) -> Start {
    let env_policy = EnvPolicy {
        inherit: Inherit::All,
        ignore_default_excludes: true,
        exclude: Vec::new(),
        set: StringMap::default(),
        include_only: Vec::new(),
    };
    Start {
        process_id,
        argv,
        cwd,
        env: StringMap::default(),
        env_policy: Some(env_policy),
        tty: false,
        pipe_stdin: false,
        arg0: None,
        sandbox: None,
        enforce_managed_network: false,
        managed_network: None,
        network_proxy: None,
        metadata: None,
        shell_snapshot: None,
        legion: None,
    }
}

/// A started process.
pub struct Process {
    client: Client,
    id: String,
    events: mpsc::Receiver<Event>,
    runs: bool,
}

impl Process {
    pub(super) fn new(client: Client, id: String, events: mpsc::Receiver<Event>) -> Self {
        Self { client, id, events, runs: true }
    }

    /// What happens next; `None` when the connection has ended. May be dropped and asked again.
    pub async fn next(&mut self) -> Option<Event> {
        let event = self.events.recv().await;
        if !matches!(event, Some(Event::Output(..))) {
            self.runs = false;
        }
        event
    }

    /// Kills its process group; the events that tell so follow.
    pub fn kill(&self) {
        self.client.post(Method::ProcessTerminate, &ProcessRef { process_id: self.id.clone() });
    }

    pub(super) fn never_ran(&mut self) {
        self.runs = false;
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.client.forget(&self.id);
        if self.runs {
            self.kill();
        }
    }
}
