//! A sandbox's specification as bwrap arguments (security.md 2). Pure.
//!
//! Order matters: later mounts win. `--perms` and `--size` belong to the operation right after them.

use std::ffi::{OsStr, OsString};
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::protect::{Guard, Guards};
use super::spec::{EXEC_SERVER, ID, RootEntry, STAGE, Sources, Spec, USER};
use crate::config::{Mount, MountMode, Network, View};
use crate::sys::EMPTY_FILE;

/// Descriptor numbers in bwrap and below.
pub mod fd {
    use std::os::fd::RawFd;

    /// bwrap's arguments.
    pub const ARGS: RawFd = 3;
    /// The exec-server's listening socket.
    pub const LISTENER: RawFd = 4;
    /// Read end of the lifeline.
    pub const LIFELINE: RawFd = 5;
    /// The bootstrap object.
    pub const BOOTSTRAP: RawFd = 6;
    /// The workspace directory, once for each place it is mounted at.
    pub const WORKSPACE: [RawFd; 2] = [8, 9];
    /// The workspace directory once more, as the source of protected paths.
    pub const SOURCE: RawFd = 10;
    /// bwrap waits for this pipe before it starts the command.
    pub const BLOCK: RawFd = 11;
    /// bwrap's status.
    pub const STATUS: RawFd = 12;
    /// The system call filters.
    pub const SECCOMP: [RawFd; 2] = [13, 14];
    /// Files given by content, from here on.
    pub const DATA: RawFd = 15;
}

/// File systems in memory that hold directories only.
const ROOT_BYTES: u64 = 4 << 20;

/// Of `/etc`, what programs need to start, resolve names of certificates and time zones; each only if it exists.
const ETC: [&str; 13] = [
    "alternatives",
    "ca-certificates.conf",
    "debian_version",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "pki/tls",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
];

/// Of the host's root, what the minimal view shows: programs and their libraries.
const SYSTEM: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Of the host's root, what no view takes from the host.
const NEVER: [&str; 9] = ["dev", "home", "legion", "lost+found", "proc", "root", "run", "sys", "tmp"];

/// The workspace's name in the stage.
pub const WORKSPACE_IN_STAGE: &str = "workspace";

/// `PATH` inside.
pub const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What bwrap is given.
#[derive(Debug, Default)]
pub struct Argv {
    /// Sent NUL-separated through `--args`.
    pub args: Vec<OsString>,
    /// The command; it stays on bwrap's own command line and names nothing of the host.
    pub command: Vec<String>,
    /// What the descriptors from [`fd::DATA`] on refer to, in order.
    pub handed: Vec<Handed>,
}

/// What a descriptor handed to bwrap refers to.
#[derive(Debug, PartialEq, Eq)]
pub enum Handed {
    /// A file with this content.
    Content(Vec<u8>),
    /// An existing file or directory of the host.
    Path {
        /// Absolute.
        path: PathBuf,
        /// Whether the sandbox may write it.
        writable: bool,
    },
}

impl Argv {
    fn push(&mut self, args: &[&dyn AsRef<OsStr>]) {
        self.args.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
    }

    /// The number of a descriptor that refers to this.
    fn hand(&mut self, what: Handed) -> String {
        let fd = fd::DATA + RawFd::try_from(self.handed.len()).unwrap_or(RawFd::MAX - fd::DATA);
        self.handed.push(what);
        fd.to_string()
    }

    /// A read-only file with this content.
    fn file(&mut self, path: &dyn AsRef<OsStr>, content: &[u8]) {
        let fd = self.hand(Handed::Content(content.to_vec()));
        self.push(&[&"--perms", &"0644", &"--ro-bind-data", &fd, path]);
    }

    /// A file in what the sandbox has of its own: its root, which is read-only in the end, or its home. A mount takes bwrap
    /// several times as long.
    fn own_file(&mut self, mode: &str, path: &dyn AsRef<OsStr>, content: &[u8]) {
        let fd = self.hand(Handed::Content(content.to_vec()));
        self.push(&[&"--perms", &mode, &"--file", &fd, path]);
    }

