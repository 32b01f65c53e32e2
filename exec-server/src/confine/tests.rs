//! Commands under a wish, from the `sandbox` object to what they could do: the kernel, the filter and the broker together.

use std::ffi::CString;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use legion_protocol::object::from_object;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{WaitOptions, waitpid};

use super::places::real;
use super::*;
use crate::sys::ChildStdio;

struct Fixture {
    _dir: tempfile::TempDir,
    base: PathBuf,
    brokers: Brokers,
}

/// A workspace `w` with a protected `.git`, and `out` beside it.
fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let base = real(dir.path());
    for name in ["w/.git/hooks", "w/src", "out"] {
        fs::create_dir_all(base.join(name)).unwrap();
    }
    for name in ["w/.git/config", "w/f", "w/src/a", "out/o"] {
        fs::write(base.join(name), "old\n").unwrap();
    }
    Fixture { _dir: dir, base, brokers: Brokers::default() }
}

const READ: &str = r#"{"path":{"type":"special","value":{"kind":"root"}},"access":"read"}"#;
const ROOTS: &str = r#"{"path":{"type":"special","value":{"kind":"project_roots"}},"access":"write"}"#;
const GIT: &str = r#"{"path":{"type":"special","value":{"kind":"project_roots","subpath":".git"}},"access":"read","missing_path_behavior":"skip"}"#;
const CODEX: &str = r#"{"path":{"type":"special","value":{"kind":"project_roots","subpath":".codex"}},"access":"read","missing_path_behavior":"skip"}"#;

impl Fixture {
    fn wish(&self, entries: &[&str], network: &str) -> Wish {
        let w = self.base.join("w");
        let text = format!(
            r#"{{"permissions":{{"type":"managed","file_system":{{"type":"restricted","entries":[{}]}},"network":"{network}"}},
            "cwd":"file://{1}","workspaceRoots":["file://{1}"],"windowsSandboxLevel":"disabled"}}"#,
            entries.join(","),
            w.display()
        );
        let sandbox: Sandbox = from_object(&text).unwrap();
        Wish::of(&sandbox, None, None).unwrap().unwrap()
    }

    /// Runs a script in the workspace; its output, both streams together, and its exit code.
    fn run(&self, wish: Wish, script: &str) -> (String, i32) {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        let argv = [c"sh".to_owned(), c"-c".to_owned(), CString::new(script).unwrap()];
        let env = [c"PATH=/usr/local/bin:/usr/bin:/bin".to_owned(), c"LC_ALL=C".to_owned()];
        let cwd = CString::new(self.base.join("w").as_os_str().as_bytes()).unwrap();
        let stdio = ChildStdio::Descriptors([null.as_fd(), write.as_fd(), write.as_fd()]);
        let request = Spawn { program: c"/bin/sh", argv: &argv, env: &env, cwd: &cwd, stdio };
        let pid = wish.prepare().unwrap().spawn(&request, &self.brokers).unwrap();
        drop(write);
        let mut output = String::new();
        fs::File::from(read).read_to_string(&mut output).unwrap();
        let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
        (output, status.exit_status().unwrap())
    }

    fn workspace(&self, script: &str) -> (String, i32) {
        self.run(self.wish(&[READ, ROOTS, GIT, CODEX], "restricted"), script)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.base.join(name)).unwrap()
    }
}

#[test]
fn a_workspace_is_written_by_every_way_there_is() {
    let fixture = fixture();
    let script = "
        set -e
        echo new > top; echo more >> f; echo x > src/a
        mkdir -m 750 d; mkdir -p d/e/f; echo deep > d/e/f/g
        ln -s f link; echo by link >> link; ln f hard; ln -s /nonexistent dangling
        mv top d/moved; mv src lib; mv lib/a a2; mkdir gone; rmdir gone; rm dangling
        chmod 711 d/moved; touch -t 200001010000 d/moved
        umask 077; echo private > p; mkfifo fifo
        cp -p d/moved copied; truncate -s 2 copied
        exec 3<>d/both; chmod 600 /dev/fd/3; rm d/both; echo held >&3; echo again > /dev/fd/1
    ";
    assert_eq!(fixture.workspace(script), ("again\n".to_owned(), 0));
    assert_eq!(fixture.read("w/f"), "old\nmore\nby link\n");
    assert_eq!(fixture.read("w/d/e/f/g"), "deep\n");
    assert_eq!(fixture.read("w/a2"), "x\n");
    let stat = |name: &str| fs::symlink_metadata(fixture.base.join("w").join(name)).unwrap();
    assert_eq!(stat("d/moved").mode() & 0o777, 0o711);
    assert_eq!(stat("d").mode() & 0o777, 0o750);
    assert_eq!(stat("p").mode() & 0o777, 0o600);
    assert_eq!((stat("hard").nlink(), stat("copied").len()), (2, 2));
    assert!(stat("fifo").file_type().is_fifo() && stat("link").is_symlink());
    assert!(stat("d/moved").mtime() < 1_000_000_000);
    assert!(!fixture.base.join("w/src").exists() && !fixture.base.join("w/dangling").is_symlink());
}

