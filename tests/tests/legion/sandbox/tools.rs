//! The tools people and agents work with run inside, started by an ordinary user and by root alike.
//!
//! Invariant: a tool this machine does not have is named on standard error as not run; nothing is left out silently.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use legion_tests::child::Child;
use legion_tests::legion;
use legion_tests::scratch::Scratch;
use legion_tests::user::Identity;

use super::inside;

/// Where the minimal view has programs.
const PROGRAMS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];

/// Says it past the capture of the test harness.
pub(super) fn not_run(what: &str) {
    let _ = writeln!(std::io::stderr(), "not run: {what}");
}

/// Whether the machine has a tool where everybody finds it.
fn is_installed(tool: &str) -> bool {
    PROGRAMS.iter().any(|dir| Path::new(dir).join(tool).exists())
}

/// Runs a script that needs these tools inside and expects what it prints last.
async fn works(tools: &[&str], configuration: &str, script: &str, expected: &str) {
    if let Some(missing) = tools.iter().find(|tool| !is_installed(tool)) {
        return not_run(&format!("{missing} is not installed"));
    }
    for identity in [Some(Identity::User), Identity::root()].into_iter().flatten() {
        let scratch = Scratch::owned_by(identity);
        legion::configure(&scratch, configuration);
        let finished = inside(&scratch, &[], &format!("set -e -o pipefail\n{script}")).await;
        let last = finished.stdout.trim_end().rsplit('\n').next();
        assert!(finished.status.success() && last == Some(expected), "{identity:?}: {finished:#?}");
    }
}

#[tokio::test]
async fn python_with_processes_terminals_and_environments() {
    let script = r#"
cat > all.py <<'END'
import asyncio, multiprocessing, os, pty, sqlite3, sys, tempfile, threading
def square(number):
    return number * number
async def child():
    process = await asyncio.create_subprocess_exec("echo", "child", stdout=asyncio.subprocess.PIPE)
    return (await process.communicate())[0].strip().decode()
if __name__ == "__main__":
    with multiprocessing.Pool(4) as pool:
        squares = pool.map(square, range(5))
    queue = multiprocessing.Queue()
    queue.put("queued")
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp("tty", ["tty"])
    name = os.read(terminal, 100).decode().strip()
    os.waitpid(pid, 0)
    database = sqlite3.connect("data.sqlite")
    database.execute("create table t (x)")
    database.commit()
    with tempfile.TemporaryDirectory() as directory:
        assert os.path.isdir(directory)
    assert name.startswith("/dev/pts/"), name
    print(sum(squares), queue.get(timeout=10), asyncio.run(child()), sys.prefix != sys.base_prefix)
END
python3 -m venv --without-pip environment
environment/bin/python all.py"#;
    works(&["python3"], "", script, "30 queued child True").await;
}

#[tokio::test]
async fn node_with_workers_children_and_a_server() {
    let script = r#"
cat > all.js <<'END'
const { Worker } = require("worker_threads");
const { execFileSync } = require("child_process");
const http = require("http");
const fs = require("fs");
const worker = new Worker('require("worker_threads").parentPort.postMessage("worker")', { eval: true });
worker.on("message", message => {
  const server = http.createServer((_, response) => response.end("served"));
  server.listen(0, "127.0.0.1", () => http.get({ port: server.address().port, host: "127.0.0.1" }, response => {
    let body = "";
    response.on("data", data => body += data);
    response.on("end", () => {
      fs.writeFileSync("out.txt", message);
      const child = execFileSync("cat", ["out.txt"]).toString();
      console.log(child, body, require("os").userInfo().username);
      server.close();
    });
  }));
});
END
node all.js"#;
    works(&["node"], "", script, "worker served legion").await;
}

#[tokio::test]
async fn a_compiler_and_make() {
    let script = r#"
cat > main.c <<'END'
#include <pthread.h>
#include <stdio.h>
static void *work(void *value) { return value; }
int main(void) {
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, work, "threaded");
    pthread_join(thread, &result);
    puts(result);
    return 0;
}
END
printf 'all: one two\n\t./one\none two: main.c\n\tgcc -O1 -pthread -o $@ main.c\n' > Makefile
make -s -j2"#;
    works(&["gcc", "make"], "", script, "threaded").await;
}

