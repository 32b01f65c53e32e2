//! One command in a session, with our stdin, stdout, stderr and signals; its exit code is ours.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::rc::Rc;

use legion_protocol::process::{AnySignal, LegionStart, Stream};
use legion_protocol::{Chunk, Method, PathUri, process};
use rustix::termios::isatty;
use serde::de::IgnoredAny;
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_tungstenite::WebSocketStream;

use super::Context;
use super::access::Lease;
use super::audit::tell_head;
use super::signals::{self, Signals};
use super::streams::{Output, Progress, next_chunk, read_stdin};
use super::terminal::{self, Keyboard, RawMode};
use crate::client::{self, CallError, Client, Event, Process};
use crate::failure::{Failure, Outcome};
use crate::limits::{LAST_OUTPUT_TIMEOUT, TERMINATION_GRACE};

/// The only process of the session has this name.
const PROCESS: &str = "exec";

/// What a terminal's line editing takes for the end of the input.
const END_OF_INPUT: u8 = 4;

/// What to run.
#[derive(Default)]
pub(super) struct Command {
    /// The program and its arguments.
    pub(super) argv: Vec<String>,
    /// Whether it gets a terminal.
    pub(super) tty: bool,
    /// Where its stdout goes instead of ours; it gets no stdin then.
    pub(super) capture: Option<Capture>,
    /// Where it starts; none is where we are, as the session has it.
    pub(super) cwd: Option<PathBuf>,
    /// Told when it reads our keyboard.
    pub(super) keyboard: Keyboard,
}

/// Collected output.
pub(super) type Capture = Rc<RefCell<Vec<u8>>>;

/// Runs a command to its end in a session that ends with it.
pub(super) async fn run(context: &Context, lease: Lease, command: Command) -> Outcome<u8> {
    let code = match lease.websocket().await {
        Ok(socket) => start(socket, context, &lease, &command).await,
        Err(failure) => Err(failure),
    };
    lease.release().await;
    // To a program that reads our stderr it would look like the command's.
    if isatty(rustix::stdio::stderr()) && command.capture.is_none() {
        tell_head(&context.dirs()?);
    }
    code
}

/// Goes through the handshake, then runs the command.
async fn start(
    socket: WebSocketStream<UnixStream>,
    context: &Context,
    lease: &Lease,
    command: &Command,
) -> Outcome<u8> {
    let mut signals = Signals::watch().map_err(Failure::internal)?;
    let opened = tokio::select! {
        opened = Client::open(socket, "legion-exec") => opened,
        code = told_to_end(&mut signals) => return Ok(code),
    };
    let client = opened.map_err(|error| match error {
        CallError::Answered(error) => Failure::refused(error.message),
        CallError::Gone(why) => broken(why),
    })?;
    let start = start_params(context, lease, command)?;
    let running = Running {
        client,
        command,
        output: Output::start(),
        exit_code: None,
        closed: false,
        line_open: false,
        ending: None,
        interrupted: None,
        started: Cell::new(false),
    };
    running.run(&start, signals).await
}

struct Running<'a> {
    client: Client,
    command: &'a Command,
    output: Output,
    exit_code: Option<u8>,
    /// The command has ended and all its output was received.
    closed: bool,
    /// What was last sent to a terminal was a part of a line.
    line_open: bool,
    /// It was told to end; ours then, and when it is over in any case.
    ending: Option<(u8, Instant)>,
    /// We were interrupted before it was known to run.
    interrupted: Option<(u8, Instant)>,
    /// The command runs as soon as the exec-server has read this far, which is before the answer is here.
    started: Cell<bool>,
}

/// A piece of stdin on its way.
type Writing = Pin<Box<dyn Future<Output = Result<IgnoredAny, CallError>>>>;

