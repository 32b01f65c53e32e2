//! What of a git repository is protected: configuration, hooks, `info`, and what the configuration names, all of which git
//! on the host executes or obeys; the rest stays writable, so that git goes on working inside.
//!
//! A `.git` file or link may point anywhere, and code inside a sandbox could have written it in an earlier session: a
//! directory outside the workspace is mounted only if it points back, which only somebody outside can have arranged.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::git_config;
use super::protect::{External, Guard, Guards, Scan};

/// Parts of a git directory that are read-only inside. `commondir` and `gitdir` lead git to other configuration.
pub(super) const READ_ONLY: [&str; 6] = ["config", "config.worktree", "hooks", "info", "commondir", "gitdir"];

/// Directories git on the host looks into, and which an agent must not be the first to make.
const PLACEHOLDERS: [&str; 2] = ["hooks", "info"];

/// How deep submodules of submodules are followed.
const MAX_MODULE_DEPTH: usize = 8;

/// Of a file that names a directory this much is read.
const MAX_POINTER_BYTES: u64 = 64 << 10;

/// Guards what `.git` in some directory of the workspace stands for.
pub(super) fn found(scan: &mut Scan<'_>, path: &Path) {
    if let Some(parent) = path.parent()
        && parent != scan.workspace
    {
        scan.plan.roots.push(parent.to_owned());
    }
    if path.is_symlink() {
        scan.plan.links.push(path.to_owned());
    }
    let (Ok(real), Some(worktree)) = (path.canonicalize(), path.parent()) else { return };
    if real.is_dir() {
        git_dir(scan, &real, worktree);
    } else {
        scan.protect(path);
        if let Some(target) = pointed_to(&real) {
            pointer(scan, path, &target, worktree);
        }
    }
}

/// Whether a directory is a git directory, by what git looks for.
pub(super) fn is_bare(dir: &Path) -> bool {
    dir.join("HEAD").is_file() && dir.join("objects").is_dir() && dir.join("refs").is_dir()
}

/// Guards a git directory that is found as a directory of another name.
pub(super) fn bare(scan: &mut Scan<'_>, dir: &Path) {
    git_dir(scan, dir, dir);
}

/// A git directory inside the workspace, or one outside that the persona mounts: no other is visible inside.
fn git_dir(scan: &mut Scan<'_>, dir: &Path, worktree: &Path) {
    if scan.plan.git_dirs.iter().any(|known| known == dir) {
        return;
    }
    if dir.starts_with(scan.workspace) {
        let found = Found::of(dir);
        scan.guard_real(dir, Guard::Pin);
        for (path, guard) in found.guards.iter() {
            scan.guard_real(&dir.join(path), guard);
        }
        return absorb(scan, found, worktree);
    }
    if scan.mounted.iter().any(|mounted| dir.starts_with(mounted)) {
        return external(scan, dir, worktree);
    }
    scan.plan.notes.push(format!(
        "{} lies outside the workspace, so git does not work inside: add a mount of it to the persona",
        dir.display()
    ));
}

/// A git directory outside the workspace that is mounted at its own path.
fn external(scan: &mut Scan<'_>, dir: &Path, worktree: &Path) {
    if scan.plan.externals.iter().any(|known| known.path == dir) {
        return;
    }
    let mut found = Found::of(dir);
    let guards = std::mem::take(&mut found.guards);
    scan.plan.externals.push(External { path: dir.to_owned(), guards });
    absorb(scan, found, worktree);
}

/// Takes over what was found, and guards what it names elsewhere.
fn absorb(scan: &mut Scan<'_>, mut found: Found, worktree: &Path) {
    for target in std::mem::take(&mut found.elsewhere) {
        scan.guard_real(&target, Guard::ReadOnly);
    }
    for (config, own) in std::mem::take(&mut found.configs) {
        obeyed(scan, &config, own.as_deref().unwrap_or(worktree));
    }
    // A relative `core.hooksPath` of the user's lies in every worktree.
    for config in scan.git_configs {
        obeyed(scan, config, worktree);
    }
    scan.plan.absorb(found);
}

/// Guards what a configuration names, as far as it is inside.
fn obeyed(scan: &mut Scan<'_>, config: &Path, worktree: &Path) {
    let git_config::Named { hooks, includes, programs } = git_config::named(config, worktree);
    for path in hooks.iter().chain(&includes).chain(&programs) {
        if scan.is_inside(path) {
            scan.protect(path);
        }
    }
    let can_be_made = |path: &PathBuf| {
        let missing = path.symlink_metadata().is_err();
        missing && scan.is_inside(path) && path.parent().is_some_and(Path::is_dir)
    };
    let absent: Vec<_> = includes.into_iter().filter(can_be_made).collect();
    let hooks: Vec<_> = hooks.into_iter().filter(can_be_made).collect();
    scan.plan.absent.extend(absent);
    for path in hooks {
        scan.guard_real(&path, Guard::ReadOnly);
        scan.plan.placeholders.push(path);
    }
}

/// The git directory a `.git` of whatever kind stands for.
pub(super) fn target(path: &Path) -> Option<PathBuf> {
    let real = path.canonicalize().ok()?;
    if real.is_dir() { Some(real) } else { pointed_to(&real) }
}

