//! What is protected in a workspace, on directories made for it.

use proptest::prelude::*;

use super::*;

fn touch(root: &Path, path: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, "x").unwrap();
}

fn plan(root: &Path) -> Plan {
    let env_file = root.join("secrets/my.env");
    scan(root, Wishes { extra: &[PathBuf::from("ci")], env_file: &env_file, mounted: &[], git_configs: &[] })
        .unwrap()
}

fn guard_of(plan: &Plan, path: &str) -> Option<Guard> {
    plan.guards.iter().find(|(known, _)| *known == Path::new(path)).map(|(_, guard)| guard)
}

#[test]
fn names_are_guarded_wherever_they_stand_and_their_parents_pinned() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().canonicalize().unwrap();
    for path in [
        ".env",
        ".env.example",
        "a/b/.env.local",
        "a/.envrc",
        "a/.vscode/tasks.json",
        ".claude/settings.json",
        ".claude/notes.md",
        "ci/run",
        "secrets/my.env",
        "node_modules/x/.envrc",
    ] {
        touch(&root, path);
    }
    let plan = plan(&root);
    assert_eq!(guard_of(&plan, ".env"), Some(Guard::Mask));
    assert_eq!(guard_of(&plan, "a/b/.env.local"), Some(Guard::Mask));
    assert_eq!(guard_of(&plan, "a/b"), Some(Guard::Pin));
    assert_eq!(guard_of(&plan, "a/.envrc"), Some(Guard::ReadOnly));
    assert_eq!(guard_of(&plan, "a/.vscode"), Some(Guard::ReadOnly));
    assert_eq!(guard_of(&plan, "a/.vscode/tasks.json"), None);
    assert_eq!(guard_of(&plan, ".claude/settings.json"), Some(Guard::ReadOnly));
    assert_eq!(guard_of(&plan, ".claude/notes.md"), None);
    assert_eq!(guard_of(&plan, "ci"), Some(Guard::ReadOnly));
    assert_eq!(guard_of(&plan, "secrets/my.env"), Some(Guard::Mask));
    assert_eq!(guard_of(&plan, ".env.example"), None);
    assert_eq!(guard_of(&plan, "node_modules/x/.envrc"), None);
}

#[test]
fn sockets_of_the_host_are_hidden_and_those_left_behind_are_not() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().canonicalize().unwrap();
    let stream = std::os::unix::net::UnixListener::bind(root.join("stream.sock")).unwrap();
    let datagram = UnixDatagram::bind(root.join("datagram.sock")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(root.join("left.sock")).unwrap());
    stream.set_nonblocking(true).unwrap();
    let plan = plan(&root);
    assert_eq!(guard_of(&plan, "stream.sock"), Some(Guard::Mask));
    assert_eq!(guard_of(&plan, "datagram.sock"), Some(Guard::Mask));
    assert_eq!(guard_of(&plan, "left.sock"), None);
    assert_eq!(stream.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "it was connected to");
    drop(datagram);
}

#[test]
fn of_a_link_the_target_is_guarded_and_the_link_watched() {
    let base = tempfile::tempdir().unwrap();
    let root = base.path().canonicalize().unwrap();
    touch(&root, "editor/tasks.json");
    std::os::unix::fs::symlink("editor", root.join(".vscode")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", root.join(".envrc")).unwrap();
    std::os::unix::fs::symlink("missing", root.join(".mcp.json")).unwrap();
    let plan = plan(&root);
    assert_eq!(guard_of(&plan, "editor"), Some(Guard::ReadOnly));
    let mut links = plan.links.clone();
    links.sort();
    assert_eq!(links, [root.join(".envrc"), root.join(".mcp.json"), root.join(".vscode")]);
}

proptest! {
    /// Whatever is added, every parent of a guarded path is guarded before it.
    #[test]
    fn parents_come_first(paths in prop::collection::vec("[ab](/[abc]){0,4}", 1..12)) {
        let mut guards = Guards::default();
        for path in &paths {
            guards.add(Path::new(path), Guard::ReadOnly);
        }
        let listed: Vec<PathBuf> = guards.iter().map(|(path, _)| path.to_owned()).collect();
        for (index, path) in listed.iter().enumerate() {
            for parent in path.ancestors().skip(1).filter(|parent| !parent.as_os_str().is_empty()) {
                let at = listed.iter().position(|known| known == parent);
                prop_assert!(at.is_some_and(|at| at < index), "{path:?} before {parent:?}");
            }
        }
    }
}
