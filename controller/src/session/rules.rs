//! The rules of a session while it lives: they follow the configuration and the workspace's own file.
//!
//! Invariant: a file that cannot be read or makes no sense leaves the rules as they are. The workspace's file is read without
//! following a link, bounded, and only narrows.

use std::io::Read;
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{FileType, Mode, OFlags};
use tokio::time::{Instant, sleep_until};

use super::Session;
use crate::audit::{Event, Record, chain};
use crate::controller::Controller;
use crate::failure::{Failure, Outcome};
use crate::limits::{MAX_WORKSPACE_RULES_BYTES, WORKSPACE_RULES_INTERVAL};
use crate::policy::workspace::{self, FILE, Narrowing};
use crate::policy::{Policy, Rules};
use crate::sandbox::watch::hub::Queue;
use crate::sandbox::workspace::Workspace;

/// The workspace's own rules; `None` when it has none.
pub fn read(workspace: &Workspace, persona: &Policy) -> Outcome<Option<Narrowing>> {
    let fail = |why: &dyn std::fmt::Display| {
        Failure::config(format_args!("cannot use {FILE} of the workspace: {why}; correct it or remove it"))
    };
    // Opening a pipe must not wait for its writer.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(&workspace.dir, FILE, flags, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => return Err(fail(&"it is a link")),
        Err(error) => return Err(fail(&error)),
    };
    let stat = rustix::fs::fstat(&file).map_err(|error| fail(&error))?;
    if !FileType::from_raw_mode(stat.st_mode).is_file() {
        return Err(fail(&"it is no regular file"));
    }
    let mut text = String::new();
    let file = std::fs::File::from(file).take(MAX_WORKSPACE_RULES_BYTES + 1);
    std::io::BufReader::new(file).read_to_string(&mut text).map_err(|error| fail(&error))?;
    if text.len() as u64 > MAX_WORKSPACE_RULES_BYTES {
        return Err(fail(&format_args!("it is larger than {MAX_WORKSPACE_RULES_BYTES} bytes")));
    }
    workspace::narrow(&text, persona).map(Some).map_err(|why| fail(&why))
}

fn digest(rules: &Rules) -> Outcome<String> {
    let text =
        serde_json::to_string(&(&*rules.persona, rules.workspace.as_deref())).map_err(Failure::internal)?;
    Ok(chain::link("policy", &text))
}

impl Session {
    /// Its rules as they are now.
    pub fn rules(&self) -> Rules {
        self.rules.borrow().clone()
    }

    /// Tells rules apart: equal for equal rules.
    pub fn policy_digest(&self) -> Outcome<String> {
        digest(&self.rules.borrow())
    }

    /// What the workspace's file says without effect, a line each.
    pub fn notes(&self) -> Vec<String> {
        self.notes.borrow().clone()
    }

    /// Takes the rules of its persona and of its workspace as they are now.
    pub(crate) fn adopt(&self, controller: &Controller, persona: Rc<Policy>) -> Outcome<()> {
        let narrowing = read(&self.workspace, &persona)?;
        let (workspace, notes) = match narrowing {
            Some(Narrowing { policy, notes }) => (Some(Rc::new(policy)), notes),
            None => (None, Vec::new()),
        };
        let notes: Vec<_> = notes.iter().map(|note| controller.redactor.text(note)).collect();
        let count = |policy: &Policy| policy.rules.len();
        let mut record = Record::new(Event::PolicyAdopted).of_session(&self.id).because(format!(
            "{} rules of persona {}, {} of the workspace",
            count(&persona),
            self.persona.name,
            workspace.as_deref().map_or(0, count)
        ));
        record.notes.clone_from(&notes);
        let rules = Rules { persona, workspace };
        record.policy = Some(digest(&rules)?);
        controller.note(&record);
        self.rules.replace(rules);
        self.notes.replace(notes);
        Ok(())
    }

    /// As [`Self::adopt`], where a mistake leaves everything as it is, and is told.
    pub(crate) fn adopt_or_keep(&self, controller: &Controller, persona: Rc<Policy>) {
        let before = self.notes();
        if let Err(failure) = self.adopt(controller, persona) {
            let why = controller.redactor.text(&failure.message);
            tracing::warn!(session = self.id, "the rules stay as they were: {why}");
            controller.note(&Record::new(Event::PolicyKept).of_session(&self.id).because(why));
        }
        for note in self.notes().iter().filter(|note| !before.contains(note)) {
            tracing::warn!(session = self.id, "{note}");
        }
    }

    /// Follows the workspace's file for as long as the session lives.
    pub(crate) fn follow_rules(self: &Rc<Self>, controller: &Rc<Controller>) {
        let queue = Rc::new(Queue::of_writes());
        let watch = match controller.changes.watch(&self.workspace.path, &queue) {
            Ok(watch) => watch,
            Err(error) => {
                return tracing::warn!(session = self.id, %error, "{FILE} is not followed");
            }
        };
        let (session, controller) = (Rc::clone(self), Rc::clone(controller));
        tokio::task::spawn_local(async move {
            loop {
                tokio::select! {
                    _ = session.until_ended() => break,
                    () = queue.changed() => {}
                }
                let looked = Instant::now();
                let (changes, lost) = queue.take();
                if lost || changes.iter().any(|(_, name)| Path::new(name) == Path::new(FILE)) {
                    let persona = session.rules().persona;
                    session.adopt_or_keep(&controller, persona);
                    // The file may have been made inside, and be written over and over.
                    tokio::select! {
                        _ = session.until_ended() => break,
                        () = sleep_until(looked + WORKSPACE_RULES_INTERVAL) => {}
                    }
                }
            }
            controller.changes.unwatch(watch, &queue);
        });
    }
}
