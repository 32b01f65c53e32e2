//! The control socket: how `connect`, `exec`, `token` and `session` talk to a running controller.
//!
//! One JSON object a line, one request a connection. A request that leases a session keeps the connection open: the
//! session ends when it closes, however the client died. Agents cannot reach it: it lies outside every sandbox.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::controller::{Controller, SessionRequest};
use crate::dirs;
use crate::failure::{Exit, Failure, Outcome};
use crate::limits::{CONTROL_TIMEOUT, MAX_CONTROL_CONNECTIONS, MAX_CONTROL_LINE_BYTES};
use crate::listener;
use crate::session::{EndReason, Session};

/// What a client asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
pub enum Request {
    /// Make a session.
    Open {
        /// Persona name.
        persona: Option<String>,
        /// Absolute.
        workspace: Option<PathBuf>,
        /// Where the client is.
        cwd: PathBuf,
        /// Seconds.
        ttl_seconds: Option<u64>,
        /// End the session when this connection closes.
        lease: bool,
    },
    /// List sessions.
    List,
    /// One session.
    Show {
        /// Public id.
        id: String,
    },
    /// End a session.
    End {
        /// Public id.
        id: String,
        /// Whether its token is revoked or its sandbox killed; both end it.
        revoke: bool,
    },
}

/// What it is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reply {
    /// A new session.
    Opened(Opened),
    /// Sessions.
    Sessions(Vec<SessionInfo>),
    /// It was done, or had been done before.
    Ended(SessionInfo),
    /// It was not done.
    Failed {
        /// Exit code of the client.
        exit: u8,
        /// One line.
        message: String,
    },
}

/// A new session, as its opener sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Opened {
    /// Public id.
    pub session: String,
    /// The token. Shown once.
    pub token: String,
    /// Where harnesses connect, the first configured listener first.
    pub urls: Vec<String>,
    /// Where `connect` and `exec` connect.
    pub front_socket: PathBuf,
    /// The workspace as commands see it.
    pub cwd: PathBuf,
    /// The workspace on the host.
    pub workspace: PathBuf,
    /// End of the token.
    pub expires: Timestamp,
}

/// A session in a listing.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SessionInfo {
    /// Public id.
    pub id: String,
    /// Persona name.
    pub persona: String,
    /// On the host.
    pub workspace: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it ends at the latest.
    pub expires: Timestamp,
    /// `live`, or why it ended.
    pub state: String,
    /// Harness connections.
    pub connections: usize,
    /// Guarded calls so far.
    pub calls: u64,
    /// When the last one was.
    pub last_call: Option<Timestamp>,
    /// Commands running now.
    pub running: usize,
    /// Process id of its bwrap on the host.
    pub sandbox_pid: Option<u32>,
}

impl SessionInfo {
    fn of(session: &Session) -> Self {
        let (calls, last_call) = session.calls();
        Self {
            id: session.id.clone(),
            persona: session.persona.name.clone(),
            workspace: session.workspace.path.display().to_string(),
            created: session.created,
            expires: session.expires,
            state: session.why_ended().map_or("live", EndReason::text).to_owned(),
            connections: session.connections(),
            calls,
            last_call,
            running: session.running().borrow().len(),
            sandbox_pid: session.sandbox_pid(),
        }
    }
}

/// Serves control clients for ever.
pub async fn serve(listener: UnixListener, controller: Rc<Controller>, urls: Rc<[String]>) {
    let connections = Arc::new(Semaphore::new(MAX_CONTROL_CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let Some(stream) = listener::accept_own(&listener, controller.environment.uid).await else {
            continue;
        };
        let (controller, urls) = (Rc::clone(&controller), Rc::clone(&urls));
        tokio::task::spawn_local(async move {
            if let Err(error) = answer(stream, &controller, &urls).await {
                tracing::debug!(%error, "a control client left");
            }
            drop(permit);
        });
    }
}

async fn answer(stream: UnixStream, controller: &Rc<Controller>, urls: &[String]) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let line = timeout(CONTROL_TIMEOUT, read_line(&mut stream)).await??;
    let request = serde_json::from_str::<Request>(&line)
        .map_err(|error| Failure::usage(format_args!("the control request makes no sense: {error}")));
    let outcome = match request {
        Ok(request) => perform(request, controller, urls).await,
        Err(failure) => Err(failure),
    };
    let (reply, lease) = match outcome {
        Ok(done) => done,
        Err(failure) => (Reply::Failed { exit: failure.exit.code(), message: failure.message }, None),
    };
    let mut text = zeroize::Zeroizing::new(serde_json::to_string(&reply)?);
    text.push('\n');
    let written = stream.write_all(text.as_bytes()).await;
    if let Some(session) = lease {
        // The client says no more; its end is the end of the session.
        let mut rest = [0u8; 1];
        if written.is_ok() {
            tokio::select! {
                _ = stream.read(&mut rest) => {}
                _ = session.until_ended() => {}
            }
        }
        session.until_disconnected().await;
        session.end(EndReason::ClientLeft);
    }
    written
}

