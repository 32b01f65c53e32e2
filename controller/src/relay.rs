//! The relay: one harness connection, one upstream connection, one pump for each direction.
//!
//! Up: judge, record, forward the same bytes. Down: match answers to requests, note what became of calls, forward the
//! same bytes in fragments a client takes. The relay calls the gate and never decides itself.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt, SinkExt, StreamExt};
use legion_protocol::limits::MAX_REQUESTS_IN_FLIGHT;
use legion_protocol::{ErrorCode, ErrorObject, Method, RequestId, jsonrpc};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::audit::record::{Actor, Decision, Object, Outcome};
use crate::audit::{Event, Record};
use crate::controller::Controller;
use crate::gate::{self, Forwarded, Ruling};
use crate::limits::{DRAIN_TIMEOUT, MAX_QUEUED_ANSWERS, MAX_TRACKED_PROCESSES};
use crate::policy::refusal::Kind;
use crate::redaction::tape::Tape;
use crate::sandbox::launch::Upstream;
use crate::session::{Command, ProcessKey, Session, millis};
use crate::websocket::fragments;

mod down;
mod outfit;
mod output;

/// A request that was forwarded and not yet answered.
struct Pending {
    method: Method,
    /// Number of its `call` record, when it is a guarded one.
    call: Option<u64>,
    started: Instant,
    process_id: Option<String>,
    /// The command, when it starts one.
    command: Option<Command>,
}

/// One harness connection.
pub struct Connection {
    controller: Rc<Controller>,
    session: Rc<Session>,
    number: u64,
    actor: RefCell<Actor>,
    pending: RefCell<HashMap<RequestId, Pending>>,
    /// The exec-server's name for the client; empty before it has one.
    client: RefCell<Rc<str>>,
    /// Output whose secrets are looked for, by the client's process id.
    tapes: RefCell<HashMap<String, Tape>>,
    /// When what waits for more goes on without.
    waiting_until: Cell<Option<Instant>>,
    /// Names of the secrets to be added to the frame that is forwarded next.
    to_add: RefCell<Vec<String>>,
    /// Frames for the harness that came of one.
    ready: RefCell<VecDeque<String>>,
}

/// Why a pump stopped: one line for the record, and what the harness is told in the Close frame.
struct Stop {
    reason: String,
    code: CloseCode,
}

impl Stop {
    fn new(code: CloseCode, reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), code }
    }

    fn by_harness() -> Self {
        Self::new(CloseCode::Normal, "the harness left")
    }
}

impl Connection {
    /// A connection of a session.
    pub fn new(controller: Rc<Controller>, session: Rc<Session>, number: u64, actor: Actor) -> Self {
        Self {
            controller,
            session,
            number,
            actor: RefCell::new(actor),
            pending: RefCell::default(),
            client: RefCell::new("".into()),
            tapes: RefCell::default(),
            waiting_until: Cell::default(),
            to_add: RefCell::default(),
            ready: RefCell::default(),
        }
    }

