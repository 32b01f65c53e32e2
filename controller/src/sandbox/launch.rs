//! Starting a sandbox, connecting to its exec-server, ending it.
//!
//! Invariant: a [`Sandbox`] that exists has answered a handshake. When it is dropped, or the controller dies, its
//! lifeline closes and everything inside is killed by the kernel.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::rc::Rc;

use legion_protocol::bootstrap::Bootstrap;
use legion_protocol::limits::MAX_BOOTSTRAP_BYTES;
use legion_protocol::{PathUri, StringMap};
use ring::digest;
use rustix::fs::MemfdFlags;
use rustix::process::{PidfdFlags, Signal};
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use zeroize::Zeroizing;

use super::argv::{self, fd};
use super::bwrap::Bwrap;
use super::run_as::RunAs;
use super::spawner::{Job, Spawner};
use super::spec::Spec;
use super::workspace::Workspace;
use crate::audit::chain::hex;
use crate::audit::record::SandboxFacts;
use crate::dirs;
use crate::failure::{Failure, Outcome};
use crate::limits::{MAX_SANDBOX_STDERR_BYTES, SANDBOX_KILL_TIMEOUT, SANDBOX_START_TIMEOUT};
use crate::{sys, websocket};

/// A WebSocket to an exec-server.
pub type Upstream = WebSocketStream<UnixStream>;

/// What starting sandboxes takes.
pub struct Launcher {
    /// The sandbox program.
    pub bwrap: Bwrap,
    /// The thread that spawns it.
    pub spawner: Spawner,
    /// The directory of the listening sockets; private.
    pub sockets: OwnedFd,
}

/// A running sandbox.
pub struct Sandbox {
    /// For the record.
    pub facts: SandboxFacts,
    socket_name: String,
    token: Zeroizing<String>,
    lifeline: RefCell<Option<OwnedFd>>,
    pidfd: Rc<OwnedFd>,
    ended: watch::Receiver<Option<String>>,
}

impl Launcher {
    /// Starts a sandbox and waits until its exec-server answers.
    ///
    /// `environment` are the variables commands inherit, secrets included; `name` is unique among running sandboxes.
    ///
    /// # Errors
    /// Exit 69 with the reason when it does not come up.
    pub async fn launch(
        &self,
        name: &str,
        spec: &Spec,
        workspace: &Workspace,
        run_as: RunAs,
        environment: StringMap,
    ) -> Outcome<Sandbox> {
        let failed =
            |error: io::Error| Failure::unavailable(format_args!("cannot start the sandbox: {error}"));
        let argv = argv::build(spec);
        let arguments = argv.nul_separated();
        let token = inner_token().map_err(failed)?;
        let bootstrap = bootstrap(spec, &token, environment)?;
        let socket_name = format!("{name}.sock");
        let listener = self.listen(&socket_name).map_err(failed)?;
        let (lifeline_inside, lifeline) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|error| failed(error.into()))?;
        let mut fds = vec![
            (memory_file("args", &arguments).map_err(failed)?, fd::ARGS),
            (listener, fd::LISTENER),
            (lifeline_inside, fd::LIFELINE),
            (memory_file("bootstrap", &bootstrap).map_err(failed)?, fd::BOOTSTRAP),
        ];
        if spec.bind_fd {
            fds.push((File::open(&spec.exec_server).map_err(failed)?.into(), fd::EXEC_SERVER));
            for number in fd::WORKSPACE.into_iter().take(spec.workspace_mounts().count()) {
                fds.push((workspace.dir.try_clone().map_err(failed)?, number));
            }
        }
        for (content, number) in argv.data.iter().zip(fd::DATA..) {
            fds.push((memory_file("file", content).map_err(failed)?, number));
        }
        let mut line = vec!["--args".to_owned(), fd::ARGS.to_string()];
        line.extend(argv.command);
        let job = Job { program: self.bwrap.path.clone(), args: line, fds, run_as };
        let child = self.spawner.spawn(job).await.map_err(failed)?;
        let facts = SandboxFacts {
            bwrap: self.bwrap.version.clone(),
            arguments_sha256: hex(digest::digest(&digest::SHA256, &arguments).as_ref()),
            pid: child.id(),
            uid: run_as.uid,
        };
        let sandbox = watch_over(child, facts, socket_name, token, lifeline).map_err(failed)?;
        self.await_ready(sandbox).await
    }

    /// A listening socket whose path exists only outside.
    fn listen(&self, name: &str) -> io::Result<OwnedFd> {
        let _ = rustix::fs::unlinkat(&self.sockets, name, rustix::fs::AtFlags::empty());
        let listener = std::os::unix::net::UnixListener::bind(dirs::socket_path(&self.sockets, name))?;
        Ok(listener.into())
    }

    async fn await_ready(&self, sandbox: Sandbox) -> Outcome<Sandbox> {
        let mut ended = sandbox.ended.clone();
        let answer = tokio::select! {
            answer = timeout(SANDBOX_START_TIMEOUT, self.connect(&sandbox)) => answer,
            () = closed(&mut ended) => Ok(Err(io::Error::other("it ended at once"))),
        };
        let why = match answer {
            Ok(Ok(_)) => return Ok(sandbox),
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("its exec-server did not answer within {} s", SANDBOX_START_TIMEOUT.as_secs()),
        };
        sandbox.kill().await;
        // bwrap's own words are shown, never interpreted.
        let said = ended.borrow().clone().unwrap_or_default();
        Err(Failure::unavailable(format_args!("the sandbox did not start: {why}; {said}")))
    }

    /// A new connection to the exec-server of a running sandbox.
    pub async fn connect(&self, sandbox: &Sandbox) -> io::Result<Upstream> {
        let stream = UnixStream::connect(dirs::socket_path(&self.sockets, &sandbox.socket_name)).await?;
        websocket::connect(stream, Some(&sandbox.token)).await
    }

    /// Removes the socket of a sandbox that has ended.
    pub fn forget(&self, sandbox: &Sandbox) {
        let name = sandbox.socket_name.as_str();
        let _ = rustix::fs::unlinkat(&self.sockets, name, rustix::fs::AtFlags::empty());
    }
}

