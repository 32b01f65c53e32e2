//! What one controller process shares: configuration, audit, sandbox launcher, sessions.
//!
//! Invariant: everything runs on one thread (a `LocalSet`), so state is in cells and never locked across an await.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;

use crate::approvals::Approvals;
use crate::audit::redact::Redactor;
use crate::audit::{AuditLog, Event, Record};
use crate::config::{Config, Persona};
use crate::dirs::{self, CONTROL_SOCKET, Dirs, SANDBOXES};
use crate::environment::Environment;
use crate::failure::{Failure, Outcome};
use crate::limits::{MAX_ENDED_SESSIONS, MAX_SESSIONS};
use crate::memory::Trim;
use crate::policy::Policy;
use crate::sandbox::bwrap::Bwrap;
use crate::sandbox::cgroup::Cgroups;
use crate::sandbox::launch::fill_random;
use crate::sandbox::spawner::Spawner;
use crate::sandbox::spec::{Sources, Surroundings};
use crate::sandbox::watch::hub::Hub;
use crate::sandbox::workspace::Workspace;
use crate::sandbox::{Launcher, run_as};
use crate::session::{Companion, EndReason, Session};
use crate::token::{self, Digester, RANDOM_BYTES, Token};

mod records;

/// The file name of the exec-server, beside the controller's own.
const EXEC_SERVER: &str = "legion-exec-server";

/// A running controller.
pub struct Controller {
    /// Valid configuration.
    pub config: Config,
    /// The process's surroundings.
    pub environment: Environment,
    /// Where things are kept.
    pub dirs: Dirs,
    /// Makes texts fit for records.
    pub redactor: Redactor,
    /// Questions to a person.
    pub approvals: Rc<Approvals>,
    /// Starts sandboxes.
    pub launcher: Launcher,
    exec_server: PathBuf,
    audit: RefCell<AuditLog>,
    /// Told when a record was deferred.
    deferred: Rc<Notify>,
    /// Told when a record was written.
    unsigned: Rc<Notify>,
    /// Told when records could not be written.
    unwritten: Rc<Notify>,
    is_unwritten: Cell<bool>,
    /// Changes of workspaces.
    pub changes: Rc<Hub>,
    /// Gives memory back after large messages.
    pub trim: Rc<Trim>,
    digester: Digester,
    sessions: RefCell<BTreeMap<String, Rc<Session>>>,
    sessions_made: Cell<u32>,
    url: RefCell<Option<String>>,
    tells_refusals: Cell<bool>,
    /// The rules of each persona as they are now.
    pub(crate) policies: RefCell<BTreeMap<String, Rc<Policy>>>,
}

/// What a new session is asked for.
#[derive(Debug, Clone, Default)]
pub struct SessionRequest {
    /// Persona name; none is `default`.
    pub persona: Option<String>,
    /// Absolute; none is the persona's.
    pub workspace: Option<PathBuf>,
    /// Where the one who asks is; a relative workspace of the persona starts here.
    pub cwd: PathBuf,
    /// None is the persona's.
    pub ttl: Option<Duration>,
    /// Whether it lives to its end though nobody is connected.
    pub keep_idle: bool,
}

/// Why a presented token is no good. Peers are told nothing of it; records are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// One line.
    pub reason: String,
    /// The public id in the token, when it names a session.
    pub session: Option<String>,
}

