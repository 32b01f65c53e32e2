//! The only unsafe code of the probe: system calls that no safe interface offers, because nobody should make them.
//!
//! Arguments are numbers, or constants the kernel reads; no call here is given a place to write to.
#![allow(unsafe_code, reason = "each block says why it is sound")]

use std::ffi::{CStr, c_long};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// One argument of a system call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arg<'a> {
    /// A number, or an address at which nothing is.
    Number(i64),
    /// A constant text.
    Text(&'a CStr),
}

impl Arg<'_> {
    fn value(self) -> c_long {
        match self {
            Self::Number(number) => number,
            Self::Text(text) => text.as_ptr() as c_long,
        }
    }
}

/// Makes a system call by its number.
pub(crate) fn call(number: c_long, args: &[Arg<'_>]) -> io::Result<c_long> {
    let mut all = [0; 6];
    for (value, arg) in all.iter_mut().zip(args) {
        *value = arg.value();
    }
    // SAFETY: the texts outlive the call and the kernel only reads them; other addresses lead nowhere, which the kernel
    // checks. What a call may do to this process does not outlive it: it makes one attempt, reports and ends.
    let result = unsafe { libc::syscall(number, all[0], all[1], all[2], all[3], all[4], all[5]) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// clone(2) as fork, with these flags besides; the child ends at once.
pub(crate) fn clone(flags: i32) -> io::Result<c_long> {
    let flags = c_long::from(flags | libc::SIGCHLD);
    // SAFETY: without CLONE_VM this is a fork; the child makes one system call and is gone.
    unsafe {
        let pid = libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0);
        if pid == 0 {
            libc::_exit(0);
        }
        if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) }
    }
}

/// An ioctl whose argument is one byte to read. `request` may have bits no request has.
pub(crate) fn ioctl_byte(fd: BorrowedFd<'_>, request: u64, byte: u8) -> io::Result<()> {
    // SAFETY: the requests made with this read one byte, which lives on.
    let result = unsafe { libc::syscall(libc::SYS_ioctl, fd.as_raw_fd(), request, &raw const byte) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A socket of any kind.
pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<()> {
    // SAFETY: numbers only; the descriptor goes with the process.
    let fd = unsafe { libc::socket(family, kind, protocol) };
    if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// getpid by the 32-bit entry of x86-64, which has numbers of its own.
#[cfg(target_arch = "x86_64")]
pub(crate) fn int80() -> i64 {
    let mut result: i64 = 20;
    // SAFETY: getpid takes no argument and touches no memory; the entry keeps all registers but rax, and r8 to r11.
    unsafe {
        std::arch::asm!("int 0x80", inout("rax") result, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
    }
    result
}
