//! What of repositories is protected, on repositories made by git.

use std::process::Command;

use super::*;
use crate::sandbox::protect::{Plan, Wishes, scan};

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
    let wishes = Wishes { extra: &[], env_file: Path::new("/nonexistent"), mounted: &[], git_configs: &[] };
    scan(root, wishes).unwrap()
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
    assert!(guards.contains(&"worktrees/tree/commondir".to_owned()) && guards.contains(&"config".to_owned()));
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
fn what_a_repository_names_elsewhere_is_guarded_there() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().canonicalize().unwrap();
    repository(&root);
    std::fs::remove_dir_all(root.join(".git/hooks")).unwrap();
    for dir in ["githooks", "a/.husky"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    repository(&root.join("a"));
    std::os::unix::fs::symlink("../githooks", root.join(".git/hooks")).unwrap();
    git(&root, &["config", "include.path", "../shared"]);
    git(&root, &["config", "core.hooksPath", "made-later"]);
    git(&root.join("a"), &["config", "core.hooksPath", ".husky"]);
    git(&root, &["init", "-q", "--bare", "mirror"]);
    let plan = scanned(&root);
    for expected in ["githooks", "a/.husky", "made-later", "mirror/config", "mirror/hooks"] {
        assert!(read_only(&plan).iter().any(|path| path == expected), "{expected}: {plan:?}");
    }
    assert_eq!(plan.absent, [root.join("shared")]);
    assert!(plan.placeholders.contains(&root.join("made-later")), "{plan:?}");
}

#[test]
fn a_git_directory_outside_is_guarded_where_the_persona_mounts_it() {
    let base = tempfile::tempdir().unwrap();
    let base = base.path().canonicalize().unwrap();
    let root = base.join("workspace");
    repository(&root);
    std::fs::rename(root.join(".git"), base.join("data")).unwrap();
    std::os::unix::fs::symlink("../data", root.join(".git")).unwrap();
    assert_eq!(scanned(&root).notes.len(), 1);
    let mounted = [base.join("data")];
    let wishes =
        Wishes { extra: &[], env_file: Path::new("/nonexistent"), mounted: &mounted, git_configs: &[] };
    let plan = scan(&root, wishes).unwrap();
    assert!(plan.notes.is_empty() && plan.externals.len() == 1, "{plan:?}");
    assert!(plan.externals[0].guards.iter().any(|(path, _)| path == Path::new("hooks")), "{plan:?}");
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
