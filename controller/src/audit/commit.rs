//! The thread that makes records durable: all of a commit window with one `fdatasync`.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

use super::anchor::Anchor;
use crate::limits::AUDIT_COMMIT_WINDOW;

/// The running thread.
pub struct Committer {
    wake: Option<SyncSender<()>>,
    state: Arc<State>,
    thread: Option<std::thread::JoinHandle<()>>,
}

struct State {
    /// A commit that covers everything written until now is on its way.
    due: AtomicBool,
    failed: AtomicBool,
    file: Mutex<Arc<File>>,
    anchor: Anchor,
}

impl Committer {
    /// Starts it for this file.
    pub fn start(file: Arc<File>, anchor: Anchor) -> io::Result<Self> {
        let (wake, woken) = sync_channel(1);
        let state = Arc::new(State {
            due: AtomicBool::default(),
            failed: AtomicBool::default(),
            file: Mutex::new(file),
            anchor,
        });
        let shared = Arc::clone(&state);
        let thread = std::thread::Builder::new()
            .name("audit-commit".into())
            .spawn(move || commit_loop(&woken, &shared))?;
        Ok(Self { wake: Some(wake), state, thread: Some(thread) })
    }

    /// Asks for a commit; costs a system call only when none is due.
    pub fn wake(&self) {
        if !self.state.due.swap(true, Ordering::AcqRel) {
            // A full channel already holds the wake-up this record needs.
            let _ = self.wake.as_ref().map(|wake| wake.try_send(()));
        }
    }

    /// Commits what the file holds now, before it returns.
    pub fn commit_now(&self, file: &File) -> io::Result<()> {
        file.sync_data().inspect_err(|_| self.state.failed.store(true, Ordering::Relaxed))
    }

    /// From now on it is this file. What the one before holds is durable already.
    pub fn follow(&self, file: Arc<File>) {
        *self.state.file.lock().unwrap_or_else(PoisonError::into_inner) = file;
    }

    /// Whether something written could not be made durable; nothing can be trusted from then on.
    pub fn failed(&self) -> bool {
        self.state.failed.load(Ordering::Relaxed)
    }
}

fn commit_loop(woken: &Receiver<()>, state: &State) {
    while woken.recv().is_ok() {
        // Let the window fill; the end of the program cuts it short.
        let closing = matches!(woken.recv_timeout(AUDIT_COMMIT_WINDOW), Err(RecvTimeoutError::Disconnected));
        // What is written from here on needs a commit of its own.
        state.due.store(false, Ordering::Release);
        let file = Arc::clone(&state.file.lock().unwrap_or_else(PoisonError::into_inner));
        // The records first: a head that is behind says less than one that is ahead.
        if let Err(error) = file.sync_data().and_then(|()| state.anchor.sync()) {
            tracing::error!(%error, "the audit log cannot be made durable; new calls are refused");
            state.failed.store(true, Ordering::Relaxed);
        }
        if closing {
            return;
        }
    }
}

impl Drop for Committer {
    /// Everything written is durable before the program ends.
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
