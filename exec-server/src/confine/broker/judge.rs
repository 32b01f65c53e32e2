//! What becomes of one call: refused, left to the kernel, or done here in the caller's place.
//!
//! Invariant: a call is left to the kernel only where Landlock decides on it anyway; the kernel reads the paths again, so
//! nothing that was found out here may be relied on then. What Landlock does not know (modes, owners, times) is never left
//! to it. What is done here is done on descriptors, to a name that is not followed, where the policy allows writing; the
//! one exception is reading where only new names keep the kernel from allowing it.
//!
//! Errors are those of a file system that is mounted read-only, as at the original.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, chmodat, chownat,
    fchmod, fcntl_getfl, fcntl_setfl, ftruncate, linkat, mkdirat, mknodat, openat, renameat_with, symlinkat,
    unlinkat, utimensat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};

use super::super::filter::writing_flags;
use super::super::policy::{Policy, Reach};
use super::super::ruleset::{Grants, open as open_place};
use super::call::{At, Call, Lookup, Target, Times};
use super::caller::Caller;
use super::place::{Object, Place, find, is_removed, of_descriptor};

/// What to answer.
#[derive(Debug)]
pub(super) enum Reply {
    /// The kernel does it, under Landlock.
    Kernel,
    /// It was done here.
    Done,
    /// An opened file for the caller.
    Descriptor { opened: OwnedFd, close_on_exec: bool },
}

/// Who may do what is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Kernel,
    Broker,
}

/// The policy of one confined command.
pub(super) struct Judge<'a> {
    pub(super) policy: &'a Policy,
    pub(super) grants: &'a Grants,
    /// Of this process: what it takes from new files the caller may not want to be taken.
    pub(super) umask: u32,
    /// The call still waits, so what was read of its caller was its caller's.
    pub(super) still_waits: &'a dyn Fn() -> bool,
}

const FOLLOW: Lookup = Lookup { follow: true, empty: false };
const NO_FOLLOW: Lookup = Lookup { follow: false, empty: false };

