//! What is measured: servers that this run has started, or one that runs already.
//!
//! Invariant: what was started ends with [`Servers`]; subjects are values that the measuring thread can hold.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process_group};
use rustls::ClientConfig;

use super::audit;
use super::client::Address;
use crate::child::Child;
use crate::legion::{self, Controller};
use crate::original::Original;
use crate::process_table;
use crate::scratch::Scratch;
use crate::settings::settings;
use crate::tls::client_config;

/// The original's name in every table.
pub const ORIGINAL: &str = "codex exec-server";

/// The original behind somebody who only copies: its name in the table.
pub const COPIED: &str = "the same, bytes copied on the way";

/// Legion as a whole: its name in every table.
pub const LEGION: &str = "Legion";

/// Legion that syncs every record and looks for secrets in all output: its name in the table.
pub const STRICT: &str = "Legion, sync = always, redact = true";

/// Our exec-server without controller and sandbox: its name in every table.
pub const ALONE: &str = "legion-exec-server alone";

/// One server under test.
#[derive(Debug, Clone)]
pub struct Subject {
    /// For the tables.
    pub name: String,
    /// How to get there.
    pub address: Address,
    /// A directory on the server's side in which files may be made; none is what the server calls its own.
    pub directory: Option<PathBuf>,
    /// The process whose tree is its memory; none for servers this run has not started.
    pub pid: Option<u32>,
    /// Whether sessions come from `legion-controller`.
    pub is_legion: bool,
}

/// A server that runs already.
#[derive(Debug, Clone, Default)]
pub struct Running {
    /// `ws://` or `wss://`.
    pub url: String,
    /// A file with the bearer token.
    pub token_file: Option<PathBuf>,
    /// The certificate authority of a `wss://` server, PEM.
    pub ca: Option<PathBuf>,
    /// Where it may make files.
    pub directory: Option<PathBuf>,
}

impl Running {
    /// As a subject.
    ///
    /// # Errors
    /// A file cannot be read, or the URL is of the wrong kind.
    pub fn subject(self) -> io::Result<Subject> {
        let read = |path: PathBuf| {
            fs::read_to_string(&path)
                .map_err(|error| io::Error::other(format!("cannot read {}: {error}", path.display())))
        };
        let token = self.token_file.map(read).transpose()?.map(|token| token.trim().to_owned());
        let tls: Option<Arc<ClientConfig>> = self.ca.map(read).transpose()?.map(|pem| client_config(&pem));
        Ok(Subject {
            address: Address::new(&self.url, token, tls)?,
            name: self.url,
            directory: self.directory,
            pid: None,
            is_legion: false,
        })
    }
}

/// The servers this run has started.
#[derive(Debug)]
pub struct Servers {
    /// Where they live and work.
    pub scratch: Arc<Scratch>,
    original: Original,
    legion: Option<Controller>,
    strict: Option<(Scratch, Controller)>,
    alone: Option<Child>,
}

impl Servers {
    /// Starts the original, and of ours what is asked for. Panics as the harness does when one does not start.
    pub async fn start(legion: bool, alone: bool) -> Self {
        let scratch = Scratch::new();
        let original = Original::start_open(&scratch, crate::clients::CodexVersion::V0_171).await;
        let legion = if legion { Some(Controller::start(&scratch, &[]).await) } else { None };
        let alone = alone.then(|| {
            let mut command = scratch.command(settings().legion_binary("legion-exec-server"));
            command.args(["--listen", "ws://127.0.0.1:0"]);
            Child::spawn("legion-exec-server", command)
        });
        Self { scratch: Arc::new(scratch), original, legion, strict: None, alone }
    }

    /// Legion as it was started, and one that is as strict as can be asked for, which is started now.
    ///
    /// # Errors
    /// As [`Self::subjects`].
    pub async fn audited(&mut self) -> io::Result<Vec<Subject>> {
        let scratch = Scratch::new();
        scratch.write("home/.env", audit::env_file());
        legion::configure(&scratch, audit::STRICT_TOML);
        let controller = Controller::start(&scratch, &[]).await;
        let strict = Subject {
            name: STRICT.to_owned(),
            address: Address::new(&controller.ready.url, Some(controller.token.clone()), None)?,
            directory: Some(scratch.workspace()),
            pid: controller.pid(),
            is_legion: true,
        };
        self.strict = Some((scratch, controller));
        let plain = self.subjects().await?.into_iter().filter(|subject| subject.is_legion);
        Ok(plain.chain([strict]).collect())
    }

    /// Everything started here, the original first.
    ///
    /// # Errors
    /// A server has named a URL of the wrong kind.
    pub async fn subjects(&mut self) -> io::Result<Vec<Subject>> {
        let directory = Some(self.scratch.workspace());
        let subject = |name: &str, url: &str, token, pid, is_legion| {
            let address = Address::new(url, token, None)?;
            Ok::<_, io::Error>(Subject {
                name: name.to_owned(),
                address,
                directory: directory.clone(),
                pid,
                is_legion,
            })
        };
        let mut subjects =
            vec![subject(ORIGINAL, &self.original.url, None, self.original.child.pid(), false)?];
        if let Some(legion) = &self.legion {
            let token = Some(legion.token.clone());
            subjects.push(subject(LEGION, &legion.ready.url, token, legion.pid(), true)?);
        }
        if let Some(alone) = &mut self.alone {
            let url = alone.first_line().await;
            subjects.push(subject(ALONE, &url, None, alone.pid(), false)?);
        }
        Ok(subjects)
    }
}

/// Kills the servers of this process: for a panic in a program that is built to abort, so that nothing is dropped.
pub fn kill_children() {
    for pid in process_table::children_of(std::process::id()) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            // Each server leads a group of its own; what does not has ended by itself.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// `legion-controller ARGS… --workspace …` against the controller of this run.
pub fn legion_command(scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = legion::command(scratch, args);
    command.arg("--workspace").arg(scratch.workspace());
    command.into_std()
}

/// A `file:` URI of an absolute path.
pub fn file_uri(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => {
                uri.push(char::from(*byte));
            }
            // Writing to a String cannot fail.
            other => drop(write!(uri, "%{other:02X}")),
        }
    }
    uri
}
