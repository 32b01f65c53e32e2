//! Standard streams, signals and exit codes of a command run by `exec` and `run`, without a terminal.
//!
//! Invariant: what a pipe, a signal or an exit code means is what it means without Legion.

use legion_tests::audit::Audit;
use legion_tests::child::{DEADLINE, within};
use legion_tests::legion::{self, Controller};
use legion_tests::scratch::Scratch;
use rustix::process::Signal;
use tokio::io::AsyncWriteExt;

use crate::ways::Way;

in_both_ways!(
    a_pipe_is_the_standard_input,
    a_file_is_the_standard_input,
    twenty_megabytes_in_and_out,
    a_standard_input_that_does_not_end_holds_nothing_up,
    output_arrives_before_the_end,
    the_two_outputs_are_apart,
    exit_codes,
    what_is_left_running_holds_nothing_up,
    an_interrupt_reaches_the_command,
    other_signals_reach_the_command,
    a_termination_lets_the_command_end_in_its_own_way,
    a_termination_ends_everything,
    a_second_termination_does_not_wait,
    a_termination_ends_everything_although_nobody_reads,
    an_interrupt_reaches_the_command_although_nobody_reads,
    a_reader_that_leaves_ends_the_command,
);

/// More than all pipes and queues on the way hold together.
const MUCH: usize = 20 * 1000 * 1000;

/// Ends with 7 when interrupted; reports when it is ready for that. The child reports: what interrupts it as well is
/// noticed whenever it comes.
const INTERRUPTIBLE: &str =
    "trap 'echo interrupted; exit 7' INT; (echo ready > ready; exec sleep 300); echo slept";

/// Lives until it is killed, with a child in a session of its own.
const FOR_EVER: &str = "exec 9> alive; setsid sleep 300 & echo here >&9; sleep 300";

/// Fills its output until nobody takes it, and ends with 7 when interrupted.
const FLOOD: &str = "exec 9> alive; trap 'exit 7' INT; echo here >&9; echo first; cat /dev/zero; exit 1";

async fn a_pipe_is_the_standard_input(way: Way) {
    let scratch = Scratch::new();
    let mut child = way.spawn_with_stdin(&scratch, "read -r a; echo \"got $a\"; cat; echo end");
    let mut stdin = child.take_stdin().unwrap();
    stdin.write_all(b"one\n").await.unwrap();
    // The answer to the first line comes while the input is still open.
    assert_eq!(child.first_line().await, "got one");
    stdin.write_all("zwei é\0 without a line end".as_bytes()).await.unwrap();
    drop(stdin);
    let finished = child.finish().await;
    finished.assert_success();
    assert_eq!(finished.stdout, "got one\nzwei é\0 without a line endend\n");
    assert_eq!(finished.stderr, "");
}

async fn a_file_is_the_standard_input(way: Way) {
    let scratch = Scratch::new();
    scratch.write("input", "one\ntwo\n");
    let finished = way.spawn_from_shell(&scratch, "exec \"$@\" < input", &["wc", "-l"]).finish().await;
    assert_eq!((finished.code(), finished.stdout.as_str()), (0, "2\n"), "{finished:#?}");
}

async fn twenty_megabytes_in_and_out(way: Way) {
    let scratch = Scratch::new();
    // Nothing repeats within a page, so a lost or doubled piece shows.
    let bytes: Vec<u8> = (0..MUCH as u64 / 8)
        .flat_map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
        .collect();
    let mut child = way.spawn_with_stdin(&scratch, "cat > copy; wc -c < copy; cat copy >&2");
    let mut stdin = child.take_stdin().unwrap();
    within("all input is taken", stdin.write_all(&bytes)).await.unwrap();
    drop(stdin);
    let stderr = child.stderr_to_end().await;
    let finished = child.finish().await;
    assert_eq!(finished.stdout, format!("{}\n", bytes.len()));
    assert!(std::fs::read(scratch.workspace().join("copy")).unwrap() == bytes, "other bytes came in");
    assert!(stderr == bytes, "other bytes came back, {} of them", stderr.len());
}

async fn a_standard_input_that_does_not_end_holds_nothing_up(way: Way) {
    let scratch = Scratch::new();
    let mut child = way.spawn_with_stdin(&scratch, "exit 4");
    let stdin = child.take_stdin();
    assert_eq!(child.finish().await.code(), 4);
    drop(stdin);
}

async fn output_arrives_before_the_end(way: Way) {
    let scratch = Scratch::new();
    let gate = scratch.fifo("workspace/go").gate();
    let mut child = way.spawn(&scratch, &["sh", "-c", "echo first; read -r _ < go; echo second"]);
    assert_eq!(child.first_line().await, "first");
    gate.open();
    let finished = child.finish().await;
    assert_eq!((finished.code(), finished.stdout.as_str()), (0, "first\nsecond\n"), "{finished:#?}");
}