impl Controller {
    /// Opens the state, the audit log and the sandbox launcher.
    pub fn start(environment: Environment, dirs: Dirs, config: Config) -> Outcome<Rc<Self>> {
        let bwrap = Bwrap::probe(&environment)?;
        let exec_server = environment.executable.with_file_name(EXEC_SERVER);
        if !exec_server.is_file() {
            return Err(Failure::unavailable(format_args!(
                "{} is missing: install it beside legion-controller",
                exec_server.display()
            )));
        }
        dirs::open_private(&dirs.state, environment.uid)?;
        dirs::open_private(&dirs.run, environment.uid)?;
        // Several controllers may share the state; sockets of sandboxes are told apart by process id.
        dirs::sweep(&dirs.run);
        let sockets = dirs::open_private(
            &dirs.run.join(format!("{SANDBOXES}{}", std::process::id())),
            environment.uid,
        )?;
        let audit = AuditLog::open(&dirs.state, environment.uid, &config.audit)?;
        let changes = Hub::open().map_err(|error| {
            Failure::unavailable(format_args!(
                "cannot watch workspaces: {error}; raise fs.inotify.max_user_instances"
            ))
        })?;
        let policy = |persona: &Persona| (persona.name.clone(), Rc::clone(&persona.policy));
        let policies = config.personas.values().map(policy).collect();
        let mut key = zeroize::Zeroizing::new([0u8; 32]);
        fill_random(&mut *key).map_err(Failure::internal)?;
        let controller = Rc::new(Self {
            redactor: Redactor::new(&config.secrets),
            approvals: Approvals::new(&environment, dirs.state.clone()),
            launcher: Launcher {
                bwrap,
                spawner: Spawner::start()?,
                sockets,
                cgroups: Cgroups::take_over(),
                started: Cell::default(),
            },
            exec_server,
            audit: RefCell::new(audit),
            deferred: Rc::default(),
            unsigned: Rc::default(),
            unwritten: Rc::default(),
            is_unwritten: Cell::default(),
            trim: Rc::default(),
            changes,
            digester: Digester::new(&key),
            sessions: RefCell::default(),
            // Controllers of root that run side by side start at different stand-in users.
            sessions_made: Cell::new(std::process::id()),
            url: RefCell::default(),
            tells_refusals: Cell::default(),
            policies: RefCell::new(policies),
            config,
            environment,
            dirs,
        });
        controller.keep_records();
        controller.follow_config();
        let started = Record::new(Event::ControllerStarted).because(format!(
            "legion-controller {}, process {}",
            env!("CARGO_PKG_VERSION"),
            std::process::id()
        ));
        controller.record(&started).map_err(|error| {
            Failure::unavailable(format_args!(
                "cannot write the audit log in {}: {error}",
                controller.dirs.audit().display()
            ))
        })?;
        Ok(controller)
    }

    /// Says where harnesses can connect.
    pub fn listens_at(&self, url: &str) {
        *self.url.borrow_mut() = Some(url.to_owned());
    }

    /// From now on the person in front of us is told of refusals that a model is not told the reason of.
    pub fn tell_refusals(&self) {
        self.tells_refusals.set(true);
    }

    /// Whether anybody is told of them.
    pub fn tells_refusals(&self) -> bool {
        self.tells_refusals.get()
    }

    /// Makes a session and its token, and starts its sandbox, so that whatever is wrong shows at once. A persona that
    /// connects brings a second session on the same workspace.
    pub async fn open_session(self: &Rc<Self>, request: SessionRequest) -> Outcome<(Rc<Session>, Token)> {
        let connect = self.config.persona(request.persona.as_deref())?.connect.clone();
        let Some(connect) = connect else { return self.open_one(request, Companion::default()).await };
        let url = self.url.borrow().clone().ok_or_else(|| {
            Failure::config("a persona that connects needs a listener: add one to [controller] listen")
        })?;
        let second = SessionRequest { persona: Some(connect.persona.clone()), ..request.clone() };
        let (second, token) = self.open_one(second, Companion::default()).await?;
        let companion = Companion::of(&connect, &second, &url, &token);
        let opened = self.open_one(request, companion).await;
        if opened.is_err() {
            second.end(EndReason::ClientLeft);
        }
        opened
    }

    async fn open_one(
        self: &Rc<Self>,
        request: SessionRequest,
        companion: Companion,
    ) -> Outcome<(Rc<Session>, Token)> {
        let mut persona = self.config.persona(request.persona.as_deref())?.clone();
        persona.ttl = request.ttl.unwrap_or(persona.ttl);
        if request.keep_idle {
            persona.idle = persona.ttl;
        }
        let base = Environment { cwd: request.cwd, ..self.environment.clone() };
        let path = base.resolve(request.workspace.as_ref().unwrap_or(&persona.workspace));
        let workspace = Workspace::open(&path, self.environment.home(), &self.dirs)?;
        let number = self.sessions_made.get();
        self.sessions_made.set(number.wrapping_add(1));
        let run_as = run_as::choose(self.environment.uid, workspace.owner, number);
        self.forget_ended();
        if self.sessions.borrow().len() >= MAX_SESSIONS + MAX_ENDED_SESSIONS {
            return Err(Failure::unavailable(format_args!(
                "there are {MAX_SESSIONS} sessions already: end one with legion-controller session kill"
            )));
        }
        let token = self.mint()?;
        let digest = self.digester.digest(&token.text);
        let session = Session::new(token.id.clone(), digest, persona, workspace, run_as, companion);
        let mut record = Record::new(Event::SessionStarted).of_session(&session.id);
        record.persona = Some(session.persona.name.clone());
        record.workspace = Some(session.workspace.path.display().to_string());
        self.record(&record)
            .map_err(|error| Failure::unavailable(format_args!("cannot record the session: {error}")))?;
        self.sessions.borrow_mut().insert(session.id.clone(), Rc::clone(&session));
        session.supervise(self);
        let policy = self.policies.borrow().get(&session.persona.name).cloned().unwrap_or_default();
        let started = match session.adopt(self, policy) {
            Ok(()) => session.sandbox(self).await.map(|_| ()),
            Err(failure) => Err(failure),
        };
        if let Err(failure) = started {
            session.end(EndReason::NoSandbox);
            session.gone().await;
            return Err(failure);
        }
        session.follow_rules(self);
        Ok((session, token))
    }

