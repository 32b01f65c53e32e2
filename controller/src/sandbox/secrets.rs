//! Where secret files would show up inside besides the workspace: in what a view or a persona's mount shows of the host.

use std::path::{Path, PathBuf};

use super::argv::{inside_workspace, is_shown};
use super::spec::{RootEntry, Spec};
use crate::config::{Mount, View};

/// Something mounted, in the order it is mounted: what is shown, or nothing of the host, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// On the host, absolute, without links; none for what shows nothing of the host.
    pub from: Option<PathBuf>,
    /// Inside.
    pub to: PathBuf,
}

/// A secret file on the host, and every place inside where it would be seen.
pub type Secret = (PathBuf, Vec<PathBuf>);

/// Everything of the host that is shown outside the workspace, and what covers it, in the order of [`super::argv::build`].
pub fn shown(spec: &Spec) -> Vec<Shown> {
    let nothing = |to: &Path| Shown { from: None, to: to.to_owned() };
    let same = |path: PathBuf| Shown { from: Some(path.clone()), to: path };
    let of_mount = |mount: &Mount| {
        // What a link leads to is what is mounted.
        let from = mount.from.as_ref().and_then(|from| from.canonicalize().ok());
        Shown { from, to: mount.to.clone() }
    };
    let directories = spec.root.iter().filter(|entry| matches!(entry, RootEntry::Directory(_)));
    let mut shown: Vec<Shown> = directories
        .filter(|entry| is_shown(spec.view, entry.name()))
        .map(|entry| same(Path::new("/").join(entry.name())))
        .collect();
    if spec.view == View::HostRo {
        shown.extend(["/var/tmp", "/run", "/home"].map(|covered| nothing(Path::new(covered))));
        shown.extend(spec.hidden.iter().map(|dir| nothing(dir)));
    }
    shown.push(nothing(spec.home()));
    let (inside, outside): (Vec<&Mount>, Vec<&Mount>) =
        spec.mounts.iter().partition(|item| inside_workspace(spec, item));
    shown.extend(spec.toolchains.mounts.iter().chain(outside).map(of_mount));
    // What the workspace itself shows is guarded with it.
    shown.extend(spec.workspace_mounts().map(nothing));
    shown.extend(inside.into_iter().map(of_mount));
    shown.extend(spec.externals.iter().map(|external| same(external.path.clone())));
    shown
}

/// The places of each file, those without any left out. Later mounts cover earlier ones.
pub fn places(files: &[PathBuf], shown: &[Shown]) -> Vec<Secret> {
    let seen = files.iter().map(|file| (file.clone(), places_of(file, shown)));
    seen.filter(|(_, places)| !places.is_empty()).collect()
}

fn places_of(file: &Path, shown: &[Shown]) -> Vec<PathBuf> {
    let mut places = Vec::new();
    for (index, item) in shown.iter().enumerate() {
        let relative = item.from.as_ref().and_then(|from| file.strip_prefix(from).ok());
        let Some(relative) = relative else { continue };
        // Joining nothing would add a slash.
        let place = if relative.as_os_str().is_empty() { item.to.clone() } else { item.to.join(relative) };
        let covered = shown.iter().skip(index + 1).any(|later| place.starts_with(&later.to));
        if !covered && !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(from: &str, to: &str) -> Shown {
        Shown { from: (!from.is_empty()).then(|| from.into()), to: to.into() }
    }

    #[test]
    fn a_secret_is_found_wherever_it_shows_and_nowhere_else() {
        let files = [PathBuf::from("/opt/x/.env"), PathBuf::from("/home/u/p/src/.env")];
        let all = [
            shown("/opt", "/opt"),
            shown("", "/home"),
            shown("/opt/x", "/config"),
            shown("/home/u/p/src", "/src"),
            shown("/opt/x/.env", "/dotenv"),
            shown("", "/home/u/p"),
        ];
        let expected: [Secret; 2] = [
            (files[0].clone(), ["/opt/x/.env", "/config/.env", "/dotenv"].map(PathBuf::from).to_vec()),
            (files[1].clone(), vec!["/src/.env".into()]),
        ];
        assert_eq!(places(&files, &all), expected);
    }

    #[test]
    fn what_a_later_mount_covers_does_not_show() {
        let files = [PathBuf::from("/opt/x/.env")];
        assert_eq!(places(&files, &[shown("/opt", "/opt"), shown("/data", "/opt")]), []);
        assert_eq!(places(&files, &[shown("/opt", "/opt"), shown("", "/opt/x")]), []);
    }
}
