//! Tests of the bwrap arguments: what is shown, hidden, and in which order.

use super::*;
use crate::config::Limits;
use crate::config::MountAt;
use crate::sandbox::protect::External;
use crate::sandbox::toolchains::Toolchains;

fn spec(view: View, mount_at: MountAt) -> Spec {
    let mut guards = Guards::default();
    guards.add(Path::new(".env"), Guard::Mask);
    guards.add(Path::new(".git/config"), Guard::ReadOnly);
    Spec {
        view,
        mount_at,
        network: Network::None,
        workspace: "/home/u/p".into(),
        mounts: vec![
            Mount { mode: MountMode::Ro, from: Some("/home/u/roles".into()), to: "/roles".into() },
            Mount { mode: MountMode::Tmpfs, from: None, to: "/home/u/p/cache".into() },
        ],
        guards,
        parts: None,
        files: Vec::new(),
        skeleton: Vec::new(),
        secrets: vec![("/opt/x/.env".into(), vec!["/roles/.env".into()])],
        externals: vec![External { path: "/home/u/main/.git".into(), guards: Guards::default() }],
        limits: Limits {
            memory: None,
            pids: 1,
            open_files: 1,
            wall: None,
            output: None,
            tmp: 2,
            shm: 3,
            home: 4,
        },
        hidden: vec!["/var/lib/legion".into()],
        host_home: Some("/home/u".into()),
        root: vec![
            RootEntry::Link("bin".into(), "usr/bin".into()),
            RootEntry::Directory("etc".into()),
            RootEntry::Directory("home".into()),
            RootEntry::Directory("srv".into()),
            RootEntry::Directory("usr".into()),
        ],
        resolv_conf: None,
        exec_server: "/opt/legion-exec-server".into(),
        sources: Sources::Descriptors,
        toolchains: Toolchains::default(),
    }
}

fn text(spec: &Spec) -> String {
    build(spec).args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

#[test]
fn of_a_workspace_in_parts_nothing_else_is_shown() {
    // Where the view shows the host, the rest must be covered.
    let mut whole = spec(View::HostRo, MountAt::Host);
    whole.workspace = "/srv/p".into();
    let none = Spec { parts: Some(Vec::new()), ..whole.clone() };
    let some = Spec { parts: Some(vec!["output".into()]), ..whole };
    for spec in [&none, &some] {
        let text = text(spec);
        assert!(!text.contains("--bind-fd 8"), "{text}");
        let shown = position(&text, "--ro-bind /srv /srv");
        let covered = position(&text, "--tmpfs /srv/p");
        assert!(shown < covered && covered < position(&text, "--remount-ro /srv/p"), "{text}");
    }
    assert!(text(&some).contains("/output /srv/p/output"));
}

fn position(text: &str, part: &str) -> usize {
    text.find(part).unwrap_or_else(|| panic!("`{part}` is not in {text}"))
}

#[test]
fn the_minimal_view_shows_programs_and_the_workspace_only() {
    let text = text(&spec(View::Minimal, MountAt::Host));
    assert!(text.contains("--symlink usr/bin /bin") && text.contains("--ro-bind /usr /usr"));
    assert!(!text.contains("/srv") && !text.contains("--ro-bind /etc /etc") && !text.contains("--share-net"));
    assert!(text.contains("--bind-fd 8 /home/u/p") && text.contains("--bind-fd 9 /workspace"));
    assert_eq!(
        build(&spec(View::Minimal, MountAt::Host)).command.join(" "),
        "-- /legion/legion-exec-server --listen fd:4 --bootstrap-fd 6 --lifeline-fd 5"
    );
}

#[test]
fn later_mounts_win_in_the_right_order() {
    for view in [View::Minimal, View::HostRo] {
        let text = text(&spec(view, MountAt::Host));
        let order = [
            "--tmpfs / ",
            "--ro-bind /usr /usr",
            "--proc /proc",
            "--ro-bind /proc/sys /proc/sys",
            "--tmpfs /tmp",
            " /roles",
            "--bind-fd 8 /home/u/p",
            "--tmpfs /home/u/p/cache",
            "/home/u/p/.env",
            "--bind /proc/self/fd/10/.git /home/u/p/.git ",
            "--ro-bind /proc/self/fd/10/.git/config /home/u/p/.git/config",
            "/workspace/.env",
            " /home/u/main/.git",
            "--remount-ro / ",
            "--chdir /home/u/p",
        ];
        let places: Vec<usize> = order.iter().map(|part| position(&text, part)).collect();
        assert!(places.is_sorted(), "{places:?} in {text}");
    }
}

#[test]
fn host_ro_hides_homes_and_legion_itself() {
    let text = text(&spec(View::HostRo, MountAt::Workspace));
    assert!(text.contains("--ro-bind /srv /srv") && !text.contains("--ro-bind /home /home"));
    assert!(text.contains("--tmpfs /var/lib/legion") && text.contains("--tmpfs /home/u "));
    assert!(text.contains("--bind-fd 8 /workspace") && !text.contains("--bind-fd 8 /home/u/p"));
    assert!(position(&text, "--tmpfs /home ") < position(&text, "--tmpfs /home/u "));
}
