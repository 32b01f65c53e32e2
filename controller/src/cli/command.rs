//! One command in a session, with our stdin, stdout, stderr and signals; its exit code is ours.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::{SinkExt, StreamExt};
use legion_protocol::jsonrpc::{self, ReceivedError};
use legion_protocol::process::{AnySignal, EnvPolicy, Inherit, LegionStart, Stream};
use legion_protocol::{Chunk, Head, Method, PathUri, RequestId, StringMap, process, session};
use rustix::termios::isatty;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::Context;
use super::access::Lease;
use super::audit::tell_head;
use super::signals::{Event, Signals};
use super::streams::{Output, Progress, next_chunk, read_stdin};
use super::terminal::{self, RawMode};
use crate::failure::{Failure, Outcome};
use crate::limits::{LAST_OUTPUT_TIMEOUT, TERMINATION_GRACE};
use crate::websocket::to_io;

/// The only process of the session has this name.
const PROCESS: &str = "exec";

/// What a terminal's line editing takes for the end of the input.
const END_OF_INPUT: u8 = 4;

/// What to run.
pub(super) struct Command {
    /// The program and its arguments.
    pub(super) argv: Vec<String>,
    /// Whether it gets a terminal.
    pub(super) tty: bool,
    /// Where its stdout goes instead of ours; it gets no stdin then.
    pub(super) capture: Option<Capture>,
}

/// Collected output.
pub(super) type Capture = Rc<RefCell<Vec<u8>>>;

/// Runs a command to its end in a session that ends with it.
pub(super) async fn run(context: &Context, lease: Lease, command: Command) -> Outcome<u8> {
    let code = match lease.websocket().await {
        Ok(socket) => Client::new(socket, command.capture.clone()).run(context, &lease, &command).await,
        Err(failure) => Err(failure),
    };
    lease.release().await;
    // To a program that reads our stderr it would look like the command's.
    if isatty(rustix::stdio::stderr()) && command.capture.is_none() {
        tell_head(&context.dirs()?);
    }
    code
}

/// What an answer is awaited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Awaited {
    Initialize,
    Start,
    Stdin,
    Other,
}

struct Client {
    socket: WebSocketStream<UnixStream>,
    awaited: BTreeMap<i64, Awaited>,
    next_id: i64,
    output: Output,
    exit_code: Option<u8>,
    /// The command has ended and all its output was received.
    closed: bool,
    /// What was last sent to a terminal was a part of a line.
    line_open: bool,
    /// It was told to end; ours then, and when it is over in any case.
    ending: Option<(u8, Instant)>,
    /// The command runs as soon as the exec-server has read this far, which is before the answer is here.
    started: bool,
    capture: Option<Capture>,
}

impl Client {
    fn new(socket: WebSocketStream<UnixStream>, capture: Option<Capture>) -> Self {
        Self {
            socket,
            awaited: BTreeMap::new(),
            next_id: 1,
            output: Output::start(),
            exit_code: None,
            closed: false,
            line_open: false,
            ending: None,
            started: false,
            capture,
        }
    }

    async fn run(mut self, context: &Context, lease: &Lease, command: &Command) -> Outcome<u8> {
        let mut signals = Signals::watch().map_err(Failure::internal)?;
        let opening = session::Initialize { client_name: "legion-exec".to_owned(), resume_session_id: None };
        self.request(Awaited::Initialize, Method::Initialize, &opening).await?;
        let start = start_params(context, lease, command)?;
        // Raw mode begins before the command does, so that no keystroke is echoed twice.
        let raw = if command.tty { RawMode::enter().map_err(Failure::internal)? } else { None };
        let mut stdin = None;
        let code = loop {
            let stdin_ready =
                stdin.is_some() && !self.awaited.values().any(|awaited| *awaited == Awaited::Stdin);
            tokio::select! {
                message = self.socket.next(), if !self.closed && (self.ending.is_some() || !self.output.is_full()) => {
                    let message = message
                        .ok_or_else(|| broken("the session closed the connection"))?
                        .map_err(|error| broken(to_io(error)))?;
                    match self.received(message, &start)? {
                        Received::Nothing => {}
                        Received::Ready => self.start(&start).await?,
                        Received::Running => stdin = self.capture.is_none().then(read_stdin),
                        Received::NotStarted(code) => break code,
                    }
                }
                progress = self.output.progress() => match progress {
                    Progress::Room => {}
                    Progress::Written => break self.exit_code.unwrap_or_default(),
                    // End as a pipe's writer ends.
                    Progress::ReaderLeft => break 128 + 13,
                },
                chunk = next_chunk(&mut stdin), if stdin_ready => {
                    if !self.stdin(chunk, command.tty).await? {
                        stdin = None;
                    }
                }
                event = signals.next() => match event {
                    Event::Resized => self.resize(command.tty).await?,
                    Event::Told(signal) => if let Some(code) = self.tell(signal).await? {
                        break code;
                    },
                },
                code = overdue(self.ending) => break self.exit_code.unwrap_or(code),
            }
            if self.closed {
                self.close();
            }
        };
        drop(raw);
        Ok(code)
    }

