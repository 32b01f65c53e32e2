//! What recording and redaction cost: one call with its records, a flood of them, verifying, output that is looked
//! through.
//!
//! Invariant: what was recorded is counted by `audit verify`; a record that is lost is an error, not a number.

use std::io;
use std::time::Instant;

use serde_json::{Value, json};

use super::measures::{Harness, repeat};
use super::report::{Row, Target};
use super::rounds::named;
use super::samples::Unit;
use super::subject::{STRICT, Subject};
use crate::legion;
use crate::scratch::Scratch;

/// Calls of the flood; each makes two records.
const CALLS: u64 = 500_000;

/// Calls in flight.
const IN_FLIGHT: u64 = 256;

/// Records a second that must be reached.
const RECORDS_A_SECOND: f64 = 10_000.0;

/// Seconds that verifying all of it may take.
const VERIFY_SECONDS: f64 = 10.0;

/// Rounds of each single measure.
const ROUNDS: usize = 5;

/// Calls measured in one round.
const MOST_CALLS: usize = 2000;

/// What a controller records and redacts that is asked for the most of both.
pub const STRICT_TOML: &str = "[audit]\nsync = \"always\"\n[persona.default]\nredact = true\n";

/// Values to look for in output: 20, as long as keys are.
pub fn env_file() -> String {
    let lines = (0..20).map(|number| format!("SECRET_{number}=key-{number:02}-0123456789abcdefghijklmnop"));
    lines.collect::<Vec<_>>().join("\n")
}

impl Harness {
    /// Seconds of a round trip of a method; the median of the best round.
    fn round_trip(&mut self, method: &str, params: &str) -> io::Result<f64> {
        let mut best = f64::INFINITY;
        for _ in 0..ROUNDS {
            let round = repeat(MOST_CALLS, || {
                let begin = Instant::now();
                self.client.request(method, params);
                self.client.flush()?;
                self.await_result()?;
                Ok(begin.elapsed())
            })?;
            best = best.min(round);
        }
        Ok(best)
    }

    /// Seconds of a call that is recorded, twice, and does nothing.
    fn recorded_call(&mut self) -> io::Result<f64> {
        self.round_trip("process/terminate", r#"{"processId":"nobody"}"#)
    }

    /// Seconds of a call that is not recorded.
    fn unrecorded_call(&mut self) -> io::Result<f64> {
        self.round_trip("environment/status", "{}")
    }

    /// Seconds of so many recorded calls.
    fn flood(&mut self, calls: u64) -> io::Result<f64> {
        let begin = Instant::now();
        let (mut asked, mut answered) = (0, 0);
        while answered < calls {
            while asked < calls && asked - answered < IN_FLIGHT {
                self.client.request("process/terminate", r#"{"processId":"nobody"}"#);
                asked += 1;
            }
            self.client.flush()?;
            self.await_result()?;
            answered += 1;
            while self.client.has_unread() {
                self.await_result()?;
                answered += 1;
            }
        }
        Ok(begin.elapsed().as_secs_f64())
    }
}

/// Measures Legion as it is started, and one that keeps its log and its secrets as strictly as can be asked for.
///
/// # Errors
/// One line naming the measure.
pub fn run(subjects: &[Subject], plain: &Scratch) -> io::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for subject in subjects.iter().filter(|subject| subject.is_legion) {
        let mut harness =
            Harness::open(subject).map_err(|error| named(&subject.name, "connecting", &error))?;
        let free = harness.unrecorded_call().map_err(|error| named(&subject.name, "a call", &error))?;
        let recorded = harness.recorded_call().map_err(|error| named(&subject.name, "a call", &error))?;
        let output = harness.output().map_err(|error| named(&subject.name, "output", &error))?;
        let is_strict = subject.name == STRICT;
        rows.push(Row {
            reference: Some(("a call without record".to_owned(), free)),
            ..row(
                if is_strict { "recordedCallSynced" } else { "recordedCall" },
                &format!("a call with its records, p50{}", if is_strict { ", sync = always" } else { "" }),
                Unit::Seconds,
                recorded,
            )
        });
        rows.push(row(
            if is_strict { "outputRedacted" } else { "outputPlain" },
            if is_strict { "output, redact = true, 20 secrets" } else { "output, redact = false" },
            Unit::BytesPerSecond,
            output,
        ));
        if !is_strict {
            flood(&mut harness, plain, &mut rows)
                .map_err(|error| named(&subject.name, "the flood", &error))?;
        }
    }
    Ok(rows)
}

fn flood(harness: &mut Harness, scratch: &Scratch, rows: &mut Vec<Row>) -> io::Result<()> {
    let before = verify(scratch)?.records;
    let seconds = harness.flood(CALLS)?;
    let verified = verify(scratch)?;
    let records = verified.records - before;
    if records < CALLS * 2 {
        return Err(io::Error::other(format!("{records} records of {CALLS} calls: some are lost")));
    }
    rows.push(Row {
        reference: Some(("what must be reached".to_owned(), RECORDS_A_SECOND)),
        target: Target::AtLeast(1.0),
        ..row("recordsPerSecond", "records a second, none lost", Unit::PerSecond, records as f64 / seconds)
    });
    let title = format!("audit verify of {} records", verified.records);
    rows.push(Row {
        target: Target::Bound(VERIFY_SECONDS),
        ..row("verify", &title, Unit::Seconds, verified.seconds)
    });
    Ok(())
}

struct Verified {
    records: u64,
    seconds: f64,
}

fn verify(scratch: &Scratch) -> io::Result<Verified> {
    let begin = Instant::now();
    let output = legion::command(scratch, &["audit", "verify", "--json"]).into_std().output()?;
    let seconds = begin.elapsed().as_secs_f64();
    let verified: Value = serde_json::from_slice(&output.stdout).unwrap_or(json!(null));
    match verified["records"].as_u64() {
        Some(records) if output.status.success() => Ok(Verified { records, seconds }),
        _ => Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned())),
    }
}

fn row(key: &'static str, title: &str, unit: Unit, value: f64) -> Row {
    Row {
        key,
        title: title.to_owned(),
        unit,
        reference: None,
        value: Ok(value),
        target: Target::Told,
        spread: [None; 2],
    }
}
