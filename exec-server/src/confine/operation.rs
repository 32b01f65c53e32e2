//! File operations under a wish: on a thread that restricts itself with Landlock, does one thing and ends.
//!
//! Invariant: what the thread may do is what the policy allows, and beyond that only the entry it was started for. A
//! thread that has restricted itself never does anything else.

use std::path::{Path, PathBuf};

use landlock::{AccessFs, BitFlags};
use legion_protocol::sandbox::Sandbox;
use legion_protocol::{ErrorCode, ErrorObject};
use rustix::fs::{AtFlags, CWD, FileType, statat};
use rustix::io::Errno;
use tokio::sync::oneshot;

use super::Wish;
use super::places::real;
use super::policy::{Policy, Reach};
use super::ruleset::{self, Compiled};
use crate::error::{Outcome, fs_error};
use crate::limits::OPERATION_STACK_BYTES;

/// What an operation does at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Looks at what is there: type, times, where it leads.
    Look,
    /// Reads a file.
    Read,
    /// Reads names, of a directory or a tree.
    List,
    /// Writes a file, which it may make.
    Write,
    /// Makes a directory, and all that lead to it.
    MakeDirectory,
    /// Removes an entry and what is below it.
    Remove,
    /// Makes files, directories and links, or writes what is there.
    Copy,
}

/// One path of an operation.
#[derive(Debug, Clone)]
pub(crate) struct Access {
    pub(crate) path: PathBuf,
    pub(crate) purpose: Purpose,
    /// A link at the end stands for what it leads to.
    pub(crate) follow: bool,
}

impl Access {
    /// A path that is followed to its end.
    pub(crate) fn to(path: &Path, purpose: Purpose) -> Self {
        Self { path: path.to_owned(), purpose, follow: true }
    }

    /// The path the policy is asked about: real, but for a link that is meant itself.
    fn judged(&self) -> PathBuf {
        match (self.path.parent(), self.path.file_name()) {
            (Some(parent), Some(name)) if !self.follow => real(parent).join(name),
            _ => real(&self.path),
        }
    }

    fn changes(&self) -> bool {
        !matches!(self.purpose, Purpose::Look | Purpose::Read | Purpose::List)
    }
}

/// What an operation may see of a tree that the kernel lets it list as a whole.
pub(crate) struct View(Policy);

impl View {
    /// Whether a directory that has been opened may be read.
    pub(crate) fn allows(&self, path: &Path) -> bool {
        self.0.reach(path) >= Reach::Read
    }
}

/// Runs an operation on a thread of its own that can do no more than the wish about files allows. It is given where its
/// paths lead: what it changes it must change there, without following links.
///
/// # Errors
/// Those of [`Wish::of`](super::Wish::of), of the kernel's refusal to restrict, and of the operation.
pub(crate) async fn run<T: Send + 'static>(
    sandbox: Sandbox,
    tmpdir: Option<PathBuf>,
    accesses: Vec<Access>,
    operation: impl FnOnce(&[PathBuf], &View) -> Outcome<T> + Send + 'static,
) -> Outcome<T> {
    let (sender, receiver) = oneshot::channel();
    let builder = std::thread::Builder::new().name("confined".to_owned()).stack_size(OPERATION_STACK_BYTES);
    let started = builder.spawn(move || {
        let policy = Wish::of(&sandbox, None, tmpdir.as_deref()).map(|wish| wish.and_then(|wish| wish.files));
        let result = policy.and_then(|policy| match policy {
            Some(policy) => restricted(policy, &accesses, operation),
            None => Err(ErrorObject::new(ErrorCode::Internal, "the sandbox object says nothing about files")),
        });
        // Whoever asked may be gone.
        let _ = sender.send(result);
    });
    started.map_err(fs_error)?;
    let interrupted = |_| ErrorObject::new(ErrorCode::Internal, "the operation was interrupted");
    receiver.await.map_err(interrupted)?
}

/// The life of the thread.
fn restricted<T>(
    policy: Policy,
    accesses: &[Access],
    operation: impl FnOnce(&[PathBuf], &View) -> Outcome<T>,
) -> Outcome<T> {
    let most = if accesses.iter().any(Access::changes) { Reach::Write } else { Reach::Read };
    let Compiled { mut ruleset, .. } = ruleset::compile(&policy, most)?;
    let mut paths = Vec::new();
    let mut read_only = false;
    for access in accesses {
        let judged = access.judged();
        let parent = judged.parent().unwrap_or(&judged);
        let out_of_sight = if access.purpose == Purpose::Look { parent } else { &judged };
        if policy.reach(out_of_sight) == Reach::Nothing && policy.reach(&judged) == Reach::Nothing {
            return Err(fs_error(Errno::ACCESS));
        }
        if let Some((directory, rights)) = beyond(&policy, access.purpose, &judged) {
            let opened = ruleset::open(CWD, &directory).map_err(fs_error)?;
            ruleset::add_rule(&mut ruleset, &opened, rights)?;
        }
        read_only |= access.changes() && policy.reach(&judged) == Reach::Read;
        // What is not followed stays as it was given: the operation itself refuses links on the way.
        paths.push(if access.follow && access.changes() { judged } else { access.path.clone() });
    }
    ruleset.restrict_self().map_err(|error| {
        ErrorObject::new(ErrorCode::Internal, format!("cannot narrow this call: {error}"))
    })?;
    operation(&paths, &View(policy)).map_err(|error| if read_only { as_read_only(error) } else { error })
}

