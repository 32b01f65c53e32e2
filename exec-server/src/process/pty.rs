//! Terminals of children: a master here, a path for the child to open (SPEC 7.1).

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use legion_protocol::process::TerminalSize;
use rustix::io::ioctl_fionbio;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::limits::{TERMINAL_COLUMNS, TERMINAL_ROWS};

/// A new terminal.
pub(crate) struct Terminal {
    /// Read for output, written for input; non-blocking.
    pub(crate) master: OwnedFd,
    /// The child's side. The child opens it after `setsid`, which makes it the controlling terminal.
    pub(crate) path: CString,
}

/// Opens a terminal with the default line discipline; of 24 rows and 80 columns when no size is asked for.
pub(crate) fn open(size: Option<TerminalSize>) -> io::Result<Terminal> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let path = ptsname(&master, Vec::new())?;
    resize(&master, size.unwrap_or(TerminalSize { rows: TERMINAL_ROWS, columns: TERMINAL_COLUMNS }))?;
    ioctl_fionbio(&master, true)?;
    Ok(Terminal { master, path })
}

/// Changes the size; the foreground process group gets SIGWINCH.
pub(crate) fn resize(master: impl AsFd, size: TerminalSize) -> io::Result<()> {
    let TerminalSize { rows: ws_row, columns: ws_col } = size;
    tcsetwinsize(master, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_terminal_has_the_default_size_and_can_be_resized() {
        let terminal = open(None).unwrap();
        let size = |terminal: &Terminal| {
            let size = rustix::termios::tcgetwinsize(&terminal.master).unwrap();
            (size.ws_row, size.ws_col)
        };
        assert_eq!(size(&terminal), (24, 80));
        let wide = TerminalSize { rows: 50, columns: 132 };
        resize(&terminal.master, wide).unwrap();
        assert_eq!(size(&terminal), (50, 132));
        assert_eq!(size(&open(Some(wide)).unwrap()), (50, 132));
        assert!(terminal.path.to_str().unwrap().starts_with("/dev/pts/"));
    }
}
