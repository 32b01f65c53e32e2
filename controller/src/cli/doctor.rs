//! `doctor`: proof instead of hope. Starts the real sandbox, tries what must work and what must not, and says for each
//! thing that is wrong what to do.

use std::path::Path;
use std::rc::Rc;

use serde::Serialize;
use tokio::net::TcpListener;

use super::access::Lease;
use super::command::{self, Capture, Command};
use super::{Context, Wanted, print_json, print_lines, table};
use crate::config::{Config, Network};
use crate::failure::{Exit, Failure, Outcome};
use crate::sandbox::bwrap::Bwrap;
use crate::sandbox::cgroup::Cgroups;
use crate::sandbox::diagnose;

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
enum Verdict {
    Ok,
    /// Works, but less well than it could.
    Warning,
    Failed,
    /// Could not be tried.
    Skipped,
}

#[derive(Debug, Serialize)]
struct Check {
    #[serde(rename = "check")]
    name: String,
    result: Verdict,
    detail: String,
}

impl Check {
    fn new(name: &str, result: Verdict, detail: impl Into<String>) -> Self {
        Self { name: name.to_owned(), result, detail: detail.into() }
    }
}

pub(super) async fn run(context: Context, args: Args) -> Outcome<u8> {
    let mut checks = outside(&context);
    match inside(&context, &args.wanted).await {
        Ok(found) => checks.extend(found),
        Err(failure) => checks.push(Check::new("sandbox starts", Verdict::Failed, failure.message)),
    }
    if args.json {
        print_json(&checks)?;
    } else {
        let word = |result| match result {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failed => "FAILED",
            Verdict::Skipped => "skipped",
        };
        let row =
            |check: &Check| vec![check.name.clone(), word(check.result).to_owned(), check.detail.clone()];
        print_lines(&table::lines(
            &["CHECK", "RESULT", "DETAIL"],
            &checks.iter().map(row).collect::<Vec<_>>(),
        ))?;
    }
    let failed = checks.iter().any(|check| check.result == Verdict::Failed);
    Ok(if failed { Exit::Unavailable.code() } else { 0 })
}

/// What can be seen without a sandbox.
fn outside(context: &Context) -> Vec<Check> {
    let environment = &context.environment;
    let mut checks = vec![match Bwrap::probe(environment) {
        Ok(bwrap) => {
            Check::new("bubblewrap", Verdict::Ok, format!("{} at {}", bwrap.version, bwrap.path.display()))
        }
        Err(failure) => Check::new("bubblewrap", Verdict::Failed, failure.message),
    }];
    // Root drops to somebody without rights, so that is who needs the namespaces.
    let user = (environment.uid == 0).then_some((65_534, 65_534));
    checks.push(match diagnose::diagnose(user) {
        None => Check::new("namespaces", Verdict::Ok, "user, mount and pid namespaces work"),
        Some(found) => Check::new("namespaces", Verdict::Failed, format!("{}; {}", found.reason, found.fix)),
    });
    checks.push(match Cgroups::take_over() {
        Ok(cgroups) => Check::new("cgroup", Verdict::Ok, format!("delegated: {}", cgroups.controllers.join(", "))),
        Err(why) => Check::new(
            "cgroup",
            Verdict::Warning,
            format!("{why}; memory is bounded for each process instead of the sandbox: start Legion with systemd-run --user --scope -p Delegate=yes"),
        ),
    });
    checks.push(watches());
    checks
}

/// A workspace on an odd mount makes honest work fail in odd ways.
fn file_system(workspace: &Path) -> Check {
    use rustix::fs::{StatVfsMountFlags, statvfs};
    const NAME: &str = "workspace file system";
    match statvfs(workspace) {
        Err(error) => Check::new(NAME, Verdict::Failed, error.to_string()),
        Ok(found) if found.f_flag.contains(StatVfsMountFlags::RDONLY) => {
            Check::new(NAME, Verdict::Failed, "it is mounted read-only: choose another workspace")
        }
        Ok(found) if found.f_flag.contains(StatVfsMountFlags::NOEXEC) => {
            Check::new(NAME, Verdict::Warning, "it is mounted noexec: programs built there cannot be run")
        }
        Ok(_) => Check::new(NAME, Verdict::Ok, "writable, programs may run"),
    }
}

/// Watching a workspace takes a watch for each protected place.
fn watches() -> Check {
    const ENOUGH: u64 = 8192;
    let read = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches");
    match read.ok().and_then(|text| text.trim().parse::<u64>().ok()) {
        Some(watches) if watches >= ENOUGH => Check::new("file watches", Verdict::Ok, watches.to_string()),
        Some(watches) => Check::new(
            "file watches",
            Verdict::Warning,
            format!("only {watches}: as root, sysctl fs.inotify.max_user_watches={ENOUGH}"),
        ),
        None => Check::new("file watches", Verdict::Failed, "this kernel has no inotify"),
    }
}

/// One try inside: a shell command, and whether it must succeed.
struct Try {
    name: &'static str,
    script: String,
    must_work: bool,
}

