//! Starting a sandbox and connecting to its exec-server.
//!
//! Invariant: a [`Sandbox`] that exists was recorded before anything ran in it, and has answered a handshake.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use legion_protocol::bootstrap::{Bootstrap, CommandLimits};
use legion_protocol::limits::{MAX_BOOTSTRAP_BYTES, SOCKET_SEND_BUFFER_BYTES};
use legion_protocol::{PathUri, StringMap};
use ring::digest;
use rustix::fs::MemfdFlags;
use rustix::net::sockopt::set_socket_send_buffer_size;
use rustix::pipe::{PipeFlags, pipe_with};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::pipe;
use tokio::time::timeout;
use zeroize::Zeroizing;

use super::argv::{self, Handed, WORKSPACE_IN_STAGE, fd};
use super::bwrap::Bwrap;
use super::cgroup::{Cgroup, Cgroups};
use super::diagnose::{self, Diagnosis};
use super::process::Process;
use super::run_as::RunAs;
use super::seccomp;
use super::spawner::{Job, Spawner};
use super::spec::{Sources, Spec};
use super::stage::Stage;
use super::workspace::Workspace;
use crate::audit::chain::hex;
use crate::audit::record::SandboxFacts;
use crate::config::Limits;
use crate::dirs;
use crate::failure::{Failure, Outcome};
use crate::limits::{MAX_SANDBOX_STATUS_BYTES, SANDBOX_START_TIMEOUT};
use crate::sys;
use crate::upstream::Upstream;

/// What starting sandboxes takes.
pub struct Launcher {
    /// The sandbox program.
    pub bwrap: Bwrap,
    /// The thread that spawns it.
    pub spawner: Spawner,
    /// The directory of the listening sockets; private.
    pub sockets: OwnedFd,
    /// Where cgroups of sandboxes are made, or why there are none.
    pub cgroups: Result<Cgroups, String>,
    /// Sandboxes started so far.
    pub started: Cell<u64>,
}

/// One sandbox to start.
pub struct Order<'a> {
    /// Of the session it is for.
    pub session: &'a str,
    /// What it looks like.
    pub spec: &'a Spec,
    /// What it may write.
    pub workspace: &'a Workspace,
    /// As whom it runs.
    pub run_as: RunAs,
    /// The variables commands inherit, secrets included.
    pub environment: StringMap,
    /// Bounds on commands and on the sandbox.
    pub limits: &'a Limits,
    /// The system call filter's options.
    pub seccomp: seccomp::Options,
}

/// A running sandbox.
pub struct Sandbox {
    /// For the record.
    pub facts: SandboxFacts,
    /// bwrap.
    pub process: Process,
    socket_name: String,
    token: Zeroizing<String>,
    /// Its mount namespace and the user namespace that owns it, taken before the exec-server made itself unreadable.
    pub namespaces: Option<(OwnedFd, OwnedFd)>,
    /// Its cgroup, when there is one.
    pub cgroup: Option<Cgroup>,
    /// bwrap says its exit code here at its end; a closed pipe would kill it instead.
    status_pipe: pipe::Receiver,
}

/// bwrap's command, and our ends of the pipes it gets.
struct Prepared {
    job: Job,
    arguments_sha256: String,
    lifeline: OwnedFd,
    go: OwnedFd,
    status: OwnedFd,
    socket_name: String,
    token: Zeroizing<String>,
}

impl Sandbox {
    /// Kills everything inside and waits until it is gone, bounded.
    pub async fn kill(&self) {
        if let Some(cgroup) = &self.cgroup
            && let Err(error) = cgroup.kill()
        {
            tracing::warn!(%error, "a cgroup cannot be killed as a whole");
        }
        self.process.kill().await;
    }
}