#[tokio::test]
async fn git() {
    let script = "git init -q; git config user.name x; git config user.email x; echo x > x; git add x; git commit -qm one; \
                  git clone -q . ../workspace/clone; git -C clone log --format=%s";
    works(&["git"], "", script, "one").await;
}

#[tokio::test]
async fn ssh_keygen() {
    let script = "ssh-keygen -q -t ed25519 -N '' -f key; echo text > text; ssh-keygen -q -Y sign -f key -n file text; \
                  ssh-keygen -Y check-novalidate -n file -s text.sig < text > /dev/null; echo signed";
    works(&["ssh-keygen"], "", script, "signed").await;
}

#[tokio::test]
async fn tar() {
    let script = "mkdir -p tree/sub; echo text > tree/sub/file; chmod 750 tree/sub; ln -s sub tree/link; ln tree/sub/file tree/hard; \
                  tar czf tree.tgz tree; mkdir out; tar xpzf tree.tgz -C out; stat -c %a out/tree/sub; cat out/tree/link/file";
    works(&["tar", "gzip"], "", script, "text").await;
}

#[tokio::test]
async fn script() {
    works(
        &["script"],
        "",
        "script -qec 'test -t 0 && stty size > /dev/null && echo terminal' /dev/null | tr -d '\\r'",
        "terminal",
    )
    .await;
}

#[tokio::test]
async fn tmux() {
    let script = "export TERM=xterm; tmux new-session -d 'echo \"$TMUX\" > told; tmux wait-for -S done; exec cat'; \
                  tmux wait-for done; tmux kill-server; grep -q tmux told; echo told";
    works(&["tmux"], "", script, "told").await;
}

#[tokio::test]
async fn tracers_where_the_persona_allows_them() {
    let debug = "[persona.default]\ndebug = true\n";
    works(
        &["strace"],
        debug,
        "strace -f -o trace sh -c 'cat /dev/null; true'; grep -q execve trace; echo traced",
        "traced",
    )
    .await;
    let script = "gdb -q -batch -ex run -ex 'print $_exitcode' --args sh -c 'exit 3' > told 2>&1; grep -q '\\$1 = 3' told; echo debugged";
    works(&["gdb"], debug, script, "debugged").await;
}

/// The toolchain this test was built with, shown by `toolchains = true` from a home like the user's.
#[tokio::test]
async fn cargo_from_a_toolchain_below_home() {
    let cargo = PathBuf::from(env!("CARGO"));
    let Some(toolchain) = cargo.parent().and_then(Path::parent).filter(|dir| dir.join("bin/rustc").is_file())
    else {
        return not_run("cargo lies in no toolchain");
    };
    let scratch = Scratch::new();
    scratch.make_directory("home/.rustup/toolchains/ours");
    let ours = scratch.home().join(".rustup/toolchains/ours");
    for part in ["bin", "lib", "libexec"].iter().map(|part| toolchain.join(part)).filter(|part| part.is_dir())
    {
        // Links instead of a gigabyte of copies: another file system cannot be linked to.
        let linked = Command::new("cp").arg("-al").args([&part, &ours]).output().unwrap();
        if !linked.status.success() {
            return not_run(&format!(
                "the toolchain cannot be linked: {}",
                String::from_utf8_lossy(&linked.stderr)
            ));
        }
    }
    scratch.write("home/.cargo/credentials.toml", "token = \"cargo-secret-9901\"\n");
    legion::configure(&scratch, "[persona.default]\ntoolchains = true\n");
    let script = "set -e; ls -a ~ ~/.cargo >&2 || true; cargo init -q --vcs none --name made .; cargo build -q --offline; \
                  cargo test -q --offline > /dev/null; ./target/debug/made; cat ~/.cargo/credentials.toml || echo none; \
                  (echo x > ~/.rustup/x) || echo read-only";
    let workspace = scratch.workspace().display().to_string();
    let mut command =
        legion::command(&scratch, &["exec", "--workspace", &workspace, "--", "bash", "-c", script]);
    command.env("PATH", format!("{}:/usr/bin:/bin", ours.join("bin").display()));
    let finished = Child::spawn("cargo", command).finish().await;
    assert!(finished.status.success(), "{finished:#?}");
    assert_eq!(finished.stdout, "Hello, world!\nnone\nread-only\n", "{finished:#?}");
}
