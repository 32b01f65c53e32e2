//! Where a path of a caller leads: a directory and a name in it, and what is there.
//!
//! Invariant: the last name is never followed by the kernel. Whatever is judged and acted on is held by a descriptor, so
//! no exchange of names in between leads elsewhere; the path used for judging is where the kernel says it is.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, stat};
use rustix::io::Errno;

use super::call::{At, Lookup};
use super::caller::Caller;
use crate::fs::path_of;
use crate::limits::MAX_LINKS;

/// See the module.
#[derive(Debug)]
pub(super) struct Place {
    /// The directory, and the name in it; `None` for what was reached by a descriptor, or has no name of its own.
    pub(super) entry: Option<(OwnedFd, OsString)>,
    /// Absolute and real.
    pub(super) path: PathBuf,
    /// What is there now.
    pub(super) object: Option<Object>,
    /// The path ends with a slash.
    pub(super) directory_wanted: bool,
}

/// Something that exists, as a place.
#[derive(Debug)]
pub(super) struct Object {
    pub(super) descriptor: OwnedFd,
    pub(super) stat: Stat,
}

impl Object {
    pub(super) fn of(descriptor: OwnedFd) -> Result<Self, Errno> {
        let stat = fstat(&descriptor)?;
        Ok(Self { descriptor, stat })
    }

    pub(super) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.stat.st_mode)
    }

    /// A path that leads to it, and nowhere else.
    pub(super) fn by_descriptor(&self) -> String {
        format!("/proc/self/fd/{}", self.descriptor.as_raw_fd())
    }
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const DIRECTORY: OFlags = PLACE.union(OFlags::DIRECTORY);

/// Follows a path of the caller.
///
/// # Errors
/// Those the kernel would answer with.
pub(super) fn find(caller: &Caller, at: At, lookup: Lookup) -> Result<Place, Errno> {
    let text = caller.path(at.path)?.into_bytes();
    if text.is_empty() {
        if !lookup.empty {
            return Err(Errno::NOENT);
        }
        return of_descriptor(caller.directory(at.directory)?);
    }
    let base = if text.starts_with(b"/") { None } else { Some(caller.directory(at.directory)?) };
    follow(caller, base, text, lookup.follow)
}

/// What a descriptor of the caller is open on.
pub(super) fn of_descriptor(descriptor: OwnedFd) -> Result<Place, Errno> {
    let path = path_of(&descriptor)?;
    let object = Some(Object::of(descriptor)?);
    Ok(Place { entry: None, path, object, directory_wanted: false })
}

fn follow(
    caller: &Caller,
    mut base: Option<OwnedFd>,
    mut text: Vec<u8>,
    follow: bool,
) -> Result<Place, Errno> {
    let mut directory_wanted = false;
    for _ in 0..=MAX_LINKS {
        if text.starts_with(b"/") {
            base = None;
            text = as_the_caller(caller, text)?;
        }
        directory_wanted |= text.ends_with(b"/");
        let path = trimmed(&text);
        let (parent, name) = split(path);
        if matches!(name, b"" | b"." | b"..") {
            let directory = open(base.as_ref(), OsStr::from_bytes(path), DIRECTORY)?;
            return of_descriptor(directory).map(|place| Place { directory_wanted, ..place });
        }
        let parent = open(base.as_ref(), OsStr::from_bytes(parent), DIRECTORY)?;
        let name = OsStr::from_bytes(name);
        let object = match openat(&parent, name, PLACE | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(descriptor) => Some(Object::of(descriptor)?),
            Err(Errno::NOENT) => None,
            Err(error) => return Err(error),
        };
        if let Some(link) = object.as_ref().filter(|object| object.kind() == FileType::Symlink)
            && (follow || directory_wanted)
        {
            if is_in_proc(&link.stat) {
                // Its text is not where it leads.
                return of_descriptor(openat(&parent, name, PLACE, Mode::empty())?);
            }
            text = readlinkat(&link.descriptor, "", Vec::new())?.into_bytes();
            base = Some(parent);
            continue;
        }
        let path = path_of(&parent)?.join(name);
        return Ok(Place { entry: Some((parent, name.to_owned())), path, object, directory_wanted });
    }
    Err(Errno::LOOP)
}

fn open(base: Option<&OwnedFd>, path: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    match base {
        Some(base) => {
            openat(base, if path.is_empty() { OsStr::new(".") } else { path }, flags, Mode::empty())
        }
        None => openat(CWD, if path.is_empty() { OsStr::new("/") } else { path }, flags, Mode::empty()),
    }
}

/// Without slashes at the end, but the one of the root.
fn trimmed(path: &[u8]) -> &[u8] {
    let end =
        path.iter().rposition(|byte| *byte != b'/').map_or(usize::from(!path.is_empty()), |last| last + 1);
    &path[..end]
}

