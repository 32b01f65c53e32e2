//! The output of a session's processes on its way to their clients, kept over the end of a connection: who comes back goes
//! on in the middle of it.

use std::cell::RefCell;
use std::collections::HashMap;

use super::{ProcessKey, RunningCommand};
use crate::limits::MAX_TAPES;
use crate::redaction::tape::Tape;

/// A state for each process whose output is looked through.
#[derive(Default)]
pub struct Tapes(RefCell<HashMap<ProcessKey, Tape>>);

impl Tapes {
    /// Does something with the one of a process, which may be new.
    pub fn with<T>(
        &self,
        key: &ProcessKey,
        running: &RefCell<HashMap<ProcessKey, RunningCommand>>,
        act: impl FnOnce(&mut Tape) -> T,
    ) -> T {
        let mut tapes = self.0.borrow_mut();
        if tapes.len() >= MAX_TAPES && !tapes.contains_key(key) {
            let running = running.borrow();
            tapes.retain(|key, _| running.contains_key(key));
        }
        act(tapes.entry(key.clone()).or_default())
    }

    /// Does something with the one of a process, if there is one.
    pub fn find<T>(&self, key: &ProcessKey, act: impl FnOnce(&mut Tape) -> T) -> Option<T> {
        self.0.borrow_mut().get_mut(key).map(act)
    }

    /// A new process has this name.
    pub fn remove(&self, key: &ProcessKey) {
        self.0.borrow_mut().remove(key);
    }

    /// The processes of a client whose output waits for more.
    pub fn waiting(&self, client: &str) -> Vec<String> {
        let tapes = self.0.borrow();
        let waiting = tapes.iter().filter(|(key, tape)| *key.client == *client && tape.is_waiting());
        waiting.map(|(key, _)| key.id.clone()).collect()
    }
}
