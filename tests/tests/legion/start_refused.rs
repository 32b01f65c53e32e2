//! `legion-controller start` that cannot start: one clear line, the right exit code, nothing left behind.
//!
//! Invariant: nothing runs without its sandbox, and no message shows a secret.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use legion_tests::certificate::Certificates;
use legion_tests::child::{Child, Finished};
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use legion_tests::settings::settings;
use legion_tests::user::Identity;
use serde_json::json;
use tokio::process::Command;

/// Exit codes of the command line (design.md, after sysexits).
const USAGE: i32 = 64;
const UNAVAILABLE: i32 = 69;
const CONFIGURATION: i32 = 78;

/// Runs a prepared `start` that must end by itself with this code, and say all of this.
async fn assert_refused(scratch: &Scratch, command: Command, code: i32, says: &[&str]) -> Finished {
    let shown = format!("{command:?}");
    let finished = Child::spawn("legion-controller start", command).finish().await;
    assert_eq!((finished.code(), finished.stdout.as_str()), (code, ""), "{shown}: {finished:#?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{shown}: {finished:#?}");
    for part in ["legion-controller: "].iter().chain(says) {
        assert!(finished.stderr.contains(part), "{shown}: no {part:?} in {finished:#?}");
    }
    for name in ["token", "control.sock", "front.sock"] {
        let file = scratch.root().join("run/legion").join(name);
        // Of a controller that runs it is; nobody else leaves it behind.
        assert!(
            !file.exists() || UNAVAILABLE == code && says.contains(&"already running"),
            "{}",
            file.display()
        );
    }
    finished
}

async fn refuse(scratch: &Scratch, args: &[&str], code: i32, says: &[&str]) -> Finished {
    assert_refused(scratch, legion::start_command(scratch, args), code, says).await
}

async fn refuse_config(config: &str, says: &[&str]) {
    let scratch = Scratch::new();
    legion::configure(&scratch, config);
    refuse(&scratch, &[], CONFIGURATION, says).await;
}

async fn refuse_workspace(scratch: &Scratch, workspace: &Path, more: &[&str], says: &[&str]) {
    let mut command = legion::command(scratch, &["start", "--json", "--workspace"]);
    command.arg(workspace).args(more);
    assert_refused(scratch, command, CONFIGURATION, says).await;
}

#[tokio::test]
async fn a_second_controller() {
    let scratch = Scratch::new();
    let first = Controller::start(&scratch, &[]).await;
    refuse(&scratch, &[], UNAVAILABLE, &["already running", "--state-dir"]).await;
    assert_eq!(fs::read_to_string(&first.ready.token_file).unwrap().trim(), first.token);
    legion::run(&scratch, &["session", "list"]).await.assert_success();
    first.stop().await.assert_success();
    // What a controller that was killed leaves behind holds nobody up.
    let killed = Controller::start(&scratch, &[]).await;
    killed.signal(rustix::process::Signal::KILL);
    killed.finish().await;
    Controller::start(&scratch, &[]).await.stop().await.assert_success();
}

#[tokio::test]
async fn a_port_that_is_taken() {
    let scratch = Scratch::new();
    let taken = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let url = format!("ws://{}", taken.local_addr().unwrap());
    refuse(&scratch, &["--listen", &url], UNAVAILABLE, &[&url, "in use", "another port"]).await;
}

#[tokio::test]
async fn listeners() {
    let scratch = Scratch::new();
    for (url, says) in [
        ("ws://0.0.0.0:1", "without TLS"),
        ("ws://[::]:0", "without TLS"),
        ("wss://127.0.0.1:0", "certificate"),
        ("http://127.0.0.1:0", "scheme"),
        ("ws://localhost:0", "numeric"),
        ("ws://127.0.0.1:0?token=x", "query_token"),
    ] {
        refuse(&scratch, &["--listen", url], CONFIGURATION, &[says]).await;
    }
}

