//! The control socket: how `connect`, `exec`, `token` and `session` talk to a running controller.
//!
//! One JSON object a line, one request a connection. A request that leases a session keeps the connection open: the
//! session ends when it closes, however the client died. Agents cannot reach it: it lies outside every sandbox.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;

use crate::approvals::Answer;
use crate::audit::{Event, Record};
use crate::controller::{Controller, SessionRequest};
use crate::dirs;
use crate::failure::{Exit, Failure, Outcome};
use crate::limits::{
    CONTROL_TIMEOUT, MAX_CONTROL_CONNECTIONS, MAX_CONTROL_LINE_BYTES, MAX_TTL, MAX_WATCHERS,
};
use crate::listener;
use crate::session::watchers::Shown;
use crate::session::{EndReason, Session};

mod message;

use message::processes;
pub use message::{Opened, Reply, Request, SessionInfo};

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
    if let Ok(Request::Questions { watch: true }) = request {
        return tell_questions(stream, controller).await;
    }
    let outcome = match request {
        Ok(request) => perform(request, controller, urls).await,
        Err(failure) => Err(failure),
    };
    let (reply, then) = match outcome {
        Ok(done) => done,
        Err(failure) => (Reply::Failed { exit: failure.exit.code(), message: failure.message }, Then::Done),
    };
    let mut text = zeroize::Zeroizing::new(serde_json::to_string(&reply)?);
    text.push('\n');
    let written = stream.write_all(text.as_bytes()).await;
    match then {
        Then::Done => {}
        Then::Show(shown) => show(stream, shown).await?,
        Then::Lease(session) => hold(stream, written.is_ok(), &session).await,
    }
    written
}

/// Keeps a session until its client is gone.
async fn hold(mut stream: BufReader<UnixStream>, is_told: bool, session: &Session) {
    // The client says no more; its end is the end of the session.
    let mut rest = [0u8; 1];
    if is_told {
        tokio::select! {
            _ = stream.read(&mut rest) => {}
            _ = session.until_ended() => {}
        }
    }
    session.until_disconnected().await;
    session.end(EndReason::ClientLeft);
}

/// Writes what is printed until nothing more comes, or the client is gone.
async fn show(mut stream: BufReader<UnixStream>, mut shown: mpsc::Receiver<Shown>) -> std::io::Result<()> {
    let mut rest = [0u8; 1];
    loop {
        let next = tokio::select! {
            next = shown.recv() => next,
            _ = stream.read(&mut rest) => None,
        };
        let Some(next) = next else { return Ok(()) };
        let mut text = serde_json::to_string(&next)?;
        text.push('\n');
        stream.write_all(text.as_bytes()).await?;
    }
}

/// What follows the answer.
enum Then {
    Done,
    /// The connection is a lease of this session.
    Lease(Rc<Session>),
    /// The connection shows this.
    Show(mpsc::Receiver<Shown>),
}

/// Tells the questions whenever they change, until the client leaves.
async fn tell_questions(mut stream: BufReader<UnixStream>, controller: &Controller) -> std::io::Result<()> {
    let mut changes = controller.approvals.changes();
    let mut rest = [0u8; 1];
    loop {
        changes.mark_unchanged();
        let mut line = serde_json::to_string(&Reply::Questions(controller.approvals.list()))?;
        line.push('\n');
        stream.write_all(line.as_bytes()).await?;
        tokio::select! {
            _ = stream.read(&mut rest) => return Ok(()),
            told = changes.changed() => if told.is_err() { return Ok(()) },
        }
    }
}

type Performed = (Reply, Then);

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
            let then = if lease { Then::Lease(find(&opened.session)?) } else { Then::Done };
            Ok((Reply::Opened(opened), then))
        }
        Request::List => {
            let sessions = controller.sessions();
            Ok((
                Reply::Sessions(sessions.iter().map(|session| SessionInfo::of(session)).collect()),
                Then::Done,
            ))
        }
        Request::Show { id } => Ok((Reply::Sessions(vec![SessionInfo::of(&*find(&id)?)]), Then::Done)),
        Request::Extend { id, ttl_seconds } => extend(controller, &*find(&id)?, ttl_seconds),
        Request::Attach { id, process } => attach(controller, &*find(&id)?, process.as_deref()),
        Request::Questions { .. } => Ok((Reply::Questions(controller.approvals.list()), Then::Done)),
        Request::Answer { id, approve } => {
            let answer = approve.map_or(Answer::Denied, Answer::Approved);
            Ok((Reply::Answered(controller.approvals.answer(&id, answer)?), Then::Done))
        }
        Request::End { id, revoke } => {
            let session = find(&id)?;
            session.end(if revoke { EndReason::Revoked } else { EndReason::Killed });
            session.gone().await;
            Ok((Reply::Ended(SessionInfo::of(&session)), Then::Done))
        }
    }
}