async fn the_two_outputs_are_apart(way: Way) {
    let finished = way.script(&Scratch::new(), "echo out; echo err >&2; echo more; printf end >&2").await;
    let seen = (finished.code(), finished.stdout.as_str(), finished.stderr.as_str());
    assert_eq!(seen, (0, "out\nmore\n", "err\nend"));
}

async fn exit_codes(way: Way) {
    let scratch = Scratch::new();
    scratch.write("workspace/no-program", "text\n");
    for (argv, code) in [
        (&["true"][..], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "exit 255"], 255),
        (&["sh", "-c", "kill -KILL $$"], 128 + 9),
        (&["sh", "-c", "kill -SEGV $$"], 128 + 11),
        (&["sh", "-c", "no-such-program"], 127),
    ] {
        let finished = way.command(&scratch, argv).await;
        assert_eq!(finished.code(), code, "{argv:?}: {finished:#?}");
    }
    for (program, code) in
        [("./no-program", 126), ("/etc", 126), ("no-such-program", 127), ("./missing/program", 127)]
    {
        let finished = way.command(&scratch, &[program, "argument"]).await;
        assert_eq!((finished.code(), finished.stdout.as_str()), (code, ""), "{program}: {finished:#?}");
        assert_eq!(finished.stderr.lines().count(), 1, "{finished:#?}");
        assert!(finished.stderr.contains(program), "{finished:#?}");
    }
}

async fn what_is_left_running_holds_nothing_up(way: Way) {
    let scratch = Scratch::new();
    let mut lifetime = scratch.fifo("workspace/alive").lifetime();
    let script = "exec 9> alive; echo here >&9; (while :; do echo more; done) & setsid sleep 300 & head -c 1000000 /dev/zero; exit 5";
    let child = way.spawn(&scratch, &["bash", "-c", script]);
    lifetime.began("the command starts").await;
    let finished = child.finish().await;
    assert_eq!(finished.code(), 5, "{}", finished.stderr);
    assert_eq!(finished.stdout.matches('\0').count(), 1_000_000, "its own output is whole");
    lifetime.ended("what it left running ends").await;
}

async fn an_interrupt_reaches_the_command(way: Way) {
    let scratch = Scratch::new();
    let mut ready = scratch.fifo("workspace/ready").signals();
    let child = way.spawn(&scratch, &["sh", "-c", INTERRUPTIBLE]);
    ready.next("the command is ready").await;
    child.signal(Signal::INT);
    let finished = child.finish().await;
    assert_eq!((finished.code(), finished.stdout.as_str()), (7, "interrupted\n"), "{finished:#?}");
}

async fn other_signals_reach_the_command(way: Way) {
    for (signal, name) in [(Signal::USR1, "USR1"), (Signal::USR2, "USR2")] {
        let scratch = Scratch::new();
        let mut ready = scratch.fifo("workspace/ready").signals();
        let script = format!(
            "trap 'echo told; exit 7' {name}; (trap - {name}; echo > ready; exec sleep 300); echo slept"
        );
        let child = way.spawn(&scratch, &["bash", "-c", &script]);
        ready.next("the command is ready").await;
        child.signal(signal);
        let finished = child.finish().await;
        assert_eq!((finished.code(), finished.stdout.as_str()), (7, "told\n"), "{finished:#?}");
    }
    let scratch = Scratch::new();
    let mut ready = scratch.fifo("workspace/ready").signals();
    let child = way.spawn(&scratch, &["sh", "-c", "echo > ready; exec sleep 300"]);
    ready.next("the command is ready").await;
    child.signal(Signal::QUIT);
    assert_eq!(child.finish().await.code(), 128 + 3);
}

async fn a_termination_lets_the_command_end_in_its_own_way(way: Way) {
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::HUP, "HUP")] {
        let scratch = Scratch::new();
        let mut ready = scratch.fifo("workspace/ready").signals();
        let script = format!(
            "trap 'sleep 0.2; echo cleaned up; exit 9' {name}; (trap - {name}; echo > ready; exec sleep 300); echo slept"
        );
        let child = way.spawn(&scratch, &["bash", "-c", &script]);
        ready.next("the command is ready").await;
        child.signal(signal);
        let finished = child.finish().await;
        assert_eq!((finished.code(), finished.stdout.as_str()), (9, "cleaned up\n"), "{finished:#?}");
        let audit = Audit::read(&scratch);
        let told = audit.events("call").find(|record| record["method"] == "legion/signal");
        let expected = if name == "TERM" { "terminate" } else { "hangup" };
        assert_eq!(told.unwrap()["object"]["signal"], expected);
    }
}

