//! Where a session lives: starting its sandbox, what commands inherit there, watching the workspace from outside.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use legion_protocol::StringMap;
use tokio::time::timeout;

use super::companion::MARK;
use super::{EndReason, Session};
use crate::audit::record::{Object, SandboxFacts};
use crate::audit::{Event, Record};
use crate::config::{Mount, MountMode};
use crate::controller::Controller;
use crate::failure::{Failure, Outcome};
use crate::limits::{MAX_NEW_NAMES, SANDBOX_KILL_TIMEOUT};
use crate::sandbox::launch::Order;
use crate::sandbox::protect::{self, Plan, Wishes};
use crate::sandbox::watch::{Notice, Watcher};
use crate::sandbox::{Sandbox, Spec, aftermath, disarm};

impl Session {
    /// Its sandbox, started if none is running.
    pub async fn sandbox(self: &Rc<Self>, controller: &Rc<Controller>) -> Outcome<Rc<Sandbox>> {
        let mut slot = self.sandbox.lock().await;
        if let Some(sandbox) = slot.as_ref().filter(|sandbox| !sandbox.process.has_ended()) {
            return Ok(Rc::clone(sandbox));
        }
        let plan = self.look_through(controller)?;
        for note in &plan.notes {
            tracing::warn!(session = self.id, "{note}");
        }
        self.make_placeholders(&plan)?;
        let files = self.companion.files.clone();
        self.make_files(controller, &files)?;
        let spec = Spec::new(&self.persona, &self.workspace.path, &plan, files, controller.surroundings())?;
        let order = Order {
            session: &self.id,
            spec: &spec,
            workspace: &self.workspace,
            run_as: self.run_as,
            environment: self.environment(controller),
            limits: &self.persona.limits,
            seccomp: self.persona.seccomp,
        };
        let admit = |facts: &SandboxFacts| {
            let mut record = Record::new(Event::SandboxStarted).of_session(&self.id);
            record.sandbox = Some(facts.clone());
            record.notes = plan.notes.iter().map(|note| controller.redactor.text(note)).collect();
            controller.record(&record).map(|_| ())
        };
        let sandbox = Rc::new(controller.launcher.launch(order, admit).await?);
        *slot = Some(Rc::clone(&sandbox));
        self.watch(controller, &sandbox, &spec, plan)?;
        tokio::task::spawn_local(record_end(Rc::clone(controller), Rc::clone(self), Rc::clone(&sandbox)));
        Ok(sandbox)
    }

    /// What of the workspace is to be protected as it is now.
    fn look_through(&self, controller: &Controller) -> Outcome<Plan> {
        let is_writable = |mount: &Mount| matches!(mount.mode, MountMode::Rw | MountMode::RwTry);
        // What is mounted read-only elsewhere cannot be written by its place in the workspace either.
        let read_only = self.persona.mounts.iter().filter(|mount| !is_writable(mount));
        let read_only = read_only.filter_map(|mount| mount.from.as_ref()?.canonicalize().ok());
        let read_only =
            read_only.filter_map(|from| Some(from.strip_prefix(&self.workspace.path).ok()?.to_owned()));
        let extra: Vec<PathBuf> = self.persona.protect.iter().cloned().chain(read_only).collect();
        let mounts = self.persona.mounts.iter().filter(|mount| is_writable(mount));
        let mounted: Vec<PathBuf> = mounts
            .filter(|mount| mount.from.as_ref() == Some(&mount.to))
            .map(|mount| mount.to.clone())
            .collect();
        let env_file = &controller.config.env_file;
        let git_configs = controller.environment.git_configs();
        let wishes = Wishes { extra: &extra, env_file, mounted: &mounted, git_configs: &git_configs };
        protect::scan(&self.workspace.path, wishes)
    }