impl Judge<'_> {
    /// Decides on a call, and does what has to be done here.
    pub(super) fn judge(&self, caller: &Caller, call: Call) -> Result<Reply, Errno> {
        match call {
            Call::Open { at, flags, mode } => self.open(caller, at, flags, mode),
            Call::MakeDirectory { at, mode } => {
                let place = self.find(caller, at, NO_FOLLOW)?;
                self.make(&place, |parent, name| {
                    let mode = mode & 0o1777 & !caller.umask()?;
                    mkdirat(parent, name, Mode::from_raw_mode(mode))?;
                    self.restore_mode(parent, name, mode)
                })
            }
            Call::MakeNode { at, mode, device } => {
                let place = self.find(caller, at, NO_FOLLOW)?;
                let kind = if mode & libc::S_IFMT == 0 { libc::S_IFREG } else { mode };
                let kind = FileType::from_raw_mode(kind);
                self.make(&place, |parent, name| {
                    if !matches!(kind, FileType::RegularFile | FileType::Fifo | FileType::Socket) {
                        return Err(Errno::PERM);
                    }
                    let mode = mode & 0o7777 & !caller.umask()?;
                    mknodat(parent, name, kind, Mode::from_raw_mode(mode), device)?;
                    self.restore_mode(parent, name, mode)
                })
            }
            Call::MakeLink { target, at } => {
                let target = caller.path(target)?;
                let place = self.find(caller, at, NO_FOLLOW)?;
                self.make(&place, |parent, name| symlinkat(&target, parent, name))
            }
            Call::Link { from, lookup, to } => self.link(caller, from, lookup, to),
            Call::Rename { from, to, flags } => self.rename(caller, from, to, flags),
            Call::Remove { at, directory } => self.remove(caller, at, directory),
            Call::Truncate { at, length } => self.truncate(caller, at, length),
            Call::Mode { target, mode } => {
                let object = self.object(caller, target)?;
                chmodat(CWD, object.by_descriptor(), Mode::from_raw_mode(mode), AtFlags::empty())?;
                Ok(Reply::Done)
            }
            Call::Owner { target, user, group } => {
                let object = self.object(caller, target)?;
                let user = (user != u32::MAX).then(|| Uid::from_raw(user));
                let group = (group != u32::MAX).then(|| Gid::from_raw(group));
                chownat(&object.descriptor, "", user, group, AtFlags::EMPTY_PATH)?;
                Ok(Reply::Done)
            }
            Call::Times { target, times } => {
                let times = read_times(caller, times)?;
                let object = self.object(caller, target)?;
                utimensat(&object.descriptor, "", &times, AtFlags::EMPTY_PATH)?;
                Ok(Reply::Done)
            }
        }
    }

    fn find(&self, caller: &Caller, at: At, lookup: Lookup) -> Result<Place, Errno> {
        let place = find(caller, at, lookup)?;
        // Nobody waits for this answer any more.
        if (self.still_waits)() { Ok(place) } else { Err(Errno::INTR) }
    }

    /// What the caller is told about a path that the policy keeps from it.
    fn refusal(&self, path: &Path) -> Errno {
        if self.policy.reach(path) == Reach::Nothing { Errno::ACCESS } else { Errno::ROFS }
    }

    /// Whether a name may be made, replaced or removed where it is: the directory changes with it.
    fn entry(&self, path: &Path) -> Result<Who, Errno> {
        let parent = path.parent().ok_or(Errno::BUSY)?;
        if self.policy.reach(path) < Reach::Write || self.policy.reach(parent) < Reach::Write {
            return Err(self.refusal(path));
        }
        Ok(if self.grants.cover(parent, Reach::Write) { Who::Kernel } else { Who::Broker })
    }

    fn make(
        &self,
        place: &Place,
        make: impl FnOnce(&OwnedFd, &OsStr) -> Result<(), Errno>,
    ) -> Result<Reply, Errno> {
        let Some((parent, name)) = &place.entry else { return Err(Errno::EXIST) };
        if place.object.is_some() {
            return Err(Errno::EXIST);
        }
        match self.entry(&place.path)? {
            Who::Kernel => Ok(Reply::Kernel),
            Who::Broker => make(parent, name).map(|()| Reply::Done),
        }
    }

    fn remove(&self, caller: &Caller, at: At, directory: bool) -> Result<Reply, Errno> {
        let place = self.find(caller, at, NO_FOLLOW)?;
        // What has no name of its own cannot be removed by it, and the kernel knows the words for it.
        let Some((parent, name)) = &place.entry else { return Ok(Reply::Kernel) };
        if place.object.is_none() {
            return Err(Errno::NOENT);
        }
        if self.entry(&place.path)? == Who::Kernel {
            return Ok(Reply::Kernel);
        }
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        if place.directory_wanted && !directory {
            return Err(Errno::NOTDIR);
        }
        unlinkat(parent, name, flags)?;
        Ok(Reply::Done)
    }

    fn rename(&self, caller: &Caller, from: At, to: At, flags: u32) -> Result<Reply, Errno> {
        let from = find(caller, from, NO_FOLLOW)?;
        let to = self.find(caller, to, NO_FOLLOW)?;
        let (Some((old_parent, old)), Some((new_parent, new))) = (&from.entry, &to.entry) else {
            return Ok(Reply::Kernel);
        };
        let Some(object) = &from.object else { return Err(Errno::NOENT) };
        let who = (self.entry(&from.path)?, self.entry(&to.path)?);
        // With it would move what has rules of its own, out of them.
        if [&from.path, &to.path].iter().any(|path| self.policy.narrows_below(path, Reach::Write)) {
            return Err(Errno::BUSY);
        }
        if who == (Who::Kernel, Who::Kernel) {
            return Ok(Reply::Kernel);
        }
        if (from.directory_wanted || to.directory_wanted) && object.kind() != FileType::Directory {
            return Err(Errno::NOTDIR);
        }
        renameat_with(old_parent, old, new_parent, new, RenameFlags::from_bits_retain(flags))?;
        Ok(Reply::Done)
    }

    /// A file has one set of rules: another name for it is only given where both allow the same.
    fn link(&self, caller: &Caller, from: At, lookup: Lookup, to: At) -> Result<Reply, Errno> {
        let from = find(caller, from, lookup)?;
        let to = self.find(caller, to, NO_FOLLOW)?;
        let Some(object) = &from.object else { return Err(Errno::NOENT) };
        if object.kind() == FileType::Directory {
            return Err(Errno::PERM);
        }
        let Some((parent, name)) = &to.entry else { return Err(Errno::EXIST) };
        if to.object.is_some() {
            return Err(Errno::EXIST);
        }
        let target = self.entry(&to.path)?;
        if self.policy.reach(&from.path) < Reach::Write {
            return Err(Errno::XDEV);
        }
        let covered = from.entry.is_some() && self.grants.cover(&from.path, Reach::Write);
        if covered && target == Who::Kernel {
            return Ok(Reply::Kernel);
        }
        match &from.entry {
            // A link to a link: the way over the descriptor would follow it.
            Some((old_parent, old)) if object.kind() == FileType::Symlink => {
                linkat(old_parent, old, parent, name, AtFlags::empty())?;
            }
            _ => linkat(CWD, object.by_descriptor(), parent, name, AtFlags::SYMLINK_FOLLOW)?,
        }
        Ok(Reply::Done)
    }

    fn truncate(&self, caller: &Caller, at: At, length: u64) -> Result<Reply, Errno> {
        let place = self.find(caller, at, FOLLOW)?;
        let Some(object) = &place.object else { return Err(Errno::NOENT) };
        if object.kind() != FileType::RegularFile || object.stat.st_nlink == 0 {
            return Ok(Reply::Kernel);
        }
        match self.content(&place.path, Reach::Write)? {
            Who::Kernel => Ok(Reply::Kernel),
            Who::Broker => {
                let opened = reopen(object, OFlags::WRONLY)?;
                ftruncate(&opened, length)?;
                Ok(Reply::Done)
            }
        }
    }

    /// Whether what is in a file may be read or written.
    fn content(&self, path: &Path, wanted: Reach) -> Result<Who, Errno> {
        if self.policy.reach(path) < wanted {
            return Err(self.refusal(path));
        }
        Ok(if self.grants.cover(path, wanted) { Who::Kernel } else { Who::Broker })
    }

    /// What attributes may be changed of.
    fn object(&self, caller: &Caller, target: Target) -> Result<Object, Errno> {
        let (place, by_descriptor) = match target {
            Target::Descriptor(number) => (of_descriptor(caller.descriptor(number)?)?, true),
            Target::Path(at, lookup) => (find(caller, at, lookup)?, false),
        };
        if !(self.still_waits)() {
            return Err(Errno::INTR);
        }
        let Place { path, object, entry, .. } = place;
        let object = object.ok_or(Errno::NOENT)?;
        // A pipe, a socket, or a file nobody else can reach: the caller holds it already.
        let own = by_descriptor && (!path.is_absolute() || object.stat.st_nlink == 0);
        // Its name is gone, another one is not: there it may lie where other rules hold.
        let elsewhere = entry.is_none() && is_removed(&path);
        if own || (self.policy.reach(&path) == Reach::Write && !elsewhere) {
            return Ok(object);
        }
        Err(self.refusal(&path))
    }

    fn open(&self, caller: &Caller, at: At, flags: i32, mode: u32) -> Result<Reply, Errno> {
        let has = |flag: i32| flags & flag == flag;
        let exclusive = has(libc::O_CREAT | libc::O_EXCL);
        let lookup = if exclusive || has(libc::O_NOFOLLOW) { NO_FOLLOW } else { FOLLOW };
        let place = self.find(caller, at, lookup)?;
        let Some(object) = &place.object else {
            return if has(libc::O_CREAT) {
                self.create(caller, &place, flags, mode)
            } else {
                Err(Errno::NOENT)
            };
        };
        // Creating what is there changes nothing.
        let writes = flags.cast_unsigned() & writing_flags() & !libc::O_CREAT.cast_unsigned() != 0;
        match object.kind() {
            _ if exclusive => Err(Errno::EXIST),
            FileType::Symlink => Err(Errno::LOOP),
            FileType::Directory if has(libc::O_TMPFILE) => self.unnamed(caller, &place, object, flags, mode),
            FileType::Directory if writes || has(libc::O_CREAT) => Err(Errno::ISDIR),
            FileType::Directory | FileType::RegularFile if object.stat.st_nlink > 0 => {
                if object.kind() == FileType::RegularFile
                    && (place.directory_wanted || has(libc::O_DIRECTORY))
                {
                    return Err(Errno::NOTDIR);
                }
                match self.content(&place.path, if writes { Reach::Write } else { Reach::Read })? {
                    Who::Kernel => Ok(Reply::Kernel),
                    Who::Broker => give(reopen(object, plain(flags))?, flags),
                }
            }
            // Pipes, devices, sockets, files without a name: opening some of them waits for somebody.
            _ => Ok(Reply::Kernel),
        }
    }

    fn create(&self, caller: &Caller, place: &Place, flags: i32, mode: u32) -> Result<Reply, Errno> {
        let Some((parent, name)) = &place.entry else { return Err(Errno::ISDIR) };
        if place.directory_wanted {
            return Err(Errno::ISDIR);
        }
        if self.entry(&place.path)? == Who::Kernel {
            return Ok(Reply::Kernel);
        }
        let mode = mode & 0o7777 & !caller.umask()?;
        // Nothing was there; if something is by now, the kernel does not follow it and says so.
        let flags_here = plain(flags) | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let opened = openat(parent, name, flags_here, Mode::from_raw_mode(mode))?;
        if self.umask & mode != 0 {
            fchmod(&opened, Mode::from_raw_mode(mode))?;
        }
        give(opened, flags)
    }

    /// Gives a new entry the mode its maker wants, where our own umask has taken something from it.
    fn restore_mode(&self, parent: &OwnedFd, name: &OsStr, mode: u32) -> Result<(), Errno> {
        if self.umask & mode == 0 {
            return Ok(());
        }
        let object = Object::of(open_place(parent, name)?)?;
        chmodat(CWD, object.by_descriptor(), Mode::from_raw_mode(mode), AtFlags::empty())
    }

    /// A file without a name in a directory.
    fn unnamed(
        &self,
        caller: &Caller,
        place: &Place,
        directory: &Object,
        flags: i32,
        mode: u32,
    ) -> Result<Reply, Errno> {
        if self.content(&place.path, Reach::Write)? == Who::Kernel {
            return Ok(Reply::Kernel);
        }
        let mode = Mode::from_raw_mode(mode & 0o7777 & !caller.umask()?);
        let linkable = OFlags::from_bits_retain((flags & libc::O_EXCL).cast_unsigned());
        let flags_here = plain(flags) | OFlags::TMPFILE | linkable;
        give(openat(&directory.descriptor, ".", flags_here, mode)?, flags)
    }
}

