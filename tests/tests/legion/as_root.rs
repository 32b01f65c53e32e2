//! Legion started by root (containers, CI): nothing inside ever is root (security.md 0.1).
//!
//! Invariant: these do nothing where the tests do not run as root, and say so.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use legion_tests::audit::Audit;
use legion_tests::legion;
use legion_tests::scratch::Scratch;
use legion_tests::user::Identity;

/// A scratch directory of root whose workspace belongs to the ordinary user.
fn of_root() -> Option<Scratch> {
    let root = Identity::root();
    if root.is_none() {
        eprintln!("not run: the tests do not run as root");
    }
    let scratch = Scratch::owned_by(root?);
    // The user has to get to its workspace.
    fs::set_permissions(scratch.root(), fs::Permissions::from_mode(0o711)).unwrap();
    Identity::User.own(&scratch.workspace());
    Some(scratch)
}

#[tokio::test]
async fn commands_run_as_the_owner_of_the_workspace() {
    let Some(scratch) = of_root() else { return };
    let workspace = scratch.workspace().display().to_string();
    // Opening for writing is the attempt; nothing is written should it succeed.
    let script = "echo one > file.txt; id -u; (: >> /proc/sys/kernel/core_pattern) && echo reached; cat /etc/shadow; \
                  cp /bin/true mine; chmod u+s mine; exit 6";
    let finished =
        legion::run(&scratch, &["exec", "--workspace", &workspace, "--", "sh", "-c", script]).await;
    assert_eq!(finished.code(), 6, "{finished:#?}");
    assert!(!finished.stdout.contains("reached"), "{finished:#?}");
    assert!(!finished.stdout.contains("root:"), "{finished:#?}");
    let file = fs::metadata(scratch.workspace().join("file.txt")).unwrap();
    assert_eq!(file.uid(), Identity::User.account().uid);
    let audit = Audit::read(&scratch);
    let sandboxes: Vec<_> = audit.events("sandboxStarted").map(|record| &record["sandbox"]["uid"]).collect();
    assert_eq!(sandboxes, [Identity::User.account().uid]);
}

#[tokio::test]
async fn a_workspace_of_root_leaves_nothing_that_runs_as_root() {
    let Some(scratch) = of_root() else { return };
    Identity::Root.own(&scratch.workspace());
    let workspace = scratch.workspace().display().to_string();
    let script =
        "cp /bin/true mine; chmod 4755 mine; (: >> /proc/sys/kernel/core_pattern) && echo reached; exit 6";
    let finished =
        legion::run(&scratch, &["exec", "--workspace", &workspace, "--", "sh", "-c", script]).await;
    assert!([6, 69].contains(&finished.code()), "it runs safely or it is refused: {finished:#?}");
    assert!(!finished.stdout.contains("reached"), "{finished:#?}");
    if let Ok(file) = fs::metadata(scratch.workspace().join("mine")) {
        assert_eq!(file.mode() & 0o6000, 0, "a setuid-root file of the host was left");
    }
}
