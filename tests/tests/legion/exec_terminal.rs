//! `exec --tty` and `run` at a terminal: a terminal inside that behaves as the one outside.
//!
//! Invariant: the terminal outside is left as it was found, whatever happened inside.

use legion_tests::child::within;
use legion_tests::scratch::Scratch;
use legion_tests::settings::settings;
use legion_tests::terminal::{Left, Terminal};
use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::LocalModes;
use tokio::io::AsyncWriteExt;

use crate::ways::Way;

/// What the command has shown: at a terminal, the end of the session adds one line.
fn shown(left: &Left) -> &str {
    let (shown, head) = left.screen.split_once("audit head: record ").expect("the head is told");
    assert_eq!(head.lines().count(), 1, "{left:?}");
    shown
}

in_both_ways!(
    all_three_streams_are_a_terminal,
    the_size_is_that_of_the_terminal_outside,
    a_resize_is_passed_on,
    keys_are_passed_on_and_echoed_once,
    control_c_interrupts,
    control_d_ends_the_input,
    the_terminal_is_left_as_it_was_found,
    a_terminal_that_closes_ends_everything,
);

const ROWS: u16 = 37;
const COLUMNS: u16 = 111;

async fn all_three_streams_are_a_terminal(way: Way) {
    let scratch = Scratch::new();
    let script =
        "test -t 0 && test -t 1 && test -t 2 && echo \"a terminal, $TERM\"; tty; : > /dev/tty; exit 3";
    let left = way.at_terminal(&scratch, script, ROWS, COLUMNS).finish().await;
    assert_eq!(left.status.code(), Some(3), "{left:?}");
    assert_eq!(shown(&left), "a terminal, xterm\r\n/dev/pts/0\r\n");
}

async fn the_size_is_that_of_the_terminal_outside(way: Way) {
    let scratch = Scratch::new();
    let left = way.at_terminal(&scratch, "stty size; tput lines; tput cols", ROWS, COLUMNS).finish().await;
    assert_eq!(shown(&left), format!("{ROWS} {COLUMNS}\r\n{ROWS}\r\n{COLUMNS}\r\n"), "{left:?}");
}

async fn a_resize_is_passed_on(way: Way) {
    let scratch = Scratch::new();
    let mut resized = scratch.fifo("workspace/resized").signals();
    let script =
        "trap 'stty size > resized' WINCH; echo ready; while :; do read -r -t 300 line && exit; done";
    let mut terminal = way.at_terminal(&scratch, script, ROWS, COLUMNS);
    terminal.shows("ready").await;
    terminal.resize(50, 132);
    assert_eq!(resized.next("the program learns of it").await, "50 132");
    terminal.keys("\r").await;
    let left = terminal.finish().await;
    assert!(left.status.success(), "{left:?}");
}

async fn keys_are_passed_on_and_echoed_once(way: Way) {
    let scratch = Scratch::new();
    let script =
        "echo ready; read -r line; stty -echo; echo \"got $line\"; read -r secret; echo \"${#secret} keys\"";
    let mut terminal = way.at_terminal(&scratch, script, ROWS, COLUMNS);
    terminal.shows("ready").await;
    terminal.keys("zwei é\r").await;
    terminal.shows("got zwei é").await;
    terminal.keys("hidden\r").await;
    let left = terminal.finish().await;
    assert!(left.status.success(), "{left:?}");
    assert_eq!(shown(&left), "ready\r\nzwei é\r\ngot zwei é\r\n6 keys\r\n");
}

/// What is typed goes to everybody in front of the terminal, the sandbox must not die of it.
#[tokio::test]
async fn control_c_reaches_a_command_without_a_terminal_of_its_own() {
    let scratch = Scratch::new();
    let program = settings().legion_binary("legion-controller").display().to_string();
    let workspace = scratch.workspace().display().to_string();
    let script = "trap 'echo interrupted; exit 7' INT; echo ready; while :; do sleep 0.1; done";
    for key in ["\x03", "\x1c"] {
        let script = if key == "\x1c" { script.replace("INT", "QUIT") } else { script.to_owned() };
        let args = ["exec", "--workspace", &workspace, "--", "sh", "-c", &script];
        let mut terminal = Terminal::spawn(&scratch, &program, &args, ROWS, COLUMNS);
        terminal.shows("ready").await;
        terminal.keys(key).await;
        let left = terminal.finish().await;
        assert_eq!(left.status.code(), Some(7), "{left:?}");
        assert!(left.screen.contains("interrupted\r\n"), "{left:?}");
    }
}

