//! Starting a child: finding the program, wiring its descriptors, `posix_spawn` (SPEC 7.1).
//!
//! `posix_spawn` shares this process's memory until the child executes, so its cost does not grow with our size.

use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use legion_protocol::process::TerminalSize;
use rustix::fs::{Access, AtFlags, CWD, FileType, Mode, OFlags, accessat, open, statat};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::env::Environment;
use super::pty;
use crate::confine::{Brokers, Prepared};
use crate::sys;

/// `PATH` of a child that has none, as in musl.
const DEFAULT_PATH: &str = "/usr/local/bin:/bin:/usr/bin";

/// Longest name of a program without a slash, which no directory of `PATH` can have (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;

/// What to start.
pub(crate) struct Command<'a> {
    /// Not empty; the first is the program.
    pub(crate) argv: &'a [String],
    /// What the child sees as `argv[0]`, when it is not the program's name.
    pub arg0: Option<&'a str>,
    /// Absolute.
    pub(crate) cwd: &'a Path,
    /// The whole environment.
    pub(crate) env: &'a Environment,
    /// How it is connected.
    pub(crate) wiring: Wiring,
    /// What the client wants to be taken from it.
    pub(crate) confined: Option<(&'a Prepared, &'a Brokers)>,
}

/// How a child's standard descriptors are connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wiring {
    /// A terminal, of the usual size if none is given.
    Terminal(Option<TerminalSize>),
    /// Pipes for output, `/dev/null` as stdin.
    Piped,
    /// Pipes for output and stdin.
    PipedWithStdin,
}

/// A started child and our ends of its descriptors, all non-blocking.
pub(crate) struct Child {
    /// Also its process group and session.
    pub(crate) pid: Pid,
    /// Our ends.
    pub(crate) io: ChildIo,
}

/// Our ends of a child's descriptors.
pub(crate) enum ChildIo {
    /// The master.
    Terminal(OwnedFd),
    /// Read ends, and the write end of stdin.
    Pipes {
        /// Read end.
        stdout: OwnedFd,
        /// Read end.
        stderr: OwnedFd,
        /// Write end, with [`Wiring::PipedWithStdin`].
        stdin: Option<OwnedFd>,
    },
}

/// Starts a child. Returns once it executes the program.
///
/// # Errors
/// The error number of the step that failed; `Exec format error` is not hidden behind a shell.
pub(crate) fn spawn(command: &Command<'_>) -> io::Result<Child> {
    let cwd = c_string(command.cwd.as_os_str())?;
    check_directory(command.cwd)?;
    let argv = arguments(command)?;
    let env = variables(command.env)?;
    let name = command.argv.first().map_or("", String::as_str);
    let program = find_program(name, command.env.get(OsStr::new("PATH")), command.cwd)?;
    let program = c_string(program.as_os_str())?;
    let start = |stdio| {
        let request = sys::Spawn { program: &program, argv: &argv, env: &env, cwd: &cwd, stdio };
        match command.confined {
            None => sys::spawn(&request),
            Some((prepared, brokers)) => prepared.spawn(&request, brokers),
        }
    };
    match command.wiring {
        Wiring::Terminal(size) => {
            let terminal = pty::open(size)?;
            let pid = start(sys::ChildStdio::Terminal(&terminal.path))?;
            Ok(Child { pid, io: ChildIo::Terminal(terminal.master) })
        }
        Wiring::Piped | Wiring::PipedWithStdin => {
            let (stdin, child_stdin) = stdin_of(command.wiring)?;
            let (stdout, child_stdout) = output_pipe()?;
            let (stderr, child_stderr) = output_pipe()?;
            let descriptors = [child_stdin.as_fd(), child_stdout.as_fd(), child_stderr.as_fd()];
            let pid = start(sys::ChildStdio::Descriptors(descriptors))?;
            Ok(Child { pid, io: ChildIo::Pipes { stdout, stderr, stdin } })
        }
    }
}

fn stdin_of(wiring: Wiring) -> io::Result<(Option<OwnedFd>, OwnedFd)> {
    if wiring == Wiring::Piped {
        let null = open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        return Ok((None, null));
    }
    let (child, ours) = pipe_with(PipeFlags::CLOEXEC)?;
    ioctl_fionbio(&ours, true)?;
    Ok((Some(ours), child))
}