    /// A mount of a host path; returns where bwrap finds what lies below it.
    fn bind(&mut self, spec: &Spec, writable: bool, from: &Path, to: &Path) -> PathBuf {
        let option = if writable { "--bind" } else { "--ro-bind" };
        let handed = Handed::Path { path: from.to_owned(), writable };
        match spec.sources {
            Sources::Descriptors => {
                let fd = self.hand(handed);
                self.push(&[&format!("{option}-fd"), &fd, &to]);
                from.to_owned()
            }
            Sources::Paths => {
                self.push(&[&option, &from, &to]);
                from.to_owned()
            }
            Sources::Staged => {
                let staged = Path::new(STAGE).join(self.hand(handed));
                self.push(&[&option, &staged, &to]);
                staged
            }
        }
    }

    fn tmpfs(&mut self, mode: &str, bytes: u64, path: &dyn AsRef<OsStr>) {
        self.push(&[&"--perms", &mode, &"--size", &bytes.to_string(), &"--tmpfs", path]);
    }

    /// The arguments as `--args` wants them.
    pub fn nul_separated(&self) -> Vec<u8> {
        self.args.iter().flat_map(|arg| arg.as_bytes().iter().copied().chain([0])).collect()
    }
}

/// The arguments of a sandbox.
pub fn build(spec: &Spec) -> Argv {
    let mut argv = Argv::default();
    isolation(&mut argv, spec);
    argv.tmpfs("0755", ROOT_BYTES, &"/");
    host_part(&mut argv, spec);
    etc(&mut argv, spec);
    kernel_part(&mut argv, spec);
    private_part(&mut argv, spec);
    let outside = spec.mounts.iter().filter(|item| !inside_workspace(spec, item));
    for item in spec.toolchains.mounts.iter().chain(outside) {
        mount(&mut argv, spec, item);
    }
    workspace(&mut argv, spec);
    for item in spec.mounts.iter().filter(|item| inside_workspace(spec, item)) {
        mount(&mut argv, spec, item);
    }
    protections(&mut argv, spec);
    if spec.parts.is_some() {
        for place in spec.workspace_mounts() {
            argv.push(&[&"--remount-ro", &place]);
        }
    }
    for place in spec.secrets.iter().flat_map(|(_, places)| places) {
        argv.file(place, b"");
    }
    for (path, content) in &spec.files {
        argv.file(path, content);
    }
    argv.push(&[&"--perms", &"0755", &"--dir", &"/legion"]);
    // A real file: what --ro-bind-data shows is unlinked already and cannot be mounted again.
    argv.own_file("0444", &OsStr::from_bytes(EMPTY_FILE.to_bytes()), b"");
    argv.bind(spec, false, &spec.exec_server, Path::new(EXEC_SERVER));
    argv.push(&[&"--remount-ro", &"/", &"--chdir", &spec.cwd()]);
    variables(&mut argv, spec);
    argv.push(&[&"--block-fd", &fd::BLOCK.to_string(), &"--json-status-fd", &fd::STATUS.to_string()]);
    for filter in fd::SECCOMP {
        argv.push(&[&"--add-seccomp-fd", &filter.to_string()]);
    }
    argv.command = command();
    argv
}

fn isolation(argv: &mut Argv, spec: &Spec) {
    argv.push(&[&"--unshare-all", &"--unshare-user", &"--unshare-cgroup"]);
    if spec.network == Network::Host {
        argv.push(&[&"--share-net"]);
    }
    argv.push(&[&"--disable-userns", &"--assert-userns-disabled"]);
    let id = ID.to_string();
    argv.push(&[&"--uid", &id, &"--gid", &id, &"--hostname", &"legion", &"--cap-drop", &"ALL"]);
    argv.push(&[&"--new-session", &"--die-with-parent", &"--as-pid-1", &"--clearenv"]);
}

