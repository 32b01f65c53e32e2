//! The down pump: from the exec-server to the harness.
//!
//! The exec-server is not trusted: an answer nobody asked for is dropped and recorded, and whatever it says about a
//! command is recorded as its word.

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use legion_protocol::head::result_id;
use legion_protocol::jsonrpc::ReceivedError;
use legion_protocol::{Head, Method, RequestId, chunk, process};
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::{Connection, Pending, Stop, feed, server_gone, track};
use crate::audit::record::{Outcome, Source};
use crate::audit::{Event, Record};
use crate::sandbox::launch::Upstream;
use crate::session::millis;

/// What the down pump does next.
enum Next {
    Text(Bytes),
    Ping(Bytes),
    Nothing,
    Stop(Stop),
}

/// An answer taken apart as far as the audit needs it.
enum Answer<'a> {
    /// A result, not decoded.
    Result(Option<&'a RawValue>),
    /// An error.
    Error(ReceivedError),
}

impl Connection {
    pub(super) async fn pump_down<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        from_server: &mut SplitStream<Upstream>,
        to_harness: &mut SplitSink<WebSocketStream<S>, Message>,
        mut answers: mpsc::Receiver<String>,
    ) -> Stop {
        let mut unflushed = false;
        loop {
            let mut next = self.next_down(from_server, &mut answers).now_or_never();
            if next.is_none() && unflushed {
                if to_harness.flush().await.is_err() {
                    return Stop::by_harness();
                }
                unflushed = false;
            }
            if next.is_none() {
                next = Some(self.next_down(from_server, &mut answers).await);
            }
            let sent = match next {
                Some(Next::Text(text)) => feed(to_harness, text).await,
                Some(Next::Ping(payload)) => to_harness.feed(Message::Ping(payload)).await.is_ok(),
                Some(Next::Nothing) | None => continue,
                Some(Next::Stop(stop)) => return stop,
            };
            if !sent {
                return Stop::by_harness();
            }
            unflushed = true;
        }
    }

    /// Notes what the exec-server still says after the harness left, until nothing is awaited any more.
    pub(super) async fn drain(&self, from_server: &mut SplitStream<Upstream>) {
        while !(self.pending.borrow().is_empty() && self.session.running().borrow().is_empty()) {
            match from_server.next().await {
                Some(Ok(Message::Text(text))) => {
                    self.observe(&text);
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                _ => return,
            }
        }
    }

    /// What comes next for the harness; dropping the future loses nothing.
    async fn next_down(
        &self,
        from_server: &mut SplitStream<Upstream>,
        answers: &mut mpsc::Receiver<String>,
    ) -> Next {
        let message = tokio::select! {
            biased;
            answer = answers.recv() => return answer.map_or_else(|| Next::Stop(Stop::by_harness()), |a| Next::Text(a.into())),
            message = from_server.next() => message,
        };
        match message {
            Some(Ok(Message::Text(text))) if self.observe(&text) => Next::Text(text.into()),
            Some(Ok(Message::Text(_) | Message::Pong(_) | Message::Frame(_))) => Next::Nothing,
            Some(Ok(Message::Ping(payload))) => Next::Ping(payload),
            Some(Ok(Message::Binary(_))) => {
                Next::Stop(Stop::new(CloseCode::Error, "the exec-server sent a binary message"))
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => Next::Stop(server_gone()),
        }
    }

    /// Notes what a frame of the exec-server says; whether it is to be forwarded.
    fn observe(&self, text: &str) -> bool {
        self.controller.trim.moved(text.len());
        if let Some((process_id, bytes)) = chunk::output_head(text) {
            self.count_output(&process_id, bytes as u64);
            return true;
        }
        if let Some(id) = result_id(text)
            && self.pending.borrow().get(&id).is_some_and(|pending| pending.method != Method::ProcessRead)
        {
            return self.answered(&id, &Answer::Result(None));
        }
        match Head::parse(text) {
            Ok(Head::Notification { method, params }) => self.notified(&method, params),
            Ok(Head::Response { id, result }) => self.answered(&id, &Answer::Result(Some(result))),
            Ok(Head::Error { id, error }) => match serde_json::from_str(error.get()) {
                Ok(error) => self.answered(&id, &Answer::Error(error)),
                Err(error) => self.distrust(&format!("a malformed error object: {error}")),
            },
            Ok(Head::Request { method, .. }) => self.distrust(&format!("a request of its own: {method}")),
            Err(error) => self.distrust(&format!("no frame: {error}")),
        }
    }

    /// Records a frame that an honest exec-server does not send; it is not forwarded.
    fn distrust(&self, what: &str) -> bool {
        let what = self.controller.redactor.text(what);
        let mut record = self.record(Event::Violation).because(format!("the exec-server sent {what}"));
        record.source = Source::ExecServer;
        self.controller.note(&record);
        false
    }

    fn answered(&self, id: &RequestId, answer: &Answer<'_>) -> bool {
        let Some(pending) = self.pending.borrow_mut().remove(id) else {
            return self.distrust(&format!("an answer to {id}, which is not in flight"));
        };
        if let (Method::ProcessRead, Answer::Result(Some(result)), Some(process_id)) =
            (pending.method, answer, &pending.process_id)
            && let Ok(read) = serde_json::from_str::<process::ReadResult>(result.get())
        {
            self.caught_up(process_id, &read);
        }
        let Some(call) = pending.call else { return true };
        match (answer, pending) {
            (
                Answer::Result(_),
                Pending { method: Method::ProcessStart, started, process_id: Some(id), .. },
            ) => {
                track(&self.session, id, call, started);
            }
            (answer, pending) => self.controller.note_outcome(&self.outcome(call, &pending, answer)),
        }
        true
    }

    fn outcome(&self, call: u64, pending: &Pending, answer: &Answer<'_>) -> Record {
        let (error, message) = match answer {
            Answer::Result(_) => (None, None),
            Answer::Error(error) => (Some(error.code), Some(self.controller.redactor.text(&error.message))),
        };
        let mut record = Record::new(Event::Outcome).of_session(&self.session.id);
        record.call = Some(call);
        record.method = Some(pending.method.name().to_owned());
        record.outcome = Some(Outcome {
            ok: Some(error.is_none()),
            error,
            message,
            duration_ms: Some(millis(pending.started.elapsed())),
            ..Outcome::default()
        });
        record.source = Source::ExecServer;
        record
    }

    fn notified(&self, name: &str, params: Option<&RawValue>) -> bool {
        let known = Method::from_name(name)
            .filter(|method| method.direction() == legion_protocol::method::Direction::ServerNotification);
        let text = params.map_or("null", RawValue::get);
        match known {
            None => return self.distrust(&format!("the notification {name}")),
            Some(Method::ProcessOutput) => {
                if let Ok(output) = serde_json::from_str::<process::Output>(text) {
                    self.count_output(&output.process_id, output.chunk.0.len() as u64);
                }
            }
            Some(Method::ProcessExited) => {
                if let Ok(exited) = serde_json::from_str::<process::Exited>(text) {
                    self.limited(&exited.process_id, exited.limit.as_deref());
                    self.exited(&exited.process_id, exited.exit_code);
                }
            }
            Some(Method::ProcessClosed) => {
                if let Ok(closed) = serde_json::from_str::<process::Closed>(text) {
                    self.closed(&closed.process_id);
                }
            }
            Some(_) => {}
        }
        true
    }

    fn count_output(&self, process_id: &str, bytes: u64) {
        if let Some(command) = self.session.running().borrow_mut().get_mut(process_id) {
            command.output_bytes += bytes;
        }
    }

    fn exited(&self, process_id: &str, code: i32) {
        if let Some(command) = self.session.running().borrow_mut().get_mut(process_id) {
            command.exited.get_or_insert((code, Instant::now()));
        }
    }

    fn limited(&self, process_id: &str, limit: Option<&str>) {
        let Some(limit) = limit else { return };
        if let Some(command) = self.session.running().borrow_mut().get_mut(process_id) {
            command.limit = Some(format!("killed: {}", self.controller.redactor.text(limit)));
        }
    }

    fn closed(&self, process_id: &str) {
        let command = self.session.running().borrow_mut().remove(process_id);
        if let Some(command) = command {
            self.controller
                .note(&self.session.outcome_of(&command, Some("it was closed without an exit code")));
        }
    }

    /// A client that resumed a session learns of ends it missed by reading; so do we.
    fn caught_up(&self, process_id: &str, read: &process::ReadResult) {
        if let (true, Some(code)) = (read.exited, read.exit_code) {
            self.exited(process_id, code);
        }
        if read.closed {
            self.closed(process_id);
        }
    }
}
