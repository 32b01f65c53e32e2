//! The user the servers run as when the suite runs as root.
//!
//! Invariant: a server under test never runs as root, as permission checks would not happen.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An account from the password file.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    /// The account to drop to: none when we are an ordinary user ourselves.
    pub(crate) fn to_drop_to(name: &str) -> Result<Option<Self>, String> {
        if !rustix::process::geteuid().is_root() {
            return Ok(None);
        }
        let passwd = fs::read_to_string("/etc/passwd").map_err(|e| format!("/etc/passwd: {e}"))?;
        let line = passwd
            .lines()
            .find(|line| line.split(':').next() == Some(name))
            .ok_or_else(|| format!("the suite runs as root and user {name} does not exist; useradd -m {name}, or name another in LEGION_TEST_USER"))?;
        let field = |n: usize| line.split(':').nth(n).and_then(|v| v.parse().ok());
        match (field(2), field(3)) {
            (Some(uid), Some(gid)) if uid != 0 => Ok(Some(Self { name: name.to_owned(), uid, gid })),
            _ => Err(format!("{name} in /etc/passwd is not an ordinary user")),
        }
    }
}

/// The name of the user that runs this process.
pub(crate) fn own_name() -> String {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let line = passwd.lines().find(|line| line.split(':').nth(2) == Some(&uid));
    line.and_then(|line| line.split(':').next()).unwrap_or("user").to_owned()
}

/// Makes a command run as `user`; supplementary groups are dropped with it.
pub(crate) fn drop_to(command: &mut Command, user: Option<&User>) {
    if let Some(user) = user {
        command.uid(user.uid).gid(user.gid);
    }
}

/// A path to `program` that an ordinary user can reach: itself, or its directory tree linked into `base`.
///
/// The tree starts `levels` above the program, for programs that look for files next to themselves.
pub(crate) fn reachable(program: &Path, levels: usize, base: &Path) -> Result<PathBuf, String> {
    let program = program.canonicalize().map_err(|e| format!("{}: {e}", program.display()))?;
    let open =
        program.ancestors().all(|p| fs::metadata(p).is_ok_and(|m| m.permissions().mode() & 0o001 != 0));
    if open {
        return Ok(program);
    }
    let root = program.ancestors().nth(levels).unwrap_or(&program);
    let name = root.file_name().ok_or("a program has a name")?;
    let copy = base.join(name);
    if !copy.exists() {
        link_tree(root, &copy)?;
    }
    let tail = program.strip_prefix(root).map_err(|e| e.to_string())?;
    Ok(if tail.as_os_str().is_empty() { copy } else { copy.join(tail) })
}

/// Hard links, or copies where the file systems differ, everything below `from`.
fn link_tree(from: &Path, to: &Path) -> Result<(), String> {
    let fail = |e: std::io::Error| format!("{} to {}: {e}", from.display(), to.display());
    if !from.is_dir() {
        return fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop)).map_err(fail);
    }
    fs::create_dir(to).map_err(fail)?;
    for entry in fs::read_dir(from).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        link_tree(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}
