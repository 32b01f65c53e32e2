//! One task per process: reads its output, waits for its exit, sends everything in sequence (SPEC 7.3).
//!
//! Invariant: only this task appends to the log, so the order of sequence numbers is the order of notifications, and
//! `process/closed` is the last one, exactly once. While the attached connection has no room, nothing is read.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::rc::Rc;
use std::time::Duration;

use legion_protocol::Method;
use legion_protocol::bootstrap::CommandLimits;
use legion_protocol::chunk::OutputFrameWriter;
use legion_protocol::jsonrpc::notification_text;
use legion_protocol::limits::MAX_OUTPUT_CHUNK_BYTES;
use legion_protocol::process::{Closed, Exited, Stream};
use rustix::io::Errno;
use rustix::pipe::fcntl_setpipe_size;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::Process;
use super::reap::exit_code;
use crate::limits::{MAX_READS_AT_EXIT, PIPE_CAPACITY_BYTES};
use crate::server::Server;
use crate::session::Session;

/// Where output comes from.
pub(crate) struct Source {
    stream: Stream,
    descriptor: Option<Rc<AsyncFd<OwnedFd>>>,
    /// Made at the first output.
    frames: Option<OutputFrameWriter>,
    /// More room was asked for.
    enlarged: bool,
}

impl Source {
    /// A non-blocking descriptor to read to its end.
    pub(crate) fn new(stream: Stream, descriptor: Rc<AsyncFd<OwnedFd>>) -> Self {
        Self { stream, descriptor: Some(descriptor), frames: None, enlarged: false }
    }
}

/// What the task of one process holds.
pub(crate) struct Supervisor {
    server: Rc<Server>,
    session: Rc<Session>,
    process: Rc<Process>,
    /// One for a terminal, two for pipes.
    sources: Vec<Source>,
    /// `None` once it has been told.
    exit: Option<oneshot::Receiver<ExitStatus>>,
    /// What the process may still use up.
    allowance: Allowance,
    /// Reads made after the process was cut off.
    reads_after_cut: usize,
}

/// The limits of the persona on one command (`CommandLimits`).
#[derive(Default)]
pub(crate) struct Allowance {
    /// When it is killed.
    deadline: Option<Instant>,
    /// Output bytes it may still write.
    output: Option<u64>,
    /// The limit it was killed for, as the configuration calls it.
    exceeded: Option<&'static str>,
}

impl Allowance {
    /// That of a command that starts now.
    pub(crate) fn new(limits: &CommandLimits) -> Self {
        let wall = limits.wall_ms.map(Duration::from_millis);
        Self {
            // A time beyond what the clock can tell is no limit.
            deadline: wall.and_then(|wall| Instant::now().checked_add(wall)),
            output: limits.output_bytes,
            exceeded: None,
        }
    }

    /// How much of `length` bytes of output is still allowed.
    fn take_output(&mut self, length: usize) -> usize {
        let Some(left) = &mut self.output else { return length };
        let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(length);
        *left -= taken as u64;
        taken
    }
}

enum Event {
    Exited(Option<ExitStatus>),
    /// The time of the command is over.
    TimeOver,
    Readable(usize),
    /// Look again: there is room, or the process was cut off.
    Changed,
}

/// Why a read stopped.
#[derive(Debug, PartialEq, Eq)]
enum Stop {
    /// The buffer is full; there may be more.
    Full,
    /// Nothing more for now.
    Blocked,
    /// End of file, or a terminal without a session.
    End,
}

impl Supervisor {
    /// The task of a process that has just been started; `exit` tells its end.
    pub(crate) fn new(
        server: Rc<Server>,
        session: Rc<Session>,
        process: Rc<Process>,
        sources: Vec<Source>,
        exit: oneshot::Receiver<ExitStatus>,
    ) -> Self {
        let allowance = Allowance::new(&server.host.limits);
        Self { server, session, process, sources, exit: Some(exit), allowance, reads_after_cut: 0 }
    }

    /// Runs until `process/closed` has been queued.
    pub(crate) async fn run(mut self) {
        while self.exit.is_some() || self.sources.iter().any(|source| source.descriptor.is_some()) {
            match self.next_event().await {
                Event::Exited(status) => self.on_exit(status),
                Event::Readable(index) => self.on_readable(index),
                Event::TimeOver => self.exceed("limits.wall"),
                Event::Changed => {}
            }
        }
        self.process.closed();
        let seq = self.process.log.borrow_mut().close();
        self.process.changed.notify_waiters();
        self.notify(Method::ProcessClosed, &Closed { process_id: self.process.id.to_string(), seq });
        self.session.process_closed(&self.process);
    }

