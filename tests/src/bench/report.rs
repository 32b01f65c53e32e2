//! The table of rows: a measure, what it is held against, and whether the target is reached; as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::rounds::{BARE_SPAWN, MEASURES, Measured, OPENCODE, key};
use super::samples::{Digits, Unit};
use super::subject::{COPIED, ORIGINAL, Subject};

/// What a number must reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// At most this many times the reference.
    AtMost(f64),
    /// At most the reference divided by this.
    AtMostOneIn(f64),
    /// At least this many times the reference.
    AtLeast(f64),
    /// At most this, whatever else is.
    Bound(f64),
    /// Nothing is asked: the number is told.
    Told,
}

impl Target {
    fn is_reached(self, value: f64, reference: Option<f64>) -> Option<bool> {
        match self {
            Self::AtMost(factor) => Some(value <= factor * reference?),
            Self::AtMostOneIn(factor) => Some(value * factor <= reference?),
            Self::AtLeast(factor) => Some(value >= factor * reference?),
            Self::Bound(bound) => Some(value <= bound),
            Self::Told => None,
        }
    }

    fn text(self, unit: Unit) -> String {
        match self {
            Self::AtMost(factor) => format!("≤ {factor}×"),
            Self::AtMostOneIn(factor) => format!("≤ 1/{factor}"),
            Self::AtLeast(factor) => format!("≥ {factor}×"),
            Self::Bound(bound) => format!("≤ {}", unit.show(bound)),
            Self::Told => String::new(),
        }
    }
}

/// One line of the table.
#[derive(Debug, Clone)]
pub struct Row {
    /// Key of the measure.
    pub key: &'static str,
    /// For people.
    pub title: String,
    /// Of both numbers.
    pub unit: Unit,
    /// Name and number of what it is held against.
    pub reference: Option<(String, f64)>,
    /// The number of the subject, or why there is none.
    pub value: Result<f64, String>,
    /// What must be reached.
    pub target: Target,
    /// How far rounds lie apart, of the subject and of the reference.
    pub spread: [Option<f64>; 2],
}

impl Row {
    /// Whether the target is reached; `None` when there is none.
    pub fn is_reached(&self) -> Option<bool> {
        let reference = self.reference.as_ref().map(|(_, value)| *value);
        match &self.value {
            Ok(value) => self.target.is_reached(*value, reference),
            Err(_) => (self.target != Target::Told).then_some(false),
        }
    }

    fn ratio(&self) -> Option<f64> {
        let value = self.value.as_ref().ok()?;
        self.reference
            .as_ref()
            .filter(|(_, reference)| *reference > 0.0)
            .map(|(_, reference)| value / reference)
    }

    fn cells(&self) -> [String; 7] {
        let (name, reference) = match &self.reference {
            Some((name, value)) => (name.clone(), self.unit.show(*value)),
            None => ("–".to_owned(), String::new()),
        };
        let ratio = match (self.ratio(), self.target) {
            (None, _) => String::new(),
            (Some(ratio), Target::AtMostOneIn(_)) if ratio < 1.0 => format!("1/{}", Digits(1.0 / ratio)),
            (Some(ratio), _) => format!("{}×", Digits(ratio)),
        };
        let reached = self.is_reached().map_or("", |reached| if reached { "yes" } else { "NO" });
        [
            self.title.clone(),
            name,
            reference,
            self.value.as_ref().map_or_else(|_| "–".to_owned(), |value| self.unit.show(*value)),
            ratio,
            self.target.text(self.unit),
            reached.to_owned(),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "measure": self.key,
            "title": self.title,
            "unit": self.unit.name(),
            "lessIsBetter": self.unit.less_is_better(),
            "value": self.value.as_ref().ok(),
            "failure": self.value.as_ref().err(),
            "spread": self.spread[0],
            "reference": self.reference.as_ref().map(|(name, _)| name),
            "referenceValue": self.reference.as_ref().map(|(_, value)| value),
            "referenceSpread": self.spread[1],
            "ratio": self.ratio(),
            "target": self.target.text(self.unit),
            "reached": self.is_reached(),
        })
    }
}

/// Against what each measure is held, and what must be reached, in the order of the table.
const TARGETS: [(&str, &str, Target); 13] = [
    ("command", ORIGINAL, Target::AtMostOneIn(20.0)),
    ("command", BARE_SPAWN, Target::AtMost(2.0)),
    ("command", "codex sandbox", Target::AtMostOneIn(10.0)),
    ("command", "srt", Target::AtMostOneIn(100.0)),
    ("commands16", ORIGINAL, Target::AtLeast(3.0)),
    ("keystroke", ORIGINAL, Target::AtMostOneIn(50.0)),
    (key::METADATA, ORIGINAL, Target::AtMost(1.0)),
    (key::METADATA, COPIED, Target::AtMost(1.0)),
    ("requests64", ORIGINAL, Target::AtLeast(1.0)),
    ("output", ORIGINAL, Target::AtLeast(2.0)),
    ("readFile", ORIGINAL, Target::AtLeast(2.0)),
    ("writeFile", ORIGINAL, Target::AtLeast(2.0)),
    (key::IDLE_MEMORY, ORIGINAL, Target::AtMostOneIn(4.0)),
];

