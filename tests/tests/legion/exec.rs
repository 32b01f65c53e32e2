//! `legion-controller exec`: one command in a session of its own; its output and its exit code are ours.
//!
//! Invariant: no controller runs before, so each of these also shows that none is needed.

use legion_tests::audit::Audit;
use legion_tests::child::Finished;
use legion_tests::legion;
use legion_tests::scratch::Scratch;

/// Exit codes of the command line (design.md, after sysexits).
const USAGE: i32 = 64;
const UNAVAILABLE: i32 = 69;
const CONFIGURATION: i32 = 78;

async fn exec(scratch: &Scratch, script: &str) -> Finished {
    let workspace = scratch.workspace().display().to_string();
    legion::run(scratch, &["exec", "--workspace", &workspace, "--", "sh", "-c", script]).await
}

fn assert_one_line(finished: &Finished, code: i32) {
    assert_eq!(finished.code(), code, "{finished:#?}");
    assert_eq!(finished.stdout, "", "{finished:#?}");
    assert_eq!(finished.stderr.lines().count(), 1, "{finished:#?}");
}

#[tokio::test]
async fn output_and_exit_code_are_ours() {
    let scratch = Scratch::new();
    let finished = exec(&scratch, "echo out; echo err >&2; pwd; exit 3").await;
    assert_eq!(finished.code(), 3, "{finished:#?}");
    assert_eq!(finished.stdout, format!("out\n{}\n", scratch.workspace().display()));
    assert_eq!(finished.stderr, "err\n");
}

#[tokio::test]
async fn death_by_signal() {
    let finished = exec(&Scratch::new(), "kill -TERM $$").await;
    assert_eq!(finished.code(), 128 + 15, "{finished:#?}");
}

#[tokio::test]
async fn only_the_workspace_is_written() {
    let scratch = Scratch::new();
    let secret = scratch.write("outside/secret", "outside-secret-5520");
    let script = format!("echo one > file.txt; echo two > ~/file.txt; cat {}", secret.display());
    let finished = exec(&scratch, &script).await;
    assert_ne!(finished.code(), 0, "{finished:#?}");
    assert!(!finished.stdout.contains("outside-secret-5520"), "{finished:#?}");
    assert_eq!(scratch.read("workspace/file.txt").as_deref(), Some("one\n"));
    assert_eq!(scratch.read("home/file.txt"), None);
}

#[tokio::test]
async fn a_command_is_on_record() {
    let scratch = Scratch::new();
    let finished = exec(&scratch, "exit 7").await;
    assert_eq!(finished.code(), 7, "{finished:#?}");
    let audit = Audit::read(&scratch);
    let calls: Vec<_> = audit.calls("process/start").collect();
    let [call] = calls[..] else { panic!("{:#?}", audit.lines()) };
    assert_eq!(call["object"]["argv"], serde_json::json!(["sh", "-c", "exit 7"]));
    assert_eq!(call["decision"], "allow");
    let outcome = audit.outcome(call).unwrap_or_else(|| panic!("no outcome: {:#?}", audit.lines()));
    assert_eq!(outcome["outcome"]["exitCode"], 7);
    Audit::verify(&scratch).await;
}

#[tokio::test]
async fn secrets_reach_only_whom_the_persona_names() {
    let scratch = Scratch::new();
    scratch.write("secrets.env", "OPENAI_API_KEY=named-secret-7731\nOTHER_KEY=unnamed-secret-7732\n");
    let config = format!(
        "[controller]\nenv_file = {}\n[persona.default.env]\nsecrets = [\"OPENAI_*\"]\n",
        serde_json::json!(scratch.root().join("secrets.env"))
    );
    legion::configure(&scratch, &config);
    let finished = exec(&scratch, "echo \"$OPENAI_API_KEY\"; env; cat /proc/1/environ /proc/1/cmdline").await;
    assert!(finished.stdout.starts_with("named-secret-7731\n"), "{finished:#?}");
    assert!(!finished.stdout.contains("unnamed-secret-7732"), "{finished:#?}");
    let log = Audit::read(&scratch).lines().join("\n");
    assert!(!log.contains("secret-773"), "{log}");
}

#[tokio::test]
async fn a_wrong_flag_is_a_usage_error() {
    let scratch = Scratch::new();
    let finished = legion::run(&scratch, &["exec", "--no-such-flag"]).await;
    assert_eq!(finished.code(), USAGE, "{finished:#?}");
    assert!(finished.stderr.contains("--no-such-flag"), "{finished:#?}");
}

#[tokio::test]
async fn an_unknown_key_is_a_configuration_error() {
    let scratch = Scratch::new();
    legion::configure(&scratch, "[persona.default]\nview = \"minimal\"\nnetwrok = \"none\"\n");
    let finished = exec(&scratch, "true").await;
    assert_one_line(&finished, CONFIGURATION);
    assert!(
        finished.stderr.contains("legion.toml:3:1:") && finished.stderr.contains("netwrok"),
        "{finished:#?}"
    );
}

#[tokio::test]
async fn without_bubblewrap_nothing_runs() {
    let scratch = Scratch::new();
    let mut command =
        legion::command(&scratch, &["exec", "--workspace", scratch.workspace().to_str().unwrap()]);
    command.args(["--", "touch", "ran"]).env("PATH", scratch.outside());
    let finished = legion_tests::child::Child::spawn("legion-controller", command).finish().await;
    assert_one_line(&finished, UNAVAILABLE);
    assert!(finished.stderr.contains("bubblewrap") || finished.stderr.contains("bwrap"), "{finished:#?}");
    assert_eq!(scratch.read("workspace/ran"), None);
}
