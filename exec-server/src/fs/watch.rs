//! `fs/watchMissing`: tells once when a missing path may have appeared (SPEC 8). A client caches "there is no
//! AGENTS.md" with it, so a notification too many costs a look and one too few a wrong answer.
//!
//! Invariant: every directory on the way to a path is watched before the next name is looked up in it, so nothing can
//! happen unseen between the look and the watch. Where changes could go unseen nothing is watched.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, fstatfs, openat, readlinkat};
use rustix::io::Errno;
use tokio::io::Interest;

use super::file_type;
use crate::limits::{MAX_LINKS, MAX_WATCHED_NAMES};
use crate::sys;

/// Whatever may make a name appear, vanish or lead elsewhere, and whatever happens to the directory itself.
const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR);

/// File systems whose content changes without an event here: made up by the kernel, or changed by somebody else.
const BLIND: [u64; 10] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x6969,      // nfs
    0x0102_1997, // 9p
    0x6573_5546, // fuse, virtiofs
    0x517b,      // smb
    0xff53_4d42, // cifs
    0xfe53_4d42, // smb2
    0x5346_414f, // afs
    0x00c3_6400, // ceph
];

/// Watched directories and the names in them that count.
pub(crate) struct Watch {
    events: OwnedFd,
    names: HashMap<i32, HashSet<OsString>>,
    count: usize,
}

/// What a path leads to.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Something,
    Nothing,
}

impl Watch {
    /// Watches for one of `missing` to appear or `present` to go away; `None` when the first is there already, the
    /// second is not, or a change could go unseen.
    pub(crate) fn start(missing: &[impl AsRef<Path>], present: Option<&Path>) -> Option<Self> {
        let events = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok()?;
        let mut watch = Self { events, names: HashMap::new(), count: 0 };
        let wanted = missing.iter().map(|path| (path.as_ref(), Found::Nothing));
        let wanted = wanted.chain(present.map(|path| (path, Found::Something)));
        for (path, found) in wanted {
            if watch.trace(path).ok()? != found {
                return None;
            }
        }
        Some(watch)
    }

    /// Follows a path name by name and link by link as the kernel would, and watches on the way.
    fn trace(&mut self, path: &Path) -> Result<Found, Errno> {
        const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);
        let mut directory = openat(CWD, "/", DIRECTORY, Mode::empty())?;
        let mut names = reversed_names(path.as_os_str());
        let mut links = 0;
        while let Some(name) = names.pop() {
            if name == ".." {
                directory = openat(&directory, "..", DIRECTORY, Mode::empty())?;
                continue;
            }
            self.add(&directory, &name)?;
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let next = match openat(&directory, &name, flags, Mode::empty()) {
                Ok(next) => next,
                Err(Errno::NOENT) => return Ok(Found::Nothing),
                Err(error) => return Err(error),
            };
            match file_type(&fstat(&next)?) {
                FileType::Directory => directory = next,
                FileType::Symlink => {
                    links += 1;
                    let target = readlinkat(&next, "", Vec::new())?;
                    if links > MAX_LINKS || names.len() > MAX_WATCHED_NAMES {
                        return Err(Errno::LOOP);
                    }
                    if target.as_bytes().starts_with(b"/") {
                        directory = openat(CWD, "/", DIRECTORY, Mode::empty())?;
                    }
                    names.extend(reversed_names(OsStr::from_bytes(target.as_bytes())));
                }
                _ if names.is_empty() => {}
                _ => return Err(Errno::NOTDIR),
            }
        }
        Ok(Found::Something)
    }

    fn add(&mut self, directory: &OwnedFd, name: &OsStr) -> Result<(), Errno> {
        if BLIND.contains(&magic(directory)?) {
            return Err(Errno::NOTSUP);
        }
        // By descriptor: what is watched is what the name is looked up in.
        let path = format!("/proc/self/fd/{}", directory.as_raw_fd());
        let watch = inotify::add_watch(&self.events, path, CHANGES)?;
        if self.names.entry(watch).or_default().insert(name.to_owned()) {
            self.count += 1;
        }
        if self.count > MAX_WATCHED_NAMES { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// Waits for the first event that counts.
    ///
    /// # Errors
    /// The event loop refused the descriptor.
    pub(crate) async fn changed(self) -> io::Result<()> {
        let Self { events, names, .. } = self;
        let events = sys::register(events, Interest::READABLE)?;
        loop {
            let read = events.async_io(Interest::READABLE, |events| Ok(read(events, &names)?));
            // What cannot be read any more has changed for all we know.
            if read.await.unwrap_or(true) {
                return Ok(());
            }
        }
    }
}

fn magic(directory: &OwnedFd) -> Result<u64, Errno> {
    // The type differs between architectures; the values above fit into 32 bits.
    let kind = fstatfs(directory)?.f_type;
    Ok(u64::try_from(kind).unwrap_or(u64::MAX) & 0xffff_ffff)
}

/// Reads one buffer of events; whether one of them counts.
fn read(events: &OwnedFd, names: &HashMap<i32, HashSet<OsString>>) -> Result<bool, Errno> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut reader = Reader::new(events, &mut buffer);
    loop {
        let event = reader.next()?;
        let counts = match event.file_name() {
            Some(name) => {
                let name = OsStr::from_bytes(name.to_bytes());
                // Attributes of what is in a directory lead nowhere else.
                !event.events().contains(ReadFlags::ATTRIB)
                    && names.get(&event.wd()).is_some_and(|names| names.contains(name))
            }
            // The directory itself, or events were lost.
            None => true,
        };
        if counts || reader.is_buffer_empty() {
            return Ok(counts);
        }
    }
}