#[tokio::test]
async fn certificates() {
    let (one, other) = (Certificates::generate(), Certificates::generate());
    let files = Scratch::new();
    for (certificate, key, says) in [
        (Some(&one.certificate), Some(&other.key), "cert.pem"),
        (Some(&one.key), Some(&one.key), "cert.pem"),
        (Some(&one.certificate), Some(&one.certificate), "key.pem"),
        (None, Some(&one.key), "cert.pem"),
        (Some(&one.certificate), None, "key.pem"),
    ] {
        let path = |name: &str, text: Option<&String>| {
            let _ = fs::remove_file(files.root().join(name));
            text.map_or_else(|| files.root().join(name), |text| files.write(name, text))
        };
        let (cert, key) = (path("cert.pem", certificate), path("key.pem", key));
        let config = format!(
            "[controller]\nlisten = [\"wss://127.0.0.1:0\"]\ntls = {{ cert = {}, key = {} }}\n",
            json!(cert),
            json!(key)
        );
        refuse_config(&config, &[says]).await;
    }
}

#[tokio::test]
async fn bubblewrap() {
    let scratch = Scratch::new();
    let with_path = |directory: &Path| {
        let mut command = legion::start_command(&scratch, &[]);
        command.env("PATH", format!("{}:/nowhere", directory.display()));
        command
    };
    let missing = with_path(&scratch.outside());
    assert_refused(
        &scratch,
        missing,
        UNAVAILABLE,
        &["bubblewrap", "not installed", "apt-get install bubblewrap"],
    )
    .await;

    let program = |name: &str, script: &str| {
        let path = scratch.write(format!("{name}/bwrap"), format!("#!/bin/sh\n{script}\n"));
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        with_path(path.parent().unwrap())
    };
    let old = program("old", "/usr/bin/bwrap --help | grep -v -e --disable-userns");
    assert_refused(&scratch, old, UNAVAILABLE, &["--disable-userns", "0.8"]).await;
    let broken = program("broken", "exit 1");
    assert_refused(&scratch, broken, UNAVAILABLE, &["bwrap"]).await;
    // As the real one where the system does not let users make namespaces.
    let probes = "case $1 in --help|--version) exec /usr/bin/bwrap \"$1\";; esac";
    let blocked = program(
        "blocked",
        &format!("{probes}\necho 'bwrap: setting up uid map: Permission denied' >&2\nexit 1"),
    );
    let finished = assert_refused(&scratch, blocked, UNAVAILABLE, &["sandbox"]).await;
    assert!(!finished.stderr.trim().ends_with("setting up uid map: Permission denied"), "{finished:#?}");
    // One that does nothing is given up, and does not stay.
    let mut lifetime = scratch.fifo("alive").lifetime();
    let alive = scratch.root().join("alive").display().to_string();
    let stuck = program("stuck", &format!("{probes}\nexec 9>{alive}; echo here >&9; exec /bin/sleep 300"));
    assert_refused(&scratch, stuck, UNAVAILABLE, &["sandbox"]).await;
    assert_eq!(lifetime.began("it was started").await, "here");
    lifetime.ended("it is killed").await;
}

#[tokio::test]
async fn an_incomplete_installation() {
    let scratch = Scratch::new();
    let alone = scratch.root().join("alone/legion-controller");
    scratch.make_directory("alone");
    fs::copy(settings().legion_binary("legion-controller"), &alone).unwrap();
    let mut command = scratch.command(&alone);
    command.args(["start", "--json", "--workspace"]).arg(scratch.workspace());
    assert_refused(&scratch, command, UNAVAILABLE, &["legion-exec-server is missing", "beside"]).await;
}

#[tokio::test]
async fn workspaces() {
    let scratch = Scratch::new();
    refuse_workspace(&scratch, &scratch.root().join("missing"), &[], &["missing", "No such file"]).await;
    refuse_workspace(&scratch, &scratch.write("file", "text"), &[], &["file", "Not a directory"]).await;
    for path in [
        scratch.home(),
        scratch.root().to_owned(),
        "/".into(),
        "/home".into(),
        "/proc/self".into(),
        "/etc".into(),
    ] {
        refuse_workspace(&scratch, &path, &[], &["workspace"]).await;
    }
    let state = scratch.workspace().join("state").display().to_string();
    refuse_workspace(&scratch, &scratch.workspace(), &["--state-dir", &state], &[&state, "--state-dir"])
        .await;
    let link = scratch.root().join("link");
    symlink(scratch.home(), &link).unwrap();
    refuse_workspace(&scratch, &link, &[], &["workspace"]).await;
}