#[test]
fn what_is_protected_is_not_written_by_any_of_them() {
    let fixture = fixture();
    symlink(".git/config", fixture.base.join("w/to-config")).unwrap();
    symlink(".git", fixture.base.join("w/to-git")).unwrap();
    fs::create_dir(fixture.base.join("out/d")).unwrap();
    let refused = [
        "echo x > .git/config",
        "echo x >> .git/config",
        ": > .git/new",
        "echo x > to-config",
        "echo x > to-git/new",
        "echo x > ./src/../.git/new",
        "echo x > .GIT/config",
        "mkdir .git/d",
        "rm .git/config",
        "rmdir .git/hooks",
        "mv .git elsewhere",
        "mv f .git/f",
        "mv .git/config c",
        "ln .git/config hard",
        "ln f .git/hard",
        "ln -s x .git/link",
        "mkfifo .git/fifo",
        "truncate -s 0 .git/config",
        "chmod 777 .git/config",
        "chmod 777 .git",
        "touch .git/config",
        "touch -h to-git/config",
        "exec 3<.git/config && chmod 777 /dev/fd/3",
        "mkdir .codex",
        ": > .codex",
        "mv src .codex",
        "ln -s src .codex",
        "echo x > ../out/o",
        ": > ../out/new",
        "mv f ../out/f",
        "rm ../out/o",
        "rmdir ../out/d",
        "touch ../out/o",
        "chmod 777 ../out/o",
        "mv ../w ../moved",
        "cd .. && mv w moved",
    ];
    for attempt in refused {
        let (output, code) = fixture.workspace(&format!("{{ {attempt}; }} 2>&1"));
        let told = ["Read-only file system", "cross-device", "cannot create", "No such file", "nonexistent"];
        assert!(code != 0 && told.iter().any(|text| output.contains(text)), "{attempt}: {code} {output}");
    }
    assert_eq!(fixture.read("w/.git/config"), "old\n");
    let config = fs::metadata(fixture.base.join("w/.git/config")).unwrap();
    assert_eq!((config.permissions().mode() & 0o777, config.nlink()), (0o644, 1));
    let names = |name: &str| fs::read_dir(fixture.base.join(name)).unwrap().count();
    assert_eq!((names("w/.git"), names("out"), names("")), (2, 2, 2));
}

#[test]
fn errors_of_the_file_system_stay_what_they_are() {
    let fixture = fixture();
    for (script, text) in [
        (
            "mkdir /usr 2>&1; mkdir -p /usr && echo fine",
            "mkdir: cannot create directory '/usr': File exists\nfine\n",
        ),
        ("rm none", "rm: cannot remove 'none': No such file or directory\n"),
        ("rm ../out/none", "rm: cannot remove '../out/none': No such file or directory\n"),
        ("mkdir none/d", "mkdir: cannot create directory 'none/d': No such file or directory\n"),
        ("mkdir f/d", "mkdir: cannot create directory 'f/d': Not a directory\n"),
        ("rmdir src", "rmdir: failed to remove 'src': Directory not empty\n"),
        ("ln -s loop loop; cat loop", "cat: loop: Too many levels of symbolic links\n"),
    ] {
        assert_eq!(fixture.workspace(&format!("{script} 2>&1")).0, text, "{script}");
    }
}

