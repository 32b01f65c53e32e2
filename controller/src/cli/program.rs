//! A client's program: where it is, what of it a sandbox must show, running it here.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use legion_protocol::process::AnySignal;
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::isatty;

use super::signals::{Event, Signals};
use crate::config::{Mount, MountMode};
use crate::environment::Environment;
use crate::failure::{Failure, Outcome};
use crate::sys;

/// Places of the host that every view shows.
const SHOWN: [&str; 3] = ["/bin", "/sbin", "/usr"];

/// A program on the host.
pub(super) struct Program {
    /// Absolute, without links.
    pub(super) path: PathBuf,
    /// Read-only mounts without which not every view shows it.
    pub(super) mounts: Vec<Mount>,
}

impl Program {
    /// Finds it in `$PATH`.
    pub(super) fn find(environment: &Environment, name: &str) -> Outcome<Self> {
        let found = environment.find_program(name).and_then(|path| path.canonicalize().ok());
        let path = found.ok_or_else(|| {
            Failure::unavailable(format_args!("there is no {name} in PATH: install it, or correct PATH"))
        })?;
        let mounts = shown_by(&path);
        Ok(Self { path, mounts })
    }
}

/// The program alone, or the packages it comes with.
fn shown_by(path: &Path) -> Vec<Mount> {
    if SHOWN.iter().any(|dir| path.starts_with(dir)) {
        return Vec::new();
    }
    let packages = path.ancestors().filter(|dir| dir.file_name().is_some_and(|name| name == "node_modules"));
    let shown = packages.last().unwrap_or(path).to_owned();
    vec![Mount { mode: MountMode::Ro, from: Some(shown.clone()), to: shown }]
}

/// Refuses what would start and not work: a sandbox of root's on somebody's workspace runs as that user, who may not use the
/// client's files in root's home.
pub(super) fn check_home(environment: &Environment, workspace: &Path) -> Outcome<()> {
    let owner = std::fs::metadata(workspace).map_or(0, |meta| meta.uid());
    if environment.uid != 0 || owner == 0 {
        return Ok(());
    }
    Err(Failure::unavailable(format_args!(
        "the workspace {} belongs to uid {owner}, and the client would run as that user, without root's own login: start \
         Legion as uid {owner}",
        workspace.display()
    )))
}

/// Runs a program with our terminal, environment changes applied; its exit code is ours. It does not outlive us.
pub(super) async fn run(mut command: std::process::Command) -> Outcome<u8> {
    let mut signals = Signals::watch().map_err(Failure::internal)?;
    sys::end_with_parent(&mut command);
    let program = command.get_program().to_owned();
    let mut child = tokio::process::Command::from(command).spawn().map_err(|error| {
        Failure::unavailable(format_args!("cannot start {}: {error}", program.to_string_lossy()))
    })?;
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    // What is typed at a terminal reaches the program without us.
    let at_terminal = isatty(rustix::stdio::stdin());
    let status = loop {
        tokio::select! {
            status = child.wait() => break status.map_err(Failure::internal)?,
            event = signals.next() => match (event, pid) {
                (Event::Told(AnySignal::Interrupt | AnySignal::Quit), _) if at_terminal => {}
                (Event::Told(signal), Some(pid)) => {
                    // It may have ended meanwhile.
                    let _ = kill_process(pid, of_system(signal));
                }
                _ => {}
            }
        }
    };
    let by_signal = std::os::unix::process::ExitStatusExt::signal(&status).map(|number| 128 + number);
    Ok(status.code().or(by_signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(u8::MAX))
}

const fn of_system(signal: AnySignal) -> Signal {
    match signal {
        AnySignal::Hangup => Signal::HUP,
        AnySignal::Interrupt => Signal::INT,
        AnySignal::Quit => Signal::QUIT,
        AnySignal::Terminate => Signal::TERM,
        AnySignal::User1 => Signal::USR1,
        AnySignal::User2 => Signal::USR2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_hidden_is_mounted_and_no_more_than_needed() {
        let shown = |path: &str| {
            let mounts = shown_by(Path::new(path));
            mounts.into_iter().map(|mount| mount.to.display().to_string()).collect::<Vec<_>>()
        };
        assert!(shown("/usr/lib/node_modules/x/bin/x.js").is_empty());
        assert_eq!(shown("/opt/u/.opencode/bin/opencode"), ["/opt/u/.opencode/bin/opencode"]);
        assert_eq!(shown("/var/tmp/n/node_modules/a/node_modules/b/x"), ["/var/tmp/n/node_modules"]);
    }
}
