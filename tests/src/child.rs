//! A spawned process: captured output, waits that end by an event or by a deadline.
//!
//! Invariant: no process outlives its [`Child`]; on drop its process group is killed by id, once, and only while
//! the leader has not been reaped (after that the number may belong to somebody else).

use std::future::Future;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::net::unix::pipe;
use tokio::process::{ChildStdin, Command};
use tokio::sync::watch;

/// How long anything may take before the test fails. Generous: a loaded two-core machine is no bug.
pub const DEADLINE: Duration = Duration::from_mins(1);

/// How much of one stream is kept. More is read and dropped, so that the child never blocks on us.
const CAPTURE_LIMIT: usize = 32 * 1024 * 1024;

/// Bytes per read of a stream.
const READ_SIZE: usize = 64 * 1024;

/// Waits for `future` until [`DEADLINE`]; panics naming `what` otherwise.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(DEADLINE, future).await;
    outcome.unwrap_or_else(|_| panic!("{what}: did not happen within {} s", DEADLINE.as_secs()))
}

/// What a stream has given so far.
#[derive(Debug, Default, Clone)]
pub struct Captured {
    /// The bytes, cut at an internal limit.
    pub bytes: Vec<u8>,
    /// Whether the stream has ended.
    pub ended: bool,
}

impl Captured {
    /// The bytes as text, invalid UTF-8 replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// How a process ended, and all it said.
#[derive(Debug)]
pub struct Finished {
    /// Its exit status.
    pub status: ExitStatus,
    /// All of its standard output.
    pub stdout: String,
    /// All of its standard error.
    pub stderr: String,
}

impl Finished {
    /// The exit code; panics with the output when a signal ended it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by a signal: {self:#?}"))
    }

    /// Panics with the output unless the exit code was 0.
    pub fn assert_success(&self) {
        assert!(self.status.success(), "{self:#?}");
    }
}

/// A process under test.
#[derive(Debug)]
pub struct Child {
    name: String,
    inner: tokio::process::Child,
    stdin: Option<ChildStdin>,
    stdout: watch::Receiver<Captured>,
    stderr: watch::Receiver<Captured>,
}

impl Child {
    /// Starts `command` in its own process group with captured output and no standard input.
    pub fn spawn(name: &str, command: Command) -> Self {
        Self::start(name, command, Stdio::null())
    }

    /// As [`Self::spawn`], with a pipe as standard input.
    pub fn spawn_with_stdin(name: &str, command: Command) -> Self {
        Self::start(name, command, Stdio::piped())
    }

    fn start(name: &str, mut command: Command, stdin: Stdio) -> Self {
        command
            .stdin(stdin)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut inner =
            command.spawn().unwrap_or_else(|error| panic!("cannot start {name}: {error}: {command:?}"));
        Self {
            name: name.to_owned(),
            stdin: inner.stdin.take(),
            stdout: capture(inner.stdout.take().expect("it is piped")),
            stderr: capture(inner.stderr.take().expect("it is piped")),
            inner,
        }
    }

    /// Process id; `None` once it has ended and was waited for.
    pub fn pid(&self) -> Option<u32> {
        self.inner.id()
    }

