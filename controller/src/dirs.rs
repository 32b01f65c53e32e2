//! The directories of a controller: state (audit, keys, sessions) and run-time (sockets, token files).
//!
//! Invariant: each is a real directory of this user with mode 0700, made so from the start and opened without
//! following a link in its last component; nothing of it lies in /tmp or in a workspace.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

use crate::environment::Environment;
use crate::failure::{Failure, Outcome};

/// Run-time directories of sandboxes' sockets; the controller's process id follows.
pub const SANDBOXES: &str = "sandboxes-";

/// Run-time directories of clients; the process id of the controller that runs one follows.
pub const CLIENTS: &str = "client-";

/// The admin socket of a controller, in the run-time directory, or in that of its sandboxes' sockets when it is embedded.
pub const CONTROL_SOCKET: &str = "control.sock";

const PRIVATE: Mode = Mode::RWXU;

/// Where a controller keeps its things. Directories are made when first used.
#[derive(Debug, Clone)]
pub struct Dirs {
    /// `--state-dir`, `$LEGION_STATE_DIR`, or `$XDG_STATE_HOME/legion`.
    pub state: PathBuf,
    /// `$XDG_RUNTIME_DIR/legion`, or `run` in an explicit state directory.
    pub run: PathBuf,
}

impl Dirs {
    /// Chooses the directories; makes nothing.
    pub fn choose(environment: &Environment, explicit: Option<&Path>) -> Outcome<Self> {
        let explicit =
            explicit.map(Path::to_owned).or_else(|| environment.var("LEGION_STATE_DIR").map(PathBuf::from));
        if let Some(state) = explicit {
            let state = environment.resolve(&state);
            return Ok(Self { run: state.join("run"), state });
        }
        let absolute =
            |name: &str| environment.var(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME")
            .or_else(|| environment.home().map(|home| home.join(".local/state")))
            .map(|base| base.join("legion"))
            .ok_or_else(|| {
                Failure::config("no place for state: HOME is not set; set it or pass --state-dir")
            })?;
        // A runtime directory of somebody else (sudo keeps the variable) is not ours to use.
        let run = absolute("XDG_RUNTIME_DIR")
            .filter(|dir| is_own_directory(dir, environment.uid))
            .map_or_else(|| state.join("run"), |dir| dir.join("legion"));
        Ok(Self { state, run })
    }

    /// The audit log's directory.
    pub fn audit(&self) -> PathBuf {
        self.state.join(crate::audit::DIRECTORY)
    }

    /// The admin socket.
    pub fn control_socket(&self) -> PathBuf {
        self.run.join(CONTROL_SOCKET)
    }

    /// The admin socket of this process, when it embeds a controller.
    pub fn embedded_control_socket(&self) -> PathBuf {
        self.run.join(format!("{SANDBOXES}{}", std::process::id())).join(CONTROL_SOCKET)
    }

    /// The admin sockets of all controllers: of the one that listens, and of those embedded in other commands.
    pub fn control_sockets(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.run).into_iter().flatten().flatten();
        let embedded = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(SANDBOXES));
        let embedded = embedded.map(|entry| entry.path().join(CONTROL_SOCKET));
        let all = std::iter::once(self.control_socket()).chain(embedded);
        all.filter(|socket| socket.exists()).collect()
    }

    /// The front door for `connect` and `exec`.
    pub fn front_socket(&self) -> PathBuf {
        self.run.join("front.sock")
    }

    /// The token of the session that `start` opens.
    pub fn token_file(&self) -> PathBuf {
        self.run.join("token")
    }

    /// Refuses a workspace that holds this state, or that this state holds.
    pub fn check_workspace(&self, workspace: &Path) -> Outcome<()> {
        for dir in [&self.state, &self.run] {
            let real = dir.canonicalize().unwrap_or_else(|_| dir.clone());
            if real.starts_with(workspace) {
                return Err(Failure::config(format_args!(
                    "the workspace {} contains Legion's own directory {}: choose a project directory, or move the \
                     state with --state-dir",
                    workspace.display(),
                    dir.display()
                )));
            }
        }
        Ok(())
    }
}

