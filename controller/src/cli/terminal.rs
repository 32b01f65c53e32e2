//! The user's terminal: raw mode that is always undone, its size, and whose its keyboard is.

use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use legion_protocol::process::TerminalSize;
use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

/// The terminal behind stdin in raw mode, until dropped.
pub(super) struct RawMode {
    terminal: OwnedFd,
    before: Termios,
}

impl RawMode {
    /// Switches to raw mode, but for the keys that send signals; `None` when stdin is no terminal.
    pub(super) fn enter() -> std::io::Result<Option<Self>> {
        let stdin = rustix::stdio::stdin();
        if !isatty(stdin) {
            return Ok(None);
        }
        let terminal = rustix::io::fcntl_dupfd_cloexec(stdin, 3)?;
        let before = tcgetattr(&terminal)?;
        let mut raw = before.clone();
        raw.make_raw();
        raw.local_modes.insert(LocalModes::ISIG);
        tcsetattr(&terminal, OptionalActions::Now, &raw)?;
        Ok(Some(Self { terminal, before }))
    }

    /// Takes those keys, too.
    pub(super) fn complete(&mut self) -> std::io::Result<()> {
        let mut raw = tcgetattr(&self.terminal)?;
        raw.make_raw();
        Ok(tcsetattr(&self.terminal, OptionalActions::Now, &raw)?)
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &self.before);
    }
}

/// Whether a command reads our keyboard. Then nobody else does: each would get some of the keys.
#[derive(Clone, Default)]
pub(super) struct Keyboard(Rc<Cell<bool>>);

impl Keyboard {
    /// From now on it is the command's.
    pub(super) fn hand_over(&self) {
        self.0.set(true);
    }

    pub(super) fn is_handed_over(&self) -> bool {
        self.0.get()
    }
}

/// The size of the terminal behind stdout or stdin.
pub(super) fn size() -> Option<TerminalSize> {
    let size =
        tcgetwinsize(rustix::stdio::stdout()).or_else(|_| tcgetwinsize(rustix::stdio::stdin())).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some(TerminalSize { rows: size.ws_row, columns: size.ws_col })
}
