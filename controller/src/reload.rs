//! The configuration while a controller runs: its rules are taken up at once, by running sessions too; the rest of it is for
//! the next start.
//!
//! Invariant: a configuration that makes no sense changes nothing.

use std::rc::Rc;

use crate::audit::{Event, Record};
use crate::config::Config;
use crate::controller::Controller;
use crate::sandbox::watch::hub::Queue;

impl Controller {
    /// Reads the configuration again and takes its rules.
    pub fn reload(&self) {
        let config = match Config::load(&self.environment, &self.config.overrides) {
            Ok(config) => config,
            Err(failure) => {
                let why = self.redactor.text(&failure.message);
                tracing::warn!("the rules stay as they were: {why}");
                return self.note(&Record::new(Event::PolicyKept).because(why));
            }
        };
        for (name, persona) in config.personas {
            self.policies.borrow_mut().insert(name, persona.policy);
        }
        for session in self.sessions().iter().filter(|session| session.why_ended().is_none()) {
            let policy = self.policies.borrow().get(&session.persona.name).cloned();
            if let Some(policy) = policy {
                session.adopt_or_keep(self, policy);
            }
        }
    }

    /// Reloads whenever the configuration file changes, as long as the controller lives.
    pub(crate) fn follow_config(self: &Rc<Self>) {
        let Some(path) = self.config.path.clone() else { return };
        let queue = Rc::new(Queue::of_writes());
        let mut names = Vec::new();
        // A file that is a link may change in either place.
        for place in [Some(path.clone()), path.canonicalize().ok()].into_iter().flatten() {
            // Where there is no directory, there is no file to follow; SIGHUP still reloads.
            let (Some(directory), Some(name)) = (place.parent(), place.file_name()) else { continue };
            if !directory.is_dir() {
                continue;
            }
            match self.changes.watch(directory, &queue) {
                Ok(_) => names.push(name.to_owned()),
                Err(error) => tracing::warn!(%error, "{} is not followed", place.display()),
            }
        }
        let controller = Rc::downgrade(self);
        tokio::task::spawn_local(async move {
            loop {
                queue.changed().await;
                let Some(controller) = controller.upgrade() else { return };
                let (changes, lost) = queue.take();
                if lost || changes.iter().any(|(_, changed)| names.contains(changed)) {
                    controller.reload();
                }
            }
        });
    }
}
