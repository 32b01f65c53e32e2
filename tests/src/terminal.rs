//! A program at a terminal of its own: what it shows, keys typed at it, the window's size.
//!
//! Invariant: the program is a session leader with this terminal as its controlling one, as under a shell, so it gets
//! the signals of the terminal. It does not outlive its [`Terminal`].

use std::os::fd::OwnedFd;
use std::process::{ExitStatus, Stdio};

use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::process::Command;
use tokio::sync::watch;

use crate::child::{Captured, capture, within};
use crate::scratch::Scratch;

/// Makes the terminal on its standard input the controlling one and becomes the program it is told.
const SET_TERMINAL: &str = "/usr/bin/setsid";

/// A program at its terminal.
#[derive(Debug)]
pub struct Terminal {
    child: tokio::process::Child,
    /// Also held by us, so that the terminal's settings outlive the program.
    line: OwnedFd,
    keyboard: pipe::Sender,
    screen: watch::Receiver<Captured>,
}

/// How a program at a terminal ended.
#[derive(Debug)]
pub struct Left {
    /// Its exit status.
    pub status: ExitStatus,
    /// All it has shown, line ends as on a terminal.
    pub screen: String,
    /// The terminal's local modes afterwards: echo, line editing, signals.
    pub modes: LocalModes,
}

impl Terminal {
    /// Starts `program` with `args`, as the test's user, at a terminal of this size.
    pub fn spawn(scratch: &Scratch, program: &str, args: &[&str], rows: u16, columns: u16) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        unlockpt(&master).expect("it is ours");
        let line = ioctl_tiocgptpeer(&master, flags).expect("its other end");
        set_size(&line, rows, columns);
        let end = || Stdio::from(line.try_clone().expect("a descriptor"));
        let mut command: Command = scratch.command(SET_TERMINAL);
        command
            .args(["--ctty", program])
            .args(args)
            .env("TERM", "xterm")
            .stdin(end())
            .stdout(end())
            .stderr(end())
            .kill_on_drop(true);
        let child = command.spawn().unwrap_or_else(|error| panic!("cannot start {program}: {error}"));
        // All that tokio's types do is to wait until the descriptor is ready and to read or write.
        let reader = master.try_clone().expect("a descriptor");
        let screen = capture(pipe::Receiver::from_owned_fd_unchecked(reader).expect("it can be polled"));
        let keyboard = pipe::Sender::from_owned_fd_unchecked(master).expect("it can be polled");
        Self { child, line, keyboard, screen }
    }

    /// Types.
    pub async fn keys(&mut self, keys: &str) {
        within("the terminal takes keys", self.keyboard.write_all(keys.as_bytes()))
            .await
            .expect("a terminal");
    }

    /// Waits until the screen has shown this text.
    pub async fn shows(&mut self, text: &str) {
        let waiting = self.screen.wait_for(|seen| seen.text().contains(text) || seen.ended);
        let waited = tokio::time::timeout(crate::child::DEADLINE, waiting).await.map(|seen| seen.is_ok());
        let seen = self.screen.borrow().text();
        assert!(seen.contains(text), "{text:?} is not on the screen ({waited:?}): {seen:?}");
    }

    /// Changes the window's size.
    pub fn resize(&self, rows: u16, columns: u16) {
        set_size(&self.line, rows, columns);
    }

    /// The terminal's local modes now.
    pub fn modes(&self) -> LocalModes {
        tcgetattr(&self.line).expect("a terminal").local_modes
    }

    /// Process id of the program.
    pub fn pid(&self) -> u32 {
        self.child.id().expect("it has not been waited for")
    }

    /// Closes the terminal as a window does, and waits until the program has ended.
    pub async fn hang_up(self) {
        let Self { mut child, line, keyboard, screen } = self;
        // Its own reader holds the terminal's other side as well.
        drop((line, keyboard, screen));
        within("the program ends with its terminal", child.wait()).await.expect("a child can be waited for");
    }

    /// Waits until the program has ended.
    pub async fn finish(mut self) -> Left {
        let waited = tokio::time::timeout(crate::child::DEADLINE, self.child.wait()).await;
        let Ok(status) = waited else { panic!("it did not end; screen: {:?}", self.screen.borrow().text()) };
        let modes = self.modes();
        // With its last writer the terminal's output ends.
        drop(self.line);
        let _ = within("the end of the output", self.screen.wait_for(|seen| seen.ended)).await;
        let screen = self.screen.borrow().text();
        Left { status: status.expect("a child can be waited for"), screen, modes }
    }
}

fn set_size(line: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(line, size).expect("a terminal");
}
