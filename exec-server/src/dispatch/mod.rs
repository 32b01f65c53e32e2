//! The one match on [`Method`]: a request becomes an answer.
//!
//! Invariant: whatever takes long is a future or runs on a thread, so no request delays another that it has nothing to do
//! with. File operations of one connection keep their order where it matters: one that changes something waits for all
//! earlier ones, all later ones (and later commands) wait for it.

mod confined;
mod files;
mod streams;

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use legion_protocol::jsonrpc::response_text;
use legion_protocol::method::{Direction, Phase};
use legion_protocol::object::params;
use legion_protocol::process::{AnySignal, SendAnySignal, SendSignal, Signal};
use legion_protocol::session::{Initialize, Initialized};
use legion_protocol::{ErrorObject, Method, Params, RequestId, capability};
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, RwLock, Semaphore};

use crate::discover;
use crate::environment::Host;
use crate::error::Outcome;
use crate::fs::stream::Handles;
use crate::http;
use crate::limits::{FILE_BUDGET_MIB, MAX_CONFINED_OPERATIONS};
use crate::outgoing::Outgoing;
use crate::process;
use crate::server::Server;
use crate::session::Session;
use streams::Watcher;

/// What one connection is to its requests.
pub(crate) struct Client {
    pub(crate) server: Rc<Server>,
    pub(crate) outgoing: Rc<Outgoing>,
    stage: Cell<Stage>,
    session: RefCell<Option<Rc<Session>>>,
    /// Readers are file operations that change nothing, and commands; writers are those that do.
    order: Arc<RwLock<()>>,
    /// Memory for long file operations, in MiB.
    budget: Arc<Semaphore>,
    /// Threads for confined file operations.
    operations: Arc<Semaphore>,
    /// Files opened for block access.
    handles: Handles,
    /// Of `fs/watchMissing`.
    watch: Watcher,
    /// Of `http/request`.
    requests: Rc<http::Requests>,
}

/// How far the handshake of a connection is (SPEC 3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing yet.
    New,
    /// `initialize` is being answered; nothing else is read.
    Opening,
    /// `initialize` was answered.
    Opened,
    /// `initialized` was received.
    Ready,
}

/// The text of a response frame, and the memory budget it holds until it is sent.
pub(crate) struct Reply {
    /// A whole frame.
    pub(crate) text: String,
    /// Given back when the frame has been handed to the socket.
    pub(crate) budget: Option<OwnedSemaphorePermit>,
}

/// An answer, at once or later.
pub(crate) enum Answer {
    /// Nothing to wait for.
    Now(Outcome<Reply>),
    /// Must be polled once at once: waiting lines are formed in the order of arrival.
    Later(Pin<Box<dyn Future<Output = Outcome<Reply>>>>),
}

impl Client {
    /// A connection that has not sent anything.
    pub(crate) fn new(server: Rc<Server>) -> Rc<Self> {
        Rc::new(Self {
            server,
            outgoing: Rc::default(),
            stage: Cell::new(Stage::New),
            session: RefCell::default(),
            order: Arc::default(),
            budget: Arc::new(Semaphore::new(FILE_BUDGET_MIB as usize)),
            operations: Arc::new(Semaphore::new(MAX_CONFINED_OPERATIONS)),
            handles: Handles::default(),
            watch: Watcher::default(),
            requests: Rc::default(),
        })
    }

    /// How far the handshake is.
    pub(crate) fn stage(&self) -> Stage {
        self.stage.get()
    }

    /// Takes a notification; `false` for a violation, which ends the connection (SPEC 2.4).
    pub(crate) fn notified(&self, method: &str) -> bool {
        let known = Method::from_name(method) == Some(Method::Initialized);
        let legal = known && matches!(self.stage.get(), Stage::Opened | Stage::Ready);
        if legal {
            self.stage.set(Stage::Ready);
        }
        legal
    }

    /// Lets go of the session; its processes live on.
    pub(crate) fn detach(&self) {
        self.requests.end();
        if let Some(session) = self.session.take() {
            self.server.sessions.detach(&session, &self.outgoing);
        }
    }

    /// Answers one request.
    pub(crate) fn request(self: &Rc<Self>, id: RequestId, name: &str, raw: Option<Params<'_>>) -> Answer {
        let method = Method::from_name(name).filter(|method| method.direction() == Direction::ClientRequest);
        let Some(method) = method else { return Answer::Now(Err(ErrorObject::method_not_found(name))) };
        let answer = match method.phase() {
            Phase::Opening => self.initialize(id, raw),
            _ => self.call(method, id, raw),
        };
        answer.unwrap_or_else(|error| Answer::Now(Err(error)))
    }

    pub(super) fn session_for(&self, method: Method) -> Outcome<Rc<Session>> {
        let missing = match self.stage.get() {
            Stage::New | Stage::Opening => "call initialize",
            Stage::Opened => "send initialized",
            Stage::Ready => return self.session.borrow().clone().ok_or_else(lost_session),
        };
        let group = method.group();
        Err(ErrorObject::invalid_request(format!("client must {missing} before using {group} methods")))
    }

    fn initialize(self: &Rc<Self>, id: RequestId, raw: Option<Params<'_>>) -> Outcome<Answer> {
        let request: Initialize = params(raw)?;
        if self.stage.get() != Stage::New {
            return Err(ErrorObject::invalid_request("initialize may only be sent once per connection"));
        }
        let Some(resume) = request.resume_session_id else {
            let session = self.server.sessions.create(&self.outgoing)?;
            return now(&id, &self.open(session));
        };
        self.stage.set(Stage::Opening);
        let client = Rc::clone(self);
        Ok(later(async move {
            match client.server.sessions.resume(&resume, &client.outgoing).await {
                Ok(session) => Ok(reply(&id, &client.open(session))),
                Err(error) => {
                    client.stage.set(Stage::New);
                    Err(error)
                }
            }
        }))
    }

