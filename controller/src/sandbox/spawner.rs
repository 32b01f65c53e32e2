//! The thread that spawns bwrap.
//!
//! Invariant: one thread spawns all sandboxes and lives as long as the controller. `--die-with-parent` follows the
//! *thread* that forked: from a thread of a pool, a sandbox would die when the pool retires that thread.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};

use command_fds::{CommandFdExt, FdMapping};
use rustix::process::{Resource, Rlimit, setrlimit};
use tokio::sync::oneshot;

use super::run_as::RunAs;
use super::stage::Stage;
use crate::failure::{Failure, Outcome};

/// One bwrap to start: its arguments come by descriptor.
pub struct Job {
    /// bwrap.
    pub program: PathBuf,
    /// The only arguments on its command line.
    pub args: Vec<String>,
    /// Descriptors and the numbers they get.
    pub fds: Vec<(OwnedFd, i32)>,
    /// The user it runs as.
    pub run_as: RunAs,
    /// What is mounted for that user beforehand, when the controller is root.
    pub stage: Option<Stage>,
}

type Request = (Job, oneshot::Sender<std::io::Result<Child>>);

/// A handle of the thread, which ends when the last handle is dropped.
#[derive(Clone)]
pub struct Spawner(Sender<Request>);

impl Spawner {
    /// Starts the thread.
    pub fn start() -> Outcome<Self> {
        forbid_core_dumps()?;
        let (sender, receiver) = channel::<Request>();
        std::thread::Builder::new()
            .name("sandbox-spawner".into())
            .spawn(move || {
                for (job, reply) in receiver {
                    // Nobody waits any more only when the session ended meanwhile: the sandbox's lifeline is closed then.
                    let _ = reply.send(spawn(job));
                }
            })
            .map_err(|error| Failure::internal(format_args!("cannot start the spawner thread: {error}")))?;
        Ok(Self(sender))
    }

    /// Starts one bwrap with an empty environment, no stdin, and its stderr as a pipe.
    pub async fn spawn(&self, job: Job) -> std::io::Result<Child> {
        let gone = || std::io::Error::other("the spawner thread is gone");
        let (reply, answer) = oneshot::channel();
        self.0.send((job, reply)).map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// Neither we nor anything in a sandbox dumps core: we hold the secrets, and a dump may be handed to a program that runs
/// as root outside. The limit is inherited and cannot be raised.
fn forbid_core_dumps() -> Outcome<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none)
        .map_err(|error| Failure::internal(format_args!("core dumps cannot be forbidden: {error}")))
}

fn spawn(job: Job) -> std::io::Result<Child> {
    let mut command = Command::new(job.program);
    command.args(job.args).env_clear().current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // The keys that send signals are for us: we pass them on to the command, whose sandbox must not die of them first.
    command.process_group(0);
    if let (Some(stage), Some((uid, gid))) = (job.stage, job.run_as.drop_to()) {
        stage.prepare(&mut command, uid, gid);
    }
    let mappings = job.fds.into_iter().map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd });
    command.fd_mappings(mappings.collect()).map_err(|error| std::io::Error::other(error.to_string()))?;
    command.spawn()
}
