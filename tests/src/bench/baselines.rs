//! What stands beside the servers in the table: a bare spawn, other sandboxes per command, and opening a session.
//!
//! Invariant: each is a whole process as people start it, timed from before the spawn to after the wait.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::{Address, initialize};
use super::measures::repeat;
use super::subject::{Subject, legion_command};
use crate::clients::CodexVersion;
use crate::opencode;
use crate::scratch::Scratch;

/// Most samples of one round: whole sandboxes are slow, bare processes quick.
const MOST_SAMPLES: usize = 500;

/// Most connections opened in one round: what is closed stays a session for a while.
const MOST_CONNECTIONS: usize = 30;

/// What every baseline runs.
const TRUE: &str = "/bin/true";

/// Where `srt` lies when it is installed for everybody.
const SRT_PLACES: [&str; 2] = ["/usr/local/bin/srt", "/usr/bin/srt"];

/// Seconds of `posix_spawn` and `wait`, which is what the standard library makes of this.
///
/// # Errors
/// It cannot be started, or fails.
pub fn bare_spawn() -> io::Result<f64> {
    repeat(MOST_SAMPLES, || {
        let mut command = Command::new(TRUE);
        command.env_clear();
        timed(&mut command)
    })
}

/// A sandbox that is started for every command.
#[derive(Debug, Clone)]
pub struct PerCommand {
    /// For the tables.
    pub name: &'static str,
    program: PathBuf,
    args: &'static [&'static str],
}

impl PerCommand {
    /// `codex sandbox`.
    pub fn codex() -> Self {
        Self {
            name: "codex sandbox",
            program: CodexVersion::V0_171.program(),
            args: &["sandbox", "--", TRUE],
        }
    }

    /// `srt` of `@anthropic-ai/sandbox-runtime`: at `named`, or where it is usually installed.
    pub fn srt(named: Option<&Path>) -> Option<Self> {
        let usual = SRT_PLACES.into_iter().map(Path::new);
        let program = named.into_iter().chain(usual).find(|path| path.exists())?.to_owned();
        Some(Self { name: "srt", program, args: &[TRUE] })
    }

    /// Seconds for one command.
    ///
    /// # Errors
    /// It cannot be started, or fails.
    pub fn run(&self, scratch: &Scratch) -> io::Result<f64> {
        scratch.make_directory("original-home");
        repeat(MOST_SAMPLES, || {
            let mut command = scratch.command(&self.program);
            command
                .args(self.args)
                .env("CODEX_HOME", scratch.root().join("original-home"))
                .env("TMPDIR", scratch.tmp())
                .current_dir(scratch.workspace());
            timed(&mut command.into_std())
        })
    }
}

fn timed(command: &mut Command) -> io::Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let begin = Instant::now();
    let status = command.status()?;
    let elapsed = begin.elapsed();
    if status.success() {
        return Ok(elapsed);
    }
    Err(io::Error::other(format!("{command:?}: {status}")))
}

/// Seconds from `connect` to the answer to `initialize`, for a server that is there.
///
/// # Errors
/// Of the connection.
pub fn connection(subject: &Subject) -> io::Result<f64> {
    repeat(MOST_CONNECTIONS, || {
        let begin = Instant::now();
        let (_client, _) = subject.address.open()?;
        Ok(begin.elapsed())
    })
}

/// Seconds from starting `legion-controller connect`, as Codex does, to the answer to `initialize`: a new sandbox.
///
/// # Errors
/// It cannot be started, or does not answer.
pub fn bridge(scratch: &Scratch) -> io::Result<f64> {
    repeat(MOST_SAMPLES, || {
        let mut command = legion_command(scratch, &["connect"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let begin = Instant::now();
        let mut child = command.spawn()?;
        let elapsed = ask(&mut child).map(|()| begin.elapsed());
        // The end of its input is its end.
        let output = child.wait_with_output()?;
        let elapsed = elapsed.map_err(|error| {
            io::Error::other(format!("{error}; it said: {}", String::from_utf8_lossy(&output.stderr)))
        })?;
        // The end of its sandbox, which nobody can wait for, falls into this and not into the next sample.
        let issued = issue(scratch)?;
        revoke(scratch, &issued.session)?;
        Ok(elapsed)
    })
}

fn ask(child: &mut Child) -> io::Result<()> {
    let (Some(stdin), Some(stdout)) = (&mut child.stdin, &mut child.stdout) else {
        return Err(io::ErrorKind::BrokenPipe.into());
    };
    writeln!(stdin, r#"{{"id":1,"method":"initialize","params":{}}}"#, initialize())?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let answer: Value = serde_json::from_str(&line)?;
    let session = answer["result"]["sessionId"].as_str();
    session.map(|_| ()).ok_or_else(|| io::Error::other(format!("no session: {line}")))
}

/// A token of its own, from `legion-controller token issue`.
#[derive(Debug)]
pub struct Issued {
    /// Public id.
    pub session: String,
    /// Where it leads.
    pub address: Address,
}

/// Asks the running controller for a session.
///
/// # Errors
/// It is refused, or answers something else.
pub fn issue(scratch: &Scratch) -> io::Result<Issued> {
    let mut command = legion_command(scratch, &["token", "issue", "--json"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut text = String::new();
    child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?.read_to_string(&mut text)?;
    let output = child.wait_with_output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("token issue: {}", String::from_utf8_lossy(&output.stderr))));
    }
    let opened: Value = serde_json::from_str(&text)?;
    let member = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (session, token) = (member(&opened["session"]), member(&opened["token"]));
    Ok(Issued { session, address: Address::new(&member(&opened["urls"][0]), Some(token), None)? })
}

/// Ends a session that was issued.
///
/// # Errors
/// It cannot be ended.
pub fn revoke(scratch: &Scratch, session: &str) -> io::Result<()> {
    let command = crate::legion::command(scratch, &["token", "revoke", session]);
    timed(&mut command.into_std()).map(|_| ())
}

/// OpenCode with a provider of its own that nobody asks anything.
pub fn prepare_opencode(scratch: &Scratch) {
    opencode::install(scratch);
    let config = opencode::provider("http://127.0.0.1:9/v1");
    scratch.write("config/opencode/opencode.json", config.to_string());
}

/// Seconds in which OpenCode starts, reads its configuration, lists its models and ends: as it is, and by Legion.
///
/// # Errors
/// It cannot be started, or fails.
pub fn opencode(scratch: &Scratch) -> io::Result<[f64; 2]> {
    let list = ["models", "mock"];
    let plain = timed(&mut opencode::plain(scratch, &list).into_std())?;
    let legion = timed(&mut opencode::command(scratch, &["opencode", list[0], list[1]]).into_std())?;
    Ok([plain, legion].map(|time| time.as_secs_f64()))
}

/// Seconds of `token issue`, connecting over TCP with the token and `initialize`: a new sandbox.
///
/// # Errors
/// It is refused, or does not answer.
pub fn issued_session(scratch: &Scratch) -> io::Result<f64> {
    repeat(MOST_SAMPLES, || {
        let begin = Instant::now();
        let issued = issue(scratch)?;
        let (_client, _) = issued.address.open()?;
        let elapsed = begin.elapsed();
        revoke(scratch, &issued.session)?;
        Ok(elapsed)
    })
}