/// Where a git directory has its configuration and hooks, if that is elsewhere.
pub(super) fn common(git_dir: &Path) -> Option<PathBuf> {
    named_in(&git_dir.join("commondir"), b"")
}

/// What a `.git` file says.
fn pointed_to(file: &Path) -> Option<PathBuf> {
    named_in(file, b"gitdir: ").filter(|path| path.is_dir())
}

/// The real path that a file names after a prefix, read as git does: without line ends at the end, up to a NUL, relative to
/// the directory of the file. An agent may have put anything there: a pipe without a writer must not hold us up.
fn named_in(file: &Path, prefix: &[u8]) -> Option<PathBuf> {
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(file).ok()?;
    if !opened.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = Vec::new();
    opened.take(MAX_POINTER_BYTES).read_to_end(&mut text).ok()?;
    let end = text.iter().rposition(|byte| !matches!(byte, b'\n' | b'\r'))? + 1;
    let text = text.get(..end)?.split(|byte| *byte == 0).next()?.strip_prefix(prefix)?;
    file.parent()?.join(OsStr::from_bytes(text)).canonicalize().ok()
}

/// A `.git` file: of a linked worktree or a submodule.
fn pointer(scan: &mut Scan<'_>, file: &Path, git_dir_path: &Path, worktree: &Path) {
    if git_dir_path.starts_with(scan.workspace) {
        return git_dir(scan, git_dir_path, worktree);
    }
    let mounted = || {
        let top = common(git_dir_path).or_else(|| git_dir_path.canonicalize().ok())?;
        scan.mounted.iter().any(|mounted| top.starts_with(mounted)).then_some(top)
    };
    let Some(top) = points_back(git_dir_path, file).or_else(mounted) else {
        scan.plan.notes.push(format!(
            "{} names {}, which does not belong to it: git does not work there inside",
            file.display(),
            git_dir_path.display()
        ));
        return;
    };
    external(scan, &top, worktree);
}

/// The directory to mount for a `.git` file, if what it names names it, too: the common directory of a worktree, the git
/// directory of a submodule.
fn points_back(git_dir: &Path, file: &Path) -> Option<PathBuf> {
    let worktree = file.parent()?.canonicalize().ok()?;
    if let (Some(back), Some(common)) = (named_in(&git_dir.join("gitdir"), b""), common(git_dir)) {
        let belongs = back == file.canonicalize().ok()? && git_dir.parent()? == common.join("worktrees");
        return belongs.then_some(common);
    }
    (worktree_of(git_dir)? == worktree).then(|| git_dir.to_owned())
}

/// The worktree that the git directory of a submodule names.
fn worktree_of(git_dir: &Path) -> Option<PathBuf> {
    git_dir.join(git_config::value(&git_dir.join("config"), "core", "worktree")?).canonicalize().ok()
}

/// What one git directory holds.
#[derive(Default)]
pub(super) struct Found {
    guards: Guards,
    /// Where links of it lead that leave it.
    elsewhere: Vec<PathBuf>,
    /// Configuration files, and the top of the worktree where it is a submodule's own.
    configs: Vec<(PathBuf, Option<PathBuf>)>,
    pub(super) links: Vec<PathBuf>,
    pub(super) git_dirs: Vec<PathBuf>,
    pub(super) placeholders: Vec<PathBuf>,
}

impl Found {
    fn of(dir: &Path) -> Self {
        let mut found = Self::default();
        found.git_dir(dir, dir, 0);
        found
    }

    /// `dir` lies in `top` or is it; guards are relative to `top`.
    fn git_dir(&mut self, top: &Path, dir: &Path, depth: usize) {
        self.git_dirs.push(dir.to_owned());
        for name in READ_ONLY {
            let path = dir.join(name);
            if path.is_symlink() {
                self.links.push(path.clone());
            }
            if PLACEHOLDERS.contains(&name) && path.symlink_metadata().is_err() {
                self.placeholders.push(path.clone());
                self.guards.add(path.strip_prefix(top).unwrap_or(&path), Guard::ReadOnly);
            }
            let Ok(real) = path.canonicalize() else { continue };
            match real.strip_prefix(top) {
                Ok(relative) => self.guards.add(relative, Guard::ReadOnly),
                Err(_) => self.elsewhere.push(real),
            }
        }
        let own = (dir != top).then(|| worktree_of(dir)).flatten();
        self.configs.extend(["config", "config.worktree"].map(|name| (dir.join(name), own.clone())));
        for worktree in children(&dir.join("worktrees")) {
            for name in ["commondir", "gitdir", "config.worktree"] {
                let path = worktree.join(name);
                if let (true, Ok(relative)) = (path.is_file(), path.strip_prefix(top)) {
                    self.guards.add(relative, Guard::ReadOnly);
                }
            }
        }
        if depth < MAX_MODULE_DEPTH {
            self.modules(top, &dir.join("modules"), depth + 1);
        }
    }

    /// Git directories of submodules; their names may have slashes.
    fn modules(&mut self, top: &Path, dir: &Path, depth: usize) {
        for child in children(dir) {
            if child.join("HEAD").is_file() && child.join("objects").is_dir() {
                self.git_dir(top, &child, depth);
            } else if depth < MAX_MODULE_DEPTH {
                self.modules(top, &child, depth + 1);
            }
        }
    }
}

fn children(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

#[cfg(test)]
mod tests;