    /// What commands inherit: the persona's own values win over `.env`, that over the controller's environment.
    fn environment(&self, controller: &Controller) -> StringMap {
        let env = &self.persona.env;
        let mut map = StringMap::default();
        let inherited = controller.environment.vars.iter().filter(|(name, _)| env.inherit.matches(name));
        map.0.extend(inherited.map(|(name, value)| (name.clone(), value.clone())));
        let secrets = controller.config.secrets.iter().filter(|(name, _)| env.secrets.matches(name));
        map.0.extend(secrets.map(|(name, value)| (name.clone(), value.expose().to_owned())));
        map.0.extend(env.set.iter().map(|(name, value)| (name.clone(), value.clone())));
        map
    }

    /// Starts watching the workspace for as long as the sandbox runs, and looks back when it has ended.
    fn watch(
        self: &Rc<Self>,
        controller: &Rc<Controller>,
        sandbox: &Rc<Sandbox>,
        spec: &Spec,
        plan: Plan,
    ) -> Outcome<()> {
        let failed = |error: std::io::Error| {
            Failure::unavailable(format_args!(
                "cannot watch the workspace: {error}; raise fs.inotify.max_user_watches"
            ))
        };
        let clone = |(mounts, user): &(OwnedFd, OwnedFd)| Ok((mounts.try_clone()?, user.try_clone()?));
        let namespaces = sandbox.namespaces.as_ref().map(clone).transpose().map_err(failed)?;
        let places: Vec<PathBuf> = spec.workspace_mounts().map(Path::to_owned).collect();
        let mut watcher = Watcher::new(
            &controller.changes,
            &plan,
            &self.workspace.path,
            &places,
            &spec.secrets,
            namespaces,
        )
        .map_err(failed)?;
        let (session, controller, sandbox) = (Rc::clone(self), Rc::clone(controller), Rc::clone(sandbox));
        let task = tokio::task::spawn_local(async move {
            loop {
                tokio::select! {
                    notice = watcher.next() => session.noticed(&controller, notice),
                    _ = sandbox.process.ended() => break,
                }
            }
            for notice in watcher.last_look() {
                session.noticed(&controller, notice);
            }
            session.look_back(&controller, &plan);
        });
        *self.watching.borrow_mut() = Some(task);
        Ok(())
    }

    /// Resolves when nothing is watched any more: soon after the end of the sandbox.
    pub(super) async fn watched(&self) {
        let task = self.watching.borrow_mut().take();
        let Some(task) = task else { return };
        if !matches!(timeout(SANDBOX_KILL_TIMEOUT, task).await, Ok(Ok(()))) {
            tracing::error!(session = self.id, "the workspace was not watched to the end");
        }
    }

    /// Tells what was left in the workspace that tools on the host would obey, wherever it lies.
    fn look_back(&self, controller: &Controller, before: &Plan) {
        let after = match self.look_through(controller) {
            Ok(after) => after,
            Err(failure) => {
                return tracing::error!("what was left cannot be looked for: {}", failure.message);
            }
        };
        let new = aftermath::new_names(before, &after, &self.workspace.path);
        self.disarm(controller, before, &after, &new);
        let told = self.told.take();
        let untold = new.into_iter().filter(|path| !told.iter().any(|known| path.starts_with(known)));
        for path in untold.take(MAX_NEW_NAMES) {
            self.noticed(controller, Notice::NewName(path));
        }
    }

    /// Sets aside what git on the host would run in repositories made inside.
    fn disarm(&self, controller: &Controller, before: &Plan, after: &Plan, new: &[PathBuf]) {
        let is_writable = |mount: &&Mount| matches!(mount.mode, MountMode::Rw | MountMode::RwTry);
        let mounted = self.persona.mounts.iter().filter(is_writable);
        let mounted = mounted.filter_map(|mount| mount.from.as_ref()?.canonicalize().ok());
        let external = before.externals.iter().map(|external| external.path.clone());
        let writable: Vec<PathBuf> =
            [self.workspace.path.clone()].into_iter().chain(external).chain(mounted).collect();
        let made = disarm::made(before, after, new, &writable);
        let mut told = 0;
        for disarmed in made.iter().flat_map(|dir| disarm::disarm(dir)) {
            told += 1;
            if told > MAX_NEW_NAMES {
                continue;
            }
            let path = disarmed.path.display();
            let reason = match disarmed.result {
                Ok(done) => format!("git on the host would have run programs of the session: {done}"),
                Err(error) => {
                    format!("git on the host may run programs of the session: not set aside: {error}")
                }
            };
            tracing::warn!(session = self.id, "{path}: {reason}");
            let reason = controller.redactor.text(&reason);
            self.record_path(controller, Event::PathSetAside, &disarmed.path, reason);
        }
        if told > MAX_NEW_NAMES {
            let more = format!("the same of {} more paths, which are not named", told - MAX_NEW_NAMES);
            self.record_path(controller, Event::PathSetAside, &self.workspace.path, more);
        }
    }