impl Sandbox {
    /// Kills everything inside and waits until it is gone, bounded.
    pub async fn kill(&self) {
        self.lifeline.borrow_mut().take();
        // bwrap's death takes pid 1 of the sandbox along, and that takes the rest.
        let _ = rustix::process::pidfd_send_signal(&*self.pidfd, Signal::KILL);
        let mut ended = self.ended.clone();
        if timeout(SANDBOX_KILL_TIMEOUT, closed(&mut ended)).await.is_err() {
            tracing::error!(pid = self.facts.pid, "a killed sandbox is still there");
        }
    }

    /// Resolves when the sandbox is gone, with how it ended and what it last said on stderr.
    pub async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        closed(&mut ended).await;
        ended.borrow().clone().unwrap_or_default()
    }

    /// Whether it is gone.
    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }
}

async fn closed(ended: &mut watch::Receiver<Option<String>>) {
    // An error means the watching task is gone, which ends with the sandbox.
    let _ = ended.wait_for(Option::is_some).await;
}

fn inner_token() -> io::Result<Zeroizing<String>> {
    let mut bytes = Zeroizing::new([0u8; 32]);
    fill_random(&mut *bytes)?;
    Ok(Zeroizing::new(hex(&*bytes)))
}

/// Random bytes of the operating system.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    use ring::rand::SecureRandom;
    ring::rand::SystemRandom::new()
        .fill(bytes)
        .map_err(|_| io::Error::other("the system gives no random bytes"))
}

fn bootstrap(spec: &Spec, token: &str, mut environment: StringMap) -> Outcome<Zeroizing<Vec<u8>>> {
    for (name, value) in argv::base_variables(spec) {
        environment.0.entry(name.to_owned()).or_insert(value);
    }
    let uri = |path: &std::path::Path| {
        PathUri::from_path(path)
            .ok_or_else(|| Failure::internal(format_args!("the path {} is not absolute", path.display())))
    };
    let bootstrap = Bootstrap {
        token_sha256: hex(digest::digest(&digest::SHA256, token.as_bytes()).as_ref()),
        env: environment,
        cwd: uri(spec.cwd())?,
        home: uri(spec.home())?,
        temp_dir: uri(std::path::Path::new("/tmp"))?,
        shell: None,
    };
    let json = Zeroizing::new(serde_json::to_vec(&bootstrap).map_err(Failure::internal)?);
    if json.len() > MAX_BOOTSTRAP_BYTES {
        return Err(Failure::config(format_args!(
            "the environment of the session takes {} bytes; {MAX_BOOTSTRAP_BYTES} are allowed: set or inherit less",
            json.len()
        )));
    }
    Ok(json)
}

/// A file without a name that holds `content`, at its beginning.
fn memory_file(name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}

/// Starts the task that awaits the end of bwrap and keeps the end of its stderr.
fn watch_over(
    mut child: Child,
    facts: SandboxFacts,
    socket_name: String,
    token: Zeroizing<String>,
    lifeline: OwnedFd,
) -> io::Result<Sandbox> {
    let pid = rustix::process::Pid::from_child(&child);
    let pidfd = Rc::new(rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK)?);
    let exit = sys::watch_fd(pidfd.try_clone()?)?;
    let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
    rustix::io::ioctl_fionbio(&stderr, true)?;
    let stderr = tokio::net::unix::pipe::Receiver::from_owned_fd(stderr.into())?;
    let (sender, ended) = watch::channel(None);
    tokio::task::spawn_local(async move {
        let said = tail_of(stderr, exit).await;
        let status = match child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let said = said.trim();
        let text = if said.is_empty() { status } else { format!("{status}; it said: {said}") };
        sender.send_replace(Some(text));
    });
    Ok(Sandbox { facts, socket_name, token, lifeline: RefCell::new(Some(lifeline)), pidfd, ended })
}

/// Reads stderr until the process is gone; keeps the last bytes.
async fn tail_of(mut stderr: tokio::net::unix::pipe::Receiver, exit: AsyncFd<OwnedFd>) -> String {
    let mut tail = Vec::new();
    let mut chunk = [0u8; 1024];
    let mut open = true;
    loop {
        tokio::select! {
            biased;
            read = stderr.read(&mut chunk), if open => match read {
                Ok(count) if count > 0 => {
                    tail.extend_from_slice(&chunk[..count]);
                    let excess = tail.len().saturating_sub(MAX_SANDBOX_STDERR_BYTES);
                    tail.drain(..excess);
                }
                _ => open = false,
            },
            _ = exit.readable() => break,
        }
    }
    String::from_utf8_lossy(&tail).into_owned()
}