    async fn request<P: Serialize>(&mut self, awaited: Awaited, method: Method, params: &P) -> Outcome<()> {
        let id = self.next_id;
        self.next_id += 1;
        self.awaited.insert(id, awaited);
        let text = jsonrpc::request_text(&RequestId::from(id), method.name(), params);
        self.socket.send(Message::text(text)).await.map_err(|error| broken(to_io(error)))
    }

    /// The handshake is over: start the command.
    async fn start(&mut self, start: &process::Start) -> Outcome<()> {
        let text = jsonrpc::notification_text(Method::Initialized.name(), &serde_json::json!({}));
        self.socket.send(Message::text(text)).await.map_err(|error| broken(to_io(error)))?;
        self.request(Awaited::Start, Method::ProcessStart, start).await?;
        self.started = true;
        Ok(())
    }

    /// Passes a piece of stdin on, or its end; whether more may come.
    async fn stdin(&mut self, chunk: Option<Vec<u8>>, tty: bool) -> Outcome<bool> {
        let write = |bytes| process::Write {
            process_id: PROCESS.to_owned(),
            chunk: Chunk(bytes),
            write_id: Some(write_id(self.next_id)),
        };
        match chunk {
            Some(bytes) => {
                self.line_open = bytes.last().is_some_and(|byte| *byte != b'\n');
                self.request(Awaited::Stdin, Method::ProcessWrite, &write(bytes)).await?;
            }
            // The end of the input of a terminal is a keystroke; after a part of a line the first one only hands that on.
            None if tty => {
                let keys = vec![END_OF_INPUT; if self.line_open { 2 } else { 1 }];
                self.request(Awaited::Stdin, Method::ProcessWrite, &write(keys)).await?;
                return Ok(false);
            }
            None => {
                let close = process::ProcessRef { process_id: PROCESS.to_owned() };
                self.request(Awaited::Other, Method::LegionCloseStdin, &close).await?;
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Passes a signal on; the exit code if we end at once. The first SIGTERM or SIGHUP is the command's to obey, the
    /// second is not.
    async fn tell(&mut self, told: AnySignal) -> Outcome<Option<u8>> {
        let code = match told {
            AnySignal::Hangup => Some(128 + 1),
            AnySignal::Terminate => Some(128 + 15),
            _ => None,
        };
        if code.is_some() && (self.ending.is_some() || !self.started) {
            return Ok(code);
        }
        self.ending = code.map(|code| (code, Instant::now() + TERMINATION_GRACE)).or(self.ending);
        let signal = process::SendAnySignal { process_id: PROCESS.to_owned(), signal: told };
        self.request(Awaited::Other, Method::LegionSignal, &signal).await?;
        Ok(None)
    }

    /// All output was received. Whoever told the command to end does not wait for a reader of it.
    fn close(&mut self) {
        self.output.close();
        if let Some((_, deadline)) = &mut self.ending {
            *deadline = Instant::now().min(*deadline - LAST_OUTPUT_TIMEOUT) + LAST_OUTPUT_TIMEOUT;
        }
    }

    async fn resize(&mut self, tty: bool) -> Outcome<()> {
        let Some(size) = terminal::size().filter(|_| tty) else { return Ok(()) };
        let resize = process::ResizeTerminal { process_id: PROCESS.to_owned(), size };
        self.request(Awaited::Other, Method::LegionResizeTerminal, &resize).await
    }

    fn received(&mut self, message: Message, start: &process::Start) -> Outcome<Received> {
        let text = match message {
            Message::Text(text) => text,
            Message::Close(frame) => {
                return Err(broken(frame.map(|frame| frame.reason.to_string()).unwrap_or_default()));
            }
            _ => return Ok(Received::Nothing),
        };
        match Head::parse(&text).map_err(broken)? {
            Head::Notification { method, params } => self.notified(&method, params),
            Head::Response { id, .. } => Ok(match self.awaited_for(&id) {
                Some(Awaited::Initialize) => Received::Ready,
                Some(Awaited::Start) => Received::Running,
                _ => Received::Nothing,
            }),
            Head::Error { id, error } => {
                let error: ReceivedError = serde_json::from_str(error.get()).map_err(Failure::internal)?;
                match self.awaited_for(&id) {
                    Some(Awaited::Initialize) => Err(Failure::refused(error.message)),
                    Some(Awaited::Start) => start_failed(&error, start),
                    // A command that ended meanwhile takes no more input.
                    _ => Ok(Received::Nothing),
                }
            }
            Head::Request { .. } => Ok(Received::Nothing),
        }
    }

    fn awaited_for(&mut self, id: &RequestId) -> Option<Awaited> {
        match id {
            RequestId::Integer(id) => self.awaited.remove(id),
            RequestId::Text(_) => None,
        }
    }

    fn notified(&mut self, method: &str, params: Option<&RawValue>) -> Outcome<Received> {
        let text = params.map_or("null", RawValue::get);
        match Method::from_name(method) {
            Some(Method::ProcessOutput) => {
                let output: process::Output = serde_json::from_str(text).map_err(Failure::internal)?;
                match &self.capture {
                    Some(capture) if output.stream != Stream::Stderr => {
                        capture.borrow_mut().extend_from_slice(&output.chunk.0);
                    }
                    // Nobody reads what a command that was told to end still says.
                    _ if self.ending.is_some() && self.output.is_full() => {}
                    _ => self.output.put(output.stream, output.chunk.0),
                }
                Ok(Received::Nothing)
            }
            Some(Method::ProcessExited) => {
                let exited: process::Exited = serde_json::from_str(text).map_err(Failure::internal)?;
                let code = exited.signal.map_or(exited.exit_code, |signal| 128 + signal);
                self.exit_code = Some(u8::try_from(code).unwrap_or(u8::MAX));
                Ok(Received::Nothing)
            }
            Some(Method::ProcessClosed) if self.exit_code.is_none() => {
                Err(broken("the command was closed without an exit code"))
            }
            Some(Method::ProcessClosed) => {
                self.closed = true;
                Ok(Received::Nothing)
            }
            _ => Ok(Received::Nothing),
        }
    }
}

/// Resolves when a command that was told to end should have, with our exit code.
async fn overdue(ending: Option<(u8, Instant)>) -> u8 {
    match ending {
        Some((code, deadline)) => {
            sleep_until(deadline).await;
            code
        }
        None => std::future::pending().await,
    }
}

/// What a message meant.
enum Received {
    Nothing,
    Ready,
    Running,
    NotStarted(u8),
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::unavailable(format_args!("the session ended: {error}"))
}

/// Unique among the writes of this client.
fn write_id(number: i64) -> String {
    format!("stdin-{number}")
}

/// Exit codes as a shell gives them for a command it cannot start.
fn start_failed(error: &ReceivedError, start: &process::Start) -> Outcome<Received> {
    let kind = error.data.as_ref().map(|data| data.get()).unwrap_or_default();
    let code = match kind {
        kind if kind.contains("spawnNotFound") => 127,
        kind if kind.contains("spawnPermissionDenied") || kind.contains("spawnFailed") => 126,
        _ => return Err(Failure::refused(&error.message)),
    };
    let command = start.argv.first().map(String::as_str).unwrap_or_default();
    super::report(&Failure::usage(format_args!("cannot run `{command}` in the sandbox: {}", error.message)));
    Ok(Received::NotStarted(code))
}

fn start_params(context: &Context, lease: &Lease, command: &Command) -> Outcome<process::Start> {
    let cwd = lease.cwd_for(&context.environment.cwd);
    let cwd =
        PathUri::from_path(&cwd).ok_or_else(|| Failure::internal("the workspace has no absolute path"))?;
    let mut env = StringMap::default();
    if command.tty {
        let term = context.environment.var("TERM").unwrap_or("xterm");
        env.0.insert("TERM".to_owned(), term.to_owned());
    }
    let env_policy = EnvPolicy {
        inherit: Inherit::All,
        ignore_default_excludes: true,
        exclude: Vec::new(),
        set: StringMap::default(),
        include_only: Vec::new(),
    };
    Ok(process::Start {
        process_id: PROCESS.to_owned(),
        argv: command.argv.clone(),
        cwd,
        env,
        env_policy: Some(env_policy),
        tty: command.tty,
        pipe_stdin: !command.tty && command.capture.is_none(),
        arg0: None,
        sandbox: None,
        enforce_managed_network: false,
        managed_network: None,
        network_proxy: None,
        metadata: None,
        shell_snapshot: None,
        legion: Some(LegionStart { terminal_size: terminal::size().filter(|_| command.tty) }),
    })
}
