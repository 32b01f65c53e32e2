//! The only unsafe code of this crate: descriptors handed over by number, and the calls no safe crate offers.
//!
//! Invariant: every block says why it is sound; nothing here keeps a pointer beyond its call.
#![allow(unsafe_code, reason = "this file is where unsafe code lives; see the invariant above")]

use std::ffi::{CStr, CString, c_char, c_short};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Closes every inherited descriptor but 0–2 and `keep`, and keeps `keep` from being inherited further.
///
/// # Errors
/// A descriptor of `keep` that is not open, or a refusal of the kernel.
pub fn close_inherited(keep: &[RawFd]) -> io::Result<()> {
    let mut kept: Vec<RawFd> = keep.iter().copied().filter(|fd| *fd > 2).collect();
    kept.sort_unstable();
    kept.dedup();
    for fd in &kept {
        // SAFETY: fcntl with F_SETFD takes two integers and touches no memory of ours.
        check(unsafe { libc::fcntl(*fd, libc::F_SETFD, libc::FD_CLOEXEC) })?;
    }
    let mut first: libc::c_uint = 3;
    for fd in &kept {
        let fd = fd.unsigned_abs();
        if fd > first {
            close_range(first, fd - 1)?;
        }
        first = fd + 1;
    }
    close_range(first, libc::c_uint::MAX)
}

fn close_range(first: libc::c_uint, last: libc::c_uint) -> io::Result<()> {
    // SAFETY: called before any descriptor of this process's own is open, so nothing that is owned gets closed.
    check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) }).map(drop)
}

fn check<N: Into<i64> + Copy>(result: N) -> io::Result<N> {
    if result.into() < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Takes ownership of an inherited descriptor.
///
/// # Errors
/// EBADF when it is not open or is one of 0–2.
pub fn take_descriptor(fd: RawFd) -> io::Result<OwnedFd> {
    if fd <= 2 {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: fcntl with F_GETFD takes an integer and touches no memory of ours.
    check(unsafe { libc::fcntl(fd, libc::F_GETFD) })?;
    // SAFETY: the descriptor is open (checked above), was named on the command line for this process, and the flag
    // parser refuses to name one twice, so nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Registers a non-blocking descriptor with the event loop.
pub fn register(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is open and stays the same descriptor until it is dropped, which the `AsyncFd` does last.
    Ok(unsafe { AsyncFd::register_with_interest(descriptor, interest) }?)
}

/// Makes the allocator keep freed memory for the next message instead of returning it at once, and bounds its arenas: there
/// is one busy thread. To be called before any other thread is started.
pub fn keep_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two integers; no other thread exists yet. What it refuses stays at its default.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 32 << 20);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 64 << 20);
    }
}

/// Returns freed memory to the operating system.
pub fn return_freed_memory() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim takes an integer and touches only memory that is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Empties the signal mask inherited from whoever started this process.
pub fn unblock_signals() -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset initialises the set it is given; sigprocmask reads it and writes nothing back.
    unsafe {
        check(libc::sigemptyset(set.as_mut_ptr()))?;
        check(libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut()))?;
    }
    Ok(())
}

/// The standard descriptors of a child.
pub enum ChildStdio<'a> {
    /// Three descriptors, duplicated to 0, 1, 2.
    Descriptors([BorrowedFd<'a>; 3]),
    /// The path of a terminal, opened as 0, 1, 2 after `setsid`, so that it becomes the controlling one.
    Terminal(&'a CStr),
}

/// What to start.
pub struct Spawn<'a> {
    /// Path of the program; relative ones are relative to `cwd`.
    pub program: &'a CStr,
    /// What the child sees.
    pub argv: &'a [CString],
    /// `NAME=value` strings.
    pub env: &'a [CString],
    /// The child's working directory.
    pub cwd: &'a CStr,
    /// The child's descriptors; no other is inherited because all others are close-on-exec.
    pub stdio: ChildStdio<'a>,
}

/// Starts a child as leader of a session of its own, with an empty signal mask and default signal dispositions.
///
/// # Errors
/// That of the step that failed in the child: opening, changing directory, executing.
pub fn spawn(request: &Spawn<'_>) -> io::Result<Pid> {
    let attributes = Attributes::new()?;
    let mut actions = Actions::new()?;
    actions.add_stdio(&request.stdio)?;
    actions.add_cwd(request.cwd)?;
    let argv = pointers(request.argv);
    let env = pointers(request.env);
    let mut pid: libc::pid_t = 0;
    // SAFETY: all strings are NUL-terminated and live until the call returns; both pointer lists end with NULL;
    // the attributes and actions were initialised and are not changed by the call.
    let result = unsafe {
        libc::posix_spawn(
            &raw mut pid,
            request.program.as_ptr(),
            &raw const actions.0,
            &raw const attributes.0,
            argv.as_ptr(),
            env.as_ptr(),
        )
    };
    number(result)?;
    Pid::from_raw(pid).ok_or_else(|| io::Error::from_raw_os_error(libc::ESRCH))
}

fn pointers(strings: &[CString]) -> Vec<*mut c_char> {
    strings.iter().map(|text| text.as_ptr().cast_mut()).chain([ptr::null_mut()]).collect()
}

/// The `posix_spawn` family returns error numbers instead of setting `errno`.
fn number(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(result)) }
}

