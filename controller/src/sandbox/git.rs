//! What of a git repository is protected: configuration, hooks and `info`, which git on the host executes or obeys; the
//! rest stays writable, so that git goes on working inside.
//!
//! A `.git` file or link may point anywhere, and code inside a sandbox could have written it in an earlier session: a
//! directory outside the workspace is mounted only if it points back, which only somebody outside can have arranged.

use std::path::{Path, PathBuf};

use super::protect::{External, Guard, Guards, Scan};

/// Parts of a git directory that are read-only inside. `commondir` and `gitdir` lead git to other configuration.
pub(super) const READ_ONLY: [&str; 6] = ["config", "config.worktree", "hooks", "info", "commondir", "gitdir"];

/// Directories git on the host looks into, and which an agent must not be the first to make.
const PLACEHOLDERS: [&str; 2] = ["hooks", "info"];

/// How deep submodules of submodules are followed.
const MAX_MODULE_DEPTH: usize = 8;

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
    let Ok(real) = path.canonicalize() else { return };
    if real.is_dir() {
        git_dir(scan, &real);
    } else {
        scan.protect(path);
        if let Some(target) = pointed_to(&real) {
            pointer(scan, path, &target);
        }
    }
}

/// A git directory inside the workspace; one outside is not visible inside.
fn git_dir(scan: &mut Scan<'_>, dir: &Path) {
    let Ok(relative) = dir.strip_prefix(scan.workspace).map(Path::to_owned) else {
        scan.plan.notes.push(format!(
            "{} lies outside the workspace, so git does not work inside: add a mount of it to the persona",
            dir.display()
        ));
        return;
    };
    if scan.plan.git_dirs.iter().any(|known| known == dir) {
        return;
    }
    let mut found = Found::default();
    found.git_dir(dir, dir, 0);
    scan.plan.guards.add(&relative, Guard::Pin);
    for (path, guard) in found.guards.iter() {
        scan.plan.guards.add(&relative.join(path), guard);
    }
    scan.plan.absorb(found);
}

/// What a `.git` file says.
fn pointed_to(file: &Path) -> Option<PathBuf> {
    let text = std::fs::read_to_string(file).ok()?;
    let target = text.strip_prefix("gitdir:")?.trim();
    file.parent()?.join(target).canonicalize().ok().filter(|path| path.is_dir())
}

/// A `.git` file: of a linked worktree or a submodule.
fn pointer(scan: &mut Scan<'_>, file: &Path, git_dir_path: &Path) {
    if git_dir_path.starts_with(scan.workspace) {
        return git_dir(scan, git_dir_path);
    }
    let Some(top) = points_back(git_dir_path, file) else {
        scan.plan.notes.push(format!(
            "{} names {}, which does not belong to it: git does not work there inside",
            file.display(),
            git_dir_path.display()
        ));
        return;
    };
    if scan.plan.externals.iter().any(|known| known.path == top) {
        return;
    }
    let mut found = Found::default();
    found.git_dir(&top, &top, 0);
    let guards = std::mem::take(&mut found.guards);
    scan.plan.absorb(found);
    scan.plan.externals.push(External { path: top, guards });
}

/// The directory to mount for a `.git` file, if what it names names it, too: the common directory of a worktree, the git
/// directory of a submodule.
fn points_back(git_dir: &Path, file: &Path) -> Option<PathBuf> {
    let worktree = file.parent()?.canonicalize().ok()?;
    let read = |name: &str| std::fs::read_to_string(git_dir.join(name)).ok();
    if let (Some(back), Some(common)) = (read("gitdir"), read("commondir")) {
        let back = git_dir.join(back.trim()).canonicalize().ok()?;
        let common = git_dir.join(common.trim()).canonicalize().ok()?;
        let belongs = back == file.canonicalize().ok()? && git_dir.parent()? == common.join("worktrees");
        return belongs.then_some(common);
    }
    let config = read("config")?;
    let back = config.lines().find_map(|line| line.trim().strip_prefix("worktree"))?;
    let back = back.trim_start().strip_prefix('=')?.trim().trim_matches('"');
    (git_dir.join(back).canonicalize().ok()? == worktree).then(|| git_dir.to_owned())
}

/// What one git directory holds.
#[derive(Default)]
pub(super) struct Found {
    guards: Guards,
    pub(super) links: Vec<PathBuf>,
    pub(super) git_dirs: Vec<PathBuf>,
    pub(super) placeholders: Vec<PathBuf>,
}

