//! The host around one sandbox: a workspace with everything that must be protected, secrets beside it, listening sockets.
//!
//! Invariant: a scene is one scratch directory of one user; its sockets and files go with it.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use legion_tests::child::Child;
use legion_tests::legion;
use legion_tests::scratch::Scratch;
use legion_tests::user::Identity;
use tempfile::NamedTempFile;

/// A variable of the session, and its value.
const SECRET: &str = "abuse-secret-4401";

/// What the secret files of the workspace hold.
const SECRET_FILE: &str = "KEY=workspace-secret-4402\n";

/// What the canaries hold.
const UNTOUCHED: &str = "nobody has touched this\n";

/// The personas of the tables. Bounds are small, so that reaching them takes no time.
const PERSONAS: &str = r#"
[persona.minimal]
view = "minimal"
protect = ["+ci"]
env = { secrets = ["ABUSE_*"] }
limits = { pids = 200, open_files = 256, tmp = "8MiB", shm = "4MiB", home = "4MiB" }
[persona.host-ro]
view = "host-ro"
protect = ["+ci"]
env = { secrets = ["ABUSE_*"] }
limits = { pids = 200, open_files = 256, tmp = "8MiB", shm = "4MiB", home = "4MiB" }
[persona.no-unix-sockets]
unix_sockets = false
[persona.debug]
debug = true
[persona.host-network]
network = "host"
"#;

/// Everything that must outlive the sandbox for the outcomes to mean something.
pub(crate) struct Scene {
    pub(crate) scratch: Scratch,
    names: BTreeMap<&'static str, String>,
    shared_memory: u32,
    _kept: Kept,
}

/// Sockets and files that go when dropped.
struct Kept {
    _tcp: TcpListener,
    _unix: [UnixListener; 4],
    _files: [NamedTempFile; 2],
    _tmp_socket: RemovedAtEnd,
}

struct RemovedAtEnd(PathBuf);

impl Drop for RemovedAtEnd {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Scene {
    /// Sets everything up for this user; `home` is `HOME` inside, if it is not that of the host.
    pub(crate) async fn new(identity: Identity, home: Option<&str>) -> Self {
        let scratch = Scratch::owned_by(identity);
        furnish(&scratch).await;
        let temporary = |dir: &str| {
            let file = tempfile::Builder::new().prefix("legion-canary-").tempfile_in(dir).unwrap();
            fs::write(file.path(), UNTOUCHED).unwrap();
            identity.own(file.path());
            file
        };
        let files = [temporary("/tmp"), temporary("/dev/shm")];
        let in_tmp = files[0].path().display().to_string();
        let tmp_socket = format!("{in_tmp}.sock");
        let socket = |path: &Path| {
            let listener = UnixListener::bind(path).unwrap();
            identity.own(path);
            listener
        };
        let abstract_name = format!("legion-abuse-{}", scratch.root().display());
        let abstract_address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let unix = [
            socket(&scratch.workspace().join("host.sock")),
            socket(&scratch.outside().join("host.sock")),
            socket(Path::new(&tmp_socket)),
            UnixListener::bind_addr(&abstract_address).unwrap(),
        ];
        let tcp = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let account = identity.account();
        let shared_memory = u32::from(tcp.local_addr().unwrap().port()) + 0x4c65_0000;
        let text = |path: &Path| path.display().to_string();
        let names = BTreeMap::from([
            ("abstract", abstract_name),
            ("env_size", SECRET_FILE.len().to_string()),
            ("in_shm", text(files[1].path())),
            ("in_tmp", in_tmp),
            ("inner_home", home.map_or_else(|| text(&scratch.home()), str::to_owned)),
            ("name", scratch.root().file_name().unwrap().to_string_lossy().into_owned()),
            ("pid", std::process::id().to_string()),
            ("port", tcp.local_addr().unwrap().port().to_string()),
            ("scratch", text(scratch.root())),
            ("secret", SECRET.to_owned()),
            ("shared_memory", shared_memory.to_string()),
            ("uid", account.uid.to_string()),
            ("user", Identity::User.account().name),
            ("workspace", text(&scratch.workspace())),
        ]);
        let kept = Kept {
            _tcp: tcp,
            _unix: unix,
            _files: files,
            _tmp_socket: RemovedAtEnd(PathBuf::from(tmp_socket)),
        };
        let scene = Self { scratch, names, shared_memory, _kept: kept };
        scene.outside(&format!("make-shared-memory {shared_memory}")).await;
        scene
    }