    /// A token whose id no remembered session has.
    fn mint(&self) -> Outcome<Token> {
        let mut random = zeroize::Zeroizing::new([0u8; RANDOM_BYTES]);
        loop {
            fill_random(&mut *random).map_err(Failure::internal)?;
            let token = token::mint(&random);
            if !self.sessions.borrow().contains_key(&token.id) {
                return Ok(token);
            }
        }
    }

    /// The session a presented token opens.
    pub fn authenticate(&self, presented: &str) -> Result<Rc<Session>, Denial> {
        let deny = |reason: &str, session: Option<&str>| Denial {
            reason: reason.to_owned(),
            session: session.map(str::to_owned),
        };
        let id = token::id_of(presented).ok_or_else(|| deny("not a token of Legion", None))?;
        let session = self.session(id).ok_or_else(|| deny("unknown token", None))?;
        if !self.digester.verify(presented, &session.digest) {
            return Err(deny("wrong secret", Some(id)));
        }
        match session.why_ended() {
            None => Ok(session),
            Some(reason) => Err(deny(reason.text(), Some(id))),
        }
    }

    /// A session by its public id, ended ones included while they are remembered.
    pub fn session(&self, id: &str) -> Option<Rc<Session>> {
        self.sessions.borrow().get(id).cloned()
    }

    /// All remembered sessions, the oldest first.
    pub fn sessions(&self) -> Vec<Rc<Session>> {
        let mut sessions: Vec<_> = self.sessions.borrow().values().cloned().collect();
        sessions.sort_by_key(|session| session.created);
        sessions
    }

    /// Drops the memory of the oldest ended sessions beyond the bound.
    fn forget_ended(&self) {
        let ended: Vec<_> =
            self.sessions().into_iter().filter(|session| session.why_ended().is_some()).collect();
        let excess = ended.len().saturating_sub(MAX_ENDED_SESSIONS);
        for session in ended.into_iter().take(excess) {
            self.sessions.borrow_mut().remove(&session.id);
        }
    }

    /// What every sandbox of this controller depends on.
    pub fn surroundings(&self) -> Surroundings {
        Surroundings {
            hidden: [&self.dirs.state, &self.dirs.run]
                .into_iter()
                .filter(|dir| dir.is_dir())
                .cloned()
                .collect(),
            host_home: self.environment.home().map(Path::to_owned),
            exec_server: self.exec_server.clone(),
            env_file: self.config.env_file.clone(),
            sources: match (self.environment.uid, self.launcher.bwrap.bind_fd) {
                (0, _) => Sources::Staged,
                (_, true) => Sources::Descriptors,
                (_, false) => Sources::Paths,
            },
            path: self.environment.var("PATH").unwrap_or_default().to_owned(),
        }
    }

    /// Ends all sessions, waits until their sandboxes are gone, and records it.
    pub async fn shut_down(&self) {
        let sessions = self.sessions();
        for session in &sessions {
            session.end(EndReason::Shutdown);
        }
        for session in &sessions {
            session.gone().await;
        }
        let _ = rustix::fs::unlinkat(&self.launcher.sockets, CONTROL_SOCKET, rustix::fs::AtFlags::empty());
        let _ = std::fs::remove_dir(self.dirs.run.join(format!("{SANDBOXES}{}", std::process::id())));
        self.note(&Record::new(Event::ControllerStopped).because(format!("process {}", std::process::id())));
        self.sign();
    }

    /// Whether a moment has passed.
    pub fn is_past(moment: Timestamp) -> bool {
        Timestamp::now() >= moment
    }
}
