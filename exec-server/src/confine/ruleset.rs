//! From a [`Policy`] to a Landlock ruleset.
//!
//! Landlock can grant, but not take away below what it has granted. A directory with something below it that may do less
//! is therefore not granted itself: what lies in it is, name by name, as far as it is there now. What is made in such a
//! directory later is out of the kernel's grants; the broker, which knows the policy, stands in for it.
//!
//! Invariant: a grant is given to what was opened without following links, never to a name, and only where the policy
//! allows all of it.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetError,
};
use legion_protocol::{ErrorCode, ErrorObject};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use super::policy::{Policy, Reach};
use crate::error::{Outcome, fs_error};
use crate::limits::MAX_LANDLOCK_RULES;

/// What is promised: everything but ioctls of devices. Truncation is the newest part of it (Linux 6.2).
const PROMISED: ABI = ABI::V3;

/// Devices every program may write to; all of them lose what they are given, or are the command's own terminal.
const DEVICES: [&str; 8] = [
    "/dev/full",
    "/dev/null",
    "/dev/ptmx",
    "/dev/pts",
    "/dev/random",
    "/dev/tty",
    "/dev/urandom",
    "/dev/zero",
];

/// A directory or file whose whole content the kernel lets the command use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grant {
    device: u64,
    inode: u64,
    reach: Reach,
}

/// What the kernel has been told to allow, by path.
#[derive(Debug, Default)]
pub(super) struct Grants(BTreeMap<PathBuf, Grant>);

impl Grants {
    /// Whether the kernel allows this much at a path by itself: then nobody has to stand in for it. A directory that was
    /// moved or replaced since is not the one that was granted.
    pub(super) fn cover(&self, path: &Path, reach: Reach) -> bool {
        path.ancestors().any(|path| {
            self.0.get(path).is_some_and(|grant| {
                grant.reach >= reach
                    && statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)
                        .is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (grant.device, grant.inode))
            })
        })
    }
}

/// A ruleset, and what it says.
pub(super) struct Compiled {
    pub(super) ruleset: RulesetCreated,
    pub(super) grants: Grants,
}

/// Makes the ruleset of a policy, as far as `most`: what only reads needs no grants for writing.
///
/// # Errors
/// -32600 where the kernel has no Landlock, or one that cannot keep the promise; -32603 for failures of the system.
pub(super) fn compile(policy: &Policy, most: Reach) -> Outcome<Compiled> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(PROMISED))
        .and_then(Ruleset::create)
        .map_err(|error| unsupported(&error))?;
    let mut compiler = Compiler { policy, ruleset, grants: Grants::default(), rules: 0 };
    for reach in [Reach::Read, Reach::Write].into_iter().filter(|reach| *reach <= most) {
        for (path, allowed) in policy.rules() {
            let inherits = path.parent().is_some_and(|parent| policy.reach(parent) >= reach);
            // What starts inside a region that reaches as far is met when that region is looked through.
            if allowed >= reach && !inherits {
                compiler.region(path, reach)?;
            }
        }
    }
    compiler.devices()?;
    Ok(Compiled { ruleset: compiler.ruleset, grants: compiler.grants })
}

fn unsupported(error: &RulesetError) -> ErrorObject {
    ErrorObject::invalid_request(format!(
        "this kernel cannot narrow a single call: Landlock of Linux 6.2 or newer is needed ({error}); send `sandbox: \
         null` (codex: --dangerously-bypass-approvals-and-sandbox) and rely on the sandbox around this exec-server"
    ))
}

fn failed(error: &RulesetError) -> ErrorObject {
    ErrorObject::new(ErrorCode::Internal, format!("cannot narrow this call: {error}"))
}

struct Compiler<'a> {
    policy: &'a Policy,
    ruleset: RulesetCreated,
    grants: Grants,
    rules: usize,
}

impl Compiler<'_> {
    fn region(&mut self, path: &Path, reach: Reach) -> Outcome<()> {
        match open(CWD, path) {
            Ok(opened) => self.expand(path, &opened, reach),
            // What is not there needs no grant, and what cannot be reached has none.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(()),
            Err(error) => Err(fs_error(error)),
        }
    }

    /// Grants a path, or what lies in it when something below it is to reach less far.
    fn expand(&mut self, path: &Path, opened: &OwnedFd, reach: Reach) -> Outcome<()> {
        if !self.policy.narrows_below(path, reach) {
            return self.grant(path, opened, reach);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(directory) = openat(opened, ".", flags, Mode::empty()) else { return Ok(()) };
        for entry in Dir::read_from(&directory).map_err(fs_error)? {
            let entry = entry.map_err(fs_error)?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let path = path.join(OsStr::from_bytes(name.to_bytes()));
            if self.policy.reach(&path) < reach {
                continue;
            }
            // It may have vanished; a link leads to where other rules hold.
            let Ok(opened) = open(&directory, name) else { continue };
            if kind(&opened)? == FileType::Symlink {
                continue;
            }
            if self.rules >= MAX_LANDLOCK_RULES {
                return exhausted(reach);
            }
            self.expand(&path, &opened, reach)?;
        }
        Ok(())
    }

    fn grant(&mut self, path: &Path, opened: &OwnedFd, reach: Reach) -> Outcome<()> {
        let stat = fstat(opened).map_err(fs_error)?;
        let access = if reach == Reach::Write {
            AccessFs::from_write(PROMISED)
        } else {
            AccessFs::from_read(PROMISED)
        };
        self.add(opened, access)?;
        let grant = Grant { device: stat.st_dev, inode: stat.st_ino, reach };
        self.grants.0.insert(path.to_owned(), grant);
        Ok(())
    }

    fn add(&mut self, opened: &OwnedFd, access: BitFlags<AccessFs>) -> Outcome<()> {
        self.rules += 1;
        add_rule(&mut self.ruleset, opened, access)
    }

    fn devices(&mut self) -> Outcome<()> {
        for path in DEVICES.map(Path::new) {
            if self.policy.reach(path) != Reach::Read {
                continue;
            }
            let Ok(opened) = open(CWD, path) else { continue };
            if matches!(kind(&opened)?, FileType::CharacterDevice | FileType::Directory) {
                self.add(&opened, AccessFs::WriteFile.into())?;
            }
        }
        Ok(())
    }
}