    /// The writing end of its standard input, the first time.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.stdin.take()
    }

    /// Standard output so far.
    pub fn stdout(&self) -> Captured {
        self.stdout.borrow().clone()
    }

    /// Standard error so far.
    pub fn stderr(&self) -> Captured {
        self.stderr.borrow().clone()
    }

    /// Waits for the first complete line of standard output, without its line end.
    pub async fn first_line(&mut self) -> String {
        let wait = self.stdout.wait_for(|seen| seen.ended || seen.bytes.contains(&b'\n'));
        let waited = tokio::time::timeout(DEADLINE, wait).await.map(|seen| seen.is_ok());
        let text = self.stdout().text();
        match text.split_once('\n') {
            Some((line, _)) => line.to_owned(),
            None => panic!("{}: no line on stdout ({waited:?}); stderr: {}", self.name, self.stderr().text()),
        }
    }

    /// Waits until standard output satisfies `reached`.
    pub async fn until_stdout(&mut self, what: &str, reached: impl Fn(&str) -> bool) {
        let wait = self.stdout.wait_for(|seen| seen.ended || reached(&seen.text()));
        let waited = tokio::time::timeout(DEADLINE, wait).await.map(|seen| seen.is_ok());
        let text = self.stdout().text();
        assert!(
            reached(&text),
            "{}: {what}: ({waited:?}) {text}; stderr: {}",
            self.name,
            self.stderr().text()
        );
    }

    /// Waits until standard error satisfies `reached`.
    pub async fn until_stderr(&mut self, what: &str, reached: impl Fn(&str) -> bool) {
        let wait = self.stderr.wait_for(|seen| seen.ended || reached(&seen.text()));
        let waited = tokio::time::timeout(DEADLINE, wait).await.map(|seen| seen.is_ok());
        let text = self.stderr().text();
        assert!(reached(&text), "{}: {what}: ({waited:?}) {text}", self.name);
    }

    /// Waits for the end of standard error and gives all of its bytes.
    pub async fn stderr_to_end(&mut self) -> Vec<u8> {
        let ended = within("the end of standard error", self.stderr.wait_for(|seen| seen.ended)).await;
        ended.map(|seen| seen.bytes.clone()).unwrap_or_default()
    }

    /// Sends a signal to the process, not to its group.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = self.raw_pid() {
            kill_process(pid, signal).unwrap_or_else(|error| panic!("cannot signal {}: {error}", self.name));
        }
    }

    /// Waits until it has ended and both streams are at their end.
    pub async fn finish(mut self) -> Finished {
        let ended = async {
            let status = self.inner.wait().await.expect("a child can be waited for");
            // An error means that the capturing task has dropped its end: then the stream has ended as well.
            let _ = self.stdout.wait_for(|seen| seen.ended).await;
            let _ = self.stderr.wait_for(|seen| seen.ended).await;
            status
        };
        let status = tokio::time::timeout(DEADLINE, ended).await;
        let (stdout, stderr) = (self.stdout().text(), self.stderr().text());
        let Ok(status) = status else {
            panic!("{} did not end in time\nstdout: {stdout}\nstderr: {stderr}", self.name)
        };
        Finished { status, stdout, stderr }
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    pub async fn stop(self) -> Finished {
        self.signal(Signal::TERM);
        self.finish().await
    }

    fn raw_pid(&self) -> Option<Pid> {
        self.inner.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // `id` is `None` once the leader has been reaped, so the group id cannot have been reused.
        if let Some(pid) = self.raw_pid() {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// Sees a process end that is not our child.
#[derive(Debug)]
pub struct Witness {
    /// A process descriptor: readable once the process has ended. All that tokio's type does is to wait for that.
    process: pipe::Receiver,
}

impl Witness {
    /// Of a running process.
    pub fn of(pid: u32) -> Self {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id");
        let process = pidfd_open(pid, PidfdFlags::NONBLOCK)
            .unwrap_or_else(|error| panic!("process {pid} is not there: {error}"));
        Self { process: pipe::Receiver::from_owned_fd_unchecked(process).expect("it can be polled") }
    }

    /// Waits until it has ended.
    pub async fn ended(self, what: &str) {
        within(what, self.process.readable()).await.expect("it can be polled");
    }
}

pub(crate) fn capture(mut stream: impl AsyncRead + Unpin + Send + 'static) -> watch::Receiver<Captured> {
    let (sender, receiver) = watch::channel(Captured::default());
    tokio::spawn(async move {
        let mut buffer = vec![0; READ_SIZE];
        loop {
            let count = tokio::select! {
                read = stream.read(&mut buffer) => match read {
                    Ok(count @ 1..) => count,
                    _ => break,
                },
                // Nobody is interested any more; the stream is closed.
                () = sender.closed() => break,
            };
            sender.send_modify(|seen| {
                let room = CAPTURE_LIMIT.saturating_sub(seen.bytes.len());
                seen.bytes.extend_from_slice(&buffer[..count.min(room)]);
            });
        }
        sender.send_modify(|seen| seen.ended = true);
    });
    receiver
}
