//! The unsafe part of confinement: a child that restricts itself before it executes.
//!
//! `posix_spawn` cannot run code in the child, so this is fork and exec. Invariant: between the two the child makes
//! system calls only; it neither allocates nor locks, and everything it reads was made before the fork.
#![allow(unsafe_code, reason = "a file for unsafe code; see the invariant above")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::mem::{MaybeUninit, size_of, zeroed};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;

use libc::sock_filter;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};
use rustix::process::Pid;

use super::broker::Listener;
use crate::sys::{ChildStdio, Spawn};

/// How a child is to restrict itself.
pub(crate) struct Restriction<'a> {
    /// A Landlock ruleset.
    pub(crate) ruleset: Option<BorrowedFd<'a>>,
    /// A system call filter; not empty.
    pub(crate) filter: &'a [sock_filter],
    /// The filter hands calls to a listener.
    pub(crate) listen: bool,
}

/// Starts a child as leader of a session of its own, with an empty signal mask and default signal dispositions, which
/// can never again do what the restriction forbids. Returns once it executes the program.
///
/// # Errors
/// That of the step that failed in the child.
pub(crate) fn spawn(
    request: &Spawn<'_>,
    restriction: &Restriction<'_>,
) -> io::Result<(Pid, Option<Listener>)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let (argv, env) = (pointers(request.argv), pointers(request.env));
    let filter = libc::sock_fprog {
        len: u16::try_from(restriction.filter.len()).map_err(|_| Errno::INVAL)?,
        filter: restriction.filter.as_ptr().cast_mut(),
    };
    let plan = Plan { request, restriction, argv: &argv, env: &env, filter, report: theirs.as_raw_fd() };
    // A handler of ours must not run in the child: it would write into descriptors both share.
    let blocked = BlockedSignals::new()?;
    // SAFETY: the child calls `run` only, which keeps the invariant of this file and never returns.
    let pid = match unsafe { libc::fork() } {
        0 => plan.run(),
        pid => pid,
    };
    drop(blocked);
    if pid < 0 {
        return Err(io::Error::last_os_error());
    }
    drop(theirs);
    let listener = outcome(&ours)?;
    if restriction.listen && listener.is_none() {
        // Killed before it could say anything.
        return Err(Errno::INTR.into());
    }
    let pid = Pid::from_raw(pid).ok_or(Errno::SRCH)?;
    Ok((pid, listener.map(Listener::new)))
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
}

/// What the child says, until it has executed the program or has failed. The end of its messages means success: its end
/// of the socket is closed by the execution.
fn outcome(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut listener = None;
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut number = [0; size_of::<c_int>()];
        let mut parts = [io::IoSliceMut::new(&mut number)];
        let received = match recvmsg(socket, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => received.bytes,
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                listener = descriptors.last().or(listener);
            }
        }
        match (received, c_int::from_ne_bytes(number)) {
            (0, _) => return Ok(listener),
            (_, 0) => {}
            (_, error) => return Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// All signals blocked in this thread, until dropped.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn new() -> io::Result<Self> {
        let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: the first call initialises the set, the second one reads it and initialises the other.
        let result = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr())
        };
        match result {
            // SAFETY: initialised by the call that succeeded.
            0 => Ok(Self(unsafe { before.assume_init() })),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: reads a set that is initialised. It cannot fail with valid arguments.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

/// Everything the child needs, made before the fork.
struct Plan<'a> {
    request: &'a Spawn<'a>,
    restriction: &'a Restriction<'a>,
    argv: &'a [*const c_char],
    env: &'a [*const c_char],
    filter: libc::sock_fprog,
    report: RawFd,
}

/// The result of a system call in the child: a number, or an error number.
type Step = Result<c_int, c_int>;

impl Plan<'_> {
    /// The child's whole life in this program.
    fn run(&self) -> ! {
        let error = match self.steps() {
            Ok(never) => match never {},
            Err(error) => error,
        };
        self.say(error, None);
        // SAFETY: ends the process without running anything of this program.
        unsafe { libc::_exit(127) }
    }

    fn steps(&self) -> Result<std::convert::Infallible, c_int> {
        default_signals();
        // SAFETY: setsid takes nothing.
        step(unsafe { libc::setsid() })?;
        self.connect()?;
        // SAFETY: the path is NUL-terminated and outlives the call.
        step(unsafe { libc::chdir(self.request.cwd.as_ptr()) })?;
        unblock_signals()?;
        // SAFETY: prctl takes integers.
        step(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
        if let Some(ruleset) = self.restriction.ruleset {
            // SAFETY: takes a descriptor and flags.
            long(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })?;
        }
        self.install_filter()?;
        // SAFETY: all strings are NUL-terminated, both lists end with NULL, and all of it outlives the call.
        let result =
            unsafe { libc::execve(self.request.program.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
        Err(step(result).err().unwrap_or(libc::EINVAL))
    }

    fn connect(&self) -> Step {
        match &self.request.stdio {
            ChildStdio::Descriptors(descriptors) => {
                for (target, descriptor) in (0..).zip(descriptors) {
                    // SAFETY: dup2 takes two descriptors; those to duplicate are above 2.
                    step(unsafe { libc::dup2(descriptor.as_raw_fd(), target) })?;
                }
            }
            ChildStdio::Terminal(path) => {
                // SAFETY: the path is NUL-terminated and outlives the call. After setsid the terminal becomes the
                // controlling one.
                let terminal = step(unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) })?;
                for target in 0..3 {
                    // SAFETY: dup2 takes two descriptors.
                    step(unsafe { libc::dup2(terminal, target) })?;
                }
            }
        }
        Ok(0)
    }

    fn install_filter(&self) -> Step {
        // A call that the broker works on is not to be interrupted and made again.
        let listening = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER | libc::SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
        let flags = if self.restriction.listen { listening } else { 0 };
        // SAFETY: the program outlives the call, which copies it.
        let listener = long(unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const self.filter)
        })?;
        if self.restriction.listen {
            self.say(0, c_int::try_from(listener).ok());
        }
        Ok(0)
    }

    /// Sends a number, and a descriptor along with it. Nobody is left to hear of a failure.
    fn say(&self, number: c_int, descriptor: Option<RawFd>) {
        let mut part =
            libc::iovec { iov_base: (&raw const number).cast_mut().cast(), iov_len: size_of::<c_int>() };
        // Aligned for a header; room for one with a descriptor.
        let mut space = [0u64; 4];
        // SAFETY: all zeros is a valid message header. The pointers set lead to locals that outlive the call, the
        // control buffer is large enough for one descriptor, and CMSG_FIRSTHDR therefore leads into it.
        unsafe {
            let mut message: libc::msghdr = zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            if let Some(descriptor) = descriptor {
                let size = libc::c_uint::BITS / 8;
                message.msg_control = space.as_mut_ptr().cast::<c_void>();
                message.msg_controllen = libc::CMSG_SPACE(size) as _;
                let header = libc::CMSG_FIRSTHDR(&raw const message);
                if !header.is_null() {
                    (*header).cmsg_level = libc::SOL_SOCKET;
                    (*header).cmsg_type = libc::SCM_RIGHTS;
                    (*header).cmsg_len = libc::CMSG_LEN(size) as _;
                    libc::CMSG_DATA(header).cast::<c_int>().write_unaligned(descriptor);
                }
            }
            libc::sendmsg(self.report, &raw const message, libc::MSG_NOSIGNAL);
        }
    }
}

