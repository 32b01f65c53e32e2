//! What a session may use up: whoever wants more is stopped, is told why, and harms neither the host nor its session.
//!
//! Invariant: after every excess the same session runs the next command.

use std::time::{Duration, Instant};

use legion_tests::audit::Audit;
use legion_tests::child::Child;
use legion_tests::legion;
use legion_tests::process_table::resident;
use legion_tests::scratch::Scratch;
use serde_json::{Value, json};

use super::{Connected, Ran, text, uri};

/// A host that is well starts a program in this time, on a loaded machine too.
const RESPONSIVE: Duration = Duration::from_secs(5);

/// How much a tier may grow while a client is slower than a command.
const MEMORY_GROWTH: u64 = 48 << 20;

/// How often a slow client reads, and how long it thinks in between.
const SLOW_READS: usize = 150;
const SLOWNESS: Duration = Duration::from_millis(5);

/// A session of a persona with these limits.
async fn limited(limits: &str) -> (Scratch, Connected) {
    let scratch = Scratch::new();
    legion::configure(&scratch, &format!("[persona.default.limits]\n{limits}\n"));
    let session = Connected::new(&scratch, &[]).await;
    (scratch, session)
}

/// The session goes on, and its last outcome but one gives this reason.
async fn goes_on(scratch: &Scratch, mut session: Connected, reason: Option<&str>) {
    let ran = session.run(scratch, "echo alive > /tmp/alive; cat /tmp/alive").await;
    assert_eq!((ran.code, ran.output.as_str()), (0, "alive\n"));
    session.controller.stop().await.assert_success();
    let audit = Audit::read(scratch);
    assert_eq!(
        audit.events("sandboxStarted").count(),
        1,
        "the sandbox did not live on: {:#?}",
        audit.lines()
    );
    let call = audit.calls("process/start").next().expect("the first command is on record");
    let outcome = audit.outcome(call).expect("its end as well");
    let message = outcome["outcome"]["message"].as_str();
    if let Some(reason) = reason {
        assert!(message.is_some_and(|message| message.contains(reason)), "{outcome}");
    }
    Audit::verify(scratch).await;
}

/// Killed for a limit, which is named.
fn assert_killed(ran: &Ran, limit: &str) {
    assert_eq!(ran.code, 128 + 9, "{ran:?}");
    assert!(
        ran.output.contains(limit),
        "the cause is not named: {}",
        ran.output.chars().rev().take(300).collect::<String>()
    );
}

#[tokio::test]
async fn time() {
    let (scratch, mut session) = limited("wall = \"1s\"").await;
    let ran = session.run(&scratch, "echo begun; (setsid sleep 300 &); sleep 300; echo never").await;
    assert_killed(&ran, "limits.wall");
    assert!(ran.output.starts_with("begun\n") && !ran.output.contains("never"), "{ran:?}");
    goes_on(&scratch, session, Some("limits.wall")).await;
}

#[tokio::test]
async fn output() {
    let (scratch, mut session) = limited("output = \"4MiB\"").await;
    let ran = session.run(&scratch, "yes | head -c 10G").await;
    assert_killed(&ran, "limits.output");
    let beyond = ran.output.len().checked_sub(4 << 20);
    assert!(beyond.is_some_and(|beyond| beyond < 4096), "{} bytes came", ran.output.len());
    goes_on(&scratch, session, Some("limits.output")).await;
}

#[tokio::test]
async fn processes() {
    let (scratch, mut session) = limited("pids = 64").await;
    scratch.write("workspace/file.txt", "read meanwhile");
    let bomb = session.start(&scratch, "bomb() { bomb | bomb & }; bomb; wait; sleep 300").await;
    // The shell says so when it gets no more processes.
    loop {
        let params = session.client.wait_for("process/output").await;
        if String::from_utf8_lossy(&decoded(&params)).contains("Resource temporarily unavailable") {
            break;
        }
    }
    let begun = Instant::now();
    Child::spawn("true", scratch.command("/bin/true")).finish().await.assert_success();
    assert!(begun.elapsed() < RESPONSIVE, "the host took {:?} to start a program", begun.elapsed());
    let read = json!({ "path": uri(&scratch.workspace().join("file.txt")) });
    let content = session.client.call("fs/readFile", read).await.unwrap();
    assert_eq!(content["dataBase64"], "cmVhZCBtZWFud2hpbGU=");
    session.client.call("process/terminate", json!({ "processId": bomb })).await.unwrap();
    session.end_of(&bomb).await;
    goes_on(&scratch, session, None).await;
}

