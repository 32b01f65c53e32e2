//! `process/*`: the processes of a session by the client's name for them (SPEC 7).
//!
//! Invariant: a process group is signalled only while its leader has not been reaped, so a number that the kernel has
//! given to somebody else is never signalled.

mod denial;
pub(crate) mod env;
mod output;
mod pty;
pub(crate) mod reap;
mod spawn;
mod stdin;
mod supervise;

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use legion_protocol::ErrorObject;
use legion_protocol::limits::MAX_PROCESS_ID_BYTES;
use legion_protocol::process::{
    AnySignal, ProcessRef, Read, ReadResult, ResizeTerminal, SendAnySignal, Start, Started, Stream,
    Terminated, Write, WriteResult, WriteStatus,
};
use rustix::process::{Pid, kill_process_group};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::spawn_local;

use crate::confine::Prepared;
use crate::error::{Outcome, fs_error, spawn_error};
use crate::limits::{MAX_READ_WAIT, MAX_RUNNING_PROCESSES, MAX_WRITE_ID_BYTES};
use crate::server::Server;
use crate::session::Session;
use crate::sys;
use output::OutputLog;
use spawn::{Child, ChildIo, Command, Wiring};
use stdin::Stdin;
use supervise::{Source, Supervisor};

/// One process, from its start until it can no longer be read.
pub(crate) struct Process {
    /// The client's name for it.
    pub(crate) id: Rc<str>,
    pid: Pid,
    log: RefCell<OutputLog>,
    /// Told whenever the log grows.
    changed: Notify,
    stdin: RefCell<Option<Rc<Stdin>>>,
    /// The master of its terminal, for resizing; dropped at the end.
    terminal: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    wiring: Wiring,
    /// The client wanted something to be taken from it.
    confined: bool,
    /// The client knows Legion.
    knows_legion: bool,
    /// Its pipes are given up once it has exited.
    cut: Cell<bool>,
    /// Told when `cut` was set after the exit.
    cut_off: Notify,
}

impl Process {
    fn is_running(&self) -> bool {
        !self.log.borrow().has_exited()
    }

    fn has_terminal(&self) -> bool {
        matches!(self.wiring, Wiring::Terminal(_))
    }

    /// Memory that is still held: output, and the ids of writes.
    pub(crate) fn retained(&self) -> usize {
        let ids = self.stdin.borrow().as_deref().map_or(0, Stdin::remembered);
        self.log.borrow().retained() + ids
    }

    /// Called once, when the child has been reaped.
    fn exited(&self) {
        if let Some(stdin) = self.stdin.borrow().as_deref() {
            stdin.refuse();
        }
        self.terminal.take();
    }

    /// Called once, when all its descriptors are at their end. The ids of its writes are kept: a retry may still come.
    fn closed(&self) {
        if let Some(stdin) = self.stdin.borrow().as_deref() {
            stdin.end();
        }
    }

    /// Kills its process group and gives up what escaped from it.
    pub(crate) fn kill(&self) {
        self.cut.set(true);
        if self.is_running() {
            // It may have become a zombie that is not reaped yet, which is as good.
            let _ = kill_process_group(self.pid, rustix::process::Signal::KILL);
        } else {
            self.cut_off.notify_one();
        }
    }
}

/// `process/start`. The answer must be queued before the caller's task gives way: the process's own task follows.
pub(crate) fn start(
    server: &Rc<Server>,
    session: &Rc<Session>,
    start: &Start,
    confined: Option<&Prepared>,
) -> Outcome<Started> {
    check_start(session, start)?;
    let environment = env::compute(&server.host.env, start.env_policy.as_ref(), &start.env);
    let wiring = match (start.tty, start.pipe_stdin) {
        (true, _) => Wiring::Terminal(start.legion.and_then(|legion| legion.terminal_size)),
        (false, true) => Wiring::PipedWithStdin,
        (false, false) => Wiring::Piped,
    };
    let child = spawn::spawn(&Command {
        argv: &start.argv,
        arg0: start.arg0.as_deref(),
        cwd: start.cwd.path(),
        env: &environment,
        wiring,
        confined: confined.map(|prepared| (prepared, &server.brokers)),
    })
    .map_err(spawn_error)?;
    let exit = server.reaper.register(child.pid);
    let (process, sources) = connect(start, wiring, confined.is_some(), child).map_err(spawn_error)?;
    session.insert_process(Rc::clone(&process));
    let supervisor = Supervisor::new(Rc::clone(server), Rc::clone(session), process, sources, exit);
    spawn_local(supervisor.run());
    let sandbox_type = if confined.is_some() { "linuxSeccomp" } else { "none" };
    Ok(Started { process_id: start.process_id.clone(), sandbox_type: sandbox_type.to_owned() })
}

