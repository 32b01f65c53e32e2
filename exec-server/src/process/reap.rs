//! Reaping: one `waitpid(-1)` loop for children and, as pid 1, for everybody's orphans.
//!
//! Invariant: a child is registered in the same turn of the event loop in which it was spawned, so the loop can never
//! meet a child it does not know yet.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::rc::Rc;

use rustix::process::{Pid, WaitOptions, wait};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Children whose end somebody waits for.
#[derive(Debug, Default)]
pub(crate) struct Reaper {
    waiting: RefCell<HashMap<Pid, oneshot::Sender<ExitStatus>>>,
}

impl Reaper {
    /// Registers a child; call it before the next `await` after the spawn.
    pub(crate) fn register(&self, pid: Pid) -> oneshot::Receiver<ExitStatus> {
        let (sender, receiver) = oneshot::channel();
        self.waiting.borrow_mut().insert(pid, sender);
        receiver
    }

    /// Starts to listen for SIGCHLD; the returned future runs for ever.
    ///
    /// # Errors
    /// The signal handler could not be installed.
    pub(crate) fn start(self: Rc<Self>) -> io::Result<impl Future<Output = ()>> {
        let children = signal(SignalKind::child())?;
        Ok(self.run(children))
    }

    async fn run(self: Rc<Self>, mut children: Signal) {
        // Once before the first signal: a child may have ended before the handler was there.
        loop {
            self.reap();
            if children.recv().await.is_none() {
                return;
            }
        }
    }

    /// Takes every ended child. One signal may stand for many.
    fn reap(&self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            // An unknown pid is an orphan that fell to pid 1; a receiver that is gone no longer wants to know.
            if let Some(sender) = self.waiting.borrow_mut().remove(&pid) {
                let _ = sender.send(ExitStatus::from_raw(status.as_raw()));
            }
        }
    }
}

/// The exit code as the protocol states it: 128+N for a signal, but 1 with a terminal (SPEC 7.3).
pub(crate) fn exit_code(status: ExitStatus, terminal: bool) -> i32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, Some(_)) if terminal => 1,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_reported_as_the_original_does() {
        let exited = |code: i32| ExitStatus::from_raw(code << 8);
        let killed = |signal: i32| ExitStatus::from_raw(signal);
        for (status, piped, terminal) in [
            (exited(0), 0, 0),
            (exited(42), 42, 42),
            (exited(255), 255, 255),
            (killed(9), 137, 1),
            (killed(15), 143, 1),
        ] {
            assert_eq!((exit_code(status, false), exit_code(status, true)), (piped, terminal));
        }
    }
}