impl Launcher {
    /// Starts a sandbox and waits until its exec-server answers. `admit` records it while it is still blocked.
    ///
    /// # Errors
    /// Exit 69 with the reason when it does not come up.
    pub async fn launch(
        &self,
        order: Order<'_>,
        admit: impl FnOnce(&SandboxFacts) -> io::Result<()>,
    ) -> Outcome<Sandbox> {
        let failed =
            |error: io::Error| Failure::unavailable(format_args!("cannot start the sandbox: {error}"));
        let run_as = order.run_as;
        // The predecessor of a sandbox may not be gone yet: what is done to one must not be done to the other.
        let number = self.started.get() + 1;
        self.started.set(number);
        let name = format!("{}-{number}", order.session);
        let cgroup = self.cgroup(&name, order.limits);
        let prepared = self.prepare(&name, order, cgroup.as_ref())?;
        let Prepared { job, arguments_sha256, lifeline, go, status, socket_name, token } = prepared;
        let child = self.spawner.spawn(job).await.map_err(failed)?;
        let process = Process::watch_over(child, lifeline).map_err(failed)?;
        let facts = SandboxFacts {
            bwrap: self.bwrap.version.clone(),
            arguments_sha256,
            pid: process.pid,
            uid: run_as.uid(),
            limits_by: self.limits_by(cgroup.as_ref()),
            ..SandboxFacts::default()
        };
        rustix::io::ioctl_fionbio(&status, true).map_err(|error| failed(error.into()))?;
        let status = pipe::Receiver::from_owned_fd(status).map_err(failed)?;
        let mut sandbox =
            Sandbox { facts, process, socket_name, token, namespaces: None, cgroup, status_pipe: status };
        match self.bring_up(&mut sandbox, go, admit).await {
            Ok(()) => Ok(sandbox),
            Err(why) => {
                sandbox.kill().await;
                self.forget(&sandbox);
                let said = sandbox.process.ended().await;
                Err(Failure::unavailable(match diagnose::diagnose(run_as.drop_to()) {
                    Some(Diagnosis { reason, fix }) => format!("the sandbox cannot start: {reason}; {fix}"),
                    // bwrap's own words are shown, never interpreted.
                    None => format!("the sandbox did not start: {why}; {said}; see legion-controller doctor"),
                }))
            }
        }
    }

    /// A cgroup for a sandbox; without one, limits of single processes take its place.
    fn cgroup(&self, name: &str, limits: &Limits) -> Option<Cgroup> {
        let cgroups = self.cgroups.as_ref().ok()?;
        let made = cgroups.create(name, limits.memory(), limits.pids);
        made.inspect_err(|error| tracing::warn!(%error, "a cgroup cannot be made")).ok()
    }

    /// What bounds a sandbox, as its record says it.
    fn limits_by(&self, cgroup: Option<&Cgroup>) -> String {
        match (&self.cgroups, cgroup) {
            (Ok(cgroups), Some(_)) => format!("cgroup: {}; rlimits", cgroups.controllers.join(", ")),
            (Err(why), _) => format!("rlimits ({why})"),
            (Ok(_), None) => "rlimits (no cgroup could be made)".to_owned(),
        }
    }

