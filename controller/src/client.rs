//! A client of the exec-server protocol on one WebSocket: calls side by side, answers matched by their ids, output
//! handed to the process it belongs to.
//!
//! Invariant: whatever ends the connection ends every waiting call and every process with the same one line. Dropping
//! the last handle closes the connection. A process whose output nobody takes holds up the connection, not memory.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use legion_protocol::environment::EnvironmentInfo;
use legion_protocol::jsonrpc::{self, ReceivedError};
use legion_protocol::{ErrorCode, Head, Method, RequestId, process, session};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use crate::limits::{FAREWELL_TIMEOUT, MAX_QUEUED_EVENTS, MAX_QUEUED_REQUESTS};
use crate::websocket::to_io;

pub mod process_handle;

pub use process_handle::{Event, Process, command};

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The exec-server, or the gate before it, answered with an error.
    #[error("{}", .0.message)]
    Answered(ReceivedError),
    /// The connection ended; whether the call was carried out is not known.
    #[error("{0}")]
    Gone(String),
}

impl CallError {
    /// Whether the answer says that a path does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Answered(error) if error.code == ErrorCode::NotFound.number())
    }
}

/// A handle; clones share the connection.
#[derive(Clone)]
pub struct Client {
    shared: Rc<Shared>,
    /// What `initialize` said of the other side.
    opened: Rc<session::Initialized>,
    _handles: Rc<Handles>,
}

struct Shared {
    to_socket: mpsc::Sender<Message>,
    waiting: RefCell<HashMap<i64, oneshot::Sender<Answer>>>,
    processes: RefCell<HashMap<String, mpsc::Sender<Event>>>,
    next_id: Cell<i64>,
    ended: RefCell<Option<String>>,
}

type Answer = Result<Box<RawValue>, ReceivedError>;

/// Goes with the last handle. What was sent by then is still written, and a Close frame after it.
struct Handles {
    receiving: AbortHandle,
    gone: Rc<Notify>,
}

impl Drop for Handles {
    fn drop(&mut self) {
        self.receiving.abort();
        self.gone.notify_one();
    }
}

impl Client {
    /// Goes through the handshake on a fresh connection. `name` is what the audit calls the client.
    pub async fn open(socket: WebSocketStream<UnixStream>, name: &str) -> Result<Self, CallError> {
        let (to_socket, queued) = mpsc::channel(MAX_QUEUED_REQUESTS);
        let (sink, stream) = socket.split();
        let shared = Rc::new(Shared {
            to_socket,
            waiting: RefCell::default(),
            processes: RefCell::default(),
            next_id: Cell::new(1),
            ended: RefCell::default(),
        });
        let gone = Rc::<Notify>::default();
        tokio::task::spawn_local(send_until(queued, sink, Rc::clone(&gone)));
        let receiving = tokio::task::spawn_local(receive(stream, Rc::clone(&shared))).abort_handle();
        let handles = Rc::new(Handles { receiving, gone });
        let opening = session::Initialize { client_name: name.to_owned(), resume_session_id: None };
        let opened: session::Initialized = shared.call(Method::Initialize, &opening).await?;
        let text = jsonrpc::notification_text(Method::Initialized.name(), &serde_json::json!({}));
        shared.queue(text).await?;
        Ok(Self { shared, opened: Rc::new(opened), _handles: handles })
    }

    /// What the other side said of itself.
    pub fn info(&self) -> &EnvironmentInfo {
        &self.opened.environment_info
    }

    /// A name nothing else of this connection has.
    pub fn unique(&self, kind: &str) -> String {
        format!("{kind}-{}", self.shared.next_id())
    }

    /// A name no process of any connection has.
    pub fn process_id(&self) -> String {
        format!("{}-{}", self.shared.next_id(), self.opened.session_id)
    }

    /// Why the connection has ended, once it has.
    pub fn why_ended(&self) -> Option<String> {
        self.shared.ended.borrow().clone()
    }

    /// One call, to its answer. Calls are sent in the order in which they are first polled.
    pub async fn call<P: Serialize, R: DeserializeOwned>(
        &self,
        method: Method,
        params: &P,
    ) -> Result<R, CallError> {
        self.shared.call(method, params).await
    }

    /// Sends a call whose answer does not matter.
    pub fn post<P: Serialize>(&self, method: Method, params: &P) {
        let id = self.shared.next_id();
        let message = Message::text(jsonrpc::request_text(&RequestId::from(id), method.name(), params));
        if let Err(mpsc::error::TrySendError::Full(message)) = self.shared.to_socket.try_send(message) {
            let client = self.clone();
            tokio::task::spawn_local(async move { client.shared.to_socket.send(message).await });
        }
    }