/// Longest time for opening a session with its sandbox, in seconds.
const SESSION_SECONDS: f64 = 0.025;

/// The rows of one subject.
pub fn rows(measured: &Measured, subject: &Subject) -> Vec<Row> {
    let mut rows: Vec<Row> = TARGETS
        .iter()
        .filter_map(|(key, reference, target)| row(measured, subject, key, Some(reference), *target))
        .collect();
    let session = Target::Bound(SESSION_SECONDS);
    let told: [(&'static str, Option<&str>, Target); 5] = [
        (key::USED_MEMORY, Some(ORIGINAL), Target::Told),
        (key::BRIDGE, None, session),
        (key::ISSUED, None, session),
        (key::CONNECTION, Some(ORIGINAL), Target::Told),
        (key::OPENCODE, Some(OPENCODE), Target::Told),
    ];
    rows.extend(
        told.into_iter()
            .filter_map(|(key, reference, target)| row(measured, subject, key, reference, target)),
    );
    rows
}

fn row(
    measured: &Measured,
    subject: &Subject,
    key: &'static str,
    reference: Option<&str>,
    target: Target,
) -> Option<Row> {
    let samples = &measured.samples;
    let value = samples.middle(key, &subject.name)?;
    let known = reference.and_then(|name| Some((name.to_owned(), samples.middle(key, name)?)));
    // Without its reference a row says nothing, unless it stands for itself.
    if known.is_none() && reference.is_some() {
        return None;
    }
    let (title, unit) = title(key, measured.proportional);
    let spread = [samples.spread(key, &subject.name), reference.and_then(|name| samples.spread(key, name))];
    Some(Row { key, title, unit, reference: known, value: Ok(value), target, spread })
}

fn title(key: &str, proportional: bool) -> (String, Unit) {
    if let Some(measure) = MEASURES.iter().find(|measure| measure.key == key) {
        return (measure.title.to_owned(), measure.unit);
    }
    let kind = if proportional { "PSS" } else { "RSS" };
    match key {
        key::IDLE_MEMORY => (format!("memory, idle, one session ({kind})"), Unit::Bytes),
        key::USED_MEMORY => (format!("memory after the run ({kind})"), Unit::Bytes),
        key::BRIDGE => ("session: connect program → initialized".to_owned(), Unit::Seconds),
        key::ISSUED => ("session: token issue, TCP → initialized".to_owned(), Unit::Seconds),
        key::OPENCODE => ("opencode: start → models listed → ended".to_owned(), Unit::Seconds),
        _ => ("connection: TCP → initialized, p50".to_owned(), Unit::Seconds),
    }
}

/// The table of one subject.
pub fn table(subject: &str, rows: &[Row]) -> String {
    let head = ["measure", "against", "", subject, "ratio", "must be", "reached"].map(str::to_owned);
    let mut lines = vec![head];
    let mut last = String::new();
    for row in rows {
        let mut cells = row.cells();
        if cells[0] == last {
            cells[0].clear();
        } else {
            last.clone_from(&cells[0]);
        }
        lines.push(cells);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 7] = std::array::from_fn(width);
    let mut text = String::new();
    for line in &lines {
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            // Numbers stand to the right.
            let padded =
                if (2..5).contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            text.push_str(if column == 0 { "" } else { "  " });
            text.push_str(&padded);
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    for row in rows {
        if let Err(why) = &row.value {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{}: {why}", row.title);
        }
    }
    text
}

/// The lines below the tables: machine, noise, what is missing.
pub fn notes(measured: &Measured, rounds: usize) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        text,
        "{} processors, Linux {}; load {} before, {} after",
        processors(),
        kernel(),
        measured.load[0],
        measured.load[1],
    );
    if let Some(noise) = measured.samples.spread(key::SPAWN, BARE_SPAWN) {
        let _ = writeln!(
            text,
            "middle half of {rounds} rounds; {BARE_SPAWN} varied by ±{:.0} % between them",
            noise * 100.0
        );
    }
    for name in &measured.not_installed {
        let _ = writeln!(text, "{name}: not installed");
    }
    text
}

/// Everything as one JSON object.
pub fn json(measured: &Measured, rounds: usize, tables: &[(String, Vec<Row>)]) -> Value {
    let samples: Vec<Value> = measured
        .samples
        .iter()
        .map(|(measure, subject, values)| json!({ "measure": measure, "subject": subject, "values": values }))
        .collect();
    let tables: Vec<Value> = tables
        .iter()
        .map(
            |(subject, rows)| json!({ "subject": subject, "rows": rows.iter().map(Row::json).collect::<Vec<_>>() }),
        )
        .collect();
    json!({
        "machine": { "processors": processors(), "kernel": kernel(), "load": measured.load },
        "rounds": rounds,
        "memory": if measured.proportional { "proportional" } else { "resident" },
        "notInstalled": measured.not_installed,
        "tables": tables,
        "samples": samples,
    })
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

fn kernel() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}