    /// `name` is this sandbox's alone.
    fn prepare(&self, name: &str, order: Order<'_>, cgroup: Option<&Cgroup>) -> Outcome<Prepared> {
        let failed =
            |error: io::Error| Failure::unavailable(format_args!("cannot prepare the sandbox: {error}"));
        let Order { session: _, spec, workspace, run_as, environment, limits, seccomp } = order;
        let argv = argv::build(spec);
        let arguments = argv.nul_separated();
        let token = inner_token().map_err(failed)?;
        let memory_by_cgroup =
            cgroup.is_some() && self.cgroups.as_ref().is_ok_and(|all| all.controllers.contains(&"memory"));
        let bootstrap = bootstrap(spec, &token, environment, limits.for_commands(memory_by_cgroup))?;
        let socket_name = format!("{name}.sock");
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| failed(error.into()));
        let (lifeline_inside, lifeline) = pipe()?;
        let (block, go) = pipe()?;
        let (status, status_inside) = pipe()?;
        let mut fds = vec![
            (memory_file("args", &arguments).map_err(failed)?, fd::ARGS),
            (self.listen(&socket_name).map_err(failed)?, fd::LISTENER),
            (lifeline_inside, fd::LIFELINE),
            (memory_file("bootstrap", &bootstrap).map_err(failed)?, fd::BOOTSTRAP),
            (block, fd::BLOCK),
            (status_inside, fd::STATUS),
        ];
        for (program, number) in seccomp::programs(seccomp)?.iter().zip(fd::SECCOMP) {
            fds.push((memory_file("seccomp", program).map_err(failed)?, number));
        }
        let mut stage = Stage::for_user(run_as)?;
        if let Some(stage) = &mut stage {
            stage
                .add(workspace.dir.as_fd(), WORKSPACE_IN_STAGE, true)
                .map_err(|error| stage.failure(&workspace.path, &error))?;
        } else if spec.sources == Sources::Descriptors {
            let places = fd::WORKSPACE.into_iter().take(spec.workspace_mounts().count());
            for number in places.chain([fd::SOURCE]) {
                fds.push((workspace.dir.try_clone().map_err(failed)?, number));
            }
        }
        for (handed, number) in argv.handed.iter().zip(fd::DATA..) {
            let fd = match handed {
                Handed::Content(content) => memory_file("file", content).map_err(failed)?,
                Handed::Path { path, writable } => {
                    let fd = open_path(path)?;
                    if let Some(stage) = &mut stage {
                        let added = stage.add(fd.as_fd(), &number.to_string(), *writable);
                        added.map_err(|error| stage.failure(path, &error))?;
                    }
                    fd
                }
            };
            fds.push((fd, number));
        }
        let mut line = vec!["--args".to_owned(), fd::ARGS.to_string()];
        line.extend(argv.command);
        let job = Job { program: self.bwrap.path.clone(), args: line, fds, run_as, stage };
        let arguments_sha256 = hex(digest::digest(&digest::SHA256, &arguments).as_ref());
        Ok(Prepared { job, arguments_sha256, lifeline, go, status, socket_name, token })
    }

    /// A listening socket whose path exists only outside.
    fn listen(&self, name: &str) -> io::Result<OwnedFd> {
        let _ = rustix::fs::unlinkat(&self.sockets, name, rustix::fs::AtFlags::empty());
        let listener = std::os::unix::net::UnixListener::bind(dirs::socket_path(&self.sockets, name))?;
        Ok(listener.into())
    }

    /// From the spawned bwrap to an exec-server that answers.
    async fn bring_up(
        &self,
        sandbox: &mut Sandbox,
        go: OwnedFd,
        admit: impl FnOnce(&SandboxFacts) -> io::Result<()>,
    ) -> Result<(), String> {
        let late = |_| format!("it did not answer within {} s", SANDBOX_START_TIMEOUT.as_secs());
        let Sandbox { process, status_pipe: status, .. } = &mut *sandbox;
        let status = tokio::select! {
            status = timeout(SANDBOX_START_TIMEOUT, read_status(status)) => status.map_err(late)?,
            _ = process.ended() => return Err("it ended at once".to_owned()),
        };
        let status = status.map_err(|error| format!("its status cannot be read: {error}"))?;
        sandbox.facts.inner_pid = status.get("child-pid").copied();
        sandbox.namespaces = sandbox.facts.inner_pid.and_then(|pid| namespaces_of(pid).ok());
        let namespaces = status.into_iter().filter(|(name, _)| name.ends_with("-namespace"));
        sandbox.facts.namespaces = namespaces.collect();
        if let (Some(cgroup), Some(pid)) = (&sandbox.cgroup, sandbox.facts.inner_pid) {
            cgroup.add(pid).map_err(|error| format!("it cannot be put into its cgroup: {error}"))?;
        }
        admit(&sandbox.facts).map_err(|error| format!("it cannot be recorded: {error}"))?;
        rustix::io::write(&go, b"1").map_err(|error| format!("it left: {error}"))?;
        drop(go);
        tokio::select! {
            answer = timeout(SANDBOX_START_TIMEOUT, self.connect(sandbox)) => {
                answer.map_err(late)?.map(drop).map_err(|error| error.to_string())
            }
            _ = sandbox.process.ended() => Err("it ended at once".to_owned()),
        }
    }

    /// A new connection to the exec-server of a running sandbox.
    pub async fn connect(&self, sandbox: &Sandbox) -> io::Result<Upstream> {
        let stream = UnixStream::connect(dirs::socket_path(&self.sockets, &sandbox.socket_name)).await?;
        set_socket_send_buffer_size(&stream, SOCKET_SEND_BUFFER_BYTES)?;
        Upstream::connect(stream, &sandbox.token).await
    }

    /// Removes the socket of a sandbox that has ended.
    pub fn forget(&self, sandbox: &Sandbox) {
        let name = sandbox.socket_name.as_str();
        let _ = rustix::fs::unlinkat(&self.sockets, name, rustix::fs::AtFlags::empty());
    }
}

