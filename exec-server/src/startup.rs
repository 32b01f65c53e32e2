//! From a checked command line to a running server, and to its end.
//!
//! Invariant: whatever ends the server, no process group it started survives it (as pid 1, no process at all).

use std::io::{self, Read, Write};
use std::os::fd::{OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use legion_protocol::bootstrap::{Bootstrap, CommandLimits};
use legion_protocol::limits::MAX_BOOTSTRAP_BYTES;
use legion_protocol::object::{detail, from_object};
use rustix::net::AddressFamily;
use rustix::net::sockopt::{socket_acceptconn, socket_domain};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt, Interest};
use tokio::net::{TcpListener, UnixListener};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

use crate::config::{Auth, Config, Listen};
use crate::connection;
use crate::environment::Host;
use crate::error::os_text;
use crate::limits::BLOCKING_THREADS;
use crate::listener::Listener;
use crate::process::env::Environment;
use crate::server::Server;
use crate::sys;
use crate::token::TokenDigest;
use crate::transport::lines::Lines;

/// What `main` knows of this process; used where no bootstrap says otherwise.
pub struct ProcessFacts {
    /// Its environment.
    pub env: Environment,
    /// Its working directory, when it still exists.
    pub cwd: Option<PathBuf>,
}

/// Why the server did not start; one line, and the exit code.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An operating system error, in the words of the original.
    #[error("Error: {}", os_text(.0))]
    Listen(io::Error),
    /// The token file, in the words of the original.
    #[error("Error: failed to read websocket auth secret {}: {}", .0.display(), os_text(.1))]
    TokenFile(PathBuf, io::Error),
    /// The token file, in the words of the original.
    #[error("Error: websocket auth secret {} must not be empty", .0.display())]
    EmptyToken(PathBuf),
    /// The descriptor of `--listen fd:N`.
    #[error("legion-exec-server: descriptor {0} is no listening Unix socket; pass the listening end itself")]
    NoSocket(RawFd),
    /// The bootstrap could not be read.
    #[error("legion-exec-server: cannot read the bootstrap from descriptor {0}: {1}")]
    Bootstrap(RawFd, String),
    /// The lifeline is not open.
    #[error("legion-exec-server: cannot watch the lifeline, descriptor {0}: {1}")]
    Lifeline(RawFd, io::Error),
    /// The kernel refused a limit.
    #[error("legion-exec-server: cannot set the limits on commands: {0}")]
    Limits(io::Error),
    /// No event loop, no signal handlers.
    #[error("legion-exec-server: cannot start the event loop: {0}")]
    EventLoop(io::Error),
}

impl StartError {
    /// The exit code: 1 where the original has the same failure, else that of `sysexits`.
    pub fn code(&self) -> u8 {
        match self {
            Self::Listen(_) | Self::TokenFile(..) | Self::EmptyToken(_) => 1,
            Self::NoSocket(_) | Self::Lifeline(..) => 64,
            Self::Bootstrap(..) => 78,
            Self::Limits(_) | Self::EventLoop(_) => 70,
        }
    }
}

/// Serves until something ends it: a signal, the lifeline, the end of stdin.
pub fn run(config: &Config, facts: ProcessFacts) -> Result<(), StartError> {
    let (host, token) = identity(config, facts)?;
    apply(&host.limits).map_err(StartError::Limits)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        // Once there is one it stays: it goes on working when commands have used up all processes.
        .thread_keep_alive(Duration::MAX)
        .build()
        .map_err(StartError::EventLoop)?;
    let local = LocalSet::new();
    let result = local.block_on(&runtime, serve(config, Server::new(host, token)));
    drop(local);
    // A file operation that still runs must not hold the end back.
    runtime.shutdown_background();
    result
}

/// Puts the limits of the persona on this process, and so on every command: they are inherited and cannot be raised.
fn apply(limits: &CommandLimits) -> io::Result<()> {
    let resources = [
        (Resource::Nproc, limits.processes),
        (Resource::Data, limits.data_bytes),
        (Resource::Nofile, limits.open_files),
    ];
    for (resource, limit) in resources {
        let Some(limit) = limit else { continue };
        // What is stricter already stays.
        let limit = getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit));
        setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
    }
    Ok(())
}

/// Who we are and whom we accept.
fn identity(config: &Config, facts: ProcessFacts) -> Result<(Host, Option<TokenDigest>), StartError> {
    if let Some(fd) = config.bootstrap {
        let bad = |text: String| StartError::Bootstrap(fd, text);
        let bootstrap = read_bootstrap(fd).map_err(bad)?;
        let token = TokenDigest::from_hex(&bootstrap.token_sha256);
        let token = token.ok_or_else(|| bad("tokenSha256 is not 64 hex digits".to_owned()))?;
        return Ok((Host::from_bootstrap(bootstrap), Some(token)));
    }
    let token = match &config.auth {
        Auth::Unset => None,
        Auth::Digest(digest) => Some(digest.clone()),
        Auth::File(path) => Some(read_token(path)?),
    };
    Ok((Host::from_process(facts.env, facts.cwd), token))
}