fn check_start(session: &Session, start: &Start) -> Outcome<()> {
    if start.argv.is_empty() {
        return Err(ErrorObject::invalid_params("argv must not be empty"));
    }
    if start.argv.first().is_some_and(String::is_empty) {
        let kind = if start.tty { "PTY" } else { "pipe" };
        return Err(spawn_error(std::io::Error::other(format!("missing program for {kind} spawn"))));
    }
    if start.process_id.len() > MAX_PROCESS_ID_BYTES {
        return Err(ErrorObject::invalid_params(format!(
            "processId must not be longer than {MAX_PROCESS_ID_BYTES} bytes"
        )));
    }
    crate::confine::check_proxy(start)?;
    if session.process(&start.process_id).is_some() {
        return Err(ErrorObject::invalid_request(format!("process {} already exists", start.process_id)));
    }
    if session.running() >= MAX_RUNNING_PROCESSES {
        return Err(ErrorObject::invalid_request(format!(
            "the session already runs {MAX_RUNNING_PROCESSES} processes; terminate some first"
        )));
    }
    Ok(())
}

/// Registers our ends with the event loop.
fn connect(
    start: &Start,
    wiring: Wiring,
    confined: bool,
    child: Child,
) -> std::io::Result<(Rc<Process>, Vec<Source>)> {
    let Child { pid, io } = child;
    let (sources, stdin, terminal) = match wire(io) {
        Ok(wired) => wired,
        Err(error) => {
            // The child runs already, but nobody could hear it.
            let _ = kill_process_group(pid, rustix::process::Signal::KILL);
            return Err(error);
        }
    };
    let process = Process {
        id: start.process_id.as_str().into(),
        pid,
        log: RefCell::default(),
        changed: Notify::new(),
        stdin: RefCell::new(stdin.map(|descriptor| Rc::new(Stdin::new(descriptor)))),
        terminal: RefCell::new(terminal),
        wiring,
        confined,
        knows_legion: start.legion.is_some(),
        cut: Cell::new(start.legion.is_some_and(|legion| legion.ends_at_exit)),
        cut_off: Notify::new(),
    };
    Ok((Rc::new(process), sources))
}

type Descriptor = Rc<AsyncFd<OwnedFd>>;

fn wire(io: ChildIo) -> std::io::Result<(Vec<Source>, Option<Descriptor>, Option<Descriptor>)> {
    let register = |fd, interest| sys::register(fd, interest).map(Rc::new);
    match io {
        ChildIo::Terminal(master) => {
            let master = register(master, Interest::READABLE | Interest::WRITABLE)?;
            let source = Source::new(Stream::Pty, Rc::clone(&master));
            Ok((vec![source], Some(Rc::clone(&master)), Some(master)))
        }
        ChildIo::Pipes { stdout, stderr, stdin } => {
            let stdin = stdin.map(|fd| register(fd, Interest::WRITABLE)).transpose()?;
            let stdout = Source::new(Stream::Stdout, register(stdout, Interest::READABLE)?);
            let stderr = Source::new(Stream::Stderr, register(stderr, Interest::READABLE)?);
            Ok((vec![stdout, stderr], stdin, None))
        }
    }
}