/// The first object bwrap writes: process id and namespaces of what it has made.
async fn read_status(pipe: &mut pipe::Receiver) -> io::Result<BTreeMap<String, u64>> {
    let mut pipe = BufReader::new(pipe).take(MAX_SANDBOX_STATUS_BYTES as u64);
    let mut line = String::new();
    pipe.read_line(&mut line).await?;
    if line.is_empty() {
        return Err(io::Error::other("bwrap ended before there was any"));
    }
    Ok(serde_json::from_str(&line)?)
}

fn namespaces_of(pid: u64) -> io::Result<(OwnedFd, OwnedFd)> {
    let mounts = OwnedFd::from(File::open(format!("/proc/{pid}/ns/mnt"))?);
    let owner = sys::owner_of(&mounts)?;
    Ok((mounts, owner))
}

fn inner_token() -> io::Result<Zeroizing<String>> {
    let mut bytes = Zeroizing::new([0u8; 32]);
    fill_random(&mut *bytes)?;
    Ok(Zeroizing::new(hex(&*bytes)))
}

/// Random bytes of the operating system.
pub fn fill_random(bytes: &mut [u8]) -> io::Result<()> {
    use ring::rand::SecureRandom;
    ring::rand::SystemRandom::new()
        .fill(bytes)
        .map_err(|_| io::Error::other("the system gives no random bytes"))
}

fn bootstrap(
    spec: &Spec,
    token: &str,
    mut environment: StringMap,
    limits: CommandLimits,
) -> Outcome<Zeroizing<Vec<u8>>> {
    for (name, value) in argv::base_variables(spec) {
        environment.0.entry(name.to_owned()).or_insert(value);
    }
    let uri = |path: &Path| {
        PathUri::from_path(path)
            .ok_or_else(|| Failure::internal(format_args!("the path {} is not absolute", path.display())))
    };
    let bootstrap = Bootstrap {
        token_sha256: hex(digest::digest(&digest::SHA256, token.as_bytes()).as_ref()),
        env: environment,
        cwd: uri(spec.cwd())?,
        home: uri(spec.home())?,
        temp_dir: uri(Path::new("/tmp"))?,
        shell: None,
        limits,
    };
    let json = Zeroizing::new(serde_json::to_vec(&bootstrap).map_err(Failure::internal)?);
    if json.len() > MAX_BOOTSTRAP_BYTES {
        return Err(Failure::config(format_args!(
            "the environment of the session takes {} bytes; {MAX_BOOTSTRAP_BYTES} are allowed: set or inherit less",
            json.len()
        )));
    }
    Ok(json)
}

fn open_path(path: &Path) -> Outcome<OwnedFd> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty())
        .map_err(|error| Failure::config(format_args!("cannot mount {}: {error}", path.display())))
}

/// A file without a name that holds `content`, at its beginning.
fn memory_file(name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}
