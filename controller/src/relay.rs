//! The relay: one harness connection, one upstream connection, one pump for each direction.
//!
//! Up: judge, record, forward the same bytes. Down: match answers to requests, note what became of calls, forward the
//! same bytes in fragments a client takes. The relay calls the gate and never decides itself.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use futures_util::stream::SplitStream;
use futures_util::{FutureExt, SinkExt, StreamExt};
use legion_protocol::{Method, RequestId};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::approvals::Answer;
use crate::audit::record::Actor;
use crate::audit::{Event, Record};
use crate::controller::Controller;
use crate::gate::{self, Forwarded, Ruling};
use crate::limits::{DRAIN_TIMEOUT, MAX_QUEUED_ANSWERS};
use crate::session::{Command, EndReason, Session};
use crate::upstream::{self, Upstream};

mod down;
mod files;
mod held;
mod outfit;
mod output;
mod records;
mod refused;

use files::{OpenFile, OpenFiles};
use held::{Held, HeldCalls, HeldKey};

/// A request that was forwarded and not yet answered.
struct Pending {
    method: Method,
    /// Number of its `call` record, when it is a guarded one.
    call: Option<u64>,
    started: Instant,
    process_id: Option<String>,
    /// The command, when it starts one.
    command: Option<Command>,
    /// The file, when it opens one.
    opens: Option<OpenFile>,
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
    /// When what waits for more goes on without.
    waiting_until: Cell<Option<Instant>>,
    /// Names of the secrets to be added to the frame that is forwarded next.
    to_add: RefCell<Vec<String>>,
    /// Frames for the harness that came of one.
    ready: RefCell<VecDeque<String>>,
    held: RefCell<Vec<HeldKey>>,
    /// How often the person was told of something refused.
    told_refusals: Cell<u32>,
    files: RefCell<OpenFiles>,
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
            waiting_until: Cell::default(),
            to_add: RefCell::default(),
            ready: RefCell::default(),
            held: RefCell::default(),
            told_refusals: Cell::default(),
            files: RefCell::default(),
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
        self.abandon_held(&stop.reason);
        self.abandon_pending(&stop.reason);
        stop.reason
    }

    async fn pump_up<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        mut from_harness: SplitStream<WebSocketStream<S>>,
        mut to_server: upstream::Sender,
        answer: mpsc::Sender<String>,
    ) -> Stop {
        let mut unflushed = false;
        let mut held = HeldCalls::new();
        loop {
            let mut next = next_up(&mut from_harness, &mut held).now_or_never();
            if next.is_none() && unflushed {
                if to_server.flush().await.is_err() {
                    return server_gone();
                }
                unflushed = false;
            }
            if next.is_none() {
                next = Some(next_up(&mut from_harness, &mut held).await);
            }
            let admitted = match next {
                Some(Up::Text(text)) if self.session.why_ended().is_none() => {
                    self.admit(&text, &held, None).map(|forward| forward.then_some(text))
                }
                Some(Up::Answered(call, answer)) if self.session.why_ended().is_none() => {
                    self.resume(*call, answer, &held)
                }
                Some(Up::Stop(stop)) => {
                    // What it asked for last may still lie here.
                    let _ = timeout(DRAIN_TIMEOUT, to_server.flush()).await;
                    return stop;
                }
                Some(Up::Nothing) | None => continue,
                Some(Up::Text(_) | Up::Answered(..)) => {
                    let why = self.session.why_ended().map_or("ended", EndReason::text);
                    return Stop::new(CloseCode::Policy, format!("session {why}"));
                }
            };
            match admitted {
                Ok(Some(text)) => {
                    let text = self.outfitted(text);
                    if to_server.feed(text).await.is_err() {
                        return server_gone();
                    }
                    unflushed = true;
                }
                Ok(None) => {}
                Err(Refused::Answer(text)) => {
                    if answer.send(text).await.is_err() {
                        return Stop::by_harness();
                    }
                }
                Err(Refused::Close(stop)) => return stop,
            }
        }
    }

    /// Judges and records one frame, about which a person may have been `asked`; whether it is to be forwarded.
    fn admit(&self, text: &Utf8Bytes, held: &HeldCalls, asked: Option<u64>) -> Result<bool, Refused> {
        self.controller.trim.moved(text.len());
        let rules = self.session.rules();
        let judge = self.session.judge(&self.controller, &rules);
        match judge.judge(text) {
            Ruling::Forward(forwarded) => {
                self.withdraw(forwarded.method, forwarded.process_id.as_deref());
                self.forward(Forwarded { asked, ..*forwarded }).map(|()| true)
            }
            Ruling::Refuse(refused) => Err(self.refuse(gate::Refused { asked, ..*refused })),
            Ruling::Ask(forwarded, decided) => {
                self.ask(&judge, text, Forwarded { asked, ..*forwarded }, *decided, held)
            }
            Ruling::Close(why) => {
                self.controller.note(&self.record(Event::Violation).because(why.clone()));
                Err(Refused::Close(Stop::new(CloseCode::Protocol, why)))
            }
        }
    }

    fn forward(&self, forwarded: Forwarded) -> Result<(), Refused> {
        let Forwarded {
            id,
            method,
            mut call,
            process_id,
            size,
            client,
            closes,
            asked,
            rule,
            secrets,
            reason,
        } = forwarded;
        if let Some(client) = client {
            self.actor.borrow_mut().client = Some(client);
        }
        if let (Some(process_id), Some(size), None) = (&process_id, size, &call) {
            self.resized(process_id, size);
        }
        if let Some(handle) = closes {
            self.files.borrow_mut().closed(&handle);
        }
        let Some(id) = id else { return Ok(()) };
        if let Some(error) = self.overloaded(&id, method) {
            return Err(error);
        }
        let granted = self.granted(&secrets);
        if let Some(object) = &mut call {
            object.secrets.clone_from(&granted);
        }
        let started = Instant::now();
        let command = call.as_ref().and_then(|object| Command::of(object, size));
        let opens = call.as_ref().and_then(|object| OpenFile::of(method, object));
        let call = match call {
            None => None,
            Some(object) => {
                self.session.count_call();
                let record = Record { asked, reason, ..self.call_record(&id, method, object, rule) };
                Some(self.controller.record(&record).map_err(|error| self.unrecorded(&id, &error))?)
            }
        };
        self.pending.borrow_mut().insert(id, Pending { method, call, started, process_id, command, opens });
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
}

