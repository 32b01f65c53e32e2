//! The numbers of all rounds, by measure and by what was measured.

use std::collections::BTreeMap;
use std::fmt;

use super::measures::median;

/// What a number counts, and which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Less is better.
    Seconds,
    /// More is better.
    PerSecond,
    /// More is better.
    BytesPerSecond,
    /// Less is better.
    Bytes,
}

impl Unit {
    /// Whether a smaller number is a better one.
    pub fn less_is_better(self) -> bool {
        matches!(self, Self::Seconds | Self::Bytes)
    }

    /// Its name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::PerSecond => "1/s",
            Self::BytesPerSecond => "B/s",
            Self::Bytes => "B",
        }
    }

    /// `value` for people.
    pub fn show(self, value: f64) -> String {
        const MIB: f64 = 1024.0 * 1024.0;
        match self {
            Self::Seconds if value < 1e-3 => format!("{} µs", Digits(value * 1e6)),
            Self::Seconds => format!("{} ms", Digits(value * 1e3)),
            Self::PerSecond => format!("{}/s", Digits(value)),
            Self::BytesPerSecond => format!("{} MiB/s", Digits(value / MIB)),
            Self::Bytes => format!("{} MiB", Digits(value / MIB)),
        }
    }
}

/// Three digits that count.
#[derive(Debug, Clone, Copy)]
pub struct Digits(
    /// Not negative.
    pub f64,
);

impl fmt::Display for Digits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = match self.0 {
            value if value < 9.995 => 2,
            value if value < 99.95 => 1,
            _ => 0,
        };
        write!(f, "{:.places$}", self.0)
    }
}

/// One number a round, for each measure of each subject.
#[derive(Debug, Default)]
pub struct Samples(BTreeMap<(&'static str, String), Vec<f64>>);

impl Samples {
    /// Adds the number of a round.
    pub fn add(&mut self, measure: &'static str, subject: &str, value: f64) {
        self.0.entry((measure, subject.to_owned())).or_default().push(value);
    }

    /// Mean of the middle half of the rounds: outliers do not count, and where rounds fall into two groups (a process
    /// next door, or on the same processor) it does not jump between them as the median does.
    pub fn middle(&self, measure: &'static str, subject: &str) -> Option<f64> {
        let mut values = self.0.get(&(measure, subject.to_owned()))?.clone();
        values.sort_by(f64::total_cmp);
        let quarter = values.len() / 4;
        let half = values.get(quarter..values.len() - quarter).filter(|half| !half.is_empty())?;
        Some(half.iter().sum::<f64>() / half.len() as f64)
    }

    /// How far the rounds lie apart: half the distance between the quartiles, as a part of the median.
    pub fn spread(&self, measure: &'static str, subject: &str) -> Option<f64> {
        let mut values = self.0.get(&(measure, subject.to_owned()))?.clone();
        let middle = median(&mut values);
        let quarter = values.len() / 4;
        let (low, high) = (values[quarter], values[values.len() - 1 - quarter]);
        (middle > 0.0).then(|| (high - low) / 2.0 / middle)
    }

    /// Everything, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str, &[f64])> {
        self.0.iter().map(|((measure, subject), values)| (*measure, subject.as_str(), values.as_slice()))
    }
}
