//! Finding known secret values in bytes, in the forms they usually take. Pure.
//!
//! It helps against accidents. Whoever wants to get a value past it changes one byte.

pub mod forms;
pub mod tape;
mod wrapped;

use std::borrow::Cow;

use aho_corasick::{AhoCorasick, MatchKind};

use crate::limits::{MAX_PATTERN_BYTES, MIN_REDACTED_BYTES};
use crate::secret::Secrets;
use wrapped::Joined;

/// What is looked for.
#[derive(Debug, Clone, Default)]
pub struct Patterns {
    automaton: Option<AhoCorasick>,
    /// What each pattern is replaced by.
    labels: Vec<String>,
    /// The patterns in order, to find those that begin with something.
    sorted: Vec<Vec<u8>>,
    /// Whether some pattern begins with a byte.
    first: Vec<bool>,
    longest: usize,
}

/// A place where a secret stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<'a> {
    /// From this byte on.
    pub start: usize,
    /// Up to this one.
    pub end: usize,
    /// What is shown instead.
    pub label: &'a str,
}

impl Patterns {
    /// All forms of every value that is long enough to be told from ordinary text.
    pub fn new(secrets: &Secrets) -> Self {
        let mut patterns: Vec<(Vec<u8>, String)> = Vec::new();
        let mut total = 0;
        for (name, value) in secrets.iter().filter(|(_, value)| value.expose().len() >= MIN_REDACTED_BYTES) {
            let label = format!("<redacted:{name}>");
            for form in forms::of(value.expose()) {
                total += form.len();
                if total > MAX_PATTERN_BYTES {
                    tracing::warn!(
                        "there are too many secrets to look for all forms of {name} and those after it"
                    );
                    return Self::build(patterns);
                }
                patterns.push((form, label.clone()));
            }
        }
        Self::build(patterns)
    }

    fn build(mut patterns: Vec<(Vec<u8>, String)>) -> Self {
        patterns.sort();
        patterns.dedup_by(|later, earlier| later.0 == earlier.0);
        let (sorted, labels): (Vec<_>, Vec<_>) = patterns.into_iter().unzip();
        if sorted.is_empty() {
            return Self::default();
        }
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&sorted);
        let automaton =
            automaton.inspect_err(|error| tracing::error!(%error, "secrets cannot be looked for")).ok();
        let mut first = vec![false; 256];
        for pattern in &sorted {
            first[usize::from(pattern[0])] = true;
        }
        let longest = sorted.iter().map(Vec::len).max().unwrap_or(0);
        Self { automaton, labels, sorted, first, longest }
    }

    /// The text without secrets.
    pub fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let found = self.look_at_all(text.as_bytes(), 0);
        if found.is_empty() {
            return Cow::Borrowed(text);
        }
        Cow::Owned(String::from_utf8_lossy(&shown(text.as_bytes(), &found, 0, text.len())).into_owned())
    }

    /// The texts without secrets, also without one that only stands there when they are joined by spaces.
    pub fn texts<'t>(&self, texts: &[&'t str]) -> Vec<Cow<'t, str>> {
        let joined = texts.join(" ");
        let found = self.look_at_all(joined.as_bytes(), 0);
        let mut start = 0;
        let clean = texts.iter().map(|text| {
            let end = start + text.len();
            let is_clean = found.iter().all(|place| place.end <= start || place.start >= end);
            let shown = if is_clean {
                Cow::Borrowed(*text)
            } else {
                Cow::Owned(
                    String::from_utf8_lossy(&shown(joined.as_bytes(), &found, start, end)).into_owned(),
                )
            };
            start = end + 1;
            shown
        });
        clean.collect()
    }

    /// Where secrets stand, and up to where that is certain whatever follows: what comes after may be the beginning of
    /// one. So many digits are right `before` it.
    pub fn look(&self, bytes: &[u8], before: usize) -> (Vec<Found<'_>>, usize) {
        let (found, certain) = self.look_at_lines(bytes);
        let Some(joined) = self.joined(bytes, before) else { return (found, certain) };
        let (more, sure) = self.look_at_lines(&joined.text);
        let sure = if sure == joined.text.len() { bytes.len() } else { joined.begin(sure) };
        let certain = certain.min(sure);
        let mut found = merged(found, more, &joined);
        found.retain(|place| place.start < certain);
        (found, certain)
    }

    /// Where secrets stand if nothing follows. So many digits are right `before` it.
    pub fn look_at_all(&self, bytes: &[u8], before: usize) -> Vec<Found<'_>> {
        let found = self.all_in_lines(bytes);
        match self.joined(bytes, before) {
            Some(joined) => merged(found, self.all_in_lines(&joined.text), &joined),
            None => found,
        }
    }

    fn joined(&self, bytes: &[u8], before: usize) -> Option<Joined> {
        self.automaton.as_ref().and_then(|_| Joined::of(bytes, before))
    }

    fn look_at_lines(&self, bytes: &[u8]) -> (Vec<Found<'_>>, usize) {
        let Some(automaton) = &self.automaton else { return (Vec::new(), bytes.len()) };
        let mut certain = self.beginning(bytes, 0);
        let mut found = Vec::new();
        for place in automaton.find_iter(bytes) {
            if place.start() >= certain {
                break;
            }
            let label = &self.labels[place.pattern().as_usize()];
            found.push(Found { start: place.start(), end: place.end(), label });
            if place.end() > certain {
                certain = self.beginning(bytes, place.end());
            }
        }
        (found, certain)
    }

    fn all_in_lines(&self, bytes: &[u8]) -> Vec<Found<'_>> {
        let places = self.automaton.iter().flat_map(|automaton| automaton.find_iter(bytes));
        let found = |place: aho_corasick::Match| Found {
            start: place.start(),
            end: place.end(),
            label: &self.labels[place.pattern().as_usize()],
        };
        places.map(found).collect()
    }

    /// Where the longest end of `bytes`, not before `from`, stands with which some pattern begins and goes on; their
    /// length when none does.
    fn beginning(&self, bytes: &[u8], from: usize) -> usize {
        let from = from.max(bytes.len().saturating_sub(self.longest.saturating_sub(1)));
        let is_beginning =
            |at: &usize| self.first[usize::from(bytes[*at])] && self.is_begun_by(&bytes[*at..]);
        (from..bytes.len()).find(is_beginning).unwrap_or(bytes.len())
    }

    fn is_begun_by(&self, end: &[u8]) -> bool {
        let next = self.sorted.partition_point(|pattern| pattern.as_slice() <= end);
        self.sorted.get(next).is_some_and(|pattern| pattern.starts_with(end))
    }
}