async fn control_c_interrupts(way: Way) {
    let scratch = Scratch::new();
    let script = "trap 'echo interrupted; exit 7' INT; (echo ready; exec sleep 300); echo slept";
    let mut terminal = way.at_terminal(&scratch, script, ROWS, COLUMNS);
    terminal.shows("ready").await;
    terminal.keys("\u{3}").await;
    let left = terminal.finish().await;
    assert_eq!(left.status.code(), Some(7), "{left:?}");
    assert_eq!(shown(&left), "ready\r\n^Cinterrupted\r\n");
}

async fn control_d_ends_the_input(way: Way) {
    let scratch = Scratch::new();
    let mut terminal = way.at_terminal(&scratch, "echo ready; wc -l", ROWS, COLUMNS);
    terminal.shows("ready").await;
    terminal.keys("one\rtwo\r\u{4}").await;
    let left = terminal.finish().await;
    assert!(left.status.success(), "{left:?}");
    assert!(shown(&left).ends_with("2\r\n"), "{left:?}");
}

async fn the_terminal_is_left_as_it_was_found(way: Way) {
    let ordinary = LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG;
    for ending in ["read -r _", "read -r _; kill -KILL $$", "read -r _; exit 9", "no-such-program"] {
        let scratch = Scratch::new();
        let mut terminal = way.at_terminal(&scratch, &format!("echo ready; {ending}"), ROWS, COLUMNS);
        let before = terminal.modes();
        terminal.shows("ready").await;
        if ending.starts_with("read") {
            assert!(!terminal.modes().intersects(ordinary), "raw while the command runs");
            terminal.keys("\r").await;
        }
        let left = terminal.finish().await;
        assert_eq!(left.modes, before, "{ending}: {left:?}");
        assert!(left.modes.contains(ordinary));
    }
    let killed = way.at_terminal(&Scratch::new(), "kill -KILL $$", ROWS, COLUMNS).finish().await;
    assert_eq!(killed.status.code(), Some(128 + 9), "{killed:?}");
    // Somebody else ends it.
    let scratch = Scratch::new();
    let mut terminal = way.at_terminal(&scratch, "echo ready; sleep 300", ROWS, COLUMNS);
    terminal.shows("ready").await;
    let pid = Pid::from_raw(i32::try_from(terminal.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let left = terminal.finish().await;
    assert_eq!(left.status.code(), Some(128 + 15), "{left:?}");
    assert!(left.modes.contains(ordinary), "{left:?}");
}

async fn a_terminal_that_closes_ends_everything(way: Way) {
    let scratch = Scratch::new();
    let mut lifetime = scratch.fifo("workspace/alive").lifetime();
    let script = "exec 9> alive; trap '' HUP; setsid sleep 300 & echo here >&9; sleep 300";
    let terminal = way.at_terminal(&scratch, script, ROWS, COLUMNS);
    lifetime.began("the command starts").await;
    terminal.hang_up().await;
    lifetime.ended("the command and its children end").await;
}

#[tokio::test]
async fn exec_without_tty_gives_none() {
    let scratch = Scratch::new();
    let script = "test -t 0 || test -t 1 || echo no terminal";
    let workspace = scratch.workspace().display().to_string();
    let program = settings().legion_binary("legion-controller").display().to_string();
    let args = ["exec", "--workspace", &workspace, "--", "bash", "-c", script];
    let left = Terminal::spawn(&scratch, &program, &args, ROWS, COLUMNS).finish().await;
    assert_eq!(shown(&left), "no terminal\r\n", "{left:?}");
}

#[tokio::test]
async fn run_with_its_output_in_a_pipe_gives_none() {
    let scratch = Scratch::new();
    let finished = Way::Run.script(&scratch, "test -t 0 || test -t 1 || echo no terminal").await;
    assert_eq!(finished.stdout, "no terminal\n", "{finished:#?}");
}

/// `printf … | legion-controller exec --tty …`: the end of the pipe is the end of the terminal's input.
#[tokio::test]
async fn a_pipe_can_be_typed_into_a_terminal() {
    for (input, count) in [("one\ntwo\n", 8), ("one\nno line end", 15)] {
        let scratch = Scratch::new();
        let workspace = scratch.workspace().display().to_string();
        let args = [
            "exec",
            "--tty",
            "--workspace",
            &workspace,
            "--",
            "bash",
            "-c",
            "stty -echo; test -t 0 && wc -c",
        ];
        let command = legion_tests::legion::command(&scratch, &args);
        let mut child = legion_tests::child::Child::spawn_with_stdin("legion-controller", command);
        let mut stdin = child.take_stdin().unwrap();
        within("the input is taken", stdin.write_all(input.as_bytes())).await.unwrap();
        drop(stdin);
        let finished = child.finish().await;
        finished.assert_success();
        assert!(finished.stdout.ends_with(&format!("{count}\r\n")), "{finished:#?}");
    }
}