#[tokio::test]
async fn memory() {
    let (scratch, mut session) = limited("memory = \"256MiB\"").await;
    // tail keeps a last line whatever its length.
    let ran = session.run(&scratch, "head -c 2G /dev/zero | tail; exit ${PIPESTATUS[1]}").await;
    assert_ne!(ran.code, 0, "{ran:?}");
    let audit = Audit::read(&scratch);
    let sandbox = &audit.events("sandboxStarted").next().expect("it was recorded")["sandbox"];
    let by = text(&sandbox["limitsBy"]).to_owned();
    if by.starts_with("cgroup") && by.contains("memory") {
        goes_on(&scratch, session, Some("limits.memory")).await;
    } else {
        assert!(ran.output.contains("memory exhausted"), "{ran:?}");
        goes_on(&scratch, session, None).await;
    }
}

#[tokio::test]
async fn files_in_memory() {
    let (scratch, mut session) = limited("tmp = \"8MiB\"\nshm = \"4MiB\"\nhome = \"4MiB\"").await;
    let script = "for dir in /tmp /dev/shm ~; do head -c 64M /dev/zero > $dir/fill || stat -c %s $dir/fill; rm $dir/fill; done";
    let ran = session.run(&scratch, script).await;
    assert_eq!(ran.output.matches("No space left on device").count(), 3, "{ran:?}");
    for size in [8 << 20, 4 << 20] {
        assert!(ran.output.contains(&format!("\n{size}\n")), "{ran:?}");
    }
    goes_on(&scratch, session, None).await;
}

#[tokio::test]
async fn open_files() {
    let (scratch, mut session) = limited("open_files = 64").await;
    let script = "for number in $(seq 100); do eval \"exec {fd$number}< /dev/null\" || exit 7; done";
    let ran = session.run(&scratch, script).await;
    assert!(ran.output.contains("Too many open files"), "{ran:?}");
    let raised = session
        .run(
            &scratch,
            "ulimit -n 65 && echo raised; ulimit -u unlimited && echo raised; ulimit -c 1 && echo raised",
        )
        .await;
    assert!(!raised.output.contains("raised\n"), "{raised:?}");
    goes_on(&scratch, session, None).await;
}

/// Without a limit on output a command is as fast as its reader, and nobody keeps what was not read.
#[tokio::test]
async fn a_slow_reader_costs_no_memory() {
    let (scratch, mut session) = limited("").await;
    assert_eq!(session.run(&scratch, "head -c 4M /dev/zero").await.output.len(), 4 << 20);
    let audit = Audit::read(&scratch);
    let inner =
        audit.events("sandboxStarted").next().expect("it was recorded")["sandbox"]["innerPid"].as_u64();
    let tiers = [session.controller.pid().unwrap(), u32::try_from(inner.unwrap()).unwrap()];
    let before = tiers.map(resident);
    let flood = session.start(&scratch, "yes | head -c 10G").await;
    for _ in 0..SLOW_READS {
        session.client.wait_for("process/output").await;
        // The reader is slow; nothing is waited for.
        tokio::time::sleep(SLOWNESS).await;
        for (pid, before) in tiers.into_iter().zip(before) {
            let grown = resident(pid).saturating_sub(before);
            assert!(grown < MEMORY_GROWTH, "process {pid} has grown by {grown} bytes");
        }
    }
    session.client.call("process/terminate", json!({ "processId": flood })).await.unwrap();
    session.end_of(&flood).await;
    goes_on(&scratch, session, None).await;
}

fn decoded(params: &Value) -> Vec<u8> {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.decode(text(&params["chunk"])).unwrap()
}
