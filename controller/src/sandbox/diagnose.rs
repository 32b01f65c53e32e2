//! Why a sandbox cannot start here, and the least that helps: from errno values and kernel settings, never from the
//! words of bwrap.

use std::io;
use std::path::Path;

use rustix::io::Errno;

use crate::sys::{self, Need};

/// A reason and what to do about it, a line each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// What is missing.
    pub reason: String,
    /// What to do.
    pub fix: String,
}

/// The AppArmor profile that lets bubblewrap, and nothing else, make user namespaces.
pub const APPARMOR_PROFILE: &str = "abi <abi/4.0>, include <tunables/global> \
     profile bwrap /usr/bin/bwrap flags=(unconfined) { userns, include if exists <local/bwrap> }";

/// What the kernel answers, from the first need that is not met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Obstacle {
    need: Need,
    errno: Option<Errno>,
}

/// The settings a diagnosis depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Settings {
    apparmor_restricts: bool,
    userns_clone_off: bool,
    max_user_namespaces: Option<u64>,
    kernel: String,
}

/// Looks for the obstacle. `user` is whom bwrap runs as, when that is not us.
pub fn diagnose(user: Option<(u32, u32)>) -> Option<Diagnosis> {
    let needs = [Need::UserNamespace, Need::Mounts, Need::Proc];
    let obstacle = needs.into_iter().find_map(|need| {
        let error = sys::try_need(need, user).err()?;
        Some(Obstacle { need, errno: Errno::from_io_error(&error) })
    })?;
    Some(explain(obstacle, &Settings::read()))
}

impl Settings {
    fn read() -> Self {
        let setting = |name: &str| read(&Path::new("/proc/sys").join(name)).ok();
        Self {
            apparmor_restricts: setting("kernel/apparmor_restrict_unprivileged_userns").as_deref()
                == Some("1"),
            userns_clone_off: setting("kernel/unprivileged_userns_clone").as_deref() == Some("0"),
            max_user_namespaces: setting("user/max_user_namespaces").and_then(|text| text.parse().ok()),
            kernel: setting("kernel/osrelease").unwrap_or_default(),
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned())
}

/// Pure.
fn explain(obstacle: Obstacle, settings: &Settings) -> Diagnosis {
    let diagnosis = |reason: &str, fix: &str| Diagnosis { reason: reason.to_owned(), fix: fix.to_owned() };
    if settings.kernel.ends_with("-Microsoft") {
        return diagnosis(
            "this is WSL 1, which has no namespaces",
            "convert it: wsl --set-version DISTRIBUTION 2",
        );
    }
    match (obstacle.need, obstacle.errno) {
        (Need::UserNamespace, Some(Errno::NOSYS | Errno::INVAL)) => diagnosis(
            "this kernel is built without user namespaces",
            "use a kernel with CONFIG_USER_NS, as all distributions ship it",
        ),
        (Need::UserNamespace, _) if settings.userns_clone_off => diagnosis(
            "user namespaces are switched off for ordinary users",
            "as root: sysctl kernel.unprivileged_userns_clone=1",
        ),
        (Need::UserNamespace, Some(Errno::NOSPC)) if settings.max_user_namespaces == Some(0) => diagnosis(
            "user namespaces are switched off (user.max_user_namespaces is 0)",
            "as root: sysctl user.max_user_namespaces=10000",
        ),
        (Need::UserNamespace, Some(Errno::NOSPC)) => diagnosis(
            "there are too many user namespaces already, or they are nested too deep",
            "as root: raise user.max_user_namespaces, or end other sandboxes",
        ),
        (Need::UserNamespace | Need::Mounts, _) if settings.apparmor_restricts => Diagnosis {
            reason: "AppArmor keeps ordinary programs from using user namespaces".to_owned(),
            fix: format!(
                "as root: put the profile below into /etc/apparmor.d/bwrap and run apparmor_parser -r \
                 /etc/apparmor.d/bwrap: {APPARMOR_PROFILE}"
            ),
        },
        (Need::UserNamespace | Need::Mounts, Some(Errno::PERM | Errno::ACCESS)) => diagnosis(
            "user namespaces are refused here: this is a container or a service with a system call filter",
            "start the container with seccomp=unconfined, or a profile that allows unshare and mount, or run Legion outside it",
        ),
        (Need::Proc, Some(Errno::PERM)) => diagnosis(
            "/proc cannot be mounted in here: this container masks parts of its own /proc",
            "start the container with systempaths=unconfined (or --privileged), or run Legion outside it",
        ),
        (need, errno) => Diagnosis {
            reason: format!(
                "{} fails: {}",
                need.what(),
                errno.map_or("unknown error".to_owned(), |e| e.to_string())
            ),
            fix: "run legion-controller doctor and look at the first line that failed".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_obstacle_has_its_own_reason_and_fix() {
        let plain = Settings {
            kernel: "6.1.0-13-amd64".to_owned(),
            max_user_namespaces: Some(1000),
            ..Settings::default()
        };
        let apparmor = Settings { apparmor_restricts: true, ..plain.clone() };
        let off = Settings { userns_clone_off: true, ..plain.clone() };
        let none = Settings { max_user_namespaces: Some(0), ..plain.clone() };
        let wsl = Settings { kernel: "4.4.0-19041-Microsoft".to_owned(), ..plain.clone() };
        for (need, errno, settings, part) in [
            (Need::UserNamespace, Errno::INVAL, &plain, "built without"),
            (Need::UserNamespace, Errno::PERM, &off, "unprivileged_userns_clone=1"),
            (Need::UserNamespace, Errno::NOSPC, &none, "max_user_namespaces=10000"),
            (Need::UserNamespace, Errno::NOSPC, &plain, "too many"),
            (Need::Mounts, Errno::ACCESS, &apparmor, "apparmor_parser"),
            (Need::Mounts, Errno::PERM, &plain, "seccomp=unconfined"),
            (Need::Proc, Errno::PERM, &plain, "systempaths=unconfined"),
            (Need::UserNamespace, Errno::INVAL, &wsl, "WSL 1"),
            (Need::Proc, Errno::NOENT, &plain, "doctor"),
        ] {
            let found = explain(Obstacle { need, errno: Some(errno) }, settings);
            let text = format!("{}; {}", found.reason, found.fix);
            assert!(text.contains(part), "{need:?} {errno:?}: {text}");
        }
    }

    #[test]
    fn where_sandboxes_start_nothing_is_diagnosed() {
        // Holds on every machine these tests can run on: the rest of the suite starts sandboxes.
        let user = rustix::process::geteuid().is_root().then_some((65_534, 65_534));
        assert_eq!(diagnose(user), None);
    }
}