/// `process/read`: at once when there is news, else when some comes or the time is over.
pub(crate) async fn read(session: Rc<Session>, read: Read) -> Outcome<ReadResult> {
    let process = session.process(&read.process_id).ok_or_else(|| unknown(&read.process_id))?;
    let after = read.after_seq.unwrap_or(0);
    let wait = Duration::from_millis(read.wait_ms.unwrap_or(0)).min(MAX_READ_WAIT);
    if !wait.is_zero() {
        let news = async {
            loop {
                let changed = process.changed.notified();
                if process.log.borrow().has_news(after) {
                    return;
                }
                changed.await;
            }
        };
        // Out of time means: answer with what there is.
        let _ = tokio::time::timeout(wait, news).await;
    }
    Ok(process.log.borrow().read(after, read.max_bytes))
}

/// `process/write`.
pub(crate) async fn write(session: Rc<Session>, write: Write) -> Outcome<WriteResult> {
    if write.write_id.as_deref().is_some_and(str::is_empty) {
        return Err(ErrorObject::invalid_params("writeId must not be empty"));
    }
    if write.write_id.as_ref().is_some_and(|id| id.len() > MAX_WRITE_ID_BYTES) {
        return Err(ErrorObject::invalid_params(format!(
            "writeId must not be longer than {MAX_WRITE_ID_BYTES} bytes"
        )));
    }
    let status = match stdin_of(&session, &write.process_id) {
        Ok(stdin) => stdin.write(write.chunk.0, write.write_id).await,
        Err(status) => status,
    };
    Ok(WriteResult { status })
}

/// `legion/closeStdin`: end of file for a piped child, after what was written before.
pub(crate) async fn close_stdin(session: Rc<Session>, target: ProcessRef) -> Outcome<WriteResult> {
    let status = match stdin_of(&session, &target.process_id) {
        Ok(_) if session.process(&target.process_id).is_some_and(|process| process.has_terminal()) => {
            return Err(ErrorObject::invalid_request(format!(
                "process {} has a terminal, which cannot be closed; write the byte 0x04 instead",
                target.process_id
            )));
        }
        Ok(stdin) => stdin.close().await,
        Err(status) => status,
    };
    Ok(WriteResult { status })
}

fn stdin_of(session: &Session, id: &str) -> Result<Rc<Stdin>, WriteStatus> {
    let process = session.process(id).ok_or(WriteStatus::UnknownProcess)?;
    let stdin = process.stdin.borrow().clone();
    stdin.ok_or(WriteStatus::StdinClosed)
}

/// `process/signal` and `legion/signal`: always fine, also for a process that is gone (SPEC 7.6).
pub(crate) fn signal(session: &Session, request: &SendAnySignal) {
    use rustix::process::Signal;
    let signal = match request.signal {
        AnySignal::Hangup => Signal::HUP,
        AnySignal::Interrupt => Signal::INT,
        AnySignal::Quit => Signal::QUIT,
        AnySignal::Terminate => Signal::TERM,
        AnySignal::User1 => Signal::USR1,
        AnySignal::User2 => Signal::USR2,
    };
    if let Some(process) = session.process(&request.process_id).filter(|process| process.is_running()) {
        // It may have ended in between.
        let _ = kill_process_group(process.pid, signal);
    }
}

/// `process/terminate`: SIGKILL to the group of a running process, nothing to any other (SPEC 7.7).
pub(crate) fn terminate(session: &Session, target: &ProcessRef) -> Terminated {
    match session.process(&target.process_id).filter(|process| process.is_running()) {
        Some(process) => {
            process.kill();
            Terminated { running: true }
        }
        None => Terminated { running: false },
    }
}

/// `legion/resizeTerminal`.
pub(crate) fn resize(session: &Session, request: &ResizeTerminal) -> Outcome<()> {
    let process = session.process(&request.process_id).ok_or_else(|| unknown(&request.process_id))?;
    if !process.has_terminal() {
        return Err(ErrorObject::invalid_request(format!("process {} has no terminal", request.process_id)));
    }
    let terminal = process.terminal.borrow();
    match terminal.as_deref() {
        Some(master) => pty::resize(master.get_ref(), request.size).map_err(fs_error),
        // It has ended: there is nothing left to resize.
        None => Ok(()),
    }
}

fn unknown(id: &str) -> ErrorObject {
    ErrorObject::invalid_request(format!("unknown process id {id}"))
}
