//! Sessions: processes that outlive a connection (SPEC 3.2).
//!
//! Invariant: a session is attached to at most one connection. Resuming an attached one ends the other connection
//! first, so its requests are over before those of the new connection are read.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;

use legion_protocol::ErrorObject;
use legion_protocol::limits::{CLOSED_PROCESS_TTL, DETACHED_SESSION_TTL};
use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::error::Outcome;
use crate::limits::{MAX_CLOSED_BYTES, MAX_CLOSED_PROCESSES, MAX_SESSIONS};
use crate::outgoing::Outgoing;
use crate::process::Process;

/// See the module.
pub(crate) struct Session {
    /// UUID v4.
    pub(crate) id: String,
    processes: RefCell<HashMap<Rc<str>, Rc<Process>>>,
    /// Ended processes in the order of their end, with the time at which they vanish.
    closed: RefCell<VecDeque<(Instant, Rc<Process>)>>,
    closed_bytes: Cell<usize>,
    attached: RefCell<Option<Rc<Outgoing>>>,
    /// `None` while attached.
    detached_at: Cell<Option<Instant>>,
    expiry_runs: Cell<bool>,
}

impl Session {
    fn new() -> Self {
        Self {
            id: Uuid::new_v4().to_string(),
            processes: RefCell::default(),
            closed: RefCell::default(),
            closed_bytes: Cell::new(0),
            attached: RefCell::default(),
            detached_at: Cell::new(None),
            expiry_runs: Cell::new(false),
        }
    }

    /// Where notifications go; `None` while detached.
    pub(crate) fn attached(&self) -> Option<Rc<Outgoing>> {
        self.attached.borrow().clone()
    }

    /// The process the client calls `id`.
    pub(crate) fn process(&self, id: &str) -> Option<Rc<Process>> {
        self.processes.borrow().get(id).cloned()
    }

    /// Processes that are not closed yet.
    pub(crate) fn running(&self) -> usize {
        self.processes.borrow().len() - self.closed.borrow().len()
    }

    /// Adds a process under its id, which is free.
    pub(crate) fn insert_process(&self, process: Rc<Process>) {
        self.processes.borrow_mut().insert(Rc::clone(&process.id), process);
    }

    /// Keeps a closed process readable for its time to live, or until newer ones need the room.
    pub(crate) fn process_closed(self: &Rc<Self>, process: &Rc<Process>) {
        let deadline = Instant::now() + CLOSED_PROCESS_TTL;
        self.closed.borrow_mut().push_back((deadline, Rc::clone(process)));
        self.closed_bytes.set(self.closed_bytes.get() + process.retained());
        while self.closed.borrow().len() > MAX_CLOSED_PROCESSES || self.closed_bytes.get() > MAX_CLOSED_BYTES
        {
            self.forget_oldest();
        }
        if !self.expiry_runs.replace(true) {
            spawn_local(Rc::clone(self).forget_expired());
        }
    }

    fn forget_oldest(&self) {
        let oldest = self.closed.borrow_mut().pop_front();
        if let Some((_, process)) = oldest {
            self.closed_bytes.set(self.closed_bytes.get().saturating_sub(process.retained()));
            self.processes.borrow_mut().remove(&process.id);
        }
    }

    /// Runs while there are closed processes. Their time to live is the same for all, so the oldest is the next.
    async fn forget_expired(self: Rc<Self>) {
        loop {
            let next = self.closed.borrow().front().map(|(deadline, _)| *deadline);
            match next {
                Some(deadline) if deadline <= Instant::now() => self.forget_oldest(),
                Some(deadline) => sleep_until(deadline).await,
                None => break,
            }
        }
        self.expiry_runs.set(false);
    }

    /// Kills every process group of the session.
    fn kill(&self) {
        for process in self.processes.borrow().values() {
            process.kill();
        }
    }
}

/// All sessions of this server, by id.
#[derive(Default)]
pub(crate) struct Sessions {
    by_id: RefCell<HashMap<String, Rc<Session>>>,
    expiry_runs: Cell<bool>,
}

impl Sessions {
    /// A new session, attached to `outgoing`.
    ///
    /// # Errors
    /// -32600 when there are too many, all of them attached.
    pub(crate) fn create(&self, outgoing: &Rc<Outgoing>) -> Outcome<Rc<Session>> {
        if self.by_id.borrow().len() >= MAX_SESSIONS {
            self.give_up_longest_detached()?;
        }
        let session = Rc::new(Session::new());
        *session.attached.borrow_mut() = Some(Rc::clone(outgoing));
        self.by_id.borrow_mut().insert(session.id.clone(), Rc::clone(&session));
        Ok(session)
    }

    fn give_up_longest_detached(&self) -> Outcome<()> {
        let oldest = self
            .by_id
            .borrow()
            .values()
            .filter_map(|session| Some((session.detached_at.get()?, Rc::clone(session))))
            .min_by_key(|(since, _)| *since);
        let Some((_, session)) = oldest else {
            return Err(ErrorObject::invalid_request(format!(
                "this exec-server already has {MAX_SESSIONS} attached sessions; close some first"
            )));
        };
        self.remove(&session);
        Ok(())
    }

    /// Attaches the session called `id` to `outgoing`, after ending the connection it may be attached to.
    ///
    /// # Errors
    /// -32600 when there is no such session, or no longer.
    pub(crate) async fn resume(&self, id: &str, outgoing: &Rc<Outgoing>) -> Outcome<Rc<Session>> {
        // Two connections may wait for the same third one: the loser finds the winner attached and ends it, too.
        loop {
            let session = self.by_id.borrow().get(id).cloned();
            let session =
                session.ok_or_else(|| ErrorObject::invalid_request(format!("unknown session id {id}")))?;
            let Some(other) = session.attached() else {
                *session.attached.borrow_mut() = Some(Rc::clone(outgoing));
                session.detached_at.set(None);
                return Ok(session);
            };
            other.close();
            other.wait_ended().await;
        }
    }

    /// Ends the attachment of `outgoing`; the session lives on for its time to live.
    pub(crate) fn detach(self: &Rc<Self>, session: &Rc<Session>, outgoing: &Rc<Outgoing>) {
        if !session.attached().is_some_and(|attached| Rc::ptr_eq(&attached, outgoing)) {
            return;
        }
        session.attached.take();
        session.detached_at.set(Some(Instant::now()));
        if !self.expiry_runs.replace(true) {
            spawn_local(Rc::clone(self).expire());
        }
    }

    /// Runs while there are detached sessions.
    async fn expire(self: Rc<Self>) {
        loop {
            let next = self
                .by_id
                .borrow()
                .values()
                .filter_map(|session| {
                    Some((session.detached_at.get()? + DETACHED_SESSION_TTL, Rc::clone(session)))
                })
                .min_by_key(|(deadline, _)| *deadline);
            match next {
                Some((deadline, session)) if deadline <= Instant::now() => self.remove(&session),
                Some((deadline, _)) => sleep_until(deadline).await,
                None => break,
            }
        }
        self.expiry_runs.set(false);
    }

    fn remove(&self, session: &Session) {
        session.kill();
        self.by_id.borrow_mut().remove(&session.id);
    }

    /// Kills every process group; the end of the server.
    pub(crate) fn kill_all(&self) {
        for session in self.by_id.borrow().values() {
            session.kill();
        }
    }
}
