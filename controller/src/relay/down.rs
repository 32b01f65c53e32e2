//! The down pump: from the exec-server to the harness.
//!
//! The exec-server is not trusted: an answer nobody asked for is dropped and recorded, and whatever it says about a
//! command is recorded as its word.

use bytes::Bytes;
use futures_util::stream::SplitSink;
use futures_util::{FutureExt, SinkExt, StreamExt};
use legion_protocol::head::result_id;
use legion_protocol::jsonrpc::{ReceivedError, response_text};
use legion_protocol::{Head, Method, RequestId, chunk, process};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::output::Passed;
use super::{Connection, Pending, Stop, server_gone};
use crate::audit::record::{Outcome, Source};
use crate::audit::{Event, Record};
use crate::session::millis;
use crate::upstream::Receiver;
use crate::websocket::fragments;

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
        from_server: &mut Receiver,
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
    pub(super) async fn drain(&self, from_server: &mut Receiver) {
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
    async fn next_down(&self, from_server: &mut Receiver, answers: &mut mpsc::Receiver<String>) -> Next {
        if let Some(text) = self.ready.borrow_mut().pop_front() {
            return Next::Text(text.into());
        }
        let message = tokio::select! {
            biased;
            answer = answers.recv() => return answer.map_or_else(|| Next::Stop(Stop::by_harness()), |a| Next::Text(a.into())),
            () = until(self.waiting_until.get()) => {
                self.ready.borrow_mut().extend(self.waited());
                return Next::Nothing;
            }
            message = from_server.next() => message,
        };
        match message {
            Some(Ok(Message::Text(text))) => match self.observe(&text) {
                Passed::Same => Next::Text(text.into()),
                Passed::Instead(frames) => {
                    self.ready.borrow_mut().extend(frames);
                    Next::Nothing
                }
            },
            Some(Ok(Message::Pong(_) | Message::Frame(_))) => Next::Nothing,
            Some(Ok(Message::Ping(payload))) => Next::Ping(payload),
            Some(Ok(Message::Binary(_))) => {
                Next::Stop(Stop::new(CloseCode::Error, "the exec-server sent a binary message"))
            }
            Some(Ok(Message::Close(_)) | Err(_)) | None => Next::Stop(server_gone()),
        }
    }

    /// Notes what a frame of the exec-server says; what of it is to be forwarded.
    fn observe(&self, text: &str) -> Passed {
        self.controller.trim.moved(text.len());
        if let Some(head) = chunk::output_head(text) {
            self.count_output(head.process_id, head.bytes as u64);
            if self.is_plain() {
                return Passed::Same;
            }
        }
        if let Some(id) = result_id(text)
            && self.pending.borrow().get(&id).is_some_and(|pending| !is_followed(pending.method))
        {
            return self.answered(&id, &Answer::Result(None));
        }
        match Head::parse(text) {
            Ok(Head::Notification { method, params }) => self.notified(text, &method, params),
            Ok(Head::Response { id, result }) => self.answered(&id, &Answer::Result(Some(result))),
            Ok(Head::Error { id, error }) => match serde_json::from_str(error.get()) {
                Ok(error) => self.answered(&id, &Answer::Error(error)),
                Err(error) => self.distrust(&format!("a malformed error object: {error}")).into(),
            },
            Ok(Head::Request { method, .. }) => {
                self.distrust(&format!("a request of its own: {method}")).into()
            }
            Err(error) => self.distrust(&format!("no frame: {error}")).into(),
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

    fn answered(&self, id: &RequestId, answer: &Answer<'_>) -> Passed {
        let Some(pending) = self.pending.borrow_mut().remove(id) else {
            return self.distrust(&format!("an answer to {id}, which is not in flight")).into();
        };
        if let (Method::Initialize, Answer::Result(Some(result))) = (pending.method, answer)
            && let Ok(SessionId { session_id }) = serde_json::from_str(result.get())
        {
            self.client.replace(session_id.into());
        }
        if let (Method::ProcessRead, Answer::Result(Some(result)), Some(process_id)) =
            (pending.method, answer, &pending.process_id)
            && let Ok(mut read) = serde_json::from_str::<process::ReadResult>(result.get())
        {
            let exit_code = read.exit_code.filter(|_| read.exited);
            let is_closed = read.closed;
            let more = if self.is_looked_through() { self.reread(process_id, &mut read) } else { Vec::new() };
            self.caught_up(process_id, exit_code, is_closed);
            if self.session.persona.redact {
                return Passed::Instead(std::iter::once(response_text(id, &read)).chain(more).collect());
            }
        }
        let Some(call) = pending.call else { return Passed::Same };
        if let (Answer::Result(_), Some(file)) = (answer, &pending.opens) {
            self.files.borrow_mut().opened(file.clone(), call);
        }
        match (answer, pending) {
            (
                Answer::Result(_),
                Pending { method: Method::ProcessStart, started, process_id: Some(id), command, .. },
            ) => {
                self.session.tapes.remove(&self.key(&id));
                self.session.track(
                    &self.controller,
                    self.key(&id),
                    call,
                    started,
                    command.unwrap_or_default(),
                );
            }
            (answer, pending) => self.controller.note_outcome(&self.outcome(call, &pending, answer)),
        }
        Passed::Same
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

    fn notified(&self, text: &str, name: &str, params: Option<&RawValue>) -> Passed {
        let known = Method::from_name(name)
            .filter(|method| method.direction() == legion_protocol::method::Direction::ServerNotification);
        let params = params.map_or("null", RawValue::get);
        let (process_id, seq) = match known {
            None => return self.distrust(&format!("the notification {name}")).into(),
            Some(Method::ProcessOutput) => {
                return match serde_json::from_str::<process::Output>(params) {
                    Ok(output) => {
                        // The short cut has counted what it understands.
                        if chunk::output_head(text).is_none() {
                            self.count_output(&output.process_id, output.chunk.0.len() as u64);
                        }
                        if self.is_plain() { Passed::Same } else { self.output(output) }
                    }
                    Err(error) => self.distrust(&format!("output that is none: {error}")).into(),
                };
            }
            Some(Method::ProcessExited) => {
                let Ok(exited) = serde_json::from_str::<process::Exited>(params) else { return Passed::Same };
                self.limited(&exited.process_id, exited.limit.as_deref());
                self.exited(&exited.process_id, exited.exit_code);
                (exited.process_id, exited.seq)
            }
            Some(Method::ProcessClosed) => {
                let Ok(closed) = serde_json::from_str::<process::Closed>(params) else { return Passed::Same };
                (closed.process_id, closed.seq)
            }
            Some(_) => return Passed::Same,
        };
        let mut frames = self.no_more_of(&process_id);
        self.session.tapes.find(&self.key(&process_id), |tape| tape.skip(seq));
        if known == Some(Method::ProcessClosed) {
            self.closed(&process_id);
        }
        if frames.is_empty() {
            return Passed::Same;
        }
        frames.push(text.to_owned());
        Passed::Instead(frames)
    }

    fn count_output(&self, process_id: &str, bytes: u64) {
        if let Some(command) = self.session.running().borrow_mut().get_mut(&self.key(process_id)) {
            command.output_bytes += bytes;
        }
    }

    fn exited(&self, process_id: &str, code: i32) {
        if let Some(command) = self.session.running().borrow_mut().get_mut(&self.key(process_id)) {
            command.exited.get_or_insert((code, Instant::now()));
        }
    }

    fn limited(&self, process_id: &str, limit: Option<&str>) {
        let Some(limit) = limit else { return };
        if let Some(command) = self.session.running().borrow_mut().get_mut(&self.key(process_id)) {
            command.limit = Some(format!("killed: {}", self.controller.redactor.text(limit)));
        }
    }

    fn closed(&self, process_id: &str) {
        let key = self.key(process_id);
        let command = self.session.running().borrow_mut().remove(&key);
        if let Some(mut command) = command {
            self.session.note_end(&self.controller, &key, &mut command, "it was closed without an exit code");
        }
    }

    /// A client that resumed a session learns of ends it missed by reading; so do we.
    fn caught_up(&self, process_id: &str, exit_code: Option<i32>, is_closed: bool) {
        if let Some(code) = exit_code {
            self.exited(process_id, code);
        }
        if is_closed {
            self.closed(process_id);
        }
    }
}

/// Whether the relay looks into the answer.
fn is_followed(method: Method) -> bool {
    matches!(method, Method::Initialize | Method::ProcessRead)
}

/// What of an answer to `initialize` names the client.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SessionId {
    session_id: String,
}

/// Resolves at that time; never when there is none.
async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Feeds a text in fragments.
async fn feed<S: AsyncRead + AsyncWrite + Unpin>(
    sink: &mut SplitSink<WebSocketStream<S>, Message>,
    text: Bytes,
) -> bool {
    for fragment in fragments(text) {
        if sink.feed(fragment).await.is_err() {
            return false;
        }
    }
    true
}
