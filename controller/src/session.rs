//! A session: one token, one workspace, one sandbox at a time, its connections and running commands.
//!
//! Invariant: a session ends once. When it has ended its sandbox is killed, its connections are closed, and its token
//! opens nothing.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::audit::record::SandboxFacts;
use crate::audit::{Event, Record};
use crate::config::{MountAt, Persona};
use crate::controller::Controller;
use crate::limits::DRAIN_TIMEOUT;
use crate::policy::Rules;
use crate::sandbox::Sandbox;
use crate::sandbox::cgroup::Cgroup;
use crate::sandbox::run_as::RunAs;
use crate::sandbox::spec::WORKSPACE;
use crate::sandbox::workspace::Workspace;
use crate::token::Digest;
use tapes::Tapes;
use watchers::Watchers;

mod commands;
mod companion;
mod housing;
mod outlook;
pub mod recording;
mod rules;
mod tapes;
pub mod watchers;

pub use commands::{Command, ProcessKey, RunningCommand};
pub use companion::{Companion, MARK, environments_toml};
pub use outlook::Outlook;
pub use rules::read as read_workspace_rules;

/// Why a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// Its time was over.
    Expired,
    /// Nobody was connected for too long.
    Idle,
    /// Its token was revoked.
    Revoked,
    /// `session kill`.
    Killed,
    /// The command that opened it is done.
    ClientLeft,
    /// The controller stopped.
    Shutdown,
    /// Its sandbox did not start.
    NoSandbox,
    /// Something inside tried to redirect the repository.
    Tampered,
    /// A path could not be protected any more.
    Unprotected,
}

impl EndReason {
    /// One or two words, as records and listings show them.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Idle => "idle too long",
            Self::Revoked => "revoked",
            Self::Killed => "killed",
            Self::ClientLeft => "client left",
            Self::Shutdown => "controller stopped",
            Self::NoSandbox => "sandbox did not start",
            Self::Tampered => "tampered with the repository",
            Self::Unprotected => "a path could not be protected",
        }
    }
}

/// A session.
pub struct Session {
    /// Public id; also names the token.
    pub id: String,
    /// What it may see and have.
    pub persona: Persona,
    /// What it may write.
    pub workspace: Workspace,
    /// When it was made.
    pub created: Timestamp,
    pub(crate) digest: Digest,
    /// When it ends at the latest, on both clocks.
    deadline: watch::Sender<(Instant, Timestamp)>,
    idle: Cell<Duration>,
    outlook: Outlook,
    rules: RefCell<Rules>,
    notes: RefCell<Vec<String>>,
    run_as: RunAs,
    companion: Companion,
    sandbox: Mutex<Option<Rc<Sandbox>>>,
    connections: watch::Sender<usize>,
    connection_count: Cell<u64>,
    calls: Cell<u64>,
    last_call: Cell<Option<Timestamp>>,
    running: RefCell<HashMap<ProcessKey, RunningCommand>>,
    /// Output whose secrets are looked for.
    pub(crate) tapes: Tapes,
    /// Bytes of output it may still record.
    record_room: Rc<Cell<u64>>,
    /// Those who watch its output.
    pub watchers: Watchers,
    placeholders: RefCell<Vec<PathBuf>>,
    made_files: RefCell<Vec<PathBuf>>,
    watching: RefCell<Option<JoinHandle<()>>>,
    told: RefCell<Vec<PathBuf>>,
    ended: watch::Sender<Option<EndReason>>,
    gone: watch::Sender<bool>,
}

impl Session {
    pub(crate) fn new(
        id: String,
        digest: Digest,
        persona: Persona,
        workspace: Workspace,
        run_as: RunAs,
        companion: Companion,
    ) -> Rc<Self> {
        let ttl = persona.ttl;
        let record_room = Rc::new(Cell::new(persona.record.unwrap_or(0)));
        let created = Timestamp::now();
        Rc::new(Self {
            id,
            digest,
            outlook: Outlook::new(&persona, &workspace.path),
            rules: RefCell::default(),
            notes: RefCell::default(),
            workspace,
            run_as,
            companion,
            created,
            deadline: watch::Sender::new((
                Instant::now() + ttl,
                created.saturating_add(ttl).unwrap_or(Timestamp::MAX),
            )),
            idle: Cell::new(persona.idle),
            persona,
            sandbox: Mutex::default(),
            connections: watch::Sender::new(0),
            connection_count: Cell::default(),
            calls: Cell::default(),
            last_call: Cell::default(),
            running: RefCell::default(),
            tapes: Tapes::default(),
            record_room,
            watchers: Watchers::default(),
            placeholders: RefCell::default(),
            made_files: RefCell::default(),
            watching: RefCell::default(),
            told: RefCell::default(),
            ended: watch::Sender::new(None),
            gone: watch::Sender::new(false),
        })
    }

    /// Why it has ended, if it has. A passed expiry counts even before anybody acted on it.
    pub fn why_ended(&self) -> Option<EndReason> {
        let ended = *self.ended.borrow();
        ended.or_else(|| Controller::is_past(self.expires()).then_some(EndReason::Expired))
    }

    /// When it ends at the latest.
    pub fn expires(&self) -> Timestamp {
        self.deadline.borrow().1
    }

    /// How long it lives with nobody connected.
    pub fn idle(&self) -> Duration {
        self.idle.get()
    }

