//! A process that this client has started: its events in order, and its end.
//!
//! Invariant: it does not outlive its handle; dropping the handle kills its process group unless it has exited.

use legion_protocol::process::{Closed, Exited, Output, ProcessRef, Stream};
use legion_protocol::{Method, object};
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
                Some((exited.process_id, Self::Exited { code: exited.exit_code, limit: exited.limit }))
            }
            Some(Method::ProcessClosed) => {
                let closed: Closed = object::from_object(params)?;
                Some((closed.process_id, Self::Closed))
            }
            _ => None,
        })
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