    /// Starts a process. Dropping the future, or the process, kills it.
    pub async fn start(&self, start: &process::Start) -> Result<Process, CallError> {
        let (sender, events) = mpsc::channel(MAX_QUEUED_EVENTS);
        self.shared.processes.borrow_mut().insert(start.process_id.clone(), sender);
        let mut process = Process::new(self.clone(), start.process_id.clone(), events);
        let started = self.call::<_, process::Started>(Method::ProcessStart, start).await;
        if let Err(error) = started {
            process.never_ran();
            return Err(error);
        }
        Ok(process)
    }

    fn forget(&self, process_id: &str) {
        self.shared.processes.borrow_mut().remove(process_id);
    }
}

impl Shared {
    fn next_id(&self) -> i64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        id
    }

    async fn queue(&self, text: String) -> Result<(), CallError> {
        self.to_socket.send(Message::text(text)).await.map_err(|_| self.gone())
    }

    async fn call<P: Serialize, R: DeserializeOwned>(
        &self,
        method: Method,
        params: &P,
    ) -> Result<R, CallError> {
        if self.ended.borrow().is_some() {
            return Err(self.gone());
        }
        let id = self.next_id();
        let (sender, answer) = oneshot::channel();
        let _waiting = Waiting { shared: self, id };
        self.waiting.borrow_mut().insert(id, sender);
        self.queue(jsonrpc::request_text(&RequestId::from(id), method.name(), params)).await?;
        let result = answer.await.map_err(|_| self.gone())?.map_err(CallError::Answered)?;
        serde_json::from_str(result.get()).map_err(|error| {
            CallError::Gone(format!("the answer to {} makes no sense: {error}", method.name()))
        })
    }

    fn gone(&self) -> CallError {
        let why = self.ended.borrow().clone();
        CallError::Gone(why.unwrap_or_else(|| "the connection was closed".to_owned()))
    }

    /// Lets go of all who wait.
    fn end(&self, why: String) {
        self.ended.borrow_mut().get_or_insert(why);
        self.waiting.borrow_mut().clear();
        self.processes.borrow_mut().clear();
    }

    /// Takes one frame; `Err` says why the connection cannot go on.
    async fn take(&self, text: &Utf8Bytes) -> Result<(), String> {
        match Head::parse(text)? {
            Head::Response { id, result } => self.answer(&id, Ok(result.to_owned())),
            Head::Error { id, error } => {
                let error = serde_json::from_str(error.get()).map_err(|error| error.to_string())?;
                self.answer(&id, Err(error));
            }
            Head::Notification { method, params } => {
                let params = params.map_or("null", RawValue::get);
                let event = Event::parse(&method, params).map_err(|error| error.to_string())?;
                if let Some((process_id, event)) = event {
                    let process = self.processes.borrow().get(&process_id).cloned();
                    if let Some(process) = process {
                        // Nobody may want it any more.
                        let _ = process.send(event).await;
                    }
                }
            }
            Head::Request { .. } => {}
        }
        Ok(())
    }

    fn answer(&self, id: &RequestId, answer: Answer) {
        let RequestId::Integer(id) = id else { return };
        let waiting = self.waiting.borrow_mut().remove(id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }
}

/// A call that is given up leaves nothing behind.
struct Waiting<'a> {
    shared: &'a Shared,
    id: i64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.waiting.borrow_mut().remove(&self.id);
    }
}

/// Sends to the end; a peer that does not take it cannot hold us up for long.
async fn send_until(
    queued: mpsc::Receiver<Message>,
    sink: SplitSink<WebSocketStream<UnixStream>, Message>,
    gone: Rc<Notify>,
) {
    let late = async {
        gone.notified().await;
        sleep(FAREWELL_TIMEOUT).await;
    };
    tokio::select! {
        () = send(queued, sink) => {}
        () = late => {}
    }
}

async fn send(
    mut queued: mpsc::Receiver<Message>,
    mut sink: SplitSink<WebSocketStream<UnixStream>, Message>,
) {
    while let Some(message) = queued.recv().await {
        let sent = async {
            sink.feed(message).await?;
            while let Ok(message) = queued.try_recv() {
                sink.feed(message).await?;
            }
            sink.flush().await
        };
        if let Err(error) = sent.await {
            // Why the other side closed is still to be read, and says more.
            tracing::debug!(%error, "a request could not be sent");
            return queued.close();
        }
    }
    // A peer that is gone needs no farewell.
    let _ = sink.close().await;
}

async fn receive(mut stream: SplitStream<WebSocketStream<UnixStream>>, shared: Rc<Shared>) {
    let why = loop {
        match stream.next().await {
            Some(Ok(Message::Text(text))) => {
                if let Err(why) = shared.take(&text).await {
                    break why;
                }
            }
            Some(Ok(Message::Close(Some(frame)))) if !frame.reason.is_empty() => {
                break frame.reason.to_string();
            }
            Some(Ok(Message::Close(_))) | None => break "the session closed the connection".to_owned(),
            Some(Ok(_)) => {}
            Some(Err(error)) => break to_io(error).to_string(),
        }
    };
    shared.end(why);
}