    /// Relays until either side leaves or the session ends; returns why, in one line.
    pub async fn run<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        downstream: WebSocketStream<S>,
        upstream: Upstream,
    ) -> String {
        let (mut to_harness, from_harness) = downstream.split();
        let (to_server, from_server) = upstream.split();
        let (answer, answers) = mpsc::channel(MAX_QUEUED_ANSWERS);
        let mut from_server = from_server;
        let stop = tokio::select! {
            stop = self.pump_up(from_harness, to_server, answer) => stop,
            stop = self.pump_down(&mut from_server, &mut to_harness, answers) => stop,
            reason = self.session.until_ended() => Stop::new(CloseCode::Policy, format!("session {}", reason.text())),
        };
        let frame = CloseFrame { code: stop.code, reason: Utf8Bytes::from(stop.reason.clone()) };
        // The harness may be gone already; its queue may be full: one try is enough.
        let _ = to_harness.send(Message::Close(Some(frame))).now_or_never();
        if stop.code == CloseCode::Normal {
            // What the harness asked for last still happens; its end belongs into the log.
            let _ = timeout(DRAIN_TIMEOUT, self.drain(&mut from_server)).await;
        }
        self.abandon_pending(&stop.reason);
        stop.reason
    }

    async fn pump_up<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut from_harness: SplitStream<WebSocketStream<S>>,
        mut to_server: SplitSink<Upstream, Message>,
        answer: mpsc::Sender<String>,
    ) -> Stop {
        let mut unflushed = false;
        loop {
            let next = if let Some(next) = from_harness.next().now_or_never() {
                next
            } else {
                if unflushed && to_server.flush().await.is_err() {
                    return server_gone();
                }
                unflushed = false;
                from_harness.next().await
            };
            let text = match next {
                Some(Ok(Message::Text(text))) => text,
                Some(Ok(Message::Binary(bytes))) => match Utf8Bytes::try_from(bytes) {
                    Ok(text) => text,
                    Err(_) => return Stop::new(CloseCode::Invalid, "a message is not UTF-8"),
                },
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Ok(Message::Close(_))) | None => {
                    // What it asked for last may still lie here.
                    let _ = timeout(DRAIN_TIMEOUT, to_server.flush()).await;
                    return Stop::by_harness();
                }
                Some(Err(error)) => {
                    return Stop::new(CloseCode::Protocol, format!("the harness broke off: {error}"));
                }
            };
            if let Some(reason) = self.session.why_ended() {
                return Stop::new(CloseCode::Policy, format!("session {}", reason.text()));
            }
            match self.admit(&text) {
                Ok(true) => {
                    let text = self.outfitted(text);
                    if to_server.feed(Message::Text(text)).await.is_err() {
                        return server_gone();
                    }
                    unflushed = true;
                }
                Ok(false) => {}
                Err(Refused::Answer(text)) => {
                    if answer.send(text).await.is_err() {
                        return Stop::by_harness();
                    }
                }
                Err(Refused::Close(stop)) => return stop,
            }
        }
    }

    /// Judges and records one frame; whether it is to be forwarded.
    fn admit(&self, text: &str) -> Result<bool, Refused> {
        self.controller.trim.moved(text.len());
        let rules = self.session.rules();
        let judge = self.session.judge(&self.controller, &rules);
        match judge.judge(text) {
            Ruling::Forward(forwarded) => self.forward(*forwarded).map(|()| true),
            Ruling::Refuse(refused) => Err(self.refuse(*refused)),
            Ruling::Ask(forwarded, decided) => {
                Err(self.refuse(judge.refused(*forwarded, Kind::NotAsked, &decided)))
            }
            Ruling::Close(why) => {
                self.controller.note(&self.record(Event::Violation).because(why.clone()));
                Err(Refused::Close(Stop::new(CloseCode::Protocol, why)))
            }
        }
    }

    /// Records a refusal; what is answered.
    fn refuse(&self, refused: gate::Refused) -> Refused {
        let event = if refused.violation { Event::Violation } else { Event::Call };
        let mut record = self.record(event).because(self.controller.redactor.text(&refused.error.message));
        record.method = refused.method;
        record.object = refused.object;
        record.rule = refused.rule;
        record.decision = Some(Decision::Deny);
        self.controller.note(&record);
        Refused::Answer(jsonrpc::error_text(&refused.id, &refused.error))
    }

    fn forward(&self, forwarded: Forwarded) -> Result<(), Refused> {
        let Forwarded { id, method, mut call, process_id, size, client, rule, secrets } = forwarded;
        if let Some(client) = client {
            self.actor.borrow_mut().client = Some(client);
        }
        if let (Some(process_id), Some(size), None) = (&process_id, size, &call) {
            self.resized(process_id, size);
        }
        let Some(id) = id else { return Ok(()) };
        let refuse = |error: ErrorObject| Refused::Answer(jsonrpc::error_text(&id, &error));
        if let Some(why) = self.overload(&id, method) {
            return Err(refuse(ErrorObject::invalid_request(why)));
        }
        let granted = self.granted(&secrets);
        if let Some(object) = &mut call {
            object.secrets.clone_from(&granted);
        }
        let started = Instant::now();
        let command = call.as_ref().and_then(|object| Command::of(object, size));
        let call = match call {
            None => None,
            Some(object) => {
                self.session.count_call();
                Some(self.controller.record(&self.call_record(&id, method, object, rule)).map_err(
                    |error| {
                        tracing::error!(%error, "a call is refused because it cannot be recorded");
                        refuse(ErrorObject::new(
                            ErrorCode::Refused,
                            format!("Legion cannot record this call: {error}"),
                        ))
                    },
                )?)
            }
        };
        self.pending.borrow_mut().insert(id, Pending { method, call, started, process_id, command });
        self.to_add.replace(granted);
        Ok(())
    }

    /// The size of a terminal that is not there yet comes on the heels of what makes it.
    fn resized(&self, process_id: &str, size: (u16, u16)) {
        if self.session.resized(&self.key(process_id), size) {
            return;
        }
        let mut pending = self.pending.borrow_mut();
        let mut starts =
            pending.values_mut().filter(|pending| pending.process_id.as_deref() == Some(process_id));
        if let Some(command) = starts.find_map(|pending| pending.command.as_mut()) {
            command.size = size;
        }
    }

    fn overload(&self, id: &RequestId, method: Method) -> Option<String> {
        let pending = self.pending.borrow();
        if pending.contains_key(id) {
            return Some(format!("request id {id} is already in flight"));
        }
        if pending.len() >= MAX_REQUESTS_IN_FLIGHT {
            return Some(format!(
                "more than {MAX_REQUESTS_IN_FLIGHT} requests are in flight: wait for answers"
            ));
        }
        let tracked = self.session.running().borrow().len();
        (method == Method::ProcessStart && tracked >= MAX_TRACKED_PROCESSES)
            .then(|| format!("more than {MAX_TRACKED_PROCESSES} processes are running: end some"))
    }

    fn call_record(&self, id: &RequestId, method: Method, object: Object, rule: Option<String>) -> Record {
        let mut record = self.record(Event::Call);
        record.rule = rule;
        record.process = object.process_id.as_ref().and_then(|process| self.start_of(process));
        record.request = Some(match id {
            RequestId::Text(text) => RequestId::Text(self.controller.redactor.text(text).into()),
            RequestId::Integer(_) => id.clone(),
        });
        record.method = Some(method.name().to_owned());
        record.object = Some(object);
        record.decision = Some(Decision::Allow);
        record
    }

    fn key(&self, process_id: &str) -> ProcessKey {
        ProcessKey { client: Rc::clone(&self.client.borrow()), id: process_id.to_owned() }
    }

    /// Number of the record that started a process, answered or not.
    fn start_of(&self, process_id: &str) -> Option<u64> {
        let running = self.session.running().borrow();
        running.get(&self.key(process_id)).map(|command| command.call).or_else(|| {
            let pending = self.pending.borrow();
            let is_start = |pending: &&Pending| {
                pending.method == Method::ProcessStart && pending.process_id.as_deref() == Some(process_id)
            };
            pending.values().find(is_start)?.call
        })
    }

    /// A record of this connection.
    fn record(&self, event: Event) -> Record {
        let mut record = Record::new(event).of_session(&self.session.id);
        record.connection = Some(self.number);
        record.actor = Some(self.actor.borrow().clone());
        record
    }

    /// Calls without an answer at the end of the connection have an unknown outcome, and that is recorded.
    fn abandon_pending(&self, why: &str) {
        for (_, pending) in self.pending.borrow_mut().drain() {
            let Some(call) = pending.call else { continue };
            let outcome = Outcome {
                message: Some(format!("no answer was seen: {why}")),
                duration_ms: Some(millis(pending.started.elapsed())),
                ..Outcome::default()
            };
            let mut record = Record::new(Event::Outcome).of_session(&self.session.id);
            record.call = Some(call);
            record.method = Some(pending.method.name().to_owned());
            record.outcome = Some(outcome);
            self.controller.note(&record);
        }
    }
}

enum Refused {
    Answer(String),
    Close(Stop),
}

fn server_gone() -> Stop {
    Stop::new(CloseCode::Away, "the exec-server is gone; connect again for a new sandbox")
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