#[test]
fn reading_only_means_that_nothing_changes() {
    let fixture = fixture();
    let before = fs::metadata(fixture.base.join("w/f")).unwrap().mtime();
    let run = |script: &str| fixture.run(fixture.wish(&[READ], "restricted"), script);
    for attempt in ["echo x > f", ": > new", "touch f", "chmod 600 f", "mkdir d", "rm f", "mv f g", "ln f g"]
    {
        let (output, code) = run(&format!("{{ {attempt}; }} 2>&1"));
        assert!(
            code != 0 && output.contains("Read-only") || output.contains("cross-device"),
            "{attempt}: {output}"
        );
    }
    let (output, code) = run(
        "cat f .git/config; echo x > /dev/null; : > /dev/shm/legion-test-$$ && rm /dev/shm/legion-test-$$",
    );
    assert_eq!((output.as_str(), code), ("old\nold\n", 0));
    let stat = fs::metadata(fixture.base.join("w/f")).unwrap();
    assert_eq!((stat.mtime(), stat.mode() & 0o777), (before, 0o644));
}

#[test]
fn what_is_denied_has_no_content_and_what_is_new_beside_it_has() {
    let fixture = fixture();
    fs::write(fixture.base.join("w/src/key.pem"), "secret\n").unwrap();
    fs::create_dir(fixture.base.join("w/private")).unwrap();
    fs::write(fixture.base.join("w/private/x"), "secret\n").unwrap();
    symlink("src/key.pem", fixture.base.join("w/to-key")).unwrap();
    let pattern = r#"{"path":{"type":"glob_pattern","pattern":"**/*.pem"},"access":"deny"}"#;
    let directory =
        r#"{"path":{"type":"special","value":{"kind":"project_roots","subpath":"private"}},"access":"none"}"#;
    let run =
        |script: &str| fixture.run(fixture.wish(&[READ, ROOTS, GIT, pattern, directory], "enabled"), script);
    for attempt in [
        "cat src/key.pem",
        "cat to-key",
        "cat private/x",
        "ls private",
        "cat /proc/self/cwd/src/key.pem",
        "cp src/key.pem copy",
        "mv src/key.pem copy",
        "mv private public",
        "ln src/key.pem copy",
        ": > src/key.pem",
        ": > private/new",
        "mv src elsewhere",
    ] {
        let (output, code) = run(&format!("{{ {attempt}; }} 2>&1"));
        assert!(code != 0 && !output.contains("secret"), "{attempt}: {output}");
    }
    let script = "echo one > top; mkdir d; echo two > d/x; cat top d/x src/a; ls >/dev/null; ls d; cat < d/x";
    assert_eq!(run(script), ("one\ntwo\nold\nx\ntwo\n".to_owned(), 0));
    assert_eq!(fixture.read("w/private/x"), "secret\n");
}

#[test]
fn the_network_is_taken_from_the_command_alone() {
    let fixture = fixture();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let script = format!("exec 2>&1; bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && echo connected");
    let (output, _) = fixture.run(fixture.wish(&[READ], "enabled"), &script);
    assert_eq!(output, "connected\n");
    let (output, _) = fixture.run(fixture.wish(&[READ], "restricted"), &script);
    assert!(output.contains("Operation not permitted"), "{output}");
    let only_network = Wish { files: None, network: true };
    let (output, _) = fixture.run(only_network, &format!("{script}; echo x > f; cat f"));
    assert!(output.contains("Operation not permitted") && output.ends_with("x\n"), "{output}");
}

#[test]
fn brokers_are_counted_and_end_with_their_commands() {
    let fixture = fixture();
    let free = || fixture.brokers.0.available_permits();
    assert_eq!(fixture.workspace("(sleep 0.2; echo late > late) & echo early").1, 0);
    // The output ends when the last process does; its broker soon after.
    while free() < MAX_BROKERS {
        std::thread::yield_now();
    }
    assert_eq!(fixture.read("w/late"), "late\n");
    let taken = Arc::clone(&fixture.brokers.0).try_acquire_many_owned(u32::try_from(MAX_BROKERS).unwrap());
    let wish = fixture.wish(&[READ], "enabled");
    let null = fs::File::open("/dev/null").unwrap();
    let argv = [c"true".to_owned()];
    let stdio = ChildStdio::Descriptors([null.as_fd(); 3]);
    let request = Spawn { program: c"/bin/true", argv: &argv, env: &[], cwd: c"/", stdio };
    let error = wish.prepare().unwrap().spawn(&request, &fixture.brokers).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EAGAIN));
    drop(taken);
}