    /// Kills the process for the limit it ran into. The first one counts. One that has exited already is not killed, but
    /// its output was cut all the same.
    fn exceed(&mut self, limit: &'static str) {
        self.allowance.deadline = None;
        if self.allowance.exceeded.is_none() {
            self.allowance.exceeded = Some(limit);
            if self.exit.is_some() {
                self.process.kill();
            }
        }
    }

    /// Whether the pipes are given up as soon as they are empty: after `process/terminate` and at a session's end.
    fn is_cut_off(&self) -> bool {
        self.exit.is_none() && self.process.cut.get()
    }

    async fn next_event(&mut self) -> Event {
        let attached = self.session.attached();
        let full = attached.as_deref().is_some_and(|outgoing| !outgoing.has_room());
        if self.is_cut_off() && !full {
            let open = self.sources.iter().position(|source| source.descriptor.is_some());
            return open.map_or(Event::Changed, Event::Readable);
        }
        let room = async {
            match &attached {
                Some(outgoing) if full => outgoing.room_changed().await,
                _ => std::future::pending().await,
            }
        };
        let time = async {
            match self.allowance.deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => std::future::pending().await,
            }
        };
        let sources = &self.sources;
        let event = tokio::select! {
            biased;
            status = exited(&mut self.exit) => Event::Exited(status),
            () = time => Event::TimeOver,
            () = self.process.cut_off.notified() => Event::Changed,
            () = room => Event::Changed,
            index = readable(sources), if !full => Event::Readable(index),
        };
        match event {
            // Others may have filled the queue while this one waited.
            Event::Readable(_) if !self.has_room() => Event::Changed,
            event => event,
        }
    }

    fn has_room(&self) -> bool {
        self.session.attached().is_none_or(|outgoing| outgoing.has_room())
    }

    fn on_readable(&mut self, index: usize) {
        let stop = self.read(index, self.is_cut_off());
        if self.is_cut_off() {
            self.reads_after_cut += 1;
        }
        let given_up =
            self.is_cut_off() && (stop == Stop::Blocked || self.reads_after_cut > MAX_READS_AT_EXIT);
        if stop == Stop::End || given_up {
            self.sources[index].descriptor = None;
        }
    }

    /// Reads once, as much as is there and fits into one chunk, and sends it. `direct` does not rely on an event.
    fn read(&mut self, index: usize, direct: bool) -> Stop {
        let Some(descriptor) = self.sources[index].descriptor.clone() else { return Stop::End };
        let server = Rc::clone(&self.server);
        let mut buffer = server.read_buffer.borrow_mut();
        let (length, stop) = fill(&descriptor, &mut buffer[..MAX_OUTPUT_CHUNK_BYTES], direct);
        if stop == Stop::Full && !std::mem::replace(&mut self.sources[index].enlarged, true) {
            // Refused for a terminal, and when the user's pipes have too many pages already: it is only slower then.
            let _ = fcntl_setpipe_size(descriptor.get_ref(), PIPE_CAPACITY_BYTES);
        }
        let allowed = self.allowance.take_output(length);
        if allowed > 0 {
            self.send_output(index, &buffer[..allowed]);
        }
        if allowed < length {
            self.exceed("limits.output");
        }
        stop
    }

    fn send_output(&mut self, index: usize, bytes: &[u8]) {
        let source = &mut self.sources[index];
        let seq = self.process.log.borrow_mut().append(source.stream, bytes);
        self.process.changed.notify_waiters();
        if let Some(outgoing) = self.session.attached() {
            let frames =
                source.frames.get_or_insert_with(|| OutputFrameWriter::new(&self.process.id, source.stream));
            outgoing.notify(frames.frame(seq, bytes));
        }
    }

    /// Whoever reads the output learns why it ended: on stderr, or on the terminal.
    fn tell_limit(&mut self) {
        if let (Some(limit), Some(last)) = (self.allowance.exceeded, self.sources.len().checked_sub(1)) {
            let end = if self.process.has_terminal() { "\r\n" } else { "\n" };
            let line = format!("legion: the command was killed: it reached {limit} of its persona{end}");
            self.send_output(last, line.as_bytes());
        }
    }

    fn on_exit(&mut self, status: Option<ExitStatus>) {
        self.exit = None;
        self.process.exited();
        // What the process wrote before its end is there already: it goes out before `exited`.
        for index in 0..self.sources.len() {
            for _ in 0..MAX_READS_AT_EXIT {
                if !self.has_room() {
                    break;
                }
                match self.read(index, true) {
                    Stop::Full => {}
                    Stop::Blocked => break,
                    Stop::End => {
                        self.sources[index].descriptor = None;
                        break;
                    }
                }
            }
        }
        self.tell_limit();
        let code = status.map_or(1, |status| exit_code(status, self.process.has_terminal()));
        let failed = code != 0 && self.process.confined;
        let sandbox_denied = failed && self.process.log.borrow_mut().look_for_denial();
        let seq = self.process.log.borrow_mut().exit(code);
        self.process.changed.notify_waiters();
        let exited = Exited {
            process_id: self.process.id.to_string(),
            seq,
            exit_code: code,
            sandbox_denied,
            limit: self.allowance.exceeded.map(str::to_owned),
            signal: status.and_then(|status| status.signal()).filter(|_| self.process.knows_legion),
        };
        self.notify(Method::ProcessExited, &exited);
    }

    fn notify<P: serde::Serialize>(&self, method: Method, params: &P) {
        if let Some(outgoing) = self.session.attached() {
            outgoing.notify(notification_text(method.name(), params));
        }
    }
}

