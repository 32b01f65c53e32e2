//! What must hold when something breaks: connections cut anywhere, clients that die or stop reading, an exec-server that
//! is killed.
//!
//! Invariant: where chance decides, a seed decides what chance does, and a failure names it.

mod crowd;
mod cuts;
mod fuzz;
mod killed;
mod resuming;
mod silent_reader;
mod waiting_reads;

use legion_tests::audit::Audit;
use legion_tests::scratch::Scratch;

/// The exec-server's process id on the host, of the sandbox started last.
pub(crate) fn exec_server(scratch: &Scratch) -> u32 {
    let audit = Audit::read(scratch);
    let started = audit.events("sandboxStarted").last().expect("it was recorded");
    started["sandbox"]["innerPid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).expect("a process id")
}