/// What may be written is written through the broker when there is no grant, only slower; reading has no such way for
/// programs that are to be executed.
fn exhausted(reach: Reach) -> Outcome<()> {
    if reach == Reach::Write {
        return Ok(());
    }
    Err(ErrorObject::invalid_request(format!(
        "the sandbox object cannot be expressed: what it denies lies beside more than {MAX_LANDLOCK_RULES} names"
    )))
}

/// Adds a grant for one opened file or directory; rights that only directories have are left out for a file.
pub(super) fn add_rule(
    ruleset: &mut RulesetCreated,
    opened: &OwnedFd,
    access: BitFlags<AccessFs>,
) -> Outcome<()> {
    let access = match kind(opened)? {
        FileType::Directory => access,
        _ => access & AccessFs::from_file(PROMISED),
    };
    ruleset.add_rule(PathBeneath::new(opened, access)).map(drop).map_err(|error| failed(&error))
}

/// A place, not its content.
pub(super) fn open(directory: impl AsFd, path: impl rustix::path::Arg) -> Result<OwnedFd, Errno> {
    openat(directory, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

fn kind(opened: &OwnedFd) -> Outcome<FileType> {
    Ok(FileType::from_raw_mode(fstat(opened).map_err(fs_error)?.st_mode))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::places::real;
    use super::*;

    fn grants(policy: &Policy) -> Grants {
        compile(policy, Reach::Write).unwrap().grants
    }

    #[test]
    fn what_is_whole_is_granted_whole_and_what_is_not_name_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let base = real(dir.path());
        for name in ["w/.git/hooks", "w/src/deep", "w/sub/.git", "w/sub/other"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        fs::write(base.join("w/file"), "").unwrap();
        std::os::unix::fs::symlink("src", base.join("w/link")).unwrap();
        let mut policy = Policy::default();
        policy.add("/".into(), Reach::Read);
        policy.add(base.join("w"), Reach::Write);
        policy.add(base.join("w/.git"), Reach::Read);
        policy.add(base.join("w/sub/.git"), Reach::Read);
        policy.add(base.join("w/missing"), Reach::Read);
        let grants = grants(&policy);
        let writes = |name: &str| grants.cover(&base.join(name), Reach::Write);
        for name in ["w/src", "w/src/deep/new", "w/file", "w/sub/other/x"] {
            assert!(writes(name), "{name}");
        }
        for name in
            ["w", "w/new", "w/.git", "w/.git/hooks/x", "w/sub", "w/sub/new", "w/missing", "w/link", "x"]
        {
            assert!(!writes(name), "{name}");
        }
        assert!(
            grants.cover(&base.join("w/.git"), Reach::Read) && grants.cover(Path::new("/etc"), Reach::Read)
        );
        // Another directory by the name of a granted one is another directory.
        fs::rename(base.join("w/src"), base.join("w/moved")).unwrap();
        fs::create_dir(base.join("w/src")).unwrap();
        assert!(!writes("w/src") && !writes("w/moved"));
    }

    /// On a thread for which the kernel has no Landlock.
    #[test]
    fn without_landlock_a_wish_is_refused() {
        use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

        let error = std::thread::spawn(|| {
            let absent = [(libc::SYS_landlock_create_ruleset, Vec::new())].into();
            let action = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
            let arch = std::env::consts::ARCH.try_into().unwrap();
            let filter = SeccompFilter::new(absent, SeccompAction::Allow, action, arch).unwrap();
            apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
            let mut policy = Policy::default();
            policy.add("/".into(), Reach::Read);
            compile(&policy, Reach::Write).map(drop).unwrap_err()
        });
        let error = error.join().unwrap();
        assert_eq!(error.code.number(), -32600);
        assert!(error.message.starts_with("this kernel cannot narrow a single call"), "{}", error.message);
    }

    #[test]
    fn what_is_denied_is_left_out_of_what_may_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let base = real(dir.path());
        for name in ["a/secret", "a/plain", "b"] {
            fs::create_dir_all(base.join(name)).unwrap();
        }
        let mut policy = Policy::default();
        policy.add(base.clone(), Reach::Read);
        policy.add(base.join("a/secret"), Reach::Nothing);
        let grants = grants(&policy);
        let reads = |name: &str| grants.cover(&base.join(name), Reach::Read);
        assert!(reads("a/plain/x") && reads("b"));
        assert!(!reads("") && !reads("a") && !reads("a/secret/x") && !reads("a/new"));
        assert!(!grants.cover(Path::new("/etc"), Reach::Read));
    }
}
