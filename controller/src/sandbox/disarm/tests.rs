//! Cases of setting aside in directories of their own.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn scratch() -> (tempfile::TempDir, PathBuf) {
    let base = tempfile::tempdir().unwrap();
    let git_dir = base.path().canonicalize().unwrap().join("x/.git");
    fs::create_dir_all(git_dir.join("hooks")).unwrap();
    (base, git_dir)
}

fn hook(path: &Path) {
    fs::write(path, "#!/bin/sh\n").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_runs_is_set_aside_and_nothing_is_lost() {
    let (_base, git_dir) = scratch();
    let config = "[core]\n\tbare = false\n\tfsmonitor = ./evil\n[user]\n\tname = u\n";
    fs::write(git_dir.join("config"), config).unwrap();
    fs::set_permissions(git_dir.join("config"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(git_dir.join("config.set-aside"), "mine").unwrap();
    hook(&git_dir.join("hooks/pre-commit"));
    hook(&git_dir.join("hooks/pre-push.sample"));
    fs::write(git_dir.join("hooks/post-merge"), "not executable").unwrap();
    symlink("../../evil", git_dir.join("hooks/post-checkout")).unwrap();
    let done = disarm(&git_dir);
    let mut told: Vec<_> = done
        .iter()
        .map(|one| {
            format!("{} {}", one.path.strip_prefix(&git_dir).unwrap().display(), one.result.as_ref().unwrap())
        })
        .collect();
    told.sort();
    assert_eq!(
        told,
        [
            "config core.fsmonitor: set aside as config.set-aside.1",
            "hooks/post-checkout set aside as post-checkout.set-aside",
            "hooks/pre-commit set aside as pre-commit.set-aside",
        ]
    );
    let read = |name: &str| fs::read_to_string(git_dir.join(name)).unwrap();
    assert_eq!(read("config"), "[core]\n\tbare = false\n[user]\n\tname = u\n");
    assert_eq!(fs::metadata(git_dir.join("config")).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!((read("config.set-aside").as_str(), read("config.set-aside.1").as_str()), ("mine", config));
    assert!(git_dir.join("hooks/pre-push.sample").exists() && git_dir.join("hooks/post-merge").exists());
    assert!(disarm(&git_dir).is_empty(), "a second time there is nothing to do");
}

#[test]
fn links_are_set_aside_and_never_followed() {
    let (base, git_dir) = scratch();
    let outside = base.path().join("outside");
    fs::create_dir(&outside).unwrap();
    hook(&outside.join("pre-commit"));
    fs::write(outside.join("config"), "[core]\nfsmonitor = x\n").unwrap();
    fs::remove_dir(git_dir.join("hooks")).unwrap();
    symlink(&outside, git_dir.join("hooks")).unwrap();
    symlink(outside.join("config"), git_dir.join("config")).unwrap();
    let done = disarm(&git_dir);
    assert!(done.len() == 2 && done.iter().all(|one| one.result.is_ok()), "{done:?}");
    assert!(git_dir.join("hooks.set-aside").is_symlink() && git_dir.join("config.set-aside").is_symlink());
    assert!(outside.join("pre-commit").exists());
    assert_eq!(fs::read_to_string(outside.join("config")).unwrap(), "[core]\nfsmonitor = x\n");
    // The whole directory behind a link is none of ours.
    let link = base.path().canonicalize().unwrap().join("link");
    symlink(&outside, &link).unwrap();
    assert!(disarm(&link).iter().all(|one| one.result.is_err()));
    assert!(outside.join("pre-commit").exists());
}

#[test]
fn an_ordinary_repository_is_left_alone() {
    let (_base, git_dir) = scratch();
    fs::write(git_dir.join("config"), "[core]\n\trepositoryformatversion = 0\n").unwrap();
    assert!(disarm(&git_dir).is_empty());
}

#[test]
fn what_new_names_lead_to_counts() {
    let (base, git_dir) = scratch();
    let root = base.path().canonicalize().unwrap();
    let (common, hidden) = (root.join("common"), root.join("hidden "));
    fs::create_dir(&common).unwrap();
    fs::create_dir(&hidden).unwrap();
    fs::write(git_dir.join("commondir"), "../../common\r\n").unwrap();
    fs::create_dir(root.join("y")).unwrap();
    fs::write(root.join("y/.git"), "gitdir: ../hidden \n").unwrap();
    fs::create_dir(root.join("z")).unwrap();
    // Reading it would never end.
    rustix::fs::mknodat(rustix::fs::CWD, root.join("z/.git"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .unwrap();
    let before = Plan { git_dirs: vec![root.join("old/.git")], ..Plan::default() };
    let after = Plan { git_dirs: vec![root.join("old/.git"), git_dir.clone()], ..Plan::default() };
    let new_names = [git_dir.clone(), root.join("y/.git"), root.join("z/.git")];
    let found = made(&before, &after, &new_names, std::slice::from_ref(&root));
    assert_eq!(found, [common, hidden, git_dir.clone()].into());
    assert_eq!(made(&before, &after, &new_names, &[]), [].into(), "the owner's own, elsewhere");
}
