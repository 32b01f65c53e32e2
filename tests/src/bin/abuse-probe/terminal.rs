//! Attempts to put keystrokes into a terminal, which a shell outside would take for its user's.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::{Seen, ok, sys};

/// Bits the kernel does not look at in a request, which must not hide it from a filter.
const HIGH_BITS: u64 = 0xdead_0000_0000_0000;

pub(crate) fn attempt(words: &[&str]) -> Option<Seen> {
    Some(match *words {
        ["inject", request, terminal] => inject(request_of(request)?, terminal),
        ["terminal"] => ok(File::open("/dev/tty")),
        _ => return None,
    })
}

fn request_of(name: &str) -> Option<u64> {
    Some(match name {
        "TIOCSTI" => libc::TIOCSTI,
        "TIOCSTI-high" => libc::TIOCSTI | HIGH_BITS,
        "TIOCLINUX" => libc::TIOCLINUX,
        "TIOCLINUX-high" => libc::TIOCLINUX | HIGH_BITS,
        _ => return None,
    })
}

/// `terminal` is a path, `stdin`, or `own` for a new terminal of this process.
fn inject(request: u64, terminal: &str) -> Seen {
    let try_on = |fd: BorrowedFd<'_>| ok(sys::ioctl_byte(fd, request, b'x'));
    match terminal {
        "stdin" => try_on(std::io::stdin().as_fd()),
        "own" => {
            let (_master, slave) = own_terminal()?;
            try_on(slave.as_fd())
        }
        path => try_on(File::options().read(true).write(true).open(path)?.as_fd()),
    }
}

fn own_terminal() -> std::io::Result<(OwnedFd, File)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let slave = File::options().read(true).write(true).open(name.to_string_lossy().as_ref())?;
    Ok((master, slave))
}