impl Running<'_> {
    async fn run(mut self, start: &process::Start, mut signals: Signals) -> Outcome<u8> {
        // Raw mode begins before the command does, so that no keystroke is echoed twice. Until then ^C is for us.
        let mut raw = if start.tty { RawMode::enter().map_err(Failure::internal)? } else { None };
        let client = self.client.clone();
        let mut starting = pin!(client.start(start));
        let (mut process, mut stdin, mut writing) = (None, None, None);
        let code = loop {
            tokio::select! {
                started = first(&self.started, starting.as_mut()), if process.is_none() => match started {
                    Ok(started) => {
                        process = Some(started);
                        self.interrupted = None;
                        raw.as_mut().map_or(Ok(()), RawMode::complete).map_err(Failure::internal)?;
                        stdin = self.stdin_of_ours();
                    }
                    Err(error) => break start_failed(&error, start)?,
                },
                event = next_event(&mut process), if !self.closed && (self.ending.is_some() || !self.output.is_full()) => {
                    self.take(event)?;
                }
                progress = self.output.progress() => match progress {
                    Progress::Room => {}
                    Progress::Written => break self.exit_code.unwrap_or_default(),
                    // End as a pipe's writer ends.
                    Progress::ReaderLeft => break 128 + 13,
                },
                chunk = next_chunk(&mut stdin), if stdin.is_some() && writing.is_none() => {
                    let is_end = chunk.is_none();
                    writing = self.stdin(chunk);
                    if is_end {
                        stdin = None;
                    }
                }
                // A command that ended meanwhile takes no more input; that shows in its end.
                () = written(&mut writing) => writing = None,
                event = signals.next() => match event {
                    signals::Event::Resized => self.resize(),
                    signals::Event::Told(signal) => if let Some(code) = self.tell(signal, process.is_some()) {
                        break code;
                    },
                },
                code = overdue(self.ending.or(self.interrupted)) => break self.exit_code.unwrap_or(code),
            }
            if self.closed {
                self.close();
            }
        };
        drop(raw);
        Ok(code)
    }

    /// Our stdin, unless the command gets none.
    fn stdin_of_ours(&self) -> Option<mpsc::Receiver<Vec<u8>>> {
        self.command.capture.is_none().then(|| {
            if isatty(rustix::stdio::stdin()) {
                self.command.keyboard.hand_over();
            }
            read_stdin()
        })
    }

    /// Passes a piece of stdin on, or its end.
    fn stdin(&mut self, chunk: Option<Vec<u8>>) -> Option<Writing> {
        let bytes = match chunk {
            Some(bytes) => {
                self.line_open = bytes.last().is_some_and(|byte| *byte != b'\n');
                bytes
            }
            // The end of the input of a terminal is a keystroke; after a part of a line the first one only hands that on.
            None if self.command.tty => vec![END_OF_INPUT; if self.line_open { 2 } else { 1 }],
            None => {
                let close = process::ProcessRef { process_id: PROCESS.to_owned() };
                self.client.post(Method::LegionCloseStdin, &close);
                return None;
            }
        };
        let write_id = Some(self.client.unique("stdin"));
        let write = process::Write { process_id: PROCESS.to_owned(), chunk: Chunk(bytes), write_id };
        let client = self.client.clone();
        Some(Box::pin(async move { client.call(Method::ProcessWrite, &write).await }))
    }

    /// Passes a signal on; the exit code if we end at once. The first SIGTERM or SIGHUP is the command's to obey, the
    /// second is not.
    fn tell(&mut self, told: AnySignal, runs: bool) -> Option<u8> {
        let code = code_when_told(told);
        if !runs && let Some(code) = code_before_start(told) {
            // It may run already; if it does not, somebody is being asked whether it may.
            self.interrupted = Some((code, Instant::now() + LAST_OUTPUT_TIMEOUT));
        }
        if code.is_some() && (self.ending.is_some() || !self.started.get()) {
            return code;
        }
        self.ending = code.map(|code| (code, Instant::now() + TERMINATION_GRACE)).or(self.ending);
        let signal = process::SendAnySignal { process_id: PROCESS.to_owned(), signal: told };
        self.client.post(Method::LegionSignal, &signal);
        None
    }

    /// All output was received. Whoever told the command to end does not wait for a reader of it.
    fn close(&mut self) {
        self.output.close();
        if let Some((_, deadline)) = &mut self.ending {
            *deadline = Instant::now().min(*deadline - LAST_OUTPUT_TIMEOUT) + LAST_OUTPUT_TIMEOUT;
        }
    }

    fn resize(&self) {
        let Some(size) = terminal::size().filter(|_| self.command.tty) else { return };
        let resize = process::ResizeTerminal { process_id: PROCESS.to_owned(), size };
        self.client.post(Method::LegionResizeTerminal, &resize);
    }

    fn take(&mut self, event: Option<Event>) -> Outcome<()> {
        match event {
            Some(Event::Output(stream, bytes)) => match &self.command.capture {
                Some(capture) if stream != Stream::Stderr => capture.borrow_mut().extend_from_slice(&bytes),
                // Nobody reads what a command that was told to end still says.
                _ if self.ending.is_some() && self.output.is_full() => {}
                _ => self.output.put(stream, bytes),
            },
            Some(Event::Exited { code, .. }) => self.exit_code = Some(u8::try_from(code).unwrap_or(u8::MAX)),
            Some(Event::Closed) if self.exit_code.is_none() => {
                return Err(broken("the command was closed without an exit code"));
            }
            Some(Event::Closed) => self.closed = true,
            None => return Err(broken(self.client.why_ended().unwrap_or_default())),
        }
        Ok(())
    }
}