    fn noticed(&self, controller: &Controller, notice: Notice) {
        let (event, path, reason) = match notice {
            Notice::Reguarded(path, Ok(())) => {
                (Event::PathProtected, path, "replaced on the host, protected again".into())
            }
            Notice::Reguarded(path, Err(error)) => {
                self.end(EndReason::Unprotected);
                (
                    Event::PathProtected,
                    path,
                    format!("replaced on the host, cannot be protected again: {error}"),
                )
            }
            Notice::NewName(path) => {
                if self.told.borrow().len() < MAX_NEW_NAMES {
                    self.told.borrow_mut().push(path.clone());
                }
                (Event::PathCreated, path, "tools on the host may obey it: look at it".into())
            }
            Notice::Tampered(path) => {
                self.end(EndReason::Tampered);
                (Event::Violation, path, "changed from inside, put right".into())
            }
        };
        self.record_path(controller, event, &path, reason);
    }

    fn record_path(&self, controller: &Controller, event: Event, path: &Path, reason: String) {
        let mut record = Record::new(event).of_session(&self.id).because(reason);
        record.object = Some(Object {
            path: Some(controller.redactor.text(&path.to_string_lossy())),
            ..Object::default()
        });
        controller.note(&record);
    }

    /// Makes the directories a sandbox must not be the first to make; they go with the session.
    fn make_placeholders(&self, plan: &Plan) -> Outcome<()> {
        for path in &plan.placeholders {
            let made = std::fs::create_dir(path).and_then(|()| {
                let (uid, gid) = self.workspace.owner;
                std::os::unix::fs::lchown(path, Some(uid), Some(gid))
            });
            match made {
                Ok(()) => self.placeholders.borrow_mut().push(path.clone()),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(Failure::unavailable(format_args!(
                        "cannot protect {}: {error}",
                        path.display()
                    )));
                }
            }
        }
        Ok(())
    }

    /// A file can be shown only over one that exists: where a writable mount would get an empty one, it gets a marked one
    /// that goes with the session.
    fn make_files(&self, controller: &Controller, files: &[(PathBuf, Vec<u8>)]) -> Outcome<()> {
        let home = controller.environment.home();
        for (path, _) in files.iter().filter(|(path, _)| home.is_some_and(|home| path.starts_with(home))) {
            let shown = self.persona.mounts.iter().any(|mount| path.starts_with(&mount.to));
            if !shown || path.exists() {
                continue;
            }
            std::fs::write(path, format!("{MARK} It may be deleted.\n")).map_err(|error| {
                Failure::unavailable(format_args!("cannot make {}: {error}", path.display()))
            })?;
            self.made_files.borrow_mut().push(path.clone());
        }
        Ok(())
    }

    /// Removes them, unless somebody put something in meanwhile.
    pub(super) fn remove_placeholders(&self) {
        for path in self.placeholders.borrow_mut().drain(..) {
            let _ = std::fs::remove_dir(path);
        }
        for path in self.made_files.borrow_mut().drain(..) {
            if std::fs::read_to_string(&path).is_ok_and(|text| text.starts_with(MARK)) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

async fn record_end(controller: Rc<Controller>, session: Rc<Session>, sandbox: Rc<Sandbox>) {
    let how = sandbox.process.ended().await;
    controller.launcher.forget(&sandbox);
    session.close_running(&controller, "the sandbox ended");
    let record =
        Record::new(Event::SandboxEnded).of_session(&session.id).because(controller.redactor.text(&how));
    controller.note(&record);
}
