//! Starting and stopping the servers under test.
//!
//! Invariant: a server has an environment and directories of its own, made here; nothing of the caller's environment
//! or home reaches it. One server is shared by all cases of a target and profile, and every one is stopped at the end.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::case::{Profile, Target};
use crate::user::{self, User};
use crate::wire::Incoming;

/// How long a server may take to print its URL, or to end after a signal.
pub(crate) const SERVER_TIMEOUT: Duration = Duration::from_secs(20);
/// Lines of a server's stdout read ahead of whoever waits for them.
const READ_AHEAD: usize = 64;

/// Credentials of the profiles with authentication; the token file has white space around its token.
pub(crate) const FILE_TOKEN: &str = "conformance-file-token-0123456789abcdef";
pub(crate) const DIGEST_TOKEN: &str = "conformance-digest-token-0123456789abcdef";
pub(crate) const JWT_SECRET: &str = "conformance-shared-secret-0123456789abcdef";

/// What is the same for all servers of a run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Directory of this run; everything the suite makes is below it.
    pub(crate) base: PathBuf,
    pub(crate) user: Option<User>,
    /// The server program of each target that is run.
    pub(crate) programs: BTreeMap<Target, PathBuf>,
}

/// The directories of one server.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    root: PathBuf,
}

impl Place {
    fn make(settings: &Settings, name: &str) -> Result<Self, String> {
        let place = Self { root: settings.base.join(name) };
        let secrets = [
            ("token", format!("  {FILE_TOKEN}\n")),
            ("secret", format!("{JWT_SECRET}\n")),
            ("short-secret", "too short".to_owned()),
            ("empty", " \n".to_owned()),
        ];
        for dir in ["", "home", "codex-home", "tmp", "cwd"] {
            let path = place.root.join(dir);
            fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            own(&path, settings.user.as_ref())?;
        }
        for (file, text) in secrets {
            let path = place.root.join(file);
            fs::write(&path, text).map_err(|e| e.to_string())?;
            own(&path, settings.user.as_ref())?;
            let private = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o600);
            fs::set_permissions(&path, private).map_err(|e| e.to_string())?;
        }
        Ok(place)
    }

    pub(crate) fn path(&self, name: &str) -> String {
        self.root.join(name).display().to_string()
    }
}

fn own(path: &Path, user: Option<&User>) -> Result<(), String> {
    match user {
        Some(user) => {
            std::os::unix::fs::chown(path, Some(user.uid), Some(user.gid)).map_err(|e| e.to_string())
        }
        None => Ok(()),
    }
}

/// A command that runs the server of `target` in `place`, without arguments of its own yet.
pub(crate) fn command(settings: &Settings, target: Target, place: &Place) -> Result<Command, String> {
    let program = settings.programs.get(&target).ok_or("this target is not run")?;
    let mut command = Command::new(program);
    if target == Target::Original {
        command.arg("exec-server");
    }
    let name = settings.user.as_ref().map_or_else(user::own_name, |user| user.name.clone());
    command
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", place.path("home"))
        .env("CODEX_HOME", place.path("codex-home"))
        .env("TMPDIR", place.path("tmp"))
        .env("LANG", "C.UTF-8")
        .env("SHELL", "/bin/bash")
        .env("TERM", "xterm")
        .env("USER", &name)
        .env("LOGNAME", &name)
        // For the cases about envPolicy.
        .env("CASE_PLAIN", "plain")
        .env("CASE_TOKEN", "token")
        .env("case_secret_lower", "secret")
        .env("CASE_MONKEY", "monkey")
        .current_dir(place.path("cwd"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    user::drop_to(&mut command, settings.user.as_ref());
    Ok(command)
}

/// The flags of a profile.
fn flags(profile: Profile, target: Target, place: &Place) -> Vec<String> {
    let mut flags = vec!["--listen".to_owned(), "ws://127.0.0.1:0".to_owned()];
    let digest = ring::digest::digest(&ring::digest::SHA256, DIGEST_TOKEN.as_bytes());
    let hex = digest.as_ref().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
    let (token, secret) = (place.path("token"), place.path("secret"));
    let more: Vec<&str> = match (profile, target) {
        (Profile::Concurrent, Target::Original) => vec!["--concurrent-requests", "16"],
        (Profile::TokenFile, _) => vec!["--ws-auth", "capability-token", "--ws-token-file", &token],
        (Profile::TokenSha256, _) => vec!["--ws-auth", "capability-token", "--ws-token-sha256", &hex],
        (Profile::Jwt, _) => vec![
            "--ws-auth",
            "signed-bearer-token",
            "--ws-shared-secret-file",
            &secret,
            "--ws-issuer",
            "conformance-issuer",
            "--ws-audience",
            "conformance-audience",
        ],
        _ => vec![],
    };
    flags.extend(more.into_iter().map(str::to_owned));
    flags
}

/// A listening server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) place: Place,
    child: Mutex<Child>,
    lines: Mutex<Receiver<String>>,
}

impl Server {
    fn start(settings: &Settings, target: Target, profile: Profile, place: Place) -> Result<Self, String> {
        let log = fs::File::create(place.path("stderr")).map_err(|e| e.to_string())?;
        let mut child = command(settings, target, &place)?
            .args(flags(profile, target, &place))
            .stderr(log)
            .spawn()
            .map_err(|e| format!("{}: {e}", target.name()))?;
        let lines = read_lines(child.stdout.take().ok_or("stdout is a pipe")?);
        let line = lines.recv_timeout(SERVER_TIMEOUT);
        let address =
            line.ok().as_deref().and_then(|line| line.strip_prefix("ws://")).and_then(|a| a.parse().ok());
        let Some(address) = address else {
            stop(&mut child, &lines);
            let stderr = fs::read_to_string(place.path("stderr")).unwrap_or_default();
            return Err(format!("{} ({profile:?}) printed no URL; stderr: {stderr}", target.name()));
        };
        Ok(Self { address, place, child: Mutex::new(child), lines: Mutex::new(lines) })
    }

    /// Stops the server; `Err` if it printed anything but its URL, or was gone already.
    pub(crate) fn stop(&self) -> Result<(), String> {
        let (Ok(mut child), Ok(lines)) = (self.child.lock(), self.lines.lock()) else {
            return Err("a case failed while it held the server".into());
        };
        let gone = child.try_wait().ok().flatten();
        stop(&mut child, &lines);
        match (gone, lines.try_recv()) {
            (Some(status), _) => Err(format!("the server ended during the run: {status}")),
            (None, Ok(line)) => Err(format!("the server printed more than its URL (SPEC 1.1): {line}")),
            (None, Err(_)) => Ok(()),
        }
    }
}

/// Ends a child: SIGTERM, then after the time-out SIGKILL.
fn stop(child: &mut Child, lines: &Receiver<String>) {
    // Either may find the process gone already.
    let _gone = signal(child, Signal::TERM);
    if end_of(lines, SERVER_TIMEOUT).is_err() {
        let _gone = child.kill();
    }
    let _status = child.wait();
}

pub(crate) fn signal(child: &Child, signal: Signal) -> Result<(), String> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or("a child has a pid")?;
    kill_process(pid, signal).map_err(|e| e.to_string())
}