    /// From now on it lives so long, also with nobody connected if it did so before.
    pub fn extend(&self, ttl: Duration) {
        let expires = Timestamp::now().saturating_add(ttl).unwrap_or(Timestamp::MAX);
        if self.idle.get() >= self.persona.ttl {
            self.idle.set(self.idle.get().max(ttl));
        }
        self.deadline.send_replace((Instant::now() + ttl, expires));
    }

    /// Resolves when its time is over.
    async fn until_expired(&self) {
        let mut deadline = self.deadline.subscribe();
        loop {
            let (moment, _) = *deadline.borrow_and_update();
            tokio::select! {
                () = sleep_until(moment) => return,
                _ = deadline.changed() => {}
            }
        }
    }

    /// Ends it; the first reason counts.
    pub fn end(&self, reason: EndReason) {
        self.ended.send_if_modified(|ended| ended.is_none() && ended.replace(reason).is_none());
    }

    /// Resolves when it ends.
    pub async fn until_ended(&self) -> EndReason {
        let mut ended = self.ended.subscribe();
        // The sender lives in `self`, so the wait cannot fail; a closed channel would mean the end as well.
        ended.wait_for(Option::is_some).await.ok().and_then(|reason| *reason).unwrap_or(EndReason::Shutdown)
    }

    /// Resolves when it has ended and its sandbox is dead.
    pub async fn gone(&self) {
        let _ = self.gone.subscribe().wait_for(|gone| *gone).await;
    }

    /// The workspace as commands see it.
    pub fn cwd(&self) -> PathBuf {
        match self.persona.mount_at {
            MountAt::Host => self.workspace.path.clone(),
            MountAt::Workspace => PathBuf::from(WORKSPACE),
        }
    }

    /// Starts the task that ends the session in time and cleans up after it.
    pub(crate) fn supervise(self: &Rc<Self>, controller: &Rc<Controller>) {
        let (session, controller) = (Rc::clone(self), Rc::clone(controller));
        tokio::task::spawn_local(async move {
            let reason = tokio::select! {
                reason = session.until_ended() => reason,
                () = session.until_expired() => EndReason::Expired,
                () = session.until_idle() => EndReason::Idle,
            };
            session.end(reason);
            // A launch in progress holds the lock until it has failed or succeeded.
            if let Some(sandbox) = session.sandbox.lock().await.as_ref() {
                sandbox.kill().await;
            }
            session.watched().await;
            session.remove_placeholders();
            session.companion.end();
            session.close_running(&controller, reason.text());
            session.watchers.close();
            controller.approvals.forget(&session.id);
            controller.note(&Record::new(Event::SessionEnded).of_session(&session.id).because(reason.text()));
            session.gone.send_replace(true);
        });
    }

    /// Resolves when nobody has been connected for the persona's idle time.
    async fn until_idle(&self) {
        let mut connections = self.connections.subscribe();
        let mut deadline = self.deadline.subscribe();
        loop {
            if *connections.borrow_and_update() > 0 {
                let _ = connections.changed().await;
                continue;
            }
            deadline.mark_unchanged();
            tokio::select! {
                () = sleep(self.idle.get()) => return,
                _ = connections.changed() => {}
                _ = deadline.changed() => {}
            }
        }
    }

    /// Counts a connection for as long as the guard lives; its number is unique in the session.
    pub fn connect(self: &Rc<Self>) -> ConnectionGuard {
        self.connections.send_modify(|count| *count += 1);
        self.connection_count.set(self.connection_count.get() + 1);
        ConnectionGuard { number: self.connection_count.get(), session: Rc::clone(self) }
    }

    /// Resolves when nobody is connected, or after a bounded time: who leaves may have asked for something last, and its
    /// end belongs into the log.
    pub async fn until_disconnected(&self) {
        let mut connections = self.connections.subscribe();
        let _ = timeout(DRAIN_TIMEOUT, connections.wait_for(|count| *count == 0)).await;
    }

    /// Harness connections now.
    pub fn connections(&self) -> usize {
        *self.connections.borrow()
    }

    /// Guarded calls so far, and when the last one was.
    pub fn calls(&self) -> (u64, Option<Timestamp>) {
        (self.calls.get(), self.last_call.get())
    }

    /// Counts a guarded call.
    pub fn count_call(&self) {
        self.calls.set(self.calls.get() + 1);
        self.last_call.set(Some(Timestamp::now()));
    }

    /// What is known of its sandbox, while one runs.
    pub fn sandbox_facts(&self) -> Option<SandboxFacts> {
        let slot = self.sandbox.try_lock().ok()?;
        slot.as_ref().filter(|sandbox| !sandbox.process.has_ended()).map(|sandbox| sandbox.facts.clone())
    }

    /// Processes of the running sandbox that were killed for want of memory.
    pub fn memory_kills(&self) -> u64 {
        let slot = self.sandbox.try_lock().ok();
        let cgroup = slot.as_ref().and_then(|slot| slot.as_ref()?.cgroup.as_ref());
        cgroup.map_or(0, Cgroup::memory_kills)
    }
}

/// Whole milliseconds.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Counts one connection of a session.
pub struct ConnectionGuard {
    /// From 1.
    pub number: u64,
    session: Rc<Session>,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.session.connections.send_modify(|count| *count -= 1);
    }
}