async fn exited(exit: &mut Option<oneshot::Receiver<ExitStatus>>) -> Option<ExitStatus> {
    match exit {
        // The reaper lives as long as the event loop; a lost sender counts as an unknown status.
        Some(receiver) => receiver.await.ok(),
        None => std::future::pending().await,
    }
}

/// Waits until one of the open sources can be read, whichever is first.
async fn readable(sources: &[Source]) -> usize {
    let ready = |index: usize| async move {
        match sources.get(index).and_then(|source| source.descriptor.as_deref()) {
            // An error shows itself at the read.
            Some(descriptor) => drop(descriptor.readable().await),
            None => std::future::pending().await,
        }
        index
    };
    tokio::select! {
        index = ready(0) => index,
        index = ready(1) => index,
    }
}

/// Reads what is available, without waiting for more.
fn fill(descriptor: &AsyncFd<OwnedFd>, buffer: &mut [u8], direct: bool) -> (usize, Stop) {
    let mut length = 0;
    while length < buffer.len() {
        let mut read = |fd: &OwnedFd| Ok(rustix::io::read(fd, &mut buffer[length..])?);
        let result = if direct {
            read(descriptor.get_ref())
        } else {
            // Remembers that it would block, so that the next wait really waits.
            descriptor.try_io(Interest::READABLE, read)
        };
        match result {
            Ok(0) => return (length, Stop::End),
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return (length, Stop::Blocked),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) => {}
            // EIO: the terminal has lost its session.
            Err(_) => return (length, Stop::End),
        }
    }
    (length, Stop::Full)
}

#[cfg(test)]
mod tests {
    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;
    use crate::sys;

    #[test]
    fn output_is_cut_at_its_limit_to_the_byte() {
        let limited =
            |output_bytes| Allowance::new(&CommandLimits { output_bytes, ..CommandLimits::default() });
        let mut allowance = limited(Some(10));
        assert_eq!([4, 4, 4, 4].map(|length| allowance.take_output(length)), [4, 4, 2, 0]);
        assert_eq!(limited(None).take_output(usize::MAX), usize::MAX);
        assert!(allowance.deadline.is_none());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn small_writes_become_one_chunk_and_reads_never_wait() {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).unwrap();
        let read = sys::register(read, Interest::READABLE).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(fill(&read, &mut buffer, true), (0, Stop::Blocked));
        for piece in [&b"ab"[..], b"cd", b"ef"] {
            rustix::io::write(&write, piece).unwrap();
        }
        drop(read.readable().await.unwrap());
        assert_eq!(fill(&read, &mut buffer, false), (6, Stop::Blocked));
        assert_eq!(&buffer[..6], b"abcdef");
        rustix::io::write(&write, b"0123456789").unwrap();
        assert_eq!(fill(&read, &mut buffer, true), (8, Stop::Full));
        drop(write);
        assert_eq!(fill(&read, &mut buffer, true), (2, Stop::End));
    }
}
