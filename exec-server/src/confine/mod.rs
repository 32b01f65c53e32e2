//! The client's own sandbox wishes (SPEC 10): what they ask for is taken from one command, or from one file operation.
//! They may only narrow, and what cannot be enforced is refused, never ignored.
//!
//! A command restricts itself before it executes: Landlock for files, a system call filter for the network and for what
//! Landlock does not know. A file operation runs on a thread of its own that does the same and ends with it. Where Landlock
//! cannot say what the wish says, a [`broker`] stands in: see [`ruleset`].
//!
//! What a wish does not do here: names, types and sizes of what may not be read can still be seen, its content cannot; what
//! is made after the start is not measured against patterns. What it does too much: named pipes that a command makes
//! directly beside protected names cannot be opened, nor sockets bound there; programs that it makes beside names that may
//! not be read cannot be executed before the next command; extended attributes cannot be set.

mod broker;
mod filter;
mod glob;
mod mounts;
pub(crate) mod operation;
mod places;
mod policy;
mod ruleset;
mod sys;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use legion_protocol::ErrorObject;
use legion_protocol::process::Start;
use legion_protocol::sandbox::{FileSystem, NetworkPermission, Permissions, Sandbox};
use libc::sock_filter;
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use tokio::sync::Semaphore;

use crate::error::Outcome;
use crate::limits::MAX_BROKERS;
use crate::sys::Spawn;
use broker::Rules;
use filter::{Opens, Scope};
use places::Places;
use policy::{Policy, Reach};

/// What is to be taken from one command or operation; never nothing.
#[derive(Debug)]
pub(crate) struct Wish {
    /// Files are restricted to this.
    files: Option<Policy>,
    /// No network.
    network: bool,
}

impl Wish {
    /// The wish of a sandbox object; `None` when it asks for nothing beyond this server's surroundings. `cwd` is what it
    /// is relative to if it does not say so itself, `tmpdir` the session's `TMPDIR`.
    ///
    /// # Errors
    /// -32602 for what means nothing here; -32600 for what cannot be resolved.
    pub(crate) fn of(sandbox: &Sandbox, cwd: Option<&Path>, tmpdir: Option<&Path>) -> Outcome<Option<Self>> {
        let (file_system, network) = match &sandbox.permissions {
            Permissions::Disabled => return Ok(None),
            Permissions::External { network } => (None, *network),
            Permissions::Managed { file_system, network } => (Some(file_system), *network),
        };
        let files = match file_system {
            None | Some(FileSystem::Unrestricted) => None,
            Some(FileSystem::Restricted { entries }) => {
                let mut policy = Places::of(sandbox, cwd, tmpdir).policy(entries)?;
                add_shared_memory(&mut policy);
                Some(policy)
            }
        };
        let wish = Self { files, network: network == NetworkPermission::Restricted };
        Ok((wish.files.is_some() || wish.network).then_some(wish))
    }

    /// Makes what the kernel takes. It looks at the file system, so it is made on a thread.
    ///
    /// # Errors
    /// See [`ruleset::compile`].
    pub(crate) fn prepare(self) -> Outcome<Prepared> {
        let Some(policy) = self.files else {
            let filter = filter::program(Scope { files: None, network: self.network });
            return Ok(Prepared { ruleset: None, rules: None, filter });
        };
        let compiled = ruleset::compile(&policy, Reach::Write)?;
        // Where something may not be read, Landlock grants the names around it one by one, and new ones not at all.
        let opens =
            if policy.narrows_below(Path::new("/"), Reach::Read) { Opens::All } else { Opens::Writing };
        let filter = filter::program(Scope { files: Some(opens), network: self.network });
        let rules = Arc::new(Rules { policy, grants: compiled.grants });
        Ok(Prepared { ruleset: compiled.ruleset.into(), rules: Some(rules), filter })
    }
}

/// Whether a sandbox object asks for something of a file operation: none of them uses the network.
pub(crate) fn restricts_files(sandbox: &Sandbox) -> bool {
    matches!(sandbox.permissions, Permissions::Managed { file_system: FileSystem::Restricted { .. }, .. })
}

/// The original gives every confined command a `/dev` of its own, with shared memory that ends with it. Here it is that
/// of the session, in memory as well; without it semaphores do not work, and so much of Python does not.
fn add_shared_memory(policy: &mut Policy) {
    let path = Path::new("/dev/shm");
    let named = policy.rules().any(|(rule, _)| rule == path);
    if !named && policy.reach(path) == Reach::Read {
        policy.add(path.to_owned(), Reach::Write);
    }
}

/// Passes a start without a managed proxy; `enforceManagedNetwork` alone has no effect (SPEC 7.1).
///
/// # Errors
/// -32600: running the command without the proxy it should be confined to would widen.
pub(crate) fn check_proxy(start: &Start) -> Outcome<()> {
    let enforced = start.enforce_managed_network && start.sandbox.is_some();
    if start.network_proxy.is_some() || enforced {
        return Err(ErrorObject::invalid_request(
            "this exec-server has no managed network proxy; send `networkProxy: null` and `enforceManagedNetwork: \
             false`, and choose the network in the persona",
        ));
    }
    Ok(())
}

/// A wish in the form the kernel takes.
pub(crate) struct Prepared {
    ruleset: Option<OwnedFd>,
    rules: Option<Arc<Rules>>,
    filter: Vec<sock_filter>,
}

/// The brokers of this server, counted: each is a thread.
pub(crate) struct Brokers(Arc<Semaphore>);

impl Default for Brokers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_BROKERS)))
    }
}

impl Prepared {
    /// Starts a child under the wish. Returns once it executes the program.
    ///
    /// # Errors
    /// The error number of the step that failed; EAGAIN when there are too many confined commands.
    pub(crate) fn spawn(&self, request: &Spawn<'_>, brokers: &Brokers) -> io::Result<Pid> {
        let place = match &self.rules {
            Some(_) => Some(Arc::clone(&brokers.0).try_acquire_owned().map_err(|_| Errno::AGAIN)?),
            None => None,
        };
        let restriction = sys::Restriction {
            ruleset: self.ruleset.as_ref().map(AsFd::as_fd),
            filter: &self.filter,
            listen: self.rules.is_some(),
        };
        let (pid, listener) = sys::spawn(request, &restriction)?;
        if let (Some(listener), Some(rules), Some(place)) = (listener, &self.rules, place)
            && let Err(error) = broker::start(listener, Arc::clone(rules), place)
        {
            // Without a broker it can write nothing; it is told so at once.
            let _ = kill_process(pid, Signal::KILL);
            return Err(error);
        }
        Ok(pid)
    }
}

#[cfg(test)]
mod tests;
