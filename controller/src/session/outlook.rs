//! How a session's calls are judged: its rules, and what its files look like to them.
//!
//! Invariant: links are followed as they lead inside. Between the look and the act they may change: rules guide, the
//! sandbox is the boundary.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::Session;
use crate::config::{Mount, MountAt, Persona, View};
use crate::controller::Controller;
use crate::gate::Judge;
use crate::limits::MAX_LINKS;
use crate::policy::action::{Look, Places, Program};
use crate::policy::{Rules, Sight};
use crate::sandbox::argv::{PATH, is_shown};
use crate::sandbox::spec::WORKSPACE;

/// The names a workspace has inside.
pub fn places(persona: &Persona, workspace: &Path) -> Places {
    let inside = PathBuf::from(WORKSPACE);
    let workspace = match persona.mount_at {
        MountAt::Host => vec![workspace.to_owned(), inside],
        MountAt::Workspace => vec![inside],
    };
    Places { workspace }
}

/// A session's files, seen from outside.
#[derive(Debug, Clone)]
pub struct Outlook {
    /// On the host.
    workspace: PathBuf,
    places: Places,
    view: View,
    mounts: Vec<Mount>,
    /// Where programs are looked for inside.
    programs: Vec<PathBuf>,
}

/// The directories of `PATH` inside. What the controller's own says is not known here: then programs are hidden.
fn searched(persona: &Persona) -> Vec<PathBuf> {
    let path = match persona.env.set.get("PATH") {
        Some(path) => path.as_str(),
        None if persona.env.inherit.matches("PATH") => "",
        None => PATH,
    };
    path.split(':').map(PathBuf::from).collect()
}

/// What is known outside of a path inside.
enum Spot {
    /// It is this path of the host.
    Host(PathBuf),
    /// It is no link.
    NoLink,
    /// Only the sandbox knows: it may be a link that was made there.
    Hidden,
}

impl Outlook {
    /// The view a persona has of a workspace.
    pub fn new(persona: &Persona, workspace: &Path) -> Self {
        Self {
            workspace: workspace.to_owned(),
            places: places(persona, workspace),
            view: persona.view,
            mounts: persona.mounts.clone(),
            programs: searched(persona),
        }
    }

    /// Names of the workspace.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// What a path inside is: `/tmp`, the home, `/dev` and `/proc` are the sandbox's own.
    fn spot(&self, path: &Path) -> Spot {
        let rest = self.places.names(path).relative;
        // Mounts in the workspace come after it, the others before.
        let covers = |mount: &&Mount| {
            path.starts_with(&mount.to) && self.places.names(&mount.to).relative.is_some() == rest.is_some()
        };
        if let Some(mount) = self.mounts.iter().rev().find(covers) {
            return mounted(mount, path);
        }
        if let Some(rest) = rest {
            return if rest == Path::new(".") { Spot::NoLink } else { Spot::Host(self.workspace.join(rest)) };
        }
        let mut parts = path.components().skip(1);
        let Some(Component::Normal(top)) = parts.next() else { return Spot::NoLink };
        let is_top = parts.next().is_none();
        // Nothing inside can change the root directory. Other parts of the host may be covered by what is private.
        if is_shown(View::Minimal, top) || !is_top && top == "etc" || is_top && is_shown(self.view, top) {
            return Spot::Host(path.to_owned());
        }
        let mut ends = self.places.workspace.iter().chain(self.mounts.iter().map(|mount| &mount.to));
        if is_top || ends.any(|end| end.starts_with(path)) { Spot::NoLink } else { Spot::Hidden }
    }
}

/// What a path at or below a mount is.
fn mounted(mount: &Mount, path: &Path) -> Spot {
    let Ok(rest) = path.strip_prefix(&mount.to) else { return Spot::Hidden };
    let is_itself = rest.as_os_str().is_empty();
    match &mount.from {
        // It may have been left out.
        Some(from) if !from.exists() => Spot::Hidden,
        _ if is_itself => Spot::NoLink,
        Some(from) => Spot::Host(from.join(rest)),
        None => Spot::Hidden,
    }
}

