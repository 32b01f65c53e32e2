//! The only unsafe code of this crate: what a safe interface cannot promise.
//!
//! Namespaces can be entered only by a process with one thread, so that work is done in a forked child, which makes
//! nothing but system calls: no allocation, no lock, no library state.
#![allow(unsafe_code, reason = "each block says why it is sound")]

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use tokio::io::unix::AsyncFd;

/// An empty file inside every sandbox, for masks mounted later.
pub const EMPTY_FILE: &CStr = c"/legion/empty";

/// Watches a descriptor for readiness.
pub fn watch_fd(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: the descriptor is owned by the returned value, which removes it from the poller before closing it.
    unsafe { AsyncFd::register(fd) }.map_err(io::Error::from)
}

/// The user namespace that owns a mount namespace.
pub fn owner_of(namespace: &OwnedFd) -> io::Result<OwnedFd> {
    const NS_GET_USERNS: libc::Ioctl = 0xb701;
    // SAFETY: the request takes no argument and returns a new descriptor or -1.
    let fd = check(unsafe { libc::ioctl(namespace.as_raw_fd(), NS_GET_USERNS) })?;
    // SAFETY: the kernel has just made this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// What is mounted again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// [`EMPTY_FILE`] over the path.
    Mask,
    /// The path over itself.
    ReadOnly,
}

/// Mounts a guard again inside a sandbox: `path` is a path there.
pub fn mount_again(mounts: &OwnedFd, user: &OwnedFd, again: Again, path: &[u8]) -> io::Result<()> {
    let path = CString::new(path)?;
    let source = match again {
        Again::Mask => EMPTY_FILE,
        Again::ReadOnly => &path,
    };
    let (mounts, user) = (mounts.as_raw_fd(), user.as_raw_fd());
    in_child(|| {
        let none = std::ptr::null();
        let read_only = libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NOSUID | libc::MS_NODEV;
        // SAFETY: system calls on descriptors and on C strings that outlive them.
        unsafe {
            check(libc::setns(user, libc::CLONE_NEWUSER))?;
            check(libc::setns(mounts, libc::CLONE_NEWNS))?;
            check(libc::mount(source.as_ptr(), path.as_ptr(), none, libc::MS_BIND, none.cast()))?;
            check(libc::mount(none, path.as_ptr(), none, read_only, none.cast()))?;
        }
        Ok(())
    })
}

fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Runs `work` in a forked child and waits for it. `work` makes system calls only.
fn in_child(work: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    // SAFETY: between fork and _exit the child makes system calls only, which is what a fork of a process with several
    // threads allows; building an io::Error from errno neither allocates nor locks.
    let pid = check(unsafe {
        let pid = libc::fork();
        if pid == 0 {
            let status = match work() {
                Ok(()) => 0,
                Err(error) => error.raw_os_error().unwrap_or(libc::EINVAL),
            };
            libc::_exit(status);
        }
        pid
    })?;
    let mut status = 0;
    loop {
        // SAFETY: waits for our own child and writes into a live integer.
        match check(unsafe { libc::waitpid(pid, &raw mut status, 0) }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    match libc::WEXITSTATUS(status) {
        0 if libc::WIFEXITED(status) => Ok(()),
        code if libc::WIFEXITED(status) => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::other("the helper process was killed")),
    }
}
