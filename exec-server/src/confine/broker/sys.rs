//! The kernel's interface to the listener of a system call filter (`seccomp_unotify`).
//!
//! Invariant: the kernel reads and writes structures of the types it defines, and nothing is kept beyond a call.
#![allow(unsafe_code, reason = "a file for unsafe code; see the invariant above")]

use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

/// Where the calls of a filter arrive.
#[derive(Debug)]
pub(crate) struct Listener(OwnedFd);

/// One call that waits for an answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Notification {
    pub(crate) id: u64,
    /// The thread that made it.
    pub(crate) thread: u32,
    pub(crate) number: i64,
    pub(crate) arguments: [u64; 6],
}

impl Listener {
    /// A descriptor that the kernel gave for a filter.
    pub(crate) fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Answered calls go on at once, on this processor. Older kernels do without.
    pub(crate) fn wake_synchronously(&self) {
        const SYNC_WAKE_UP: u64 = 1;
        // SAFETY: the request takes its flags by value.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) };
    }

    /// The next call; `None` when the last process with the filter is gone.
    pub(crate) fn next(&self) -> io::Result<Option<Notification>> {
        loop {
            let mut ready = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !ready[0].revents().contains(PollFlags::IN) {
                return Ok(None);
            }
            // SAFETY: all zeros is a valid value, and the one the kernel asks for.
            let mut received: libc::seccomp_notif = unsafe { zeroed() };
            // SAFETY: the kernel writes a structure of this type.
            let result =
                unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut received) };
            if result < 0 {
                match io::Error::last_os_error().raw_os_error() {
                    // Whoever called was killed in between.
                    Some(libc::ENOENT | libc::EINTR) => continue,
                    _ => return Err(io::Error::last_os_error()),
                }
            }
            return Ok(Some(Notification {
                id: received.id,
                thread: received.pid,
                number: received.data.nr.into(),
                arguments: received.data.args,
            }));
        }
    }

    /// Whether the call still waits: then its thread's number has not been given to another.
    pub(crate) fn is_waiting(&self, id: u64) -> bool {
        // SAFETY: the kernel reads a number.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &raw const id) == 0 }
    }

    /// Lets the kernel do what was asked.
    pub(crate) fn proceed(&self, id: u64) {
        let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap_or(0);
        self.respond(&libc::seccomp_notif_resp { id, val: 0, error: 0, flags });
    }

    /// Answers with an error, or with success.
    pub(crate) fn answer(&self, id: u64, result: Result<(), Errno>) {
        let error = result.err().map_or(0, |error| -error.raw_os_error());
        self.respond(&libc::seccomp_notif_resp { id, val: 0, error, flags: 0 });
    }

    /// Answers with a descriptor.
    ///
    /// # Errors
    /// The caller's table is full, for one; the call still waits then.
    pub(crate) fn give(&self, id: u64, descriptor: &OwnedFd, close_on_exec: bool) -> Result<(), Errno> {
        let added = libc::seccomp_notif_addfd {
            id,
            flags: u32::try_from(libc::SECCOMP_ADDFD_FLAG_SEND).unwrap_or(0),
            srcfd: descriptor.as_raw_fd().unsigned_abs(),
            newfd: 0,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC.unsigned_abs() } else { 0 },
        };
        // SAFETY: the kernel reads a structure of this type.
        let result =
            unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ADDFD, &raw const added) };
        if result < 0 {
            return Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO));
        }
        Ok(())
    }

    /// A call that does not wait any more needs no answer.
    fn respond(&self, response: &libc::seccomp_notif_resp) {
        // SAFETY: the kernel reads a structure of this type.
        unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND, ptr::from_ref(response));
        }
    }
}
