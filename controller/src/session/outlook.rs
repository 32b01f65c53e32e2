//! How a session's calls are judged: its rules, and what its files look like to them.
//!
//! Invariant: links are followed as they lead inside. Between the look and the act they may change: rules guide, the
//! sandbox is the boundary.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use super::Session;
use crate::config::{MountAt, Persona};
use crate::controller::Controller;
use crate::gate::Judge;
use crate::limits::MAX_LINKS;
use crate::policy::action::{Look, Places};
use crate::policy::{Rules, Sight};
use crate::sandbox::spec::WORKSPACE;

/// Where programs are looked for inside.
const PROGRAM_DIRECTORIES: [&str; 4] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin"];

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
}

impl Outlook {
    /// The view a persona has of a workspace.
    pub fn new(persona: &Persona, workspace: &Path) -> Self {
        Self { workspace: workspace.to_owned(), places: places(persona, workspace) }
    }

    /// Names of the workspace.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Where on the host a path inside lies. Outside the workspace both have the same name, or there is no link.
    fn on_host(&self, path: &Path) -> PathBuf {
        match self.places.names(path).relative {
            Some(rest) if rest == Path::new(".") => self.workspace.clone(),
            Some(rest) => self.workspace.join(rest),
            None => path.to_owned(),
        }
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
            match std::fs::read_link(self.on_host(&next)) {
                Ok(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return None;
                    }
                    if target.is_absolute() {
                        done = PathBuf::from("/");
                    }
                    rest.extend(parts(&target));
                }
                Err(_) => done = next,
            }
        }
        Some(done)
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        let mut files = PROGRAM_DIRECTORIES.iter().map(|dir| Path::new(dir).join(name));
        files.find(|file| file.is_file())
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

    #[test]
    fn links_are_followed_as_they_lead_inside() {
        let dir = tempfile::tempdir().unwrap();
        let workspace = dir.path().canonicalize().unwrap();
        let places = Places { workspace: vec!["/workspace".into()] };
        let outlook = Outlook { workspace: workspace.clone(), places };
        std::fs::create_dir(workspace.join("real")).unwrap();
        symlink("real", workspace.join("a")).unwrap();
        symlink("/workspace/a/../real", workspace.join("b")).unwrap();
        symlink("/nowhere/x", workspace.join("out")).unwrap();
        symlink("loop", workspace.join("loop")).unwrap();
        for (path, last, expected) in [
            ("/workspace/a/f", true, Some("/workspace/real/f")),
            ("/workspace/b/f", true, Some("/workspace/real/f")),
            ("/workspace/a", false, Some("/workspace/a")),
            ("/workspace/b", true, Some("/workspace/real")),
            ("/workspace/out", true, Some("/nowhere/x")),
            ("/workspace/loop", true, None),
            ("/workspace/new/file", true, Some("/workspace/new/file")),
        ] {
            assert_eq!(outlook.resolve(Path::new(path), last).as_deref(), expected.map(Path::new), "{path}");
        }
    }
}