/// The secrets found in a text, and those that were found across breaks of it; where two overlap, the one that begins first.
fn merged<'a>(mut found: Vec<Found<'a>>, more: Vec<Found<'a>>, joined: &Joined) -> Vec<Found<'a>> {
    let across = more.into_iter().filter(|place| joined.is_broken(place.start, place.end));
    found.extend(across.map(|place| Found {
        start: joined.begin(place.start),
        end: joined.end(place.end),
        label: place.label,
    }));
    found.sort_by_key(|place| (place.start, std::cmp::Reverse(place.end)));
    let mut end = 0;
    found.retain(|place| {
        place.start >= end && {
            end = place.end;
            true
        }
    });
    found
}

/// What is shown of `bytes[start..end]`: a secret is named where it begins.
fn shown(bytes: &[u8], found: &[Found<'_>], start: usize, end: usize) -> Vec<u8> {
    let mut shown = Vec::with_capacity(end - start);
    let mut at = start;
    for place in found.iter().filter(|place| place.end > start && place.start < end) {
        if place.start >= start {
            shown.extend_from_slice(&bytes[at..place.start]);
            shown.extend_from_slice(place.label.as_bytes());
        }
        at = place.end.min(end);
    }
    shown.extend_from_slice(&bytes[at..end]);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn patterns(values: &[(&str, &str)]) -> Patterns {
        let secrets = values.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned().into()));
        Patterns::new(&secrets.collect())
    }

    #[test]
    fn texts_lose_every_form_of_a_secret() {
        let patterns = patterns(&[("KEY", "s3cr\"et/+ é"), ("SHORT", "abc")]);
        for text in [
            "x s3cr\"et/+ é y",
            "x s3cr\\\"et/+ é y",
            "x s3cr%22et%2F%2B%20%C3%A9 y",
            "x s3cr%22et%2f%2b+%c3%a9 y",
            "x czNjciJldC8rIMOp y",
            "x 733363722265742f2b20c3a9 y",
            "x 733363722265742F2B20C3A9 y",
        ] {
            let clean = patterns.text(text);
            assert_eq!(clean, "x <redacted:KEY> y", "{text}");
        }
        assert_eq!(patterns.text("abc s3cr"), "abc s3cr");
    }

    #[test]
    fn what_may_go_on_is_not_certain() {
        let patterns = patterns(&[("A", "hunter22"), ("B", "hunter22hunter")]);
        let look = |text: &str| {
            let (found, certain) = patterns.look(text.as_bytes(), 0);
            (found.len(), certain)
        };
        assert_eq!(look("nothing at all"), (0, 14));
        assert_eq!(look("see hun"), (0, 4));
        assert_eq!(look("see hunter22"), (0, 4));
        assert_eq!(look("see hunter22."), (1, 13));
        assert_eq!(look("hunter22hunter"), (1, 14));
        assert_eq!(patterns.look_at_all(b"see hunter22", 0).len(), 1);
    }
}