/// The directory part, with its slash, and the last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    path.split_at(path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1))
}

/// The names that stand for the caller itself, as names that stand for it here, too.
fn as_the_caller(caller: &Caller, text: Vec<u8>) -> Result<Vec<u8>, Errno> {
    let after = |prefix: &[u8]| {
        let rest = text.strip_prefix(prefix)?;
        (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
    };
    if !text.starts_with(b"/proc/") && !text.starts_with(b"/dev/") {
        return Ok(text);
    }
    let own = |place: &str, rest: &[u8]| [place.as_bytes(), rest].concat();
    let descriptors =
        [("/dev/fd", "/fd"), ("/dev/stdin", "/fd/0"), ("/dev/stdout", "/fd/1"), ("/dev/stderr", "/fd/2")];
    if let Some(rest) = after(b"/proc/self") {
        return Ok(own(&caller.own_directories()?.0, rest));
    }
    if let Some(rest) = after(b"/proc/thread-self") {
        return Ok(own(&caller.own_directories()?.1, rest));
    }
    for (name, place) in descriptors {
        if let Some(rest) = after(name.as_bytes()) {
            return Ok(own(&format!("{}{place}", caller.own_directories()?.0), rest));
        }
    }
    Ok(text)
}

fn is_in_proc(link: &Stat) -> bool {
    stat("/proc").is_ok_and(|proc| proc.st_dev == link.st_dev)
}

/// What a directory is called that has been removed.
pub(super) fn is_removed(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(b" (deleted)")
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::super::super::places::real;
    use super::*;

    fn found(directory: &OwnedFd, path: &str, follow: bool) -> Result<Place, Errno> {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let caller = Caller::open(thread.unsigned_abs()).unwrap();
        let text = CString::new(path).unwrap();
        let at = At { directory: directory.as_raw_fd(), path: text.as_ptr().addr() as u64 };
        find(&caller, at, Lookup { follow, empty: false })
    }

    #[test]
    fn paths_lead_where_the_kernel_would_go() {
        let dir = tempfile::tempdir().unwrap();
        let base = real(dir.path());
        fs::create_dir_all(base.join("d/e")).unwrap();
        fs::write(base.join("d/f"), "").unwrap();
        symlink("d/e", base.join("l")).unwrap();
        symlink("d/new", base.join("dangling")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        let here = openat(CWD, &base, DIRECTORY, Mode::empty()).unwrap();
        let path = |text: &str, follow| {
            let place = found(&here, text, follow).unwrap();
            (place.path.strip_prefix(&base).unwrap().to_owned(), place.object.is_some())
        };
        let absolute = format!("{}/d//./f", base.display());
        for (text, follow, expected, exists) in [
            ("d/f", true, "d/f", true),
            ("d/new", true, "d/new", false),
            (absolute.as_str(), true, "d/f", true),
            ("l/../f", true, "d/f", true),
            ("l", false, "l", true),
            ("l", true, "d/e", true),
            ("l/", false, "d/e", true),
            ("dangling", false, "dangling", true),
            ("dangling", true, "d/new", false),
            (".", true, "", true),
            ("d/..", true, "", true),
            ("l/new/", true, "d/e/new", false),
        ] {
            assert_eq!(path(text, follow), (expected.into(), exists), "{text}");
        }
        let error = |text: &str| found(&here, text, true).unwrap_err();
        assert_eq!(error("none/x"), Errno::NOENT);
        assert_eq!(error("d/f/x"), Errno::NOTDIR);
        assert_eq!(error("loop"), Errno::LOOP);
        assert_eq!(error(""), Errno::NOENT);
        assert!(found(&here, "d/e/", true).unwrap().directory_wanted);
    }

    #[test]
    fn what_stands_for_the_caller_is_the_caller() {
        let dir = tempfile::tempdir().unwrap();
        let base = real(dir.path());
        fs::write(base.join("f"), "").unwrap();
        let here = openat(CWD, &base, DIRECTORY, Mode::empty()).unwrap();
        let file = openat(&here, "f", OFlags::RDONLY, Mode::empty()).unwrap();
        for path in ["/dev/fd", "/proc/self/fd", "/proc/thread-self/fd"] {
            let place = found(&here, &format!("{path}/{}", file.as_raw_fd()), true).unwrap();
            assert_eq!(place.path, base.join("f"));
            assert!(place.entry.is_none());
        }
        let (read, _write) = rustix::pipe::pipe().unwrap();
        let place = found(&here, &format!("/dev/fd/{}", read.as_raw_fd()), true).unwrap();
        assert!(!place.path.is_absolute(), "{}", place.path.display());
        assert_eq!(found(&here, "/proc", true).unwrap().path, Path::new("/proc"));
    }
}