struct Attributes(libc::posix_spawnattr_t);

impl Attributes {
    fn new() -> io::Result<Self> {
        let mut value = MaybeUninit::<libc::posix_spawnattr_t>::uninit();
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let mut none = MaybeUninit::<libc::sigset_t>::uninit();
        let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        let flags = c_short::try_from(flags).unwrap_or_default() | libc::POSIX_SPAWN_SETSID;
        // SAFETY: each call initialises or reads exactly the object it is given; the sets are initialised before they
        // are passed on, and copied. A signal set is a plain array of bits. All are set by hand because sigfillset
        // leaves out the two signals glibc keeps for itself, which the child would then start with ignored.
        unsafe {
            number(libc::posix_spawnattr_init(value.as_mut_ptr()))?;
            let mut attributes = Self(value.assume_init());
            all.as_mut_ptr().write_bytes(0xff, 1);
            check(libc::sigemptyset(none.as_mut_ptr()))?;
            number(libc::posix_spawnattr_setsigdefault(&raw mut attributes.0, all.as_ptr()))?;
            number(libc::posix_spawnattr_setsigmask(&raw mut attributes.0, none.as_ptr()))?;
            number(libc::posix_spawnattr_setflags(&raw mut attributes.0, flags))?;
            Ok(attributes)
        }
    }
}

impl Drop for Attributes {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed once.
        unsafe { libc::posix_spawnattr_destroy(&raw mut self.0) };
    }
}

struct Actions(libc::posix_spawn_file_actions_t);

impl Actions {
    fn new() -> io::Result<Self> {
        let mut value = MaybeUninit::<libc::posix_spawn_file_actions_t>::uninit();
        // SAFETY: the call initialises the object it is given.
        unsafe {
            number(libc::posix_spawn_file_actions_init(value.as_mut_ptr()))?;
            Ok(Self(value.assume_init()))
        }
    }

    fn add_stdio(&mut self, stdio: &ChildStdio<'_>) -> io::Result<()> {
        match stdio {
            ChildStdio::Descriptors(descriptors) => {
                for (target, fd) in (0..).zip(descriptors) {
                    self.add_duplicate(fd.as_raw_fd(), target)?;
                }
                Ok(())
            }
            ChildStdio::Terminal(path) => {
                // SAFETY: the actions are initialised; the path is NUL-terminated and copied by the call.
                number(unsafe {
                    libc::posix_spawn_file_actions_addopen(&raw mut self.0, 0, path.as_ptr(), libc::O_RDWR, 0)
                })?;
                self.add_duplicate(0, 1)?;
                self.add_duplicate(0, 2)
            }
        }
    }

    fn add_duplicate(&mut self, from: RawFd, to: RawFd) -> io::Result<()> {
        // SAFETY: the actions are initialised; the numbers are used in the child only.
        number(unsafe { libc::posix_spawn_file_actions_adddup2(&raw mut self.0, from, to) })
    }

    fn add_cwd(&mut self, cwd: &CStr) -> io::Result<()> {
        // SAFETY: the actions are initialised; the path is NUL-terminated and copied by the call.
        number(unsafe { libc::posix_spawn_file_actions_addchdir_np(&raw mut self.0, cwd.as_ptr()) })
    }
}

impl Drop for Actions {
    fn drop(&mut self) {
        // SAFETY: initialised in `new`, destroyed once.
        unsafe { libc::posix_spawn_file_actions_destroy(&raw mut self.0) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_spawn_error_is_that_of_the_failed_step() {
        let null = std::fs::File::open("/dev/null").unwrap();
        let spawn_at = |program: &CStr, cwd: &CStr| {
            let stdio = ChildStdio::Descriptors([null.as_fd(); 3]);
            spawn(&Spawn { program, argv: &[c"x".to_owned()], env: &[], cwd, stdio })
                .map_err(|error| error.raw_os_error().unwrap())
        };
        assert_eq!(spawn_at(c"/nonexistent", c"/").unwrap_err(), libc::ENOENT);
        assert_eq!(spawn_at(c"/bin/true", c"/nonexistent").unwrap_err(), libc::ENOENT);
        assert_eq!(spawn_at(c"/bin/true", c"/etc/passwd").unwrap_err(), libc::ENOTDIR);
        assert_eq!(spawn_at(c"/etc", c"/").unwrap_err(), libc::EACCES);
        let pid = spawn_at(c"/bin/true", c"/").unwrap();
        let (_, status) =
            rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(status.exit_status(), Some(0));
    }

    #[test]
    fn only_open_descriptors_above_two_can_be_taken() {
        assert!(take_descriptor(0).is_err());
        assert!(take_descriptor(-1).is_err());
        assert!(take_descriptor(1_000_000).is_err());
    }
}