/// The flags of the caller that belong to the opened file. What decides on which file that is, is decided; and nothing
/// here waits for anybody.
fn plain(flags: i32) -> OFlags {
    let decided = libc::O_CREAT | libc::O_EXCL | libc::O_NOFOLLOW | (libc::O_TMPFILE & !libc::O_DIRECTORY);
    OFlags::from_bits_retain((flags & !decided).cast_unsigned())
        | OFlags::CLOEXEC
        | OFlags::NOCTTY
        | OFlags::NONBLOCK
}

/// Opens what a place holds, and nothing else.
fn reopen(object: &Object, flags: OFlags) -> Result<OwnedFd, Errno> {
    openat(CWD, object.by_descriptor(), flags | OFlags::CLOEXEC, Mode::empty())
}

fn give(opened: OwnedFd, flags: i32) -> Result<Reply, Errno> {
    if flags & libc::O_NONBLOCK == 0 {
        fcntl_setfl(&opened, fcntl_getfl(&opened)? - OFlags::NONBLOCK)?;
    }
    Ok(Reply::Descriptor { opened, close_on_exec: flags & libc::O_CLOEXEC != 0 })
}

fn read_times(caller: &Caller, times: Times) -> Result<Timestamps, Errno> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let (last_access, last_modification) = match times {
        Times::Nanoseconds(0) | Times::Microseconds(0) | Times::Seconds(0) => (now, now),
        Times::Nanoseconds(address) => {
            let [a, b, c, d] = caller.words(address)?;
            (Timespec { tv_sec: a, tv_nsec: b }, Timespec { tv_sec: c, tv_nsec: d })
        }
        Times::Microseconds(address) => {
            let [a, b, c, d] = caller.words(address)?;
            let valid = |microseconds: i64| (0..1_000_000).contains(&microseconds);
            if !valid(b) || !valid(d) {
                return Err(Errno::INVAL);
            }
            (Timespec { tv_sec: a, tv_nsec: b * 1000 }, Timespec { tv_sec: c, tv_nsec: d * 1000 })
        }
        Times::Seconds(address) => {
            let [a, b] = caller.words(address)?;
            (Timespec { tv_sec: a, tv_nsec: 0 }, Timespec { tv_sec: b, tv_nsec: 0 })
        }
    };
    Ok(Timestamps { last_access, last_modification })
}