enum Refused {
    Answer(String),
    Close(Stop),
}

/// What comes next for the exec-server.
enum Up {
    Text(Utf8Bytes),
    Answered(Box<Held>, Answer),
    Nothing,
    Stop(Stop),
}

/// Dropping the future loses nothing.
async fn next_up<S: AsyncRead + AsyncWrite + Unpin>(
    from_harness: &mut SplitStream<WebSocketStream<S>>,
    held: &mut HeldCalls,
) -> Up {
    let message = tokio::select! {
        biased;
        (held, answer) = held::next(held) => return Up::Answered(Box::new(held), answer),
        message = from_harness.next() => message,
    };
    match message {
        Some(Ok(Message::Text(text))) => Up::Text(text),
        Some(Ok(Message::Binary(bytes))) => match Utf8Bytes::try_from(bytes) {
            Ok(text) => Up::Text(text),
            Err(_) => Up::Stop(Stop::new(CloseCode::Invalid, "a message is not UTF-8")),
        },
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Up::Nothing,
        Some(Ok(Message::Close(_))) | None => Up::Stop(Stop::by_harness()),
        Some(Err(error)) => {
            Up::Stop(Stop::new(CloseCode::Protocol, format!("the harness broke off: {error}")))
        }
    }
}

fn server_gone() -> Stop {
    Stop::new(CloseCode::Away, "the exec-server is gone; connect again for a new sandbox")
}
