//! The rounds: every measure of every subject in turn, so that the drift of a busy machine hits all alike.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::baselines::{self, PerCommand};
use super::copier;
use super::measures::Harness;
use super::memory::{self, Memory};
use super::samples::{Samples, Unit};
use super::subject::{COPIED, ORIGINAL, Subject};
use crate::scratch::Scratch;

/// A measure of one connection.
pub struct Measure {
    /// Its key in JSON.
    pub key: &'static str,
    /// Its name in the table.
    pub title: &'static str,
    /// Of its number.
    pub unit: Unit,
    run: fn(&mut Harness) -> io::Result<f64>,
}

const fn measure(
    key: &'static str,
    title: &'static str,
    unit: Unit,
    run: fn(&mut Harness) -> io::Result<f64>,
) -> Measure {
    Measure { key, title, unit, run }
}

/// The measures of one connection, in the order of the table.
pub const MEASURES: [Measure; 8] = [
    measure("command", "command: start → closed, p50", Unit::Seconds, Harness::command),
    measure("commands16", "16 commands in flight", Unit::PerSecond, Harness::commands_in_flight),
    measure("keystroke", "keystroke: write → echo, p50", Unit::Seconds, Harness::keystroke),
    measure(key::METADATA, "fs/getMetadata round trip, p50", Unit::Seconds, Harness::metadata),
    measure("requests64", "64 requests in flight", Unit::PerSecond, Harness::requests_in_flight),
    measure("output", "output of one command", Unit::BytesPerSecond, Harness::output),
    measure("writeFile", "fs/writeFile of 8 MiB", Unit::BytesPerSecond, Harness::write_file),
    measure("readFile", "fs/readFile of 8 MiB", Unit::BytesPerSecond, Harness::read_file),
];

/// Keys of the measures that are no method of [`Harness`].
pub mod key {
    /// See [`super::baselines::bare_spawn`].
    pub const SPAWN: &str = "command";
    /// The one for which the original is measured behind a copier as well.
    pub const METADATA: &str = "getMetadata";
    /// Memory with one session that has done nothing.
    pub const IDLE_MEMORY: &str = "idleMemory";
    /// Memory with one session after all rounds.
    pub const USED_MEMORY: &str = "usedMemory";
    /// See [`super::baselines::connection`].
    pub const CONNECTION: &str = "connection";
    /// See [`super::baselines::bridge`].
    pub const BRIDGE: &str = "sessionByConnect";
    /// See [`super::baselines::issued_session`].
    pub const ISSUED: &str = "sessionByToken";
    /// See [`super::baselines::opencode`].
    pub const OPENCODE: &str = "opencodeStart";
}

/// OpenCode without Legion: its name in the table.
pub const OPENCODE: &str = "opencode";

/// The name of the bare spawn in the table.
pub const BARE_SPAWN: &str = "posix_spawn + wait";

/// What to measure.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The original first, when it is there.
    pub subjects: Vec<Subject>,
    /// Rounds over everything.
    pub rounds: usize,
    /// Keys of the measures to take; none means all.
    pub only: Vec<String>,
    /// Where `srt` lies, when not in the usual places.
    pub srt: Option<PathBuf>,
    /// Of the servers.
    pub scratch: Arc<Scratch>,
}

impl Plan {
    fn wants(&self, key: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == key)
    }

    /// The keys that `only` may hold.
    pub fn keys() -> Vec<&'static str> {
        let others =
            [key::IDLE_MEMORY, key::USED_MEMORY, key::CONNECTION, key::BRIDGE, key::ISSUED, key::OPENCODE];
        MEASURES.iter().map(|measure| measure.key).chain(others).collect()
    }
}

/// What came out.
#[derive(Debug, Default)]
pub struct Measured {
    /// All numbers.
    pub samples: Samples,
    /// Other sandboxes that are not there.
    pub not_installed: Vec<&'static str>,
    /// Whether memory is in proportional set sizes.
    pub proportional: bool,
    /// Load averages of the machine (1, 5, 15 minutes) before and after.
    pub load: [String; 2],
}

/// What is known before anything is measured.
pub fn nothing() -> Measured {
    Measured { load: [load(), String::new()], ..Measured::default() }
}

