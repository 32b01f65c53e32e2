//! A cgroup for each sandbox, where version 2 is delegated to us: memory and processes are bounded together, and all of a
//! sandbox can be killed at once. Where it is not, limits of single processes take their place, and the record says so.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What of a sandbox a cgroup can bound.
const WANTED: [&str; 2] = ["memory", "pids"];

/// The child cgroup the controller itself moves into: only leaves may hold processes once limits are delegated.
const OWN: &str = "legion-controller";

/// The delegated place cgroups of sandboxes are made in.
#[derive(Debug, Clone)]
pub struct Cgroups {
    base: PathBuf,
    /// Which of `memory` and `pids` it can bound; not empty.
    pub controllers: Vec<&'static str>,
}

impl Cgroups {
    /// Finds out whether cgroups are delegated to this process and takes the place over.
    ///
    /// # Errors
    /// One line that says what is missing.
    pub fn take_over() -> Result<Self, String> {
        let read = |path: &str| fs::read_to_string(path).map_err(|error| format!("{path}: {error}"));
        let mount = mount_point(&read("/proc/self/mountinfo")?).ok_or("no cgroup2 file system is mounted")?;
        let cgroup = read("/proc/self/cgroup")?;
        let own = own_path(&cgroup).ok_or("this process is in no cgroup of version 2")?;
        let base = mount.join(own.trim_start_matches('/'));
        Self::enable(&base)
    }

    fn enable(base: &Path) -> Result<Self, String> {
        let listed = |name: &str| {
            fs::read_to_string(base.join(name))
                .map_err(|error| format!("{}: {error}", base.join(name).display()))
        };
        let has = |text: &str, name: &str| text.split_whitespace().any(|word| word == name);
        let available = listed("cgroup.controllers")?;
        let controllers: Vec<_> = WANTED.into_iter().filter(|name| has(&available, name)).collect();
        if controllers.is_empty() {
            return Err(format!("{} offers neither memory nor pids", base.display()));
        }
        let enabled = listed("cgroup.subtree_control")?;
        if !controllers.iter().all(|name| has(&enabled, name)) {
            let own = base.join(OWN);
            delegate(base, &own, &controllers).map_err(|error| {
                // Back where we were: a half-made move would leave this process in the wrong place.
                let _ = fs::write(base.join("cgroup.procs"), "0");
                let _ = fs::remove_dir(&own);
                match error.kind() {
                    io::ErrorKind::ResourceBusy => {
                        format!(
                            "{} holds other processes too, so nothing below it can be bounded",
                            base.display()
                        )
                    }
                    _ => format!("{} is not delegated to us: {error}", base.display()),
                }
            })?;
        }
        Ok(Self { base: base.to_owned(), controllers })
    }

    /// A new cgroup with these bounds.
    pub fn create(&self, name: &str, memory: u64, pids: u64) -> io::Result<Cgroup> {
        let cgroup = Cgroup { path: self.base.join(format!("legion-{}-{name}", std::process::id())) };
        fs::create_dir(&cgroup.path)?;
        for controller in &self.controllers {
            match *controller {
                "memory" => fs::write(cgroup.path.join("memory.max"), memory.to_string())?,
                _ => fs::write(cgroup.path.join("pids.max"), pids.to_string())?,
            }
        }
        Ok(cgroup)
    }
}

fn delegate(base: &Path, own: &Path, controllers: &[&str]) -> io::Result<()> {
    match fs::create_dir(own) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    fs::write(own.join("cgroup.procs"), "0")?;
    let all: Vec<String> = controllers.iter().map(|name| format!("+{name}")).collect();
    fs::write(base.join("cgroup.subtree_control"), all.join(" "))
}

/// The cgroup of one sandbox; removed when dropped, if it is empty by then.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// Moves a process in; its children are born inside.
    pub fn add(&self, pid: u64) -> io::Result<()> {
        fs::write(self.path.join("cgroup.procs"), pid.to_string())
    }

    /// Kills everything inside.
    pub fn kill(&self) -> io::Result<()> {
        fs::write(self.path.join("cgroup.kill"), "1")
    }

    /// How many processes the kernel has killed because the sandbox was out of memory.
    pub fn memory_kills(&self) -> u64 {
        let events = fs::read_to_string(self.path.join("memory.events")).unwrap_or_default();
        let count = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Fails while something is left inside; it is being killed, and an empty cgroup costs nothing.
        let _ = fs::remove_dir(&self.path);
    }
}

fn mount_point(mountinfo: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (before, after) = line.split_once(" - ")?;
        let fields: Vec<&str> = before.split(' ').collect();
        after.starts_with("cgroup2 ").then(|| fields.get(4).map(PathBuf::from)).flatten()
    })
}

fn own_path(cgroup: &str) -> Option<&str> {
    cgroup.lines().find_map(|line| line.strip_prefix("0::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_is_read_from_proc() {
        let mountinfo = "30 24 0:26 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                         31 24 0:27 / /sys/fs/cgroup/unified rw,nosuid - cgroup2 cgroup2 rw\n";
        assert_eq!(mount_point(mountinfo), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(mount_point("30 24 0:26 / /x rw - cgroup cgroup rw\n"), None);
        assert_eq!(own_path("9:pids:/a\n0::/user.slice/x\n"), Some("/user.slice/x"));
        assert_eq!(own_path("9:pids:/a\n"), None);
    }

    #[test]
    fn a_directory_that_is_no_cgroup_is_refused_with_the_reason() {
        let base = tempfile::tempdir().unwrap();
        assert!(Cgroups::enable(base.path()).unwrap_err().contains("cgroup.controllers"));
        fs::write(base.path().join("cgroup.controllers"), "cpu io\n").unwrap();
        assert!(Cgroups::enable(base.path()).unwrap_err().contains("neither memory nor pids"));
        fs::write(base.path().join("cgroup.controllers"), "cpu memory pids\n").unwrap();
        fs::write(base.path().join("cgroup.subtree_control"), "memory pids\n").unwrap();
        let cgroups = Cgroups::enable(base.path()).unwrap();
        assert_eq!(cgroups.controllers, ["memory", "pids"]);
    }
}