type Performed = (Reply, Option<Rc<Session>>);

async fn perform(request: Request, controller: &Rc<Controller>, urls: &[String]) -> Outcome<Performed> {
    let find = |id: &str| {
        controller.session(id).ok_or_else(|| {
            Failure::usage(format_args!("there is no session {id}: see legion-controller session list"))
        })
    };
    match request {
        Request::Open { persona, workspace, cwd, ttl_seconds, lease } => {
            let ttl = ttl_seconds.map(Duration::from_secs);
            let request = SessionRequest { persona, workspace, cwd, ttl, keep_idle: lease };
            let opened = open(controller, request, urls).await?;
            let session = lease.then(|| find(&opened.session)).transpose()?;
            Ok((Reply::Opened(opened), session))
        }
        Request::List => {
            let sessions = controller.sessions();
            Ok((Reply::Sessions(sessions.iter().map(|session| SessionInfo::of(session)).collect()), None))
        }
        Request::Show { id } => Ok((Reply::Sessions(vec![SessionInfo::of(&*find(&id)?)]), None)),
        Request::End { id, revoke } => {
            let session = find(&id)?;
            session.end(if revoke { EndReason::Revoked } else { EndReason::Killed });
            session.gone().await;
            Ok((Reply::Ended(SessionInfo::of(&session)), None))
        }
    }
}

/// Opens a session and says how to reach it.
pub async fn open(controller: &Rc<Controller>, request: SessionRequest, urls: &[String]) -> Outcome<Opened> {
    let (session, token) = controller.open_session(request).await?;
    Ok(Opened {
        session: session.id.clone(),
        token: token.text.to_string(),
        urls: urls.to_vec(),
        front_socket: controller.dirs.front_socket(),
        cwd: session.cwd(),
        workspace: session.workspace.path.clone(),
        expires: session.expires,
    })
}

async fn read_line<S: AsyncBufReadExt + Unpin>(stream: &mut S) -> std::io::Result<String> {
    let mut line = String::new();
    stream.take(MAX_CONTROL_LINE_BYTES as u64).read_line(&mut line).await?;
    if line.ends_with('\n') { Ok(line) } else { Err(std::io::ErrorKind::UnexpectedEof.into()) }
}

/// A client's connection to a running controller; keeping it keeps a leased session.
pub struct Client(BufReader<UnixStream>);

impl Client {
    /// Connects; `None` when no controller runs there.
    pub async fn connect(socket: &Path) -> Option<Self> {
        dirs::connect_unix(socket).await.ok().map(|stream| Self(BufReader::new(stream)))
    }

    /// Asks and waits for the answer; a failure at the other end comes back as one here.
    pub async fn ask(&mut self, request: &Request) -> Outcome<Reply> {
        let broken = |error: std::io::Error| {
            Failure::unavailable(format_args!("the running controller does not answer: {error}"))
        };
        let mut line = serde_json::to_string(request).map_err(Failure::internal)?;
        line.push('\n');
        self.0.write_all(line.as_bytes()).await.map_err(broken)?;
        let line = read_line(&mut self.0).await.map_err(broken)?;
        match serde_json::from_str(&line).map_err(Failure::internal)? {
            Reply::Failed { exit, message } => Err(Failure::new(Exit::from_code(exit), message)),
            reply => Ok(reply),
        }
    }
}

/// The lock that makes one controller the one that listens in a run directory.
pub fn claim(run: &OwnedFd, dirs: &dirs::Dirs) -> Outcome<OwnedFd> {
    use rustix::fs::{FlockOperation, Mode, OFlags, flock, openat};
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let lock = openat(run, "controller.lock", flags, Mode::RUSR | Mode::WUSR)
        .map_err(|error| Failure::config(format_args!("cannot lock {}: {error}", dirs.run.display())))?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(lock),
        Err(_) => Err(Failure::unavailable(format_args!(
            "a controller is already running with {}: use it, stop it, or choose another --state-dir",
            dirs.run.display()
        ))),
    }
}
