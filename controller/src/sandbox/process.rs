//! A running bwrap as a process: its end, what it said, killing it.
//!
//! Invariant: when a [`Process`] is dropped, or the controller dies, its lifeline closes and everything inside is killed.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::process::Child;

use rustix::process::{PidfdFlags, Signal};
use tokio::io::AsyncReadExt;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::limits::{MAX_SANDBOX_STDERR_BYTES, SANDBOX_KILL_TIMEOUT};
use crate::sys;

/// A running bwrap.
pub struct Process {
    /// On the host.
    pub pid: u32,
    lifeline: RefCell<Option<OwnedFd>>,
    pidfd: OwnedFd,
    ended: watch::Receiver<Option<String>>,
}

impl Process {
    /// Starts the task that awaits its end and keeps the end of its stderr.
    pub fn watch_over(mut child: Child, lifeline: OwnedFd) -> io::Result<Self> {
        let pid = child.id();
        let pidfd =
            rustix::process::pidfd_open(rustix::process::Pid::from_child(&child), PidfdFlags::NONBLOCK)?;
        let exit = sys::watch_fd(pidfd.try_clone()?)?;
        let stderr = child.stderr.take().ok_or(io::ErrorKind::BrokenPipe)?;
        rustix::io::ioctl_fionbio(&stderr, true)?;
        let stderr = pipe::Receiver::from_owned_fd(stderr.into())?;
        let (sender, ended) = watch::channel(None);
        tokio::task::spawn_local(async move {
            let said = tail_of(stderr, exit).await;
            let status = match child.wait() {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            let said = said.trim();
            let text = if said.is_empty() { status } else { format!("{status}; it said: {said}") };
            sender.send_replace(Some(text));
        });
        Ok(Self { pid, lifeline: RefCell::new(Some(lifeline)), pidfd, ended })
    }

    /// Kills everything inside and waits until it is gone, bounded.
    pub async fn kill(&self) {
        self.lifeline.borrow_mut().take();
        // bwrap's death takes pid 1 of the sandbox along, and that takes the rest.
        let _ = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        if timeout(SANDBOX_KILL_TIMEOUT, self.ended()).await.is_err() {
            tracing::error!(pid = self.pid, "a killed sandbox is still there");
        }
    }

    /// Resolves when it is gone, with how it ended and what it last said on stderr.
    pub async fn ended(&self) -> String {
        let mut ended = self.ended.clone();
        // An error means the watching task is gone, which ends with the process.
        let _ = ended.wait_for(Option::is_some).await;
        ended.borrow().clone().unwrap_or_default()
    }

    /// Whether it is gone.
    pub fn has_ended(&self) -> bool {
        self.ended.borrow().is_some()
    }
}

/// Reads stderr until the process is gone; keeps the last bytes.
async fn tail_of(mut stderr: pipe::Receiver, exit: AsyncFd<OwnedFd>) -> String {
    let mut tail = Vec::new();
    let mut chunk = [0u8; 1024];
    let mut open = true;
    loop {
        tokio::select! {
            biased;
            read = stderr.read(&mut chunk), if open => match read {
                Ok(count) if count > 0 => {
                    tail.extend_from_slice(&chunk[..count]);
                    let excess = tail.len().saturating_sub(MAX_SANDBOX_STDERR_BYTES);
                    tail.drain(..excess);
                }
                _ => open = false,
            },
            _ = exit.readable() => break,
        }
    }
    String::from_utf8_lossy(&tail).into_owned()
}