    fn open(&self, session: Rc<Session>) -> Initialized {
        let session_id = session.id.clone();
        *self.session.borrow_mut() = Some(session);
        self.stage.set(Stage::Opened);
        Initialized { session_id, environment_info: self.server.host.info().clone() }
    }

    /// The match. Parameters are decoded before the stage of the handshake is looked at, as in the original.
    fn call(self: &Rc<Self>, method: Method, id: RequestId, raw: Option<Params<'_>>) -> Outcome<Answer> {
        let session = || self.session_for(method);
        match method {
            Method::ProcessStart => self.start(id, params(raw)?, &session()?),
            Method::ProcessRead => {
                let (request, session) = (params(raw)?, session()?);
                Ok(later(async move { Ok(reply(&id, &process::read(session, request).await?)) }))
            }
            Method::ProcessWrite => {
                let (request, session) = (params(raw)?, session()?);
                Ok(later(async move { Ok(reply(&id, &process::write(session, request).await?)) }))
            }
            Method::ProcessSignal | Method::LegionSignal => {
                let request = any_signal(method, raw)?;
                process::signal(&*session()?, &request);
                now(&id, &Empty {})
            }
            Method::ProcessTerminate => {
                let request = params(raw)?;
                now(&id, &process::terminate(&*session()?, &request))
            }
            Method::LegionCloseStdin => {
                let (request, session) = (params(raw)?, session()?);
                Ok(later(async move { Ok(reply(&id, &process::close_stdin(session, request).await?)) }))
            }
            Method::LegionResizeTerminal => {
                let request = params(raw)?;
                process::resize(&*session()?, &request)?;
                now(&id, &Empty {})
            }
            Method::EnvironmentInfo => {
                unit(raw).and_then(|()| session())?;
                now(&id, self.server.host.info())
            }
            Method::EnvironmentStatus => {
                unit(raw).and_then(|()| session())?;
                now(&id, &Host::status())
            }
            Method::EnvironmentConfigRead => {
                let request = params(raw)?;
                session()?;
                now(&id, &self.server.host.read_config(&request)?)
            }
            Method::CapabilitiesDiscover => {
                let _: capability::Discover = params(raw)?;
                session()?;
                now(&id, &discover::everywhere())
            }
            Method::CapabilityRootsDiscover => {
                let request: capability::DiscoverRoots = params(raw)?;
                session()?;
                self.discover_roots(id, request)
            }
            Method::HttpRequest => {
                let request = params(raw)?;
                session()?;
                let prepared = http::prepare(request, &self.requests, &self.server.host.env)?;
                let client = Rc::clone(self);
                Ok(later(async move {
                    let Server { http, host, .. } = &*client.server;
                    Ok(reply(&id, &http::run(prepared, http, &host.env, &client.outgoing).await?))
                }))
            }
            method if method.group() == "filesystem" => self.file_call(method, id, raw),
            other => {
                session()?;
                Err(ErrorObject::method_not_found(other.name()))
            }
        }
    }

    /// A command waits for earlier changes of files: it may be about them. What the client wants to be taken from it is
    /// prepared on a thread.
    fn start(
        self: &Rc<Self>,
        id: RequestId,
        request: legion_protocol::process::Start,
        session: &Rc<Session>,
    ) -> Outcome<Answer> {
        if request.sandbox.is_none() && Arc::clone(&self.order).try_read_owned().is_ok() {
            return now(&id, &process::start(&self.server, session, &request, None)?);
        }
        let (client, session) = (Rc::clone(self), Rc::clone(session));
        Ok(later(async move {
            let _turn = Arc::clone(&client.order).read_owned().await;
            let confined = client.prepare(&request).await?;
            Ok(reply(&id, &process::start(&client.server, &session, &request, confined.as_ref())?))
        }))
    }
}

#[derive(Serialize)]
struct Empty {}

/// The original's one signal is one of ours.
fn any_signal(method: Method, raw: Option<Params<'_>>) -> Outcome<SendAnySignal> {
    if method == Method::LegionSignal {
        return params(raw);
    }
    let SendSignal { process_id, signal: Signal::Interrupt } = params(raw)?;
    Ok(SendAnySignal { process_id, signal: AnySignal::Interrupt })
}

/// Methods without parameters take none, null or an empty object.
fn unit(raw: Option<Params<'_>>) -> Outcome<()> {
    let text = raw.map_or("null", Params::get).trim_ascii();
    let kind = match text.as_bytes().first() {
        Some(b'n') => return Ok(()),
        Some(b'{') if text[1..].trim_ascii_start().starts_with('}') => return Ok(()),
        Some(b'{') => "map",
        Some(b'[') => "sequence",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        _ => "number",
    };
    Err(ErrorObject::invalid_params(format!("invalid type: {kind}, expected unit")))
}

fn lost_session() -> ErrorObject {
    ErrorObject::invalid_request("the session of this connection is gone")
}

fn reply<R: Serialize>(id: &RequestId, result: &R) -> Reply {
    Reply { text: response_text(id, result), budget: None }
}

#[allow(clippy::unnecessary_wraps, reason = "reads as the other arms of the match do")]
fn now<R: Serialize>(id: &RequestId, result: &R) -> Outcome<Answer> {
    Ok(Answer::Now(Ok(reply(id, result))))
}

fn later(future: impl Future<Output = Outcome<Reply>> + 'static) -> Answer {
    Answer::Later(Box::pin(future))
}