/// Measures everything.
///
/// # Errors
/// One line naming subject and measure.
pub fn run(plan: &Plan) -> io::Result<Measured> {
    let mut measured = nothing();
    let mut harnesses = Vec::new();
    let original = plan.subjects.iter().find(|subject| subject.name == ORIGINAL);
    let copied = original.filter(|_| plan.wants(key::METADATA)).map(copier::before).transpose()?;
    for subject in plan.subjects.iter().chain(&copied) {
        let opened = Harness::open(subject).map_err(|error| named(&subject.name, "connecting", &error))?;
        harnesses.push((subject, opened));
    }
    let others = [Some(PerCommand::codex()), PerCommand::srt(plan.srt.as_deref())];
    if others[1].is_none() && plan.wants(key::SPAWN) {
        measured.not_installed.push("srt");
    }
    if plan.wants(key::OPENCODE) && plan.subjects.iter().any(|subject| subject.is_legion) {
        baselines::prepare_opencode(&plan.scratch);
    }
    look_at_memory(plan, key::IDLE_MEMORY, &mut measured)?;
    for round in 0..plan.rounds {
        eprintln!("round {} of {}, load {}", round + 1, plan.rounds, load());
        let samples = &mut measured.samples;
        if plan.wants(key::SPAWN) {
            samples.add(key::SPAWN, BARE_SPAWN, baselines::bare_spawn()?);
        }
        for measure in MEASURES.iter().filter(|measure| plan.wants(measure.key)) {
            let count = harnesses.len();
            for index in 0..count {
                // Nobody is always the first.
                let (subject, harness) = &mut harnesses[(index + round) % count];
                if subject.name == COPIED && measure.key != key::METADATA {
                    continue;
                }
                nudge(round);
                let value = (measure.run)(harness);
                let value = value.map_err(|error| named(&subject.name, measure.title, &error))?;
                samples.add(measure.key, &subject.name, value);
            }
        }
        for other in others.iter().flatten().filter(|_| plan.wants(key::SPAWN)) {
            samples.add(key::SPAWN, other.name, other.run(&plan.scratch)?);
        }
        open_sessions(plan, samples)?;
    }
    look_at_memory(plan, key::USED_MEMORY, &mut measured)?;
    Ok(measured)
}

/// Moves this thread to another processor in every round, and leaves it to the scheduler from there: whether client and
/// server sit on one processor or on two doubles a round trip, and would otherwise stay as it is for a whole run.
fn nudge(round: usize) {
    let Ok(all) = sched_getaffinity(None) else { return };
    let mut usable = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu)).cycle();
    let mut one = CpuSet::new();
    one.set(usable.nth(round).unwrap_or(0));
    // Where this is not allowed, the scheduler decides alone.
    let _ = sched_setaffinity(None, &one).and_then(|()| sched_setaffinity(None, &all));
}

fn open_sessions(plan: &Plan, samples: &mut Samples) -> io::Result<()> {
    for subject in &plan.subjects {
        let mut add = |key, measured: io::Result<f64>| {
            let value = measured.map_err(|error| named(&subject.name, "opening a session", &error))?;
            samples.add(key, &subject.name, value);
            Ok::<(), io::Error>(())
        };
        if plan.wants(key::CONNECTION) {
            add(key::CONNECTION, baselines::connection(subject))?;
        }
        if subject.is_legion && plan.wants(key::BRIDGE) {
            add(key::BRIDGE, baselines::bridge(&plan.scratch))?;
        }
        if subject.is_legion && plan.wants(key::ISSUED) {
            add(key::ISSUED, baselines::issued_session(&plan.scratch))?;
        }
        if subject.is_legion && plan.wants(key::OPENCODE) {
            let [without, with] = baselines::opencode(&plan.scratch)?;
            samples.add(key::OPENCODE, OPENCODE, without);
            samples.add(key::OPENCODE, &subject.name, with);
        }
    }
    Ok(())
}

fn look_at_memory(plan: &Plan, key: &'static str, measured: &mut Measured) -> io::Result<()> {
    if !plan.wants(key) {
        return Ok(());
    }
    let mut seen = Vec::<(&str, Memory)>::new();
    for subject in &plan.subjects {
        if let Some(pid) = subject.pid {
            seen.push((&subject.name, memory::of_tree(pid)?));
        }
    }
    measured.proportional = seen.iter().all(|(_, memory)| memory.proportional_bytes.is_some());
    for (name, memory) in seen {
        let bytes = memory.proportional_bytes.filter(|_| measured.proportional);
        measured.samples.add(key, name, bytes.unwrap_or(memory.resident_bytes) as f64);
    }
    Ok(())
}

/// The error with what it is about.
pub fn named(subject: &str, what: &str, error: &io::Error) -> io::Error {
    io::Error::other(format!("{subject}: {what}: {error}"))
}

/// The machine's load averages.
pub fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