/// Landlock says "permission denied" where the original has a file system that is mounted read-only.
fn as_read_only(error: ErrorObject) -> ErrorObject {
    if error.message == fs_error(Errno::ACCESS).message { fs_error(Errno::ROFS) } else { error }
}

/// The rights that the kernel does not give by the policy alone, because it can only give them to a directory with all
/// that is below, and something below is protected. They are the least for the one entry that is allowed to change.
fn beyond(policy: &Policy, purpose: Purpose, path: &Path) -> Option<(PathBuf, BitFlags<AccessFs>)> {
    let make = match purpose {
        Purpose::Look | Purpose::Read => return None,
        Purpose::List => {
            let listed = policy.reach(path) >= Reach::Read && policy.narrows_below(path, Reach::Read);
            return listed.then(|| (path.to_owned(), AccessFs::ReadDir.into()));
        }
        Purpose::Write => AccessFs::MakeReg | AccessFs::WriteFile | AccessFs::Truncate,
        Purpose::MakeDirectory => AccessFs::MakeDir.into(),
        Purpose::Copy => {
            AccessFs::MakeReg
                | AccessFs::MakeDir
                | AccessFs::MakeSym
                | AccessFs::WriteFile
                | AccessFs::Truncate
        }
        Purpose::Remove => AccessFs::RemoveFile | AccessFs::RemoveDir,
    };
    let exists = |path: &Path| statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    // What is there has its own grants; only removing it changes the directory it lies in.
    if exists(path) != (purpose == Purpose::Remove) || policy.narrows_below(path, Reach::Write) {
        return None;
    }
    let writable = |path: &Path| policy.reach(path) == Reach::Write;
    // Every directory that will be made on the way has to be allowed, and the one they are made in.
    let existing = path.ancestors().skip(1).find(|path| exists(path))?;
    let missing = path.ancestors().take_while(|path| *path != existing);
    let is_directory = statat(CWD, existing, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory);
    (is_directory && writable(existing) && missing.into_iter().all(writable))
        .then(|| (existing.to_owned(), make))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::fs as files;

    struct Fixture {
        _dir: tempfile::TempDir,
        base: PathBuf,
        policy: Policy,
    }

    /// A workspace with a protected directory, one that may not be read, and something outside.
    fn fixture() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        let base = real(dir.path());
        for name in ["w/.git/hooks", "w/src", "w/secret", "out"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        for name in ["w/.git/config", "w/f", "w/secret/key", "out/o"] {
            fs::write(base.join(name), "old").unwrap();
        }
        let mut policy = Policy::default();
        policy.add("/".into(), Reach::Read);
        policy.add(base.join("w"), Reach::Write);
        policy.add(base.join("w/.git"), Reach::Read);
        policy.add(base.join("w/secret"), Reach::Nothing);
        Fixture { _dir: dir, base, policy }
    }

    impl Fixture {
        /// The message of the error, or `ok`.
        fn at(
            &self,
            name: &str,
            purpose: Purpose,
            operation: impl FnOnce(&Path) -> Outcome<()> + Send,
        ) -> String {
            let access = Access::to(&self.base.join(name), purpose);
            let policy = self.policy.clone();
            let result = std::thread::scope(|scope| {
                let run = || restricted(policy, &[access], |paths, _| operation(&paths[0]));
                scope.spawn(run).join().unwrap()
            });
            result.map_or_else(|error| error.message, |()| "ok".to_owned())
        }

        fn write(&self, name: &str) -> String {
            self.at(name, Purpose::Write, |path| files::file::write(path, b"new", false))
        }
    }

    const READ_ONLY: &str = "Read-only file system (os error 30)";
    const DENIED: &str = "Permission denied (os error 13)";

    #[test]
    fn files_are_written_where_the_policy_allows_it_and_nowhere_else() {
        let fixture = fixture();
        symlink(".git/config", fixture.base.join("w/link")).unwrap();
        symlink(".git/hooks/new", fixture.base.join("w/dangling")).unwrap();
        for (name, expected) in [
            ("w/f", "ok"),
            ("w/new", "ok"),
            ("w/src/new", "ok"),
            ("w/.git/config", READ_ONLY),
            ("w/.git/new", READ_ONLY),
            ("w/link", READ_ONLY),
            ("w/dangling", READ_ONLY),
            ("out/o", READ_ONLY),
            ("out/new", READ_ONLY),
            ("w/secret/key", DENIED),
            ("w/none/new", "No such file or directory (os error 2)"),
        ] {
            assert_eq!(fixture.write(name), expected, "{name}");
        }
        assert_eq!(fs::read(fixture.base.join("w/.git/config")).unwrap(), b"old");
        assert_eq!(fs::read(fixture.base.join("w/new")).unwrap(), b"new");
    }

    #[test]
    fn directories_are_made_and_removed_by_the_same_rules() {
        let fixture = fixture();
        let make = |name| {
            fixture.at(name, Purpose::MakeDirectory, |path| files::create_directory(path, true, false))
        };
        for (name, expected) in [
            ("w/new/deep/er", "ok"),
            ("w/src", "ok"),
            ("w/.git", "ok"),
            ("w/.git/new", READ_ONLY),
            ("out/new", READ_ONLY),
            ("w/secret/new", DENIED),
        ] {
            assert_eq!(make(name), expected, "{name}");
        }
        let remove =
            |name| fixture.at(name, Purpose::Remove, |path| files::remove::remove(path, true, false, true));
        for (name, expected) in
            [("w/new", "ok"), ("w/f", "ok"), ("w/.git", READ_ONLY), ("out/o", READ_ONLY), ("w", READ_ONLY)]
        {
            let result = remove(name);
            // The workspace itself is writable, but where it lies is not.
            let expected = if name == "w" { DENIED } else { expected };
            assert_eq!(result, expected, "{name}");
        }
        assert!(fixture.base.join("w/.git/config").exists() && fixture.base.join("out/o").exists());
    }

    #[test]
    fn what_may_not_be_read_is_not() {
        let fixture = fixture();
        let read = |name| fixture.at(name, Purpose::Read, |path| files::file::open(path, true).map(drop));
        assert_eq!((read("w/f").as_str(), read("w/secret/key").as_str()), ("ok", DENIED));
        let list = |name| fixture.at(name, Purpose::List, |path| files::directory::read(path).map(drop));
        assert_eq!((list("w").as_str(), list("w/secret").as_str()), ("ok", DENIED));
        assert_eq!(read("out/o"), "ok");
    }

    /// Without the care that the operations take: what the kernel alone makes of the policy.
    #[test]
    fn the_kernel_holds_the_policy_by_itself() {
        let fixture = fixture();
        let base = fixture.base.clone();
        let access = Access::to(&base.join("w/new"), Purpose::Write);
        let policy = fixture.policy.clone();
        let attempts = move |_: &[PathBuf], _: &View| {
            let at = |name: &str| base.join(name);
            let mut done = Vec::new();
            let mut attempt = |name: &str, result: std::io::Result<()>| {
                if result.is_ok() {
                    done.push(name.to_owned());
                }
            };
            attempt("write f", fs::write(at("w/f"), "x"));
            attempt("write src/new", fs::write(at("w/src/new"), "x"));
            attempt("read f", fs::read(at("w/f")).map(drop));
            attempt("read .git/config", fs::read(at("w/.git/config")).map(drop));
            attempt("read secret", fs::read(at("w/secret/key")).map(drop));
            attempt("list secret", fs::read_dir(at("w/secret")).map(drop));
            attempt("write out", fs::write(at("out/o"), "x"));
            attempt("remove .git/config", fs::remove_file(at("w/.git/config")));
            attempt("rename .git", fs::rename(at("w/.git"), at("w/git")));
            attempt("rename into .git", fs::rename(at("w/src/new"), at("w/.git/hooks/new")));
            attempt("rename secret", fs::rename(at("w/secret"), at("w/src/secret")));
            attempt("link secret", fs::hard_link(at("w/secret/key"), at("w/src/key")));
            attempt("truncate", fs::File::open(at("w/.git/config")).and_then(|file| file.set_len(0)));
            Ok(done)
        };
        let done = std::thread::scope(|scope| {
            scope.spawn(|| restricted(policy, &[access], attempts)).join().unwrap().unwrap()
        });
        assert_eq!(done, ["write f", "write src/new", "read f", "read .git/config"]);
    }

    #[test]
    fn a_copy_does_not_lead_into_what_is_protected() {
        let fixture = fixture();
        symlink(".git/hooks", fixture.base.join("w/src/hooks")).unwrap();
        fs::create_dir_all(fixture.base.join("out/tree/hooks")).unwrap();
        fs::write(fixture.base.join("out/tree/hooks/evil"), "x").unwrap();
        let source = fixture.base.join("out/tree");
        let copy = |name| {
            let source = source.clone();
            fixture.at(name, Purpose::Copy, move |path| files::copy::copy(&source, path, true))
        };
        assert_eq!(copy("w/copied"), "ok");
        assert_ne!(copy("w/src"), "ok", "a link in the destination leads to the hooks");
        assert_eq!(copy("w/.git"), READ_ONLY);
        assert!(!fixture.base.join("w/.git/hooks/evil").exists());
    }
}