/// Programs, or everything.
fn host_part(argv: &mut Argv, spec: &Spec) {
    for entry in &spec.root {
        let name = entry.name();
        let shown = is_shown(spec.view, name);
        let path = Path::new("/").join(name);
        match entry {
            _ if !shown => {}
            RootEntry::Directory(_) => argv.push(&[&"--ro-bind", &path, &path]),
            RootEntry::Link(_, target) => argv.push(&[&"--symlink", target, &path]),
        }
    }
}

fn etc(argv: &mut Argv, spec: &Spec) {
    if spec.view == View::Minimal {
        argv.push(&[&"--perms", &"0755", &"--dir", &"/etc"]);
        for name in ETC {
            let path = Path::new("/etc").join(name);
            argv.push(&[&"--ro-bind-try", &path, &path]);
        }
        argv.push(&[&"--symlink", &"../usr/lib/os-release", &"/etc/os-release"]);
        argv.push(&[&"--symlink", &"../proc/self/mounts", &"/etc/mtab"]);
    }
    let home = spec.home().display();
    let passwd = format!(
        "root:x:0:0:root:/root:/usr/sbin/nologin\n{USER}:x:{ID}:{ID}:{USER}:{home}:/bin/bash\n\
         nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    );
    let group = format!("root:x:0:\n{USER}:x:{ID}:\nnogroup:x:65534:\n");
    let users: [(&str, &[u8]); 2] = [("/etc/passwd", passwd.as_bytes()), ("/etc/group", group.as_bytes())];
    if spec.view == View::HostRo {
        // Over those of the host.
        return users.iter().for_each(|(path, content)| argv.file(path, content));
    }
    let resolver = spec.resolv_conf.as_ref().map_or(&[][..], |(_, content)| content);
    let names: [(&str, &[u8]); 3] = [
        ("/etc/nsswitch.conf", b"passwd: files\ngroup: files\nhosts: files dns\n"),
        ("/etc/hosts", b"127.0.0.1 localhost legion\n::1 localhost\n"),
        ("/etc/resolv.conf", resolver),
    ];
    users.iter().chain(&names).for_each(|(path, content)| argv.own_file("0644", path, content));
}

fn kernel_part(argv: &mut Argv, spec: &Spec) {
    argv.push(&[&"--proc", &"/proc", &"--ro-bind", &"/proc/sys", &"/proc/sys", &"--dev", &"/dev"]);
    argv.tmpfs("1777", spec.limits.shm, &"/dev/shm");
    argv.push(&[&"--remount-ro", &"/dev"]);
}

/// Places to write that do not outlive the session.
fn private_part(argv: &mut Argv, spec: &Spec) {
    argv.tmpfs("1777", spec.limits.tmp, &"/tmp");
    if spec.view == View::HostRo {
        argv.tmpfs("1777", spec.limits.tmp, &"/var/tmp");
        argv.tmpfs("0755", ROOT_BYTES, &"/run");
        // Where names are resolved by systemd, /etc/resolv.conf is a link into what has just been hidden.
        if let Some((path, content)) = spec.resolv_conf.as_ref().filter(|(path, _)| path.starts_with("/run"))
        {
            argv.file(path, content);
        }
        argv.tmpfs("0755", ROOT_BYTES, &"/home");
        for dir in &spec.hidden {
            argv.tmpfs("0700", ROOT_BYTES, dir);
        }
    }
    argv.tmpfs("0700", spec.limits.home, &spec.home());
    for (name, content) in &spec.skeleton {
        argv.own_file("0644", &spec.home().join(name), content);
    }
}

/// The workspace at every place, whole or in parts.
fn workspace(argv: &mut Argv, spec: &Spec) {
    for (place, fd) in spec.workspace_mounts().zip(fd::WORKSPACE) {
        let Some(parts) = &spec.parts else {
            match spec.sources {
                Sources::Descriptors => argv.push(&[&"--bind-fd", &fd.to_string(), &place]),
                Sources::Paths | Sources::Staged => argv.push(&[&"--bind", &workspace_source(spec), &place]),
            }
            continue;
        };
        // Over whatever the view shows there.
        argv.tmpfs("0755", ROOT_BYTES, &place);
        for part in parts {
            argv.push(&[&"--bind", &workspace_source(spec).join(part), &place.join(part)]);
        }
    }
}

/// Whether a view shows an entry of the host's root.
pub fn is_shown(view: View, name: &OsStr) -> bool {
    let listed = |list: &[&str]| list.iter().any(|item| name == *item);
    match view {
        View::Minimal => listed(&SYSTEM),
        View::HostRo => !listed(&NEVER),
    }
}

/// Whether a mount lies in the workspace, and so comes after it.
pub fn inside_workspace(spec: &Spec, mount: &Mount) -> bool {
    spec.workspace_mounts().any(|place| mount.to.starts_with(place))
}

fn mount(argv: &mut Argv, spec: &Spec, mount: &Mount) {
    match (mount.mode, &mount.from) {
        (MountMode::Ro | MountMode::RoTry, Some(from)) => drop(argv.bind(spec, false, from, &mount.to)),
        (MountMode::Rw | MountMode::RwTry, Some(from)) => drop(argv.bind(spec, true, from, &mount.to)),
        (MountMode::Tmpfs, _) => argv.tmpfs("0755", spec.limits.tmp, &mount.to),
        (MountMode::Mask, _) => argv.file(&mount.to, b""),
        // The configuration does not let such a mount pass.
        (_, None) => {}
    }
}

/// Pins, read-only paths and masks, at every place the workspace is mounted.
fn protections(argv: &mut Argv, spec: &Spec) {
    let source = workspace_source(spec);
    for place in spec.workspace_mounts() {
        guard(argv, &spec.guards, &source, place);
    }
    for external in &spec.externals {
        let source = argv.bind(spec, true, &external.path, &external.path);
        guard(argv, &external.guards, &source, &external.path);
    }
}

/// The workspace as bwrap finds it, for mounts of what lies in it.
fn workspace_source(spec: &Spec) -> PathBuf {
    match spec.sources {
        Sources::Descriptors => PathBuf::from(format!("/proc/self/fd/{}", fd::SOURCE)),
        Sources::Paths => spec.workspace.clone(),
        Sources::Staged => Path::new(STAGE).join(WORKSPACE_IN_STAGE),
    }
}

fn guard(argv: &mut Argv, guards: &Guards, source: &Path, place: &Path) {
    for (path, guard) in guards.iter() {
        let (from, to) = (source.join(path), place.join(path));
        match guard {
            Guard::Pin => argv.push(&[&"--bind", &from, &to]),
            Guard::ReadOnly => argv.push(&[&"--ro-bind", &from, &to]),
            Guard::Mask => argv.file(&to, b""),
        }
    }
}

/// What the exec-server itself sees; nothing here is secret, `/proc/1/environ` shows it.
fn variables(argv: &mut Argv, spec: &Spec) {
    for (name, value) in base_variables(spec) {
        argv.push(&[&"--setenv", &name, &value]);
    }
}

/// The variables every session has.
pub fn base_variables(spec: &Spec) -> Vec<(&'static str, String)> {
    let own = spec.toolchains.path.iter().map(String::as_str);
    let mut variables = vec![
        ("PATH", own.chain([PATH]).collect::<Vec<_>>().join(":")),
        ("HOME", spec.home().display().to_string()),
        ("USER", USER.to_owned()),
        ("LOGNAME", USER.to_owned()),
        ("SHELL", "/bin/bash".to_owned()),
        ("LANG", "C.UTF-8".to_owned()),
        ("TMPDIR", "/tmp".to_owned()),
    ];
    variables.extend(spec.toolchains.variables.iter().cloned());
    variables
}

fn command() -> Vec<String> {
    let options =
        [("--listen", format!("fd:{}", fd::LISTENER)), ("--bootstrap-fd", fd::BOOTSTRAP.to_string())];
    let mut command = vec!["--".to_owned(), EXEC_SERVER.to_owned()];
    for (name, value) in options.into_iter().chain([("--lifeline-fd", fd::LIFELINE.to_string())]) {
        command.extend([name.to_owned(), value]);
    }
    command
}

#[cfg(test)]
mod tests;