/// Everything that is tried in the sandbox. `home` is the user's on the host, `port` listens on the host's loopback.
fn tries(home: Option<&Path>, port: Option<u16>, workspace: &Path) -> Vec<Try> {
    let needed = |name, script: &str| Try { name, script: script.to_owned(), must_work: true };
    let forbidden = |name, script: &str| Try { name, script: script.to_owned(), must_work: false };
    let mut tries = vec![
        needed("commands run", "true"),
        needed("workspace is writable", "touch .legion-doctor && rm .legion-doctor"),
        needed("temporary files", "touch /tmp/legion-doctor && touch \"$HOME/legion-doctor\""),
        needed("devices", "head -c 1 /dev/urandom >/dev/null && : </dev/null"),
        forbidden("host accounts", "cat /etc/shadow"),
        forbidden(
            "system files",
            "touch /usr/legion-doctor || touch /etc/legion-doctor || touch /legion-doctor",
        ),
        // Opened for appending, nothing is written should it succeed.
        forbidden("kernel settings", ": >>/proc/sys/kernel/core_pattern"),
        forbidden("new user namespaces", "unshare --user true"),
        forbidden("mounts", "mount -t tmpfs none /tmp"),
        forbidden("set-user-id files", "touch s && { chmod 4755 s; status=$?; rm -f s; exit $status; }"),
        forbidden("processes of the host", "test \"$(ls -d /proc/[0-9]* | wc -l)\" -gt 20"),
        forbidden("the exec-server's memory", "cat /proc/1/environ || head -c 1 /proc/1/mem"),
        forbidden("capabilities", "grep -q '^Cap[A-Za-z]*:.*[1-9a-f]' /proc/self/status"),
        needed("system call filter", "grep -q '^Seccomp:.*2' /proc/self/status"),
        needed("no new privileges", "grep -q '^NoNewPrivs:.*1' /proc/self/status"),
    ];
    // The home may hold the workspace; what else lies in it must be gone.
    if let Some(home) = home.filter(|home| !home.starts_with(workspace)) {
        let home = home.display();
        tries.push(forbidden(
            "home directory",
            &format!("ls -d '{home}'/.ssh '{home}'/.config '{home}'/.bash_history"),
        ));
    }
    if let Some(port) = port {
        tries.push(forbidden("network of the host", &format!("bash -c ': </dev/tcp/127.0.0.1/{port}'")));
    }
    tries
}

/// Starts the real sandbox and tries it.
async fn inside(context: &Context, wanted: &Wanted) -> Outcome<Vec<Check>> {
    let mut config = Config::load(&context.environment, &context.overrides(Vec::new()))?;
    let name = config.persona(wanted.persona.as_deref())?.name.clone();
    let Some(persona) = config.personas.get_mut(&name) else {
        return Err(Failure::internal(format_args!("there is no persona {name}")));
    };
    let shut = persona.network == Network::None;
    // It is the sandbox that is tried; rules only guide, and would keep the tries away from it.
    persona.policy = Rc::default();
    // Something real to reach: its port is tried from inside.
    let listener = TcpListener::bind("127.0.0.1:0").await.ok();
    let port =
        listener.as_ref().and_then(|listener| listener.local_addr().ok()).map(|address| address.port());
    let lease = Lease::embed(context, config, wanted).await?;
    let workspace = lease.opened.workspace.clone();
    let tries = tries(context.environment.home(), port.filter(|_| shut), &workspace);
    let script: Vec<String> = tries
        .iter()
        .enumerate()
        .map(|(index, item)| format!("( {} ) >/dev/null 2>&1; echo {index} $?", item.script))
        .collect();
    let output: Capture = Rc::default();
    let argv = vec!["sh".to_owned(), "-c".to_owned(), script.join("\n")];
    let command = Command { argv, capture: Some(Rc::clone(&output)), ..Command::default() };
    let ran = command::run(context, lease, command).await;
    let mut checks =
        vec![file_system(&workspace), Check::new("sandbox starts", Verdict::Ok, format!("persona {name}"))];
    match ran {
        // The workspace has rules of its own.
        Err(failure) if failure.exit == Exit::Refused => {
            checks.push(Check::new("commands run", Verdict::Failed, failure.message));
            return Ok(checks);
        }
        ran => ran?,
    };
    let output = String::from_utf8_lossy(&output.borrow()).into_owned();
    for (index, item) in tries.iter().enumerate() {
        let status = output.lines().find_map(|line| line.strip_prefix(&format!("{index} ")));
        let status = status.and_then(|status| status.parse::<u8>().ok());
        checks.push(verdict(item, status));
    }
    if !shut {
        checks.push(Check::new("network of the host", Verdict::Skipped, "the persona allows it"));
    }
    Ok(checks)
}

fn verdict(item: &Try, status: Option<u8>) -> Check {
    let (result, detail) = match (status, item.must_work) {
        (None, _) => (Verdict::Failed, "it gave no answer".to_owned()),
        // What is not installed inside cannot be tried with it.
        (Some(127), false) => (Verdict::Skipped, "the tool to try it is not installed".to_owned()),
        (Some(0), true) => (Verdict::Ok, "works".to_owned()),
        (Some(status), true) => {
            (Verdict::Failed, format!("does not work inside (exit {status}): {}", item.script))
        }
        (Some(0), false) => (Verdict::Failed, format!("is possible inside, report this: {}", item.script)),
        (Some(_), false) => (Verdict::Ok, "refused".to_owned()),
    };
    Check::new(item.name, result, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_fails_when_the_needed_does_not_work_or_the_forbidden_does() {
        let all = tries(Some(Path::new("/home/u")), Some(1), Path::new("/home/u/p"));
        assert!(
            all.iter().any(|item| item.must_work) && all.iter().filter(|item| !item.must_work).count() > 8
        );
        for item in &all {
            let good = u8::from(!item.must_work);
            assert_eq!(verdict(item, Some(good)).result, Verdict::Ok, "{}", item.name);
            assert_eq!(verdict(item, Some(1 - good)).result, Verdict::Failed, "{}", item.name);
            assert_eq!(verdict(item, None).result, Verdict::Failed, "{}", item.name);
        }
    }
}