fn read_bootstrap(fd: RawFd) -> Result<Bootstrap, String> {
    let file = std::fs::File::from(sys::take_descriptor(fd).map_err(|error| error.to_string())?);
    let mut text = String::new();
    file.take(MAX_BOOTSTRAP_BYTES as u64 + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() > MAX_BOOTSTRAP_BYTES {
        return Err(format!("longer than {MAX_BOOTSTRAP_BYTES} bytes"));
    }
    // The detail names members and types, never values.
    from_object(&text).map_err(|error| detail(&error))
}

fn read_token(path: &Path) -> Result<TokenDigest, StartError> {
    let text =
        std::fs::read_to_string(path).map_err(|error| StartError::TokenFile(path.to_owned(), error))?;
    match text.trim() {
        "" => Err(StartError::EmptyToken(path.to_owned())),
        token => Ok(TokenDigest::of(token)),
    }
}

async fn serve(config: &Config, server: Rc<Server>) -> Result<(), StartError> {
    // The first thread for long file operations is made while there surely are processes left.
    drop(tokio::task::spawn_blocking(|| ()));
    let reaping = Rc::clone(&server.reaper).start().map_err(StartError::EventLoop)?;
    tokio::task::spawn_local(reaping);
    let ending = ending_signals(config).map_err(StartError::EventLoop)?;
    let lifeline = config.lifeline.map(open_lifeline).transpose()?;
    let clients = clients(config, Rc::clone(&server))?;
    tokio::select! {
        () = clients => {}
        () = ending => {}
        () = watch(lifeline) => {}
    }
    server.sessions.kill_all();
    Ok(())
}

/// Waits for SIGTERM or SIGINT.
///
/// Not as pid 1 with a lifeline: there the kernel ignores what has no handler, and a command must not be able to end its
/// session with `kill 1`. The controller lets go of the lifeline instead.
fn ending_signals(config: &Config) -> io::Result<impl Future<Output = ()> + use<>> {
    let signals = if rustix::process::getpid().is_init() && config.lifeline.is_some() {
        None
    } else {
        Some((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?))
    };
    Ok(async {
        let Some((mut terminate, mut interrupt)) = signals else { return std::future::pending().await };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Whatever brings clients, ready to be driven. Errors of binding show themselves here.
fn clients(config: &Config, server: Rc<Server>) -> Result<impl Future<Output = ()>, StartError> {
    let listener = match &config.listen {
        Listen::Stdio => None,
        Listen::Address(address) => Some(Listener::Tcp(bind(*address).map_err(StartError::Listen)?)),
        Listen::Path(path) => Some(Listener::Unix(bind_path(path).map_err(StartError::Listen)?)),
        Listen::Descriptor(fd) => Some(Listener::Unix(inherit(*fd).ok_or(StartError::NoSocket(*fd))?)),
    };
    Ok(async move {
        match listener {
            Some(listener) => listener.run(server).await,
            None => serve_stdio(server).await,
        }
    })
}

/// Binds and announces the effective URL: the one line ever written to stdout in this mode (SPEC 1.1).
fn bind(address: std::net::SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "ws://{}", listener.local_addr()?)?;
    stdout.flush()?;
    TcpListener::from_std(listener)
}

/// Only this user may connect, from the first moment on.
fn bind_path(path: &Path) -> io::Result<UnixListener> {
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(before);
    listener
}

fn inherit(fd: RawFd) -> Option<UnixListener> {
    let socket: OwnedFd = sys::take_descriptor(fd).ok()?;
    let listens = socket_acceptconn(&socket).ok()? && socket_domain(&socket).ok()? == AddressFamily::UNIX;
    let listener = std::os::unix::net::UnixListener::from(listens.then_some(socket)?);
    listener.set_nonblocking(true).ok()?;
    UnixListener::from_std(listener).ok()
}

/// One client on stdin and stdout. After a violation nothing is served, but the end is still the end of stdin (SPEC 1.5).
async fn serve_stdio(server: Rc<Server>) {
    connection::serve(server, Lines::new(tokio::io::stdin(), tokio::io::stdout())).await;
    let mut rest = tokio::io::stdin();
    let mut buffer = [0; 4096];
    while let Ok(1..) = rest.read(&mut buffer).await {}
}

fn open_lifeline(fd: RawFd) -> Result<AsyncFd<OwnedFd>, StartError> {
    let failed = |error| StartError::Lifeline(fd, error);
    let pipe = sys::take_descriptor(fd).map_err(failed)?;
    rustix::io::ioctl_fionbio(&pipe, true).map_err(|error| failed(error.into()))?;
    sys::register(pipe, Interest::READABLE).map_err(failed)
}

/// Returns when the other end of the lifeline is gone.
async fn watch(lifeline: Option<AsyncFd<OwnedFd>>) {
    let Some(lifeline) = lifeline else { return std::future::pending().await };
    let mut buffer = [0; 64];
    // Bytes mean nothing; an error is an end, too.
    while let Ok(1..) =
        lifeline.async_io(Interest::READABLE, |pipe| Ok(rustix::io::read(pipe, &mut buffer[..])?)).await
    {}
}