/// A command that does not obey the first one.
async fn a_second_termination_does_not_wait(way: Way) {
    let scratch = Scratch::new();
    let mut told = scratch.fifo("workspace/told").signals();
    let mut lifetime = scratch.fifo("workspace/alive").lifetime();
    let script = "exec 9> alive; echo here >&9; trap 'echo > told' TERM; echo > told; while :; do sleep 300 & wait; done";
    let child = way.spawn(&scratch, &["bash", "-c", script]);
    lifetime.began("the command starts").await;
    for what in ["the command is ready", "the command is told"] {
        told.next(what).await;
        child.signal(Signal::TERM);
    }
    let finished = child.finish().await;
    assert_eq!(finished.status.code(), Some(128 + 15), "{finished:#?}");
    lifetime.ended("the command and its children end").await;
}

async fn a_termination_ends_everything(way: Way) {
    for (signal, code) in [(Signal::TERM, Some(128 + 15)), (Signal::HUP, Some(128 + 1)), (Signal::KILL, None)]
    {
        let scratch = Scratch::new();
        let mut lifetime = scratch.fifo("workspace/alive").lifetime();
        let child = way.spawn(&scratch, &["sh", "-c", FOR_EVER]);
        lifetime.began("the command starts").await;
        child.signal(signal);
        let finished = child.finish().await;
        assert_eq!(finished.status.code(), code, "{finished:#?}");
        lifetime.ended("the command and its children end").await;
    }
}

async fn a_termination_ends_everything_although_nobody_reads(way: Way) {
    signal_while_nobody_reads(way, Signal::TERM, 128 + 15).await;
}

async fn an_interrupt_reaches_the_command_although_nobody_reads(way: Way) {
    signal_while_nobody_reads(way, Signal::INT, 7).await;
}

/// The output goes into a pipe that is not read any more, as with a pager that waits for a key.
async fn signal_while_nobody_reads(way: Way, signal: Signal, code: i32) {
    let scratch = Scratch::new();
    let pipe = scratch.fifo("output");
    let mut output = pipe.lifetime();
    let mut lifetime = scratch.fifo("workspace/alive").lifetime();
    let child = way.spawn_from_shell(&scratch, "exec \"$@\" > output", &["bash", "-c", FLOOD]);
    lifetime.began("the command starts").await;
    assert_eq!(output.began("the first line").await, "first");
    pipe.filled().await;
    child.signal(signal);
    lifetime.ended("the command ends").await;
    if signal == Signal::INT {
        // The command has ended in its own way: what it has written is still handed out.
        output.ended("the output").await;
    }
    let finished = child.finish().await;
    assert_eq!(finished.code(), code, "{finished:#?}");
}

async fn a_reader_that_leaves_ends_the_command(way: Way) {
    let scratch = Scratch::new();
    let mut lifetime = scratch.fifo("workspace/alive").lifetime();
    let outer = "\"$@\" | head -n 1; echo \"${PIPESTATUS[0]}\"";
    let argv = ["sh", "-c", "exec 9> alive; echo here >&9; yes"];
    let child = way.spawn_from_shell(&scratch, outer, &argv);
    lifetime.began("the command starts").await;
    lifetime.ended("the command ends").await;
    let finished = tokio::time::timeout(DEADLINE, child.finish()).await.unwrap();
    assert_eq!(finished.stdout, format!("y\n{}\n", 128 + 13), "{finished:#?}");
    assert_eq!(finished.stderr, "");
}

#[tokio::test]
async fn a_running_controller_is_used() {
    let scratch = Scratch::new();
    let controller = Controller::start(&scratch, &[]).await;
    let mut child = Way::Exec.spawn_with_stdin(&scratch, "cat; exit 7");
    child.take_stdin().unwrap().write_all(b"through the running one\n").await.unwrap();
    let finished = child.finish().await;
    assert_eq!(
        (finished.code(), finished.stdout.as_str()),
        (7, "through the running one\n"),
        "{finished:#?}"
    );
    let audit =
        Audit::wait(&scratch, "the end of the session", |audit| audit.events("sessionEnded").count() == 1)
            .await;
    assert_eq!(audit.events("controllerStarted").count(), 1);
    let sessions = legion::run(&scratch, &["session", "list", "--json"]).await;
    assert_eq!(sessions.stdout.matches("\"state\":\"live\"").count(), 1, "only that of start: {sessions:#?}");
    controller.stop().await.assert_success();
}
