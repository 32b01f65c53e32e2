//! Attempts on processes: the exec-server, which is process 1 inside, and those of the host.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Resource, Signal, getrlimit, pidfd_open, pidfd_send_signal};

use crate::sys::{Arg, call};
use crate::{Seen, ok};

/// More processes than a sandbox of these tests may have.
const BOMB_LIMIT: usize = 1000;

pub(crate) fn attempt(words: &[&str]) -> Option<Seen> {
    Some(match *words {
        ["signal", pid, name] => ok(rustix::process::kill_process(pid_of(pid)?, signal_of(name)?)),
        ["pidfd-signal", pid, name] => pidfd_signal(pid_of(pid)?, signal_of(name)?),
        ["exists", pid] => ok(rustix::process::test_kill_process(pid_of(pid)?)),
        ["processes"] => processes(),
        ["descriptors"] => descriptors(),
        ["memory", pid] => memory(pid),
        ["take-descriptor", pid, number] => take_descriptor(pid_of(pid)?, number.parse().ok()?),
        ["core-size"] => {
            let limit = getrlimit(Resource::Core);
            Ok(format!("{:?} {:?}", limit.current, limit.maximum))
        }
        ["bomb"] => bomb(),
        // What the bomb is made of.
        ["linger"] => ok(io::stdin().read(&mut [0; 1])),
        ["files"] => files(),
        _ => return None,
    })
}

fn pid_of(text: &str) -> Option<Pid> {
    Pid::from_raw(text.parse().ok()?)
}

fn signal_of(name: &str) -> Option<Signal> {
    Some(match name {
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        "INT" => Signal::INT,
        "HUP" => Signal::HUP,
        "QUIT" => Signal::QUIT,
        "SEGV" => Signal::SEGV,
        "USR1" => Signal::USR1,
        _ => return None,
    })
}

fn pidfd_signal(pid: Pid, signal: Signal) -> Seen {
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    ok(pidfd_send_signal(process, signal))
}

/// The programs of all visible processes but this one, once each.
fn processes() -> Seen {
    let mut names = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let is_process = entry.file_name().to_string_lossy().bytes().all(|byte| byte.is_ascii_digit());
        // A process may end while we look.
        if let (true, Ok(name)) = (is_process, fs::read_to_string(entry.path().join("comm"))) {
            names.push(name.trim().to_owned());
        }
    }
    names.sort();
    names.dedup();
    Ok(format!("[{}]", names.join(" ")))
}

/// The numbers of the descriptors it was started with.
fn descriptors() -> Seen {
    let mut numbers = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        let entry = entry?;
        // One leads to the directory being read.
        let target = fs::read_link(entry.path())?;
        if !target.ends_with("fd") {
            numbers.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    numbers.sort();
    Ok(format!("[{}]", numbers.join(" ")))
}

/// Reads where the program of a process lies in its memory.
fn memory(pid: &str) -> Seen {
    let mut memory = File::open(format!("/proc/{pid}/mem"))?;
    let maps = fs::read_to_string(format!("/proc/{pid}/maps"))?;
    let start = maps.split('-').next().and_then(|start| u64::from_str_radix(start, 16).ok());
    memory.seek(SeekFrom::Start(start.ok_or_else(|| io::Error::other("no maps"))?))?;
    ok(memory.read_exact(&mut [0; 16]))
}

fn take_descriptor(pid: Pid, number: i64) -> Seen {
    use std::os::fd::AsRawFd;
    let process = pidfd_open(pid, PidfdFlags::empty())?;
    let process = Arg::Number(i64::from(process.as_raw_fd()));
    ok(call(libc::SYS_pidfd_getfd, &[process, Arg::Number(number), Arg::Number(0)]))
}

/// Starts processes until none more can be started, and ends them.
fn bomb() -> Seen {
    let mut children: Vec<Child> = Vec::new();
    let outcome = loop {
        if children.len() >= BOMB_LIMIT {
            break Ok("no bound".to_owned());
        }
        let child =
            Command::new("/proc/self/exe").arg("linger").stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        match child {
            Ok(child) => children.push(child),
            Err(error) => break Err(error),
        }
    };
    for child in &mut children {
        drop(child.stdin.take());
    }
    for mut child in children {
        child.wait()?;
    }
    outcome
}

/// Opens files until none more can be opened.
fn files() -> Seen {
    let mut open = Vec::new();
    loop {
        open.push(File::open("/dev/null")?);
        if open.len() > 1 << 20 {
            return Ok("no bound".to_owned());
        }
    }
}