impl Look for Outlook {
    fn resolve(&self, path: &Path, last: bool) -> Option<PathBuf> {
        let mut done = PathBuf::from("/");
        let mut rest: Vec<Vec<u8>> = parts(path);
        let mut links = 0;
        while let Some(part) = rest.pop() {
            if part == b".." {
                done.pop();
                continue;
            }
            let next = done.join(OsStr::from_bytes(&part));
            if !last && rest.is_empty() {
                return Some(next);
            }
            let link = match self.spot(&next) {
                Spot::Host(path) => std::fs::read_link(path).ok(),
                Spot::NoLink => None,
                Spot::Hidden => return None,
            };
            match link {
                Some(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return None;
                    }
                    if target.is_absolute() {
                        done = PathBuf::from("/");
                    }
                    rest.extend(parts(&target));
                }
                None => done = next,
            }
        }
        Some(done)
    }

    fn program(&self, name: &str) -> Program {
        for directory in &self.programs {
            let path = directory.join(name);
            if !path.is_absolute() {
                return Program::Hidden;
            }
            match self.resolve(&path, true).map(|resolved| self.spot(&resolved)) {
                Some(Spot::Host(file)) if file.is_file() => return Program::At(path),
                Some(Spot::Host(_) | Spot::NoLink) => {}
                Some(Spot::Hidden) | None => return Program::Hidden,
            }
        }
        Program::Nowhere
    }
}

/// The components of a path, the last first.
fn parts(path: &Path) -> Vec<Vec<u8>> {
    let named = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.as_bytes().to_vec()),
        Component::ParentDir => Some(b"..".to_vec()),
        _ => None,
    };
    path.components().rev().filter_map(named).collect()
}

impl Session {
    /// Judges its calls by these rules.
    pub fn judge<'a>(&'a self, controller: &'a Controller, rules: &'a Rules) -> Judge<'a> {
        let look = rules.look_at_files().then_some(&self.outlook as &dyn Look);
        let sight = Sight { places: self.outlook.places(), look };
        Judge { redactor: &controller.redactor, rules, sight }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::config::MountMode;

    #[test]
    fn links_are_followed_as_they_lead_inside() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().canonicalize().unwrap();
        let places = Places { workspace: vec!["/workspace".into()] };
        let mount = |mode, from: Option<&str>, to: &str| Mount {
            mode,
            from: from.map(|name| workspace.join(name)),
            to: to.into(),
        };
        let mounts = vec![
            mount(MountMode::Ro, Some("real"), "/data/shown"),
            mount(MountMode::RoTry, Some("missing"), "/data/missing"),
            mount(MountMode::Tmpfs, None, "/workspace/private"),
        ];
        let programs = ["/usr/bin", "/workspace/bin", "/tmp"].map(PathBuf::from).to_vec();
        let outlook = Outlook { workspace: workspace.clone(), places, view: View::Minimal, mounts, programs };
        std::fs::create_dir(workspace.join("real")).unwrap();
        symlink("real", workspace.join("a")).unwrap();
        symlink("/workspace/a/../real", workspace.join("b")).unwrap();
        symlink("/usr/nowhere/x", workspace.join("out")).unwrap();
        symlink("/tmp/x", workspace.join("tmp")).unwrap();
        symlink("/workspace/a", workspace.join("real/back")).unwrap();
        symlink("loop", workspace.join("loop")).unwrap();
        for (path, last, expected) in [
            ("/workspace/a/f", true, Some("/workspace/real/f")),
            ("/workspace/b/f", true, Some("/workspace/real/f")),
            ("/workspace/a", false, Some("/workspace/a")),
            ("/workspace/b", true, Some("/workspace/real")),
            ("/workspace/out", true, Some("/usr/nowhere/x")),
            ("/workspace/tmp", true, None),
            ("/tmp", true, Some("/tmp")),
            ("/tmp/s", false, Some("/tmp/s")),
            ("/tmp/s", true, None),
            ("/tmp/s/key", false, None),
            ("/dev/fd/3", true, None),
            ("/dev/shm/s/key", true, None),
            ("/home/legion/s/key", true, None),
            ("/proc/1/root/workspace/real", true, None),
            ("/proc/self/cwd/real", true, None),
            ("/data/shown/back/f", true, Some("/workspace/real/f")),
            ("/data/shown/f", true, Some("/data/shown/f")),
            ("/data/missing/f", true, None),
            ("/workspace/private/s", true, None),
            ("/workspace/loop", true, None),
            ("/workspace/new/file", true, Some("/workspace/new/file")),
        ] {
            assert_eq!(outlook.resolve(Path::new(path), last).as_deref(), expected.map(Path::new), "{path}");
        }
        assert_eq!(outlook.program("env"), Program::At("/usr/bin/env".into()));
        assert_eq!(outlook.program("mine"), Program::Hidden, "it may be in /tmp");
        std::fs::create_dir(workspace.join("bin")).unwrap();
        std::fs::write(workspace.join("bin/mine"), "").unwrap();
        assert_eq!(outlook.program("mine"), Program::At("/workspace/bin/mine".into()));
    }
}
