//! How cost grows with work: more sessions, more processes, more commands run.
//!
//! Invariant: the same steps for every subject; a level is held against the first level of the same subject, because
//! "flat" is what is asked for.

use std::io;

use super::baselines;
use super::measures::Harness;
use super::memory;
use super::report::{Row, Target};
use super::rounds::{Plan, named};
use super::samples::Unit;
use super::subject::{ORIGINAL, Subject};

/// Sessions open at the same time.
const SESSIONS: [usize; 3] = [1, 50, 200];

/// Processes running at the same time, in all sessions of the last level together. The original takes only the first:
/// it needs minutes to start more, and then has no descriptors left.
const PROCESSES: [usize; 2] = [1000, 10_000];

/// Commands run in one session before it is measured again. Not with the original, which needs minutes.
const COMMANDS_RUN: u64 = 10_000;

/// How much a call may cost more at a level than at the first: what a noisy machine makes of "flat".
const FLAT: f64 = 1.25;

/// Most memory of a session with its sandbox.
const SESSION_BYTES: f64 = 8.0 * 1024.0 * 1024.0;

/// Rounds of each single measure.
const ROUNDS: usize = 5;

/// The per-call costs that must stay flat.
struct Costs {
    metadata: f64,
    command: f64,
}

fn costs(harness: &mut Harness) -> io::Result<Costs> {
    // The best of a few: what others do on the machine only ever adds.
    let mut best = Costs { metadata: f64::INFINITY, command: f64::INFINITY };
    for _ in 0..ROUNDS {
        best.metadata = best.metadata.min(harness.metadata()?);
        best.command = best.command.min(harness.command()?);
    }
    Ok(best)
}

/// Grows one subject and gives the rows of it.
///
/// # Errors
/// One line naming the subject and the level.
pub fn run(plan: &Plan, subject: &Subject) -> io::Result<Vec<Row>> {
    let mut growth =
        Growth { plan, subject, harnesses: Vec::new(), issued: Vec::new(), first: None, rows: Vec::new() };
    let grown = growth.sessions().and_then(|()| growth.processes()).and_then(|()| growth.commands());
    let ended = growth.end();
    grown.and(ended).map_err(|error| named(&subject.name, "growing", &error))?;
    Ok(growth.rows)
}

struct Growth<'a> {
    plan: &'a Plan,
    subject: &'a Subject,
    harnesses: Vec<Harness>,
    issued: Vec<String>,
    first: Option<Costs>,
    rows: Vec<Row>,
}

impl Growth<'_> {
    fn open(&mut self) -> io::Result<Harness> {
        if !self.subject.is_legion || self.harnesses.is_empty() {
            return Harness::open(self.subject);
        }
        let issued = baselines::issue(&self.plan.scratch)?;
        self.issued.push(issued.session);
        let (client, result) = issued.address.open()?;
        Harness::with(client, &result, self.subject.directory.clone())
    }

    fn memory(&self) -> io::Result<Option<f64>> {
        let memory = self.subject.pid.map(memory::of_tree).transpose()?;
        Ok(memory.map(|memory| memory.proportional_bytes.unwrap_or(memory.resident_bytes) as f64))
    }

    fn sessions(&mut self) -> io::Result<()> {
        let mut base = None;
        for level in SESSIONS {
            while self.harnesses.len() < level {
                match self.open() {
                    Ok(harness) => self.harnesses.push(harness),
                    Err(error) => {
                        self.fail("sessions", &format!("{level} sessions"), self.harnesses.len(), &error);
                        return Ok(());
                    }
                }
            }
            self.level(&format!("{level} session{}", if level == 1 { "" } else { "s" }))?;
            let memory = self.memory()?;
            let base = *base.get_or_insert(memory);
            if let (Some(now), Some(base), true) = (memory, base, level > 1) {
                let value = (now - base) / (level - 1) as f64;
                self.tell(
                    "memoryPerSession",
                    "memory of one more session",
                    level,
                    "sessions",
                    value,
                    Target::Bound(SESSION_BYTES),
                );
            }
        }
        Ok(())
    }

    fn processes(&mut self) -> io::Result<()> {
        let base = self.memory()?;
        let mut running = 0;
        let levels = if self.subject.name == ORIGINAL { 1 } else { PROCESSES.len() };
        for level in PROCESSES.into_iter().take(levels) {
            let more = (level - running).div_ceil(self.harnesses.len());
            for harness in &mut self.harnesses {
                if let Err(error) = harness.start_sleepers(more) {
                    self.fail("processes", &format!("{level} processes"), running, &error);
                    return Ok(());
                }
                running += more;
            }
            self.level(&format!("{running} processes"))?;
            if let (Some(now), Some(base)) = (self.memory()?, base) {
                let value = (now - base) / running as f64;
                self.tell(
                    "memoryPerProcess",
                    "memory of one more process, its own included",
                    running,
                    "processes",
                    value,
                    Target::Told,
                );
            }
        }
        Ok(())
    }

    fn commands(&mut self) -> io::Result<()> {
        if self.subject.name == ORIGINAL {
            return Ok(());
        }
        // The sleepers end with their sessions; the first session stays.
        self.harnesses.truncate(1);
        if let Some(harness) = self.harnesses.first_mut() {
            harness.run_many(COMMANDS_RUN)?;
        }
        self.level(&format!("{COMMANDS_RUN} commands run"))
    }

    /// Measures the first session.
    fn level(&mut self, name: &str) -> io::Result<()> {
        eprintln!("{}: {name}", self.subject.name);
        let Some(harness) = self.harnesses.first_mut() else { return Ok(()) };
        let now = costs(harness)?;
        let first = self.first.get_or_insert(Costs { ..now });
        for (key, title, first, now) in [
            ("getMetadataGrown", "fs/getMetadata, p50", first.metadata, now.metadata),
            ("commandGrown", "command, p50", first.command, now.command),
        ] {
            self.rows.push(Row {
                key,
                title: format!("{title}, {name}"),
                unit: Unit::Seconds,
                reference: Some(("1 session".to_owned(), first)),
                value: Ok(now),
                target: Target::AtMost(FLAT),
                spread: [None; 2],
            });
        }
        Ok(())
    }

    fn tell(&mut self, key: &'static str, title: &str, count: usize, of: &str, value: f64, target: Target) {
        self.rows.push(Row {
            key,
            title: format!("{title}, {count} {of}"),
            unit: Unit::Bytes,
            reference: None,
            value: Ok(value),
            target,
            spread: [None; 2],
        });
    }

    /// A level that was not reached.
    fn fail(&mut self, key: &'static str, title: &str, reached: usize, error: &io::Error) {
        self.rows.push(Row {
            key,
            title: title.to_owned(),
            unit: Unit::Seconds,
            reference: None,
            value: Err(format!("after {reached}: {error}")),
            target: Target::AtMost(FLAT),
            spread: [None; 2],
        });
    }

    fn end(&mut self) -> io::Result<()> {
        self.harnesses.clear();
        self.issued.drain(..).try_for_each(|session| baselines::revoke(&self.plan.scratch, &session))
    }
}