#[tokio::test]
async fn configuration_files() {
    refuse_config("[controller]\nlisten = []\nlistne = []\n", &["legion.toml:3:1:", "listne"]).await;
    refuse_config("[persona.default]\n\n  view = \"all\"\n", &["legion.toml:3:10:", "all"]).await;
    refuse_config("[persona.default\n", &["legion.toml:1:"]).await;
    let scratch = Scratch::new();
    let missing = scratch.root().join("missing.toml").display().to_string();
    refuse(&scratch, &["--config", &missing], CONFIGURATION, &[&missing, "No such file"]).await;
    let mut command = legion::start_command(&scratch, &[]);
    command.env("LEGION_CONFIG", &missing);
    assert_refused(&scratch, command, CONFIGURATION, &[&missing]).await;
    refuse(&scratch, &["--persona", "nobody"], CONFIGURATION, &["`nobody`", "default"]).await;
    refuse(&scratch, &["--ttl", "soon"], USAGE, &["`soon`", "--ttl"]).await;
}

#[tokio::test]
async fn env_files() {
    let scratch = Scratch::new();
    let file = scratch.write("secrets.env", "GOOD=1\n# two\nBAD=planted-secret and more\n");
    let name = file.display().to_string();
    let finished = refuse(&scratch, &["--env-file", &name], CONFIGURATION, &[&name, "malformed"]).await;
    assert!(!finished.stderr.contains("planted-secret"), "{finished:#?}");
    scratch.write("secrets.env", "planted-secret\n");
    let finished = refuse(&scratch, &["--env-file", &name], CONFIGURATION, &[&name, "malformed"]).await;
    assert!(!finished.stderr.contains("planted-secret"), "{finished:#?}");
    scratch.write("secrets.env", b"GOOD=1\nBAD=planted-secret-\xff\n");
    let finished = refuse(&scratch, &["--env-file", &name], CONFIGURATION, &[&name]).await;
    assert!(!finished.stderr.contains("planted-secret"), "{finished:#?}");
    fs::set_permissions(&file, PermissionsExt::from_mode(0o000)).unwrap();
    refuse(&scratch, &["--env-file", &name], CONFIGURATION, &[&name, "Permission denied"]).await;
    let missing = scratch.root().join("missing.env").display().to_string();
    refuse(&scratch, &["--env-file", &missing], CONFIGURATION, &[&missing, "No such file"]).await;
}

#[tokio::test]
async fn directories_of_its_own() {
    let scratch = Scratch::new();
    scratch.make_directory("state/legion");
    let state = scratch.root().join("state/legion");
    fs::set_permissions(&state, PermissionsExt::from_mode(0o750)).unwrap();
    refuse(&scratch, &[], CONFIGURATION, &["state/legion", "0750", "chmod 700"]).await;
    fs::remove_dir_all(&state).unwrap();
    symlink(scratch.outside(), &state).unwrap();
    refuse(&scratch, &[], CONFIGURATION, &["state/legion", "--state-dir"]).await;
    fs::remove_file(&state).unwrap();
    scratch.write("state/legion", "a file");
    refuse(&scratch, &[], CONFIGURATION, &["state/legion", "--state-dir"]).await;
    fs::remove_file(&state).unwrap();
    if let Some(root) = Identity::root() {
        scratch.make_directory("state/legion");
        root.own(&state);
        fs::set_permissions(&state, PermissionsExt::from_mode(0o755)).unwrap();
        refuse(&scratch, &[], CONFIGURATION, &["state/legion", "belongs to"]).await;
    }
    let mut command = legion::start_command(&scratch, &[]);
    for name in ["HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        command.env_remove(name);
    }
    assert_refused(&scratch, command, CONFIGURATION, &["HOME", "--state-dir"]).await;
}