    /// Puts the values of this scene for `{name}`.
    pub(crate) fn fill_in(&self, text: &str) -> String {
        let mut filled = text.to_owned();
        for (name, value) in &self.names {
            filled = filled.replace(&format!("{{{name}}}"), value);
        }
        assert!(!filled.contains('{'), "a placeholder of {text:?} has no value");
        filled
    }

    /// The probe program, as the sandbox and the host see it.
    pub(crate) fn probe(&self) -> String {
        self.scratch.workspace().join("abuse-probe").display().to_string()
    }

    /// Makes one attempt, or anything else the probe program can, on the host.
    async fn outside(&self, words: &str) -> String {
        let mut command = self.scratch.command(self.probe());
        command.args(words.split_whitespace());
        let finished = Child::spawn("abuse-probe", command).finish().await;
        finished.assert_success();
        finished.stdout.trim().to_owned()
    }

    /// What is not as it must be after a session, a line each.
    pub(crate) async fn complaints(&self) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut differs = |path: &str, expected: &str| {
            let found = self.scratch.read(path);
            if found.as_deref() != Some(expected) {
                complaints.push(format!("{path} is {found:?}"));
            }
        };
        differs("outside/secret", UNTOUCHED);
        differs("home/secret", UNTOUCHED);
        differs("workspace/.env", SECRET_FILE);
        differs("workspace/nested/deep/.env.local", SECRET_FILE);
        differs("workspace/.envrc", UNTOUCHED);
        differs("workspace/.git/hooks/pre-commit", UNTOUCHED);
        differs("workspace/ci/deploy", UNTOUCHED);
        let owner = self.scratch.identity().account().uid;
        let made = self.scratch.workspace().join("file-of-ours");
        let found = fs::metadata(&made).map(|meta| meta.uid()).ok();
        if found != Some(owner) {
            complaints.push(format!("what was made inside belongs to {found:?} and not to {owner}"));
        }
        look_for_traps(&self.scratch.workspace(), &mut complaints);
        let removed = self.outside(&format!("remove-shared-memory {}", self.shared_memory)).await;
        if removed != "ok" {
            complaints.push(format!("the shared memory of the host: {removed}"));
        }
        complaints
    }
}

/// Set-id files and devices, anywhere in the workspace.
fn look_for_traps(dir: &Path, complaints: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = path.symlink_metadata().unwrap();
        let kind = meta.mode() & libc::S_IFMT;
        if meta.mode() & 0o6000 != 0 && !meta.is_symlink() {
            complaints.push(format!("{} has mode {:o}", path.display(), meta.mode()));
        }
        if kind == libc::S_IFCHR || kind == libc::S_IFBLK {
            complaints.push(format!("{} is a device", path.display()));
        }
        if meta.is_dir() {
            look_for_traps(&path, complaints);
        }
    }
}

/// The files of a scene.
async fn furnish(scratch: &Scratch) {
    scratch.git_init();
    for path in [".env", ".env.example", "nested/deep/.env.local"] {
        scratch.write(Path::new("workspace").join(path), SECRET_FILE);
    }
    for path in [
        "outside/secret",
        "home/secret",
        "workspace/file.txt",
        "workspace/.envrc",
        "workspace/.vscode/tasks.json",
        "workspace/.claude/settings.json",
        "workspace/.git/hooks/pre-commit",
        "workspace/nested/.mcp.json",
        "workspace/ci/deploy",
    ] {
        scratch.write(path, UNTOUCHED);
    }
    let mut add = scratch.command("git");
    add.args(["add", "file.txt"]).current_dir(scratch.workspace());
    Child::spawn("git add", add).finish().await.assert_success();
    let outside = scratch.outside().join("secret");
    for (target, name) in [
        (outside.as_path(), "link-to-secret"),
        (Path::new("/etc/shadow"), "link-to-shadow"),
        (Path::new("../outside/secret"), "link-upwards"),
    ] {
        symlink(target, scratch.workspace().join(name)).unwrap();
    }
    scratch.copy_program(Path::new(env!("CARGO_BIN_EXE_abuse-probe")), "workspace/abuse-probe");
    let env_file = scratch.write("secrets.env", format!("ABUSE_TOKEN={SECRET}\n"));
    let controller = format!("[controller]\nenv_file = {:?}\n", env_file.display().to_string());
    legion::configure(scratch, &(controller + PERSONAS));
}
