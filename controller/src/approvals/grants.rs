//! What was approved for more than one call.
//!
//! Invariant: an approval for good is in the user's state directory before it counts, and nowhere in a workspace.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;

use jiff::Timestamp;
use rustix::fs::{FlockOperation, Mode, OFlags};
use serde::{Deserialize, Serialize};

use super::{Question, Scope};
use crate::dirs;
use crate::failure::{Failure, Outcome};
use crate::limits::{MAX_APPROVALS_BYTES, MAX_SAVED_APPROVALS, MAX_SESSION_GRANTS};

/// The file in the state directory.
const FILE: &str = "approvals.json";

/// An approval for good.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Saved {
    workspace: String,
    digest: String,
    persona: String,
    #[serde(default)]
    rule: Option<String>,
    /// For people.
    call: String,
    approved: Timestamp,
}

/// See the module.
pub(super) struct Grants {
    /// By session and digest.
    sessions: RefCell<HashMap<(String, String), Scope>>,
    state: PathBuf,
    uid: u32,
}

impl Grants {
    pub(super) fn new(state: PathBuf, uid: u32) -> Self {
        Self { sessions: RefCell::default(), state, uid }
    }

    /// Remembers an answer.
    pub(super) fn add(&self, question: &Question, scope: Scope) -> Outcome<()> {
        if scope == Scope::Workspace {
            self.save(question)?;
        }
        let mut sessions = self.sessions.borrow_mut();
        if sessions.len() >= MAX_SESSION_GRANTS {
            return Err(Failure::unavailable(format_args!(
                "more than {MAX_SESSION_GRANTS} approvals are remembered: end some sessions"
            )));
        }
        sessions.insert((question.session.clone(), question.digest.clone()), scope);
        Ok(())
    }

    pub(super) fn take(&self, session: &str, workspace: &str, digest: &str) -> Option<Scope> {
        let key = (session.to_owned(), digest.to_owned());
        let mut sessions = self.sessions.borrow_mut();
        let granted = sessions.get(&key).copied();
        match granted {
            Some(Scope::Once | Scope::Times { count: 0 | 1 }) => {
                sessions.remove(&key);
            }
            Some(Scope::Times { count }) => {
                sessions.insert(key, Scope::Times { count: count - 1 });
            }
            Some(Scope::Until { time }) if time <= Timestamp::now() => {
                sessions.remove(&key);
                return None;
            }
            Some(Scope::Session | Scope::Until { .. } | Scope::Workspace) => {}
            None => {
                let is_this = |saved: &Saved| saved.workspace == workspace && saved.digest == digest;
                return match self.saved() {
                    Ok(saved) => saved.iter().any(is_this).then_some(Scope::Workspace),
                    Err(failure) => {
                        tracing::error!("saved approvals do not count: {}", failure.message);
                        None
                    }
                };
            }
        }
        granted
    }

    pub(super) fn settle(&self, session: &str, digest: &str) {
        let key = (session.to_owned(), digest.to_owned());
        let mut sessions = self.sessions.borrow_mut();
        if sessions.get(&key) == Some(&Scope::Once) {
            sessions.remove(&key);
        }
    }

    pub(super) fn forget(&self, session: &str) {
        self.sessions.borrow_mut().retain(|(known, _), _| known != session);
    }

    fn failed(&self, why: impl std::fmt::Display) -> Failure {
        Failure::unavailable(format_args!("cannot use {}: {why}", self.state.join(FILE).display()))
    }

    fn saved(&self) -> Outcome<Vec<Saved>> {
        let path = self.state.join(FILE);
        let length = match std::fs::symlink_metadata(&path) {
            Ok(meta) => meta.len(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed(error)),
        };
        if length > MAX_APPROVALS_BYTES {
            return Err(self.failed(format_args!("it is larger than {MAX_APPROVALS_BYTES} bytes")));
        }
        let text = std::fs::read_to_string(&path).map_err(|error| self.failed(error))?;
        serde_json::from_str(&text).map_err(|error| self.failed(error))
    }

    /// Several controllers share the file: it is read, changed and replaced under a lock.
    fn save(&self, question: &Question) -> Outcome<()> {
        let dir = dirs::open_private(&self.state, self.uid)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&dir, "approvals.lock", flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| self.failed(error))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|error| self.failed(error))?;
        let mut saved = self.saved()?;
        let is_this =
            |saved: &Saved| saved.workspace == question.workspace && saved.digest == question.digest;
        if saved.iter().any(is_this) {
            return Ok(());
        }
        if saved.len() >= MAX_SAVED_APPROVALS {
            return Err(self.failed(format_args!("it holds {MAX_SAVED_APPROVALS} approvals: remove some")));
        }
        saved.push(Saved {
            workspace: question.workspace.clone(),
            digest: question.digest.clone(),
            persona: question.persona.clone(),
            rule: question.rule.clone(),
            call: question.call.clone(),
            approved: Timestamp::now(),
        });
        let text = serde_json::to_string_pretty(&saved).map_err(Failure::internal)?;
        dirs::write_private(&dir, FILE, text.as_bytes()).map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn question(digest: &str) -> Question {
        Question {
            id: "s-1".into(),
            session: "s".into(),
            persona: "default".into(),
            workspace: "/w".into(),
            method: "process/start".into(),
            call: "git push".into(),
            cwd: None,
            rule: None,
            why: "asked".into(),
            digest: digest.into(),
            asked: Timestamp::now(),
            expires: Timestamp::now(),
        }
    }

    #[test]
    fn approvals_last_as_long_as_was_said() {
        let base = tempfile::tempdir().unwrap();
        let state = base.path().join("state");
        let grants = Grants::new(state.clone(), rustix::process::geteuid().as_raw());
        let later = Timestamp::now() + Duration::from_mins(1);
        let count = |digest: &str| (0..5).filter(|_| grants.take("s", "/w", digest).is_some()).count();
        for (digest, scope, uses) in [
            ("once", Scope::Once, 1),
            ("times", Scope::Times { count: 3 }, 3),
            ("session", Scope::Session, 5),
            ("later", Scope::Until { time: later }, 5),
            ("past", Scope::Until { time: Timestamp::UNIX_EPOCH }, 0),
            ("good", Scope::Workspace, 5),
        ] {
            grants.add(&question(digest), scope).unwrap();
            assert_eq!(grants.take("other", "/other", digest), None, "{digest}");
            assert_eq!(count(digest), uses, "{digest}");
        }
        grants.forget("s");
        assert_eq!(count("session"), 0);
        let another = Grants::new(state, rustix::process::geteuid().as_raw());
        assert_eq!(another.take("new", "/w", "good"), Some(Scope::Workspace));
        assert_eq!(another.take("new", "/w2", "good"), None);
    }
}
