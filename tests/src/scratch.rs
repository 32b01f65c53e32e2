//! A directory of its own for every test: workspace, home, state, run-time sockets.
//!
//! Invariant: two tests never share a file. It lies below /var/tmp, because the real server loses its helper when
//! `CODEX_HOME` lies below the temporary directory (SPEC section 10), belongs to the user the binaries run as, and is
//! removed at the end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tokio::process::Command;

use crate::fifo::Fifo;
use crate::user::Identity;

/// `PATH` of every child: what a fresh login has.
const CHILD_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The directory of one test.
#[derive(Debug)]
pub struct Scratch {
    directory: TempDir,
    root: PathBuf,
    identity: Identity,
}

impl Scratch {
    /// A fresh directory for the ordinary user.
    pub fn new() -> Self {
        Self::owned_by(Identity::User)
    }

    /// A fresh directory that belongs to `identity`.
    pub fn owned_by(identity: Identity) -> Self {
        let directory = tempfile::Builder::new()
            .prefix("legion-")
            .permissions(fs::Permissions::from_mode(0o700))
            .tempdir_in("/var/tmp")
            .expect("/var/tmp is writable");
        let root = fs::canonicalize(directory.path()).expect("it was just made");
        identity.own(&root);
        let scratch = Self { directory, root, identity };
        for name in ["home", "workspace", "outside", "codex", "config", "state", "run", "tmp"] {
            scratch.make_directory(scratch.root.join(name));
        }
        scratch
    }

    /// Who owns it, and who runs what [`Self::command`] builds.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The directory itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The project the agent works on: the one place a session may write.
    pub fn workspace(&self) -> PathBuf {
        self.root.join("workspace")
    }

    /// `HOME` of every child.
    pub fn home(&self) -> PathBuf {
        self.root.join("home")
    }

    /// A place beside the workspace that no session may touch or see.
    pub fn outside(&self) -> PathBuf {
        self.root.join("outside")
    }

    /// Writes `relative` (below the root), making its parents; all of them belong to the test's user.
    pub fn write(&self, relative: impl AsRef<Path>, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.root.join(relative);
        self.make_directory(path.parent().expect("a file has a parent"));
        fs::write(&path, content).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
        self.identity.own(&path);
        path
    }

    /// The text of `relative` (below the root), or `None` when there is no such file.
    pub fn read(&self, relative: impl AsRef<Path>) -> Option<String> {
        let path = self.root.join(relative);
        match fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => panic!("cannot read {}: {error}", path.display()),
        }
    }

    /// Makes a directory with its parents, mode 0700, owned by the test's user.
    pub fn make_directory(&self, path: impl AsRef<Path>) {
        let path = self.root.join(path);
        if path.is_dir() {
            return;
        }
        self.make_directory(path.parent().expect("the root exists"));
        fs::create_dir(&path).unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).expect("it is ours");
        self.identity.own(&path);
    }

    /// A program of the test's own at `relative`. Another process copies it: a descriptor of ours that is open for writing
    /// would be in whatever the tests beside this one start, and a file that is open for writing cannot be run.
    pub fn copy_program(&self, program: &Path, relative: impl AsRef<Path>) -> PathBuf {
        let path = self.root.join(relative);
        self.make_directory(path.parent().expect("a file has a parent"));
        let copied = std::process::Command::new("cp").arg(program).arg(&path).status();
        assert!(copied.is_ok_and(|status| status.success()), "cannot copy {}", program.display());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is ours");
        self.identity.own(&path);
        path
    }

    /// Makes the workspace a git repository of the test's user: clients look for their project's files no further up, where
    /// those of the host are.
    pub fn git_init(&self) {
        let mut git = self.command("git");
        git.args(["init", "--quiet"]).arg(self.workspace());
        assert!(git.into_std().status().is_ok_and(|status| status.success()), "git cannot be run");
    }

    /// Makes a FIFO at `relative`: the way a command inside tells the test, and waits for it, without a timer.
    pub fn fifo(&self, relative: impl AsRef<Path>) -> Fifo {
        let fifo = Fifo::make(self.root.join(relative));
        self.identity.own(fifo.path());
        fifo
    }

    /// The temporary directory, for what would leave things in that of the host.
    pub fn tmp(&self) -> PathBuf {
        self.root.join("tmp")
    }

    /// A command that runs as the test's user with nothing of our environment: home, state and run-time
    /// directories are this test's own.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let account = self.identity.account();
        let mut command = Command::new(program.as_ref());
        command
            .env_clear()
            .env("PATH", CHILD_PATH)
            .env("HOME", self.home())
            .env("USER", &account.name)
            .env("LOGNAME", &account.name)
            .env("LANG", "C.UTF-8")
            .env("XDG_CONFIG_HOME", self.root.join("config"))
            .env("XDG_STATE_HOME", self.root.join("state"))
            .env("XDG_RUNTIME_DIR", self.root.join("run"))
            .current_dir(self.home());
        self.identity.apply(&mut command);
        command
    }

    /// Keeps the directory for a look after a failure; use while developing a test only.
    pub fn keep(mut self) -> PathBuf {
        self.directory.disable_cleanup(true);
        self.root.clone()
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}