/// The names of a path, the first one last; `.` and repeated slashes are no names.
fn reversed_names(path: &OsStr) -> Vec<OsString> {
    let names = path.as_bytes().split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b"."));
    names.rev().map(|name| OsString::from_vec(name.to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;

    /// Whether it ends; what it waits for has happened before, so no time is needed.
    async fn fires(watch: Watch) -> bool {
        tokio::time::timeout(Duration::from_millis(200), watch.changed()).await.is_ok()
    }

    fn start(missing: &[PathBuf]) -> Option<Watch> {
        Watch::start(missing, None)
    }

    #[tokio::test]
    async fn only_the_names_on_the_way_count() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let watch = start(&[at("m"), at("x/y/z")]).unwrap();
        fs::write(at("other"), "").unwrap();
        fs::write(at("other"), "again").unwrap();
        fs::create_dir(at("y")).unwrap();
        assert!(!fires(watch).await);
        for name in ["m", "x"] {
            let watch = start(&[at("m"), at("x/y/z")]).unwrap();
            fs::write(at(name), "").unwrap();
            assert!(fires(watch).await, "{name}");
            fs::remove_file(at(name)).unwrap();
        }
    }

    #[tokio::test]
    async fn a_path_may_appear_by_every_way_there_is() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("a/b")).unwrap();
        fs::create_dir_all(at("full/b")).unwrap();
        fs::write(at("full/b/m"), "").unwrap();
        symlink("nowhere", at("dangling")).unwrap();
        symlink("a", at("link")).unwrap();
        let watch = start(&[at("a/b/m")]).unwrap();
        fs::rename(at("a"), at("old")).unwrap();
        fs::rename(at("full"), at("a")).unwrap();
        assert!(fires(watch).await, "a directory above it was exchanged");
        fs::remove_file(at("a/b/m")).unwrap();
        let watch = start(&[at("dangling")]).unwrap();
        fs::write(at("nowhere"), "").unwrap();
        assert!(fires(watch).await, "a link leads somewhere now");
        let watch = start(&[at("link/c")]).unwrap();
        fs::remove_file(at("link")).unwrap();
        assert!(fires(watch).await, "a link on the way changed");
        let watch = start(&[at("a/b/m")]).unwrap();
        fs::set_permissions(at("a/b"), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        assert!(fires(watch).await, "a directory on the way may have become readable");
    }

    #[tokio::test]
    async fn what_is_present_may_go_away() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("p"), "").unwrap();
        let watch = Watch::start(&[at("m")], Some(&at("p"))).unwrap();
        fs::write(at("p"), "its content does not matter").unwrap();
        assert!(!fires(watch).await);
        let watch = Watch::start(&[at("m")], Some(&at("p"))).unwrap();
        fs::remove_file(at("p")).unwrap();
        assert!(fires(watch).await);
        assert!(Watch::start(&[at("m")], Some(&at("p"))).is_none());
    }

    #[test]
    fn what_cannot_be_watched_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("f"), "").unwrap();
        symlink("loop", at("loop")).unwrap();
        for path in [at("f"), at("f/x"), at("loop"), at("loop/x"), "/".into(), "/proc/self/none".into()] {
            assert!(start(std::slice::from_ref(&path)).is_none(), "{}", path.display());
        }
        let deep: PathBuf = std::iter::repeat_n("x", MAX_WATCHED_NAMES).collect();
        assert!(start(&[at("m").join(deep)]).is_some(), "names below a missing one cost nothing");
    }
}