fn is_own_directory(path: &Path, uid: u32) -> bool {
    rustix::fs::lstat(path)
        .is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() && stat.st_uid == uid)
}

/// Makes `path` (and what is missing above it) with mode 0700 and opens it; checks kind, owner and mode.
pub fn open_private(path: &Path, uid: u32) -> Outcome<OwnedFd> {
    let fail = |error: io::Error| {
        Failure::config(format_args!(
            "cannot use the directory {}: {error}; fix it or pass --state-dir",
            path.display()
        ))
    };
    make_private(path).map_err(fail)?;
    let dir = rustix::fs::openat(
        CWD,
        path,
        OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::RDONLY,
        Mode::empty(),
    )
    .map_err(|error| fail(error.into()))?;
    let stat = rustix::fs::fstat(&dir).map_err(|error| fail(error.into()))?;
    if stat.st_uid != uid {
        return Err(Failure::config(format_args!(
            "the directory {} belongs to uid {}, not to you (uid {uid}): remove it or pass --state-dir",
            path.display(),
            stat.st_uid
        )));
    }
    if stat.st_mode & 0o077 != 0 {
        return Err(Failure::config(format_args!(
            "the directory {} is open to others (mode {:04o}): run chmod 700 on it",
            path.display(),
            stat.st_mode & 0o7777
        )));
    }
    Ok(dir)
}

/// Removes what processes that were killed have left in the run-time directory.
pub fn sweep(run: &Path) {
    for entry in std::fs::read_dir(run).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_str().unwrap_or_default();
        let pid = [SANDBOXES, CLIENTS].iter().find_map(|kind| name.strip_prefix(kind));
        let pid = pid.and_then(|pid| pid.parse::<u32>().ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn make_private(path: &Path) -> io::Result<()> {
    match rustix::fs::mkdir(path, PRIVATE) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(rustix::io::Errno::NOENT) => {
            let parent = path.parent().ok_or(io::ErrorKind::NotFound)?;
            make_private(parent)?;
            match rustix::fs::mkdir(path, PRIVATE) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
        Err(error) => Err(error.into()),
    }
}

/// Writes a private file whole: a new file of mode 0600 takes the name at once, so no reader sees half of it.
pub fn write_private(dir: &OwnedFd, name: &str, content: &[u8]) -> io::Result<()> {
    let temporary = format!("{name}.new");
    let _ = rustix::fs::unlinkat(dir, temporary.as_str(), rustix::fs::AtFlags::empty());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, temporary.as_str(), flags, Mode::RUSR | Mode::WUSR)?;
    let mut file = std::fs::File::from(file);
    io::Write::write_all(&mut file, content)?;
    // The name must not come to stand for less, even when the machine dies now.
    file.sync_all()?;
    rustix::fs::renameat(dir, temporary.as_str(), dir, name)?;
    Ok(())
}

/// A path to `name` in an open directory that stays below the 108 bytes a Unix socket address can hold. It is valid in
/// this process while `dir` is open.
pub fn socket_path(dir: &OwnedFd, name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
}

/// Connects to a Unix socket whose path may be longer than a socket address can hold.
pub async fn connect_unix(path: &Path) -> io::Result<tokio::net::UnixStream> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::openat(CWD, parent, flags, Mode::empty())?;
    tokio::net::UnixStream::connect(socket_path(&dir, name)).await
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn directories_are_made_private_and_checked() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("a/b");
        open_private(&path, uid()).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert!(open_private(&path, uid()).unwrap_err().message.contains("open to others"));
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path().join("a"), &link).unwrap();
        assert!(open_private(&link, uid()).is_err());
        assert!(open_private(&base.path().join("a"), uid() + 1).unwrap_err().message.contains("belongs to"));
    }

    #[test]
    fn private_files_replace_links_instead_of_following_them() {
        let base = tempfile::tempdir().unwrap();
        let dir = open_private(&base.path().join("run"), uid()).unwrap();
        let victim = base.path().join("victim");
        std::fs::write(&victim, "old").unwrap();
        std::os::unix::fs::symlink(&victim, base.path().join("run/token")).unwrap();
        write_private(&dir, "token", b"secret").unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "old");
        let file = base.path().join("run/token");
        assert_eq!(std::fs::symlink_metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    }
}