/// Waits for the end of a stream and returns its last lines.
pub(crate) fn end_of(lines: &Receiver<String>, limit: Duration) -> Result<Vec<String>, String> {
    let deadline = std::time::Instant::now() + limit;
    let mut rest = Vec::new();
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(std::time::Instant::now())) {
            Ok(line) => rest.push(line),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return Ok(rest),
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                return Err("the process did not end in time".into());
            }
        }
    }
}

/// Reads lines on a thread, so that waiting for one can be bounded.
pub(crate) fn read_lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(READ_AHEAD);
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// The same for the messages of a stdio server.
pub(crate) fn read_messages(stream: impl Read + Send + 'static) -> Receiver<Incoming> {
    let (sender, receiver) = sync_channel(READ_AHEAD);
    std::thread::spawn(move || {
        for text in BufReader::new(stream).lines().map_while(Result::ok) {
            let message = Incoming::Message { frames: 1, largest: text.len(), text };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    receiver
}

type Slot = Arc<OnceLock<Result<Arc<Server>, String>>>;

/// The shared servers, started when first used.
#[derive(Debug)]
pub(crate) struct Servers {
    pub(crate) settings: Settings,
    slots: Mutex<BTreeMap<(Target, Profile), Slot>>,
    places: Mutex<u32>,
}

impl Servers {
    pub(crate) fn new(settings: Settings) -> Self {
        Self { settings, slots: Mutex::default(), places: Mutex::default() }
    }

    pub(crate) fn get(&self, target: Target, profile: Profile) -> Result<Arc<Server>, String> {
        let slot = match self.slots.lock() {
            Ok(mut slots) => Arc::clone(slots.entry((target, profile)).or_default()),
            Err(e) => return Err(e.to_string()),
        };
        let start = || {
            let place = Place::make(&self.settings, &format!("{}-{profile:?}", target.name()))?;
            Server::start(&self.settings, target, profile, place).map(Arc::new)
        };
        slot.get_or_init(start).clone()
    }

    /// A server that is no other case's; whoever starts it stops it.
    pub(crate) fn start_own(&self, target: Target, place: Place) -> Result<Arc<Server>, String> {
        Server::start(&self.settings, target, Profile::Own, place).map(Arc::new)
    }

    /// Directories for a server that one case starts by itself.
    pub(crate) fn place(&self, target: Target) -> Result<Place, String> {
        let number = match self.places.lock() {
            Ok(mut places) => {
                *places += 1;
                *places
            }
            Err(e) => return Err(e.to_string()),
        };
        Place::make(&self.settings, &format!("{}-own-{number}", target.name()))
    }

    /// Stops all servers; returns what was wrong with them.
    pub(crate) fn stop(&self) -> Vec<String> {
        let slots = self.slots.lock().map(|slots| slots.clone()).unwrap_or_default();
        slots
            .iter()
            .filter_map(|((target, profile), slot)| {
                let result = slot.get()?.as_ref().ok()?.stop();
                result.err().map(|e| format!("{} ({profile:?}): {e}", target.name()))
            })
            .collect()
    }
}
