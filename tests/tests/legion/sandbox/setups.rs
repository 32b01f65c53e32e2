//! The two setups Legion replaces: a daemon of agents wholly inside, and Codex in one sandbox with its commands in another.
//!
//! Invariant: the personas are those that are shipped, word by word; the daemon is a stand-in that reports what it sees,
//! Codex is the real one.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use legion_tests::audit::Audit;
use legion_tests::child::Child;
use legion_tests::clients::CodexVersion;
use legion_tests::legion;
use legion_tests::mock_model::{MockModel, ModelRequest, Script};
use legion_tests::model_items::{apply_patch, exec, say};
use legion_tests::scratch::Scratch;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::text;
use super::tools::not_run;

/// A persona as it is shipped.
fn shipped(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../controller/personas").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Reports what it sees as one line of JSON, echoes a line, and stays until it is interrupted.
const DAEMON: &str = r#"
const fs = require("fs");
const net = require("net");
const places = ["/workspace", "/src", "/config", "/roles", "/workers", "/logs", "/tmp", process.env.HOME,
  "/workspace/src", "/", "/usr", "/etc"];
const writable = place => {
  try { fs.writeFileSync(place + "/probe", "x"); fs.unlinkSync(place + "/probe"); return true; }
  catch (error) { return error.code; }
};
const readable = path => { try { return fs.readFileSync(path, "utf8"); } catch (error) { return error.code; } };
const list = path => { try { return fs.readdirSync(path).sort(); } catch (error) { return error.code; } };
const report = {
  env: process.env,
  cwd: process.cwd(),
  writable: Object.fromEntries(places.map(place => [place, writable(place)])),
  workspace: list("/workspace"),
  config: readable("/config/config.json"),
  secret: readable(process.argv[2]),
  shadow: readable("/etc/shadow"),
  environ: readable("/proc/1/environ"),
  root: list("/"),
};
fs.writeFileSync("/logs/daemon.log", "started\n");
const connection = net.connect(Number(process.argv[3]), "127.0.0.1");
connection.on("connect", () => { report.connected = true; told(); });
connection.on("error", error => { report.connected = error.code; told(); });
function told() {
  connection.destroy();
  process.stdin.once("data", line => {
    report.typed = line.toString().trim();
    process.on("SIGINT", () => { fs.appendFileSync("/logs/daemon.log", "stopped\n"); process.exit(7); });
    setInterval(() => {}, 1000);
    console.log(JSON.stringify(report));
  });
}
"#;

#[tokio::test]
async fn a_daemon_of_agents_wholly_inside() {
    if !Path::new("/usr/bin/node").exists() {
        return not_run("node is not installed");
    }
    let scratch = Scratch::new();
    let persona = scratch.write("config/daemon.toml", shipped("legion-daemon.toml"));
    scratch.write("project/src/daemon.js", DAEMON);
    scratch.write("project/config/config.json", "{}");
    scratch.write("project/roles/reviewer.md", "a role");
    scratch.write("project/.env", "OPENAI_API_KEY=openai-secret-3301\nDATABASE_URL=database-secret-3302\n");
    scratch.make_directory("project/logs");
    let secret = scratch.write("outside/secret", "outside-secret-3303").display().to_string();
    let service = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let persona = persona.display().to_string();
    let args = [
        "run",
        "--config",
        &persona,
        "--persona",
        "legion-daemon",
        "--",
        "node",
        "/src/daemon.js",
        &secret,
        &port,
    ];
    let mut command = legion::command(&scratch, &args);
    command.current_dir(scratch.root().join("project"));
    command.env("LEGION_LEAK", "environment-secret-3304").env("UNRELATED", "unrelated-secret-3305");
    let mut daemon = Child::spawn_with_stdin("legion-controller run", command);
    let mut stdin = daemon.take_stdin().unwrap();
    stdin.write_all(b"typed\n").await.unwrap();
    let report: Value = serde_json::from_str(&daemon.first_line().await).unwrap();
    assert_daemon(&report);
    daemon.signal(Signal::INT);
    let finished = daemon.finish().await;
    assert_eq!(finished.code(), 7, "its exit status is ours: {finished:#?}");
    assert_eq!(scratch.read("project/logs/daemon.log").as_deref(), Some("started\nstopped\n"));
    let log = Audit::read(&scratch).lines().join("\n");
    assert!(!log.contains("-secret-33"), "{log}");
    Audit::verify(&scratch).await;
}

fn assert_daemon(report: &Value) {
    let env = report["env"].as_object().unwrap();
    for (name, value) in [
        ("NODE_ENV", "production"),
        ("LEGION_SRC_DIR", "/src"),
        ("LEGION_CONFIG_DIR", "/config"),
        ("LEGION_ROLES_DIR", "/roles"),
        ("LEGION_WORKERS_DIR", "/workers"),
        ("LEGION_WORKSPACE_DIR", "/workspace"),
        ("LEGION_LOGS_DIR", "/logs"),
        ("OPENAI_API_KEY", "openai-secret-3301"),
    ] {
        assert_eq!(env.get(name).and_then(Value::as_str), Some(value), "{name}");
    }
    assert!(env.contains_key("PATH") && env.contains_key("HOME"));
    let told = report.to_string();
    for secret in
        ["database-secret-3302", "outside-secret-3303", "environment-secret-3304", "unrelated-secret-3305"]
    {
        assert!(!told.contains(secret), "{told}");
    }
    assert_eq!(report["cwd"], "/workspace");
    let home = text(&report["env"]["HOME"]);
    for place in ["/workspace", "/logs", "/tmp", home] {
        assert_eq!(report["writable"][place], true, "{place}: {told}");
    }
    // What is mounted read-only cannot be written by its place in the project either.
    for place in ["/src", "/config", "/roles", "/workspace/src", "/", "/usr", "/etc"] {
        assert_eq!(report["writable"][place], "EROFS", "{place}: {told}");
    }
    assert_eq!(report["writable"]["/workers"], "ENOENT", "it is left out because there is none: {told}");
    assert_eq!(report["workspace"], json!([".env", "config", "logs", "roles", "src"]), "{told}");
    assert_eq!(report["config"], "{}");
    assert_eq!((&report["secret"], &report["shadow"]), (&json!("ENOENT"), &json!("ENOENT")));
    assert_eq!(report["environ"], "EACCES");
    assert_eq!(report["connected"], true, "the persona has the host's network");
    assert_eq!(report["typed"], "typed");
}

/// Looks around in the first sandbox, then becomes Codex.
const LOOK: &str = "echo \"first: $(ls -A | tr '\\n' ' ')\"; cat whole.txt; cat output/shown.txt; echo made > output/made.txt; \
                    cat \"$SECRET\"; exec codex exec --dangerously-bypass-approvals-and-sandbox --skip-git-repo-check \
                    -C \"$PWD\" 'Do what the script says.'";

#[tokio::test]
async fn codex_in_one_sandbox_and_its_commands_in_another() {
    let scratch = Scratch::new();
    legion::configure(&scratch, &(shipped("codex-client.toml") + &shipped("codex-exec.toml")));
    // Where a user's own programs are; the toolchains show it.
    let codex = scratch.copy_program(&CodexVersion::V0_171.program(), "home/.local/bin/codex");
    scratch.write("workspace/whole.txt", "of the whole project\n");
    scratch.write("workspace/output/shown.txt", "shown to the client\n");
    let secret = scratch.write("outside/secret", "outside-secret-3310").display().to_string();
    let patch = "*** Begin Patch\n*** Add File: patched.txt\n+patched\n*** End Patch\n";
    let look = "cat whole.txt; ls; cat output/made.txt; cat /etc/hostname > /dev/null && echo host; touch /etc/x; \
                (echo > /dev/tcp/127.0.0.1/$PORT) 2>/dev/null && echo connected; ls -A ~ | grep -c bashrc; ls ~/.codex; true";
    let script = Script::new().item(exec("look", look)).item(apply_patch("patch", patch)).item(say("done"));
    let model = MockModel::start(script).await;
    let port = model.base_url().rsplit(':').next().unwrap().split('/').next().unwrap().to_owned();
    scratch.write("home/.codex/config.toml", codex_config(&model.base_url()));
    let workspace = scratch.workspace().display().to_string();
    let script = format!("SECRET={secret}; export PORT={port}; {LOOK}");
    let args = ["run", "--persona", "codex-client", "--workspace", &workspace, "--", "bash", "-c", &script];
    let mut command = legion::command(&scratch, &args);
    command
        .env("PATH", format!("{}:/usr/bin:/bin", codex.parent().unwrap().display()))
        .current_dir(scratch.workspace());
    let finished = Child::spawn("legion-controller run", command).finish().await;
    finished.assert_success();
    // The first sandbox: of the project the client sees output/ alone.
    assert!(finished.stdout.contains("first: output \n"), "{finished:#?}");
    assert!(finished.stdout.contains("shown to the client\n"), "{finished:#?}");
    assert!(finished.stderr.contains("whole.txt: No such file"), "{finished:#?}");
    assert_eq!(scratch.read("workspace/output/made.txt").as_deref(), Some("made\n"));
    // The second: the whole project, no network, no client's files.
    let requests = model.finish();
    let output = requests.last().unwrap().output_text("look");
    let lines = legion_tests::codex::printed(&output);
    assert!(lines.starts_with("of the whole project\noutput\nwhole.txt\nmade\nhost\n"), "{output}");
    assert!(!lines.contains("connected"), "the second sandbox has a network: {output}");
    assert!(lines.contains("touch: cannot touch '/etc/x'"), "{output}");
    assert_eq!(legion_tests::codex::exit_code(&output), Some(0), "{output}");
    assert_eq!(scratch.read("workspace/patched.txt").as_deref(), Some("patched\n"));
    let told = format!("{finished:?}{}", requests.iter().map(ModelRequest::text).collect::<String>());
    assert!(!told.contains("outside-secret-3310"), "{told}");
    // Nothing is left: no token, no file that names the session.
    assert_eq!(scratch.read("home/.codex/environments.toml"), None);
    assert!(!told.contains("lgn1_"), "the token was told");
    let audit = Audit::read(&scratch);
    assert_eq!(audit.events("sessionStarted").count(), 2, "{:#?}", audit.lines());
    assert_eq!(audit.events("sessionEnded").count(), 2, "{:#?}", audit.lines());
    let personas: Vec<_> = audit.events("sessionStarted").map(|record| record["persona"].clone()).collect();
    assert_eq!(personas, ["codex-exec", "codex-client"]);
    let second = audit.events("sessionStarted").next().unwrap()["session"].clone();
    let by_second = audit.calls("process/start").filter(|call| call["session"] == second).count();
    assert_eq!(by_second, 1, "{:#?}", audit.lines());
    Audit::verify(&scratch).await;
}

fn codex_config(base_url: &str) -> String {
    format!(
        "model = \"gpt-5.5\"\nmodel_provider = \"mock\"\n[model_providers.mock]\nname = \"mock\"\nbase_url = {base_url:?}\n\
         wire_api = \"responses\"\nrequires_openai_auth = false\nrequest_max_retries = 0\nstream_max_retries = 0\n"
    )
}
