//! Questions in terminals: of `start`, of `exec` and `run`, in raw mode too, and where the keyboard is a command's.
//!
//! Invariant: a question is readable in every mode of the terminal, and the terminal is left as it was found.

use legion_tests::audit::Audit;
use legion_tests::child::Child;
use legion_tests::legion;
use legion_tests::scratch::Scratch;
use legion_tests::settings::settings;
use legion_tests::terminal::Terminal;
use rustix::termios::LocalModes;

use super::{REFUSED, RULES, Watch, answer};

/// All lines of a question, as they stand on a terminal in raw mode.
const SHOWN: &str = "\r\n  touch made\r\n";

fn program() -> String {
    settings().legion_binary("legion-controller").display().to_string()
}

fn configured(rules: &str) -> Scratch {
    let scratch = Scratch::new();
    legion::configure(&scratch, rules);
    scratch
}

fn at_terminal(scratch: &Scratch, before: &[&str], command: &[&str]) -> Terminal {
    let workspace = scratch.workspace().display().to_string();
    let args = [before, &["--workspace", &workspace, "--"], command].concat();
    Terminal::spawn(scratch, &program(), &args, 24, 80)
}

#[tokio::test]
async fn in_raw_mode_a_key_answers() {
    for before in [&["exec", "--tty"][..], &["run"]] {
        for (keys, code, made) in
            [("xo", 0, Some("")), ("s", 0, Some("")), ("n", REFUSED, None), ("\x03", 128 + 2, None)]
        {
            let scratch = configured(RULES);
            let mut terminal = at_terminal(&scratch, before, &["touch", "made"]);
            terminal.shows("[n]o? ").await;
            for key in keys.chars() {
                terminal.keys(&key.to_string()).await;
                if key == 'x' {
                    terminal.shows("[n]o? \r\n[o]nce").await;
                }
            }
            let left = terminal.finish().await;
            assert_eq!(left.status.code(), Some(code), "{keys:?}: {left:?}");
            assert_eq!(scratch.read("workspace/made").as_deref(), made, "{left:?}");
            assert!(left.screen.contains(SHOWN), "{left:?}");
            assert!(!left.screen.replace("\r\n", "").contains('\n'), "a line begins further right: {left:?}");
            assert!(
                left.modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG),
                "{left:?}"
            );
            assert_eq!(Audit::read(&scratch).events("approval").count(), 1);
        }
    }
}

/// The keys are the command's; the question says where it can be answered.
#[tokio::test]
async fn where_a_command_reads_the_keyboard_another_terminal_answers() {
    let rules =
        "[[persona.default.rule]]\nid = \"ask-input\"\nmethod = \"process/write\"\ndecision = \"ask\"\n";
    // A terminal in raw mode gives keys, another one lines.
    for (before, keys) in [(&["exec", "--tty"][..], "o"), (&["exec"], "o\r")] {
        let scratch = configured(rules);
        let script = "echo ready; read -r -n 1 a; echo; echo got $a";
        let mut terminal = at_terminal(&scratch, before, &["bash", "-c", script]);
        terminal.shows("ready").await;
        let mut watch = Watch::start(&scratch);
        terminal.keys(keys).await;
        let question = watch.next().await;
        let id = question["id"].as_str().unwrap();
        terminal.shows(&format!("in another terminal: legion-controller approvals approve {id}, ")).await;
        answer(&scratch, &["approve", "--session", id]).await.assert_success();
        let left = terminal.finish().await;
        assert_eq!(left.status.code(), Some(0), "{left:?}");
        assert!(left.screen.contains("got o\r\n"), "{left:?}");
        watch.0.stop().await;
    }
}

#[tokio::test]
async fn who_is_put_in_front_asks() {
    let scratch = configured(RULES);
    let workspace = scratch.workspace().display().to_string();
    let script = "set -m; \"$@\" & read -r _; fg";
    let program = program();
    let args = ["-c", script, "bash", &program, "exec", "--workspace", &workspace, "--", "touch", "made"];
    let mut watch = Watch::start(&scratch);
    let mut terminal = Terminal::spawn(&scratch, "/bin/bash", &args, 24, 80);
    watch.next().await;
    terminal.keys("\r").await;
    terminal.shows("[n]o? ").await;
    terminal.keys("o\r").await;
    let left = terminal.finish().await;
    assert_eq!(left.status.code(), Some(0), "{left:?}");
    assert_eq!(scratch.read("workspace/made").as_deref(), Some(""));
    watch.0.stop().await;
}

#[tokio::test]
async fn the_terminal_of_start_answers_for_all_its_sessions() {
    let scratch = configured(RULES);
    let workspace = scratch.workspace().display().to_string();
    let args = ["start", "--workspace", &workspace];
    let mut terminal = Terminal::spawn(&scratch, &program(), &args, 24, 80);
    terminal.shows("Stop with Ctrl-C.").await;
    let exec = |file: &'static str| {
        let args = ["exec", "--workspace", &workspace, "--", "touch", file];
        Child::spawn("exec", legion::command(&scratch, &args))
    };
    let made = exec("made");
    terminal.shows("touch made").await;
    terminal.shows("[n]o? ").await;
    terminal.keys("once\r").await;
    made.finish().await.assert_success();
    terminal.shows("approved once\r\n").await;

    let mut watch = Watch::start(&scratch);
    let elsewhere = exec("elsewhere");
    terminal.shows("touch elsewhere").await;
    let question = watch.next().await;
    answer(&scratch, &["deny", question["id"].as_str().unwrap()]).await.assert_success();
    assert_eq!(elsewhere.finish().await.code(), REFUSED);
    terminal.shows("(answered elsewhere, or no longer asked)").await;
    terminal.keys("\x03").await;
    let left = terminal.finish().await;
    assert_eq!(left.status.code(), Some(0), "{left:?}");
    watch.0.stop().await;
}