/// Notes that a future was begun.
async fn first<T>(begun: &Cell<bool>, future: impl Future<Output = T>) -> T {
    begun.set(true);
    future.await
}

/// The next event; for ever while there is no process.
async fn next_event(process: &mut Option<Process>) -> Option<Event> {
    match process {
        Some(process) => process.next().await,
        None => std::future::pending().await,
    }
}

/// The end of what is being written; for ever when nothing is.
async fn written(writing: &mut Option<Writing>) {
    match writing {
        Some(writing) => drop(writing.await),
        None => std::future::pending().await,
    }
}

/// Our exit code when the command ends because of this signal.
fn code_when_told(signal: AnySignal) -> Option<u8> {
    match signal {
        AnySignal::Hangup => Some(128 + 1),
        AnySignal::Terminate => Some(128 + 15),
        _ => None,
    }
}

/// Our exit code when this signal comes while there is no command that could obey it.
fn code_before_start(signal: AnySignal) -> Option<u8> {
    match signal {
        AnySignal::Interrupt => Some(128 + 2),
        AnySignal::Quit => Some(128 + 3),
        _ => None,
    }
}

/// Resolves at the first signal that ends us while there is no command yet.
async fn told_to_end(signals: &mut Signals) -> u8 {
    loop {
        if let signals::Event::Told(signal) = signals.next().await
            && let Some(code) = code_when_told(signal).or_else(|| code_before_start(signal))
        {
            return code;
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

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::unavailable(format_args!("the session ended: {error}"))
}

/// Exit codes as a shell gives them for a command it cannot start.
fn start_failed(error: &CallError, start: &process::Start) -> Outcome<u8> {
    let error = match error {
        CallError::Answered(error) => error,
        CallError::Gone(why) => return Err(broken(why)),
    };
    let kind = error.data.as_ref().map(|data| data.get()).unwrap_or_default();
    let code = match kind {
        kind if kind.contains("spawnNotFound") => 127,
        kind if kind.contains("spawnPermissionDenied") || kind.contains("spawnFailed") => 126,
        _ => return Err(Failure::refused(&error.message)),
    };
    let command = start.argv.first().map(String::as_str).unwrap_or_default();
    super::report(&Failure::usage(format_args!("cannot run `{command}` in the sandbox: {}", error.message)));
    Ok(code)
}

fn start_params(context: &Context, lease: &Lease, command: &Command) -> Outcome<process::Start> {
    let cwd = command.cwd.clone().unwrap_or_else(|| lease.cwd_for(&context.environment.cwd));
    let cwd =
        PathUri::from_path(&cwd).ok_or_else(|| Failure::internal("the workspace has no absolute path"))?;
    let mut start = client::command(PROCESS.to_owned(), command.argv.clone(), cwd);
    start.tty = command.tty;
    start.pipe_stdin = !command.tty && command.capture.is_none();
    // The sandbox ends with the command, and so does whatever it leaves running.
    start.legion =
        Some(LegionStart { terminal_size: terminal::size().filter(|_| command.tty), ends_at_exit: true });
    if command.tty {
        let term = context.environment.var("TERM").unwrap_or("xterm");
        start.env.0.insert("TERM".to_owned(), term.to_owned());
    }
    Ok(start)
}