/// All signals act as they do by default; by the system call, because glibc keeps two of them for itself.
fn default_signals() {
    // The kernel's `sigaction`: handler, flags, restorer, mask. All zeros is the default action.
    let default = [0u64; 4];
    for signal in 1..=64 {
        // SAFETY: reads the action, which is as long as the kernel expects, and writes nothing back. Signals that
        // cannot be changed are refused, which is as good.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null_mut::<c_void>(), 8usize)
        };
    }
}

fn unblock_signals() -> Step {
    let none = 0u64;
    // SAFETY: reads a set of 64 signals and writes nothing back.
    long(unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            ptr::null_mut::<c_void>(),
            size_of::<u64>(),
        )
    })?;
    Ok(0)
}

fn step(result: c_int) -> Step {
    if result < 0 {
        // SAFETY: the location is this thread's own.
        Err(unsafe { *libc::__errno_location() })
    } else {
        Ok(result)
    }
}

fn long(result: libc::c_long) -> Result<libc::c_long, c_int> {
    step(if result < 0 { -1 } else { 0 }).map(|_| result)
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;
    use std::os::fd::AsFd;

    use rustix::process::{WaitOptions, waitpid};

    use super::super::filter::{Opens, Scope, program};
    use super::*;

    fn start(
        program_path: &CStr,
        argv: &[&CStr],
        scope: Scope,
        cwd: &CStr,
    ) -> io::Result<(Pid, Option<Listener>)> {
        let null = std::fs::File::open("/dev/null").unwrap();
        let argv: Vec<CString> = argv.iter().map(|text| (*text).to_owned()).collect();
        let request = Spawn {
            program: program_path,
            argv: &argv,
            env: &[],
            cwd,
            stdio: ChildStdio::Descriptors([null.as_fd(); 3]),
        };
        let filter = program(scope);
        let listen = scope.files.is_some();
        spawn(&request, &Restriction { ruleset: None, filter: &filter, listen })
    }

    fn exit_code(pid: Pid) -> Option<i32> {
        waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap().1.exit_status()
    }

    #[test]
    fn an_error_is_that_of_the_step_that_failed() {
        let network = Scope { files: None, network: true };
        let errno = |program, cwd| {
            start(program, &[c"x"], network, cwd).map(drop).unwrap_err().raw_os_error().unwrap()
        };
        assert_eq!(errno(c"/nonexistent", c"/"), libc::ENOENT);
        assert_eq!(errno(c"/bin/true", c"/nonexistent"), libc::ENOENT);
        assert_eq!(errno(c"/bin/true", c"/etc/passwd"), libc::ENOTDIR);
        assert_eq!(errno(c"/etc", c"/"), libc::EACCES);
        let (pid, listener) = start(c"/bin/true", &[c"true"], network, c"/").unwrap();
        assert!(listener.is_none());
        assert_eq!(exit_code(pid), Some(0));
    }

    #[test]
    fn calls_arrive_and_are_answered_and_the_end_is_seen() {
        let scope = Scope { files: Some(Opens::Writing), network: false };
        let script =
            c"mkdir /dev/null/a && exit 1; mkdir /answered && exec 3>/given && read line <&3 && exit 7";
        let (pid, listener) = start(c"/bin/sh", &[c"sh", c"-c", script], scope, c"/").unwrap();
        let listener = listener.unwrap();
        listener.wake_synchronously();
        let content = tempfile::tempfile().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&content, b"line\n", 0).unwrap();
        let mut seen = Vec::new();
        while let Some(call) = listener.next().unwrap() {
            assert!(listener.is_waiting(call.id));
            seen.push(call.number);
            match seen.len() {
                1 => listener.proceed(call.id),
                2 => listener.answer(call.id, Ok(())),
                _ => listener.give(call.id, &content.try_clone().unwrap().into(), false).unwrap(),
            }
            assert!(!listener.is_waiting(call.id));
        }
        assert_eq!(seen.len(), 3, "{seen:?}");
        assert_eq!(exit_code(pid), Some(7));
    }
}