fn live(session: &Session) -> Outcome<()> {
    match session.why_ended() {
        None => Ok(()),
        Some(reason) => {
            Err(Failure::usage(format_args!("session {} has ended: {}", session.id, reason.text())))
        }
    }
}

fn extend(controller: &Controller, session: &Session, seconds: u64) -> Outcome<Performed> {
    live(session)?;
    let ttl = Duration::from_secs(seconds);
    if ttl.is_zero() || ttl > MAX_TTL {
        return Err(Failure::usage(format_args!(
            "a session lives between 1 s and {} days",
            MAX_TTL.as_secs() / 86_400
        )));
    }
    session.extend(ttl);
    let until = format!("until {:.0}", session.expires());
    controller.note(&Record::new(Event::SessionExtended).of_session(&session.id).because(until));
    Ok((Reply::Sessions(vec![SessionInfo::of(session)]), Then::Done))
}

fn attach(controller: &Controller, session: &Session, process: Option<&str>) -> Outcome<Performed> {
    live(session)?;
    let call = process.map(|wanted| find_command(session, wanted)).transpose()?;
    let shown = session.watchers.add(call).ok_or_else(|| {
        Failure::unavailable(format_args!("{MAX_WATCHERS} others watch session {} already", session.id))
    })?;
    let mut record = Record::new(Event::Watched).of_session(&session.id);
    record.process = call;
    controller.note(&record);
    let mut info = SessionInfo::of(session);
    info.processes.retain(|process| call.is_none_or(|wanted| process.call == wanted));
    Ok((Reply::Attached(info), Then::Show(shown)))
}

/// The running command of this record, or with this id of its client's.
fn find_command(session: &Session, wanted: &str) -> Outcome<u64> {
    let running = processes(session);
    if let Some(process) = running.iter().find(|process| process.call.to_string() == wanted) {
        return Ok(process.call);
    }
    let calls: Vec<_> =
        running.iter().filter(|process| process.id == wanted).map(|process| process.call).collect();
    match calls[..] {
        [call] => Ok(call),
        [] => Err(Failure::usage(format_args!(
            "no command {wanted} runs in session {0}: see legion-controller session show {0}",
            session.id
        ))),
        _ => {
            let numbers: Vec<_> = calls.iter().map(u64::to_string).collect();
            Err(Failure::usage(format_args!(
                "{} clients run a command {wanted}: name it by the number of its record, {}",
                calls.len(),
                numbers.join(" or ")
            )))
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
        expires: session.expires(),
        notes: session.notes(),
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
        let mut line = serde_json::to_string(request).map_err(Failure::internal)?;
        line.push('\n');
        self.0.write_all(line.as_bytes()).await.map_err(broken)?;
        self.next().await
    }

    /// The next answer, where a request has several.
    pub async fn next(&mut self) -> Outcome<Reply> {
        let line = read_line(&mut self.0).await.map_err(broken)?;
        match serde_json::from_str(&line).map_err(Failure::internal)? {
            Reply::Failed { exit, message } => Err(Failure::new(Exit::from_code(exit), message)),
            reply => Ok(reply),
        }
    }

    /// The next thing that is shown; `None` at the end.
    pub async fn next_shown(&mut self) -> Outcome<Option<Shown>> {
        let mut line = String::new();
        let read = (&mut self.0).take(MAX_CONTROL_LINE_BYTES as u64).read_line(&mut line).await;
        match read {
            Ok(_) if line.ends_with('\n') => serde_json::from_str(&line).map(Some).map_err(Failure::internal),
            _ => Ok(None),
        }
    }
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::unavailable(format_args!("the running controller does not answer: {error}"))
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
