//! Makes many attempts one after the other, each in a process of its own, so that none spoils the next.
//!
//! Invariant: every attempt has an outcome, and no attempt takes longer than [`PATIENCE`].

use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitCode, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::errno;

/// How long one attempt may take: those that fill something or start many processes take seconds on a loaded machine.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

/// Reads one attempt a line from a file and prints one outcome a line, in the same order.
pub(crate) fn run(list: &str) -> ExitCode {
    let attempts = match std::fs::read_to_string(list) {
        Ok(attempts) => attempts,
        Err(error) => {
            eprintln!("cannot read {list}: {error}");
            return ExitCode::FAILURE;
        }
    };
    for attempt in attempts.lines() {
        let outcome = outcome(attempt).unwrap_or_else(|error| format!("not tried: {error}"));
        // Whoever reads this has left: nothing to do for anybody.
        if writeln!(io::stdout(), "{outcome}").is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn outcome(attempt: &str) -> io::Result<String> {
    let mut child =
        Command::new("/proc/self/exe").args(attempt.split_whitespace()).stdout(Stdio::piped()).spawn()?;
    if !ends_in_time(&child)? {
        child.kill()?;
        child.wait()?;
        return Ok("no end".to_owned());
    }
    let status = child.wait()?;
    let mut said = String::new();
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_string(&mut said)?;
    }
    Ok(match (status.signal(), said.trim_end()) {
        (Some(signal), _) => errno::signal_name(signal),
        (None, "") => format!("nothing said, {status}"),
        (None, said) => said.to_owned(),
    })
}

fn ends_in_time(child: &Child) -> io::Result<bool> {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    let mut wanted = [PollFd::new(&pidfd, PollFlags::IN)];
    loop {
        match poll(&mut wanted, Some(&PATIENCE)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