/// A pipe whose read end is ours.
fn output_pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, child) = pipe_with(PipeFlags::CLOEXEC)?;
    ioctl_fionbio(&ours, true)?;
    Ok((ours, child))
}

/// The error of a bad `cwd` is found before that of a bad program, as when the child changes directory first.
fn check_directory(cwd: &Path) -> io::Result<()> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    open(cwd, flags, Mode::empty())?;
    accessat(CWD, cwd, Access::EXEC_OK, AtFlags::EACCESS)?;
    Ok(())
}

/// Where `name` is, looked up as `execvp` does: a name with a slash as it is, others in the child's `PATH`.
fn find_program(name: &str, path: Option<&OsString>, cwd: &Path) -> io::Result<PathBuf> {
    if name.contains('/') {
        return Ok(PathBuf::from(name));
    }
    if name.is_empty() {
        return Err(Errno::NOENT.into());
    }
    if name.len() > MAX_NAME_BYTES {
        return Err(Errno::NAMETOOLONG.into());
    }
    let mut error = Errno::NOENT;
    let path = path.map_or(DEFAULT_PATH.as_bytes(), |path| path.as_bytes());
    for directory in path.split(|byte| *byte == b':') {
        let candidate = cwd.join(OsStr::from_bytes(directory)).join(name);
        match is_executable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(Errno::ACCESS) => error = Errno::ACCESS,
            Err(_) => {}
        }
    }
    Err(error.into())
}

fn is_executable(path: &Path) -> Result<(), Errno> {
    let stat = statat(CWD, path, AtFlags::empty())?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Errno::ACCESS);
    }
    accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS)
}

fn arguments(command: &Command<'_>) -> io::Result<Vec<CString>> {
    let arg0 = command.arg0.or(command.argv.first().map(String::as_str));
    arg0.into_iter()
        .chain(command.argv.iter().skip(1).map(String::as_str))
        .map(|argument| c_string(OsStr::new(argument)))
        .collect()
}

fn variables(env: &Environment) -> io::Result<Vec<CString>> {
    env.iter()
        .map(|(name, value)| {
            let mut text = OsString::with_capacity(name.len() + value.len() + 2);
            text.push(name);
            text.push("=");
            text.push(value);
            CString::new(text.into_vec()).map_err(|_| nul_error("data provided contains a nul byte"))
        })
        .collect()
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(|_| nul_error("nul byte found in provided data"))
}

fn nul_error(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn found(name: &str, path: Option<&str>, cwd: &Path) -> Result<PathBuf, Errno> {
        find_program(name, path.map(OsString::from).as_ref(), cwd)
            .map_err(|error| Errno::from_io_error(&error).unwrap())
    }

    #[test]
    fn programs_are_found_in_the_childs_path() {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path();
        for (name, mode) in [("a/tool", 0o755), ("b/tool", 0o755), ("b/data", 0o644)] {
            let file = here.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(here.join("a/data")).unwrap();
        let path = format!("/nonexistent:{0}/a:{0}/b", here.display());
        assert_eq!(found("tool", Some(&path), here), Ok(here.join("a/tool")));
        assert_eq!(found("tool", Some("a:b"), here), Ok(here.join("a/tool")));
        assert_eq!(found("tool", Some(""), &here.join("b")), Ok(here.join("b/tool")));
        assert_eq!(found("data", Some(&path), here), Err(Errno::ACCESS));
        assert_eq!(found("missing", Some(&path), here), Err(Errno::NOENT));
        assert_eq!(found("", Some(&path), here), Err(Errno::NOENT));
        assert_eq!(found("./x", Some(&path), here), Ok(PathBuf::from("./x")));
        assert!(found("sh", None, here).is_ok());
    }

    #[test]
    fn nul_bytes_are_an_error_without_a_number() {
        let env = Environment::new();
        let argv = ["true".to_owned(), "a\0b".to_owned()];
        let command = Command {
            argv: &argv,
            arg0: None,
            cwd: Path::new("/"),
            env: &env,
            wiring: Wiring::Piped,
            confined: None,
        };
        let error = spawn(&command).err().unwrap();
        assert_eq!(error.raw_os_error(), None);
    }
}