impl Found {
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
            let real = path.canonicalize().ok();
            if let Some(relative) = real.as_ref().and_then(|real| real.strip_prefix(top).ok()) {
                self.guards.add(relative, Guard::ReadOnly);
            }
        }
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
mod tests {
    use std::process::Command;

    use super::super::protect::{Plan, scan};
    use super::*;

    fn git(dir: &Path, args: &[&str]) {
        let status = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always"])
            .args(args)
            .current_dir(dir)
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .output()
            .unwrap();
        assert!(status.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&status.stderr));
    }

    fn repository(dir: &Path) {
        std::fs::create_dir_all(dir).unwrap();
        git(dir, &["init", "-q"]);
        git(dir, &["commit", "-q", "--allow-empty", "-m", "one"]);
    }

    fn read_only(plan: &Plan) -> Vec<String> {
        let paths = plan.guards.iter().filter(|(_, guard)| *guard == Guard::ReadOnly);
        paths.map(|(path, _)| path.display().to_string()).collect()
    }

    fn scanned(root: &Path) -> Plan {
        scan(root, &[], Path::new("/nonexistent")).unwrap()
    }

    #[test]
    fn repositories_are_guarded_wherever_they_stand() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().canonicalize().unwrap();
        repository(&root);
        repository(&root.join("a/nested"));
        let plan = scanned(&root);
        for expected in [".git/config", ".git/hooks", ".git/info", "a/nested/.git/config"] {
            assert!(read_only(&plan).iter().any(|path| path == expected), "{expected}: {plan:?}");
        }
        assert_eq!(plan.roots, [root.clone(), root.join("a/nested")]);
        assert_eq!(plan.git_dirs.len(), 2);
    }

    #[test]
    fn missing_hooks_are_held_by_a_placeholder() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().canonicalize().unwrap();
        repository(&root);
        std::fs::remove_dir_all(root.join(".git/hooks")).unwrap();
        let plan = scanned(&root);
        assert_eq!(plan.placeholders, [root.join(".git/hooks")]);
        assert!(read_only(&plan).contains(&".git/hooks".to_owned()));
    }

    #[test]
    fn a_linked_worktree_brings_its_repository_along() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        repository(&base.join("main"));
        git(&base.join("main"), &["worktree", "add", "-q", "../tree"]);
        let plan = scanned(&base.join("tree"));
        assert_eq!(read_only(&plan), [".git"]);
        assert_eq!(plan.externals.len(), 1, "{plan:?}");
        assert_eq!(plan.externals[0].path, base.join("main/.git"));
        let guards: Vec<_> =
            plan.externals[0].guards.iter().map(|(path, _)| path.display().to_string()).collect();
        assert!(
            guards.contains(&"worktrees/tree/commondir".to_owned()) && guards.contains(&"config".to_owned())
        );
    }

    #[test]
    fn submodules_are_guarded_inside_and_from_outside() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        repository(&base.join("library"));
        repository(&base.join("super"));
        git(&base.join("super"), &["submodule", "--quiet", "add", "../library", "lib"]);
        let inside = scanned(&base.join("super"));
        assert!(read_only(&inside).contains(&".git/modules/lib/hooks".to_owned()), "{inside:?}");
        let outside = scanned(&base.join("super/lib"));
        assert_eq!(outside.externals[0].path, base.join("super/.git/modules/lib"));
    }

    #[test]
    fn a_git_file_that_names_somebody_elses_directory_opens_nothing() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        repository(&base.join("victim"));
        for target in [base.join("victim/.git"), base.join("victim")] {
            let workspace = base.join("workspace");
            std::fs::create_dir_all(&workspace).unwrap();
            std::fs::write(workspace.join(".git"), format!("gitdir: {}\n", target.display())).unwrap();
            let plan = scanned(&workspace);
            assert!(plan.externals.is_empty() && plan.notes.len() == 1, "{plan:?}");
        }
    }

    #[test]
    fn a_linked_git_directory_is_guarded_at_its_target_and_watched() {
        let base = tempfile::tempdir().unwrap();
        let root = base.path().canonicalize().unwrap();
        repository(&root);
        std::fs::rename(root.join(".git"), root.join("data")).unwrap();
        std::os::unix::fs::symlink("data", root.join(".git")).unwrap();
        let plan = scanned(&root);
        assert!(read_only(&plan).contains(&"data/config".to_owned()), "{plan:?}");
        assert_eq!(plan.links, [root.join(".git")]);
    }
}
