//! The hash chain (security.md 7): `{"e":{…},"p":<previous hash>,"h":<hash>}`, one record a line, where the hash is
//! SHA-256 over the previous hash as hex text, a line feed, and the exact bytes of `e`. Pure.
//!
//! The chain shows changes, removals and reordering. It cannot show a cut tail: for that a head must be kept elsewhere. A
//! chain whose tail was lost goes on from that head with a `gap` record that says which records are missing.

use std::borrow::Cow;

use ring::digest;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::mark::Range;

/// The hash before the first record.
pub const GENESIS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// The hash of a record after `previous`.
pub fn link(previous: &str, entry: &str) -> String {
    let mut context = digest::Context::new(&digest::SHA256);
    context.update(previous.as_bytes());
    context.update(b"\n");
    context.update(entry.as_bytes());
    hex(context.finish().as_ref())
}

/// The line of a record, its line feed included.
pub fn line(entry: &str, previous: &str, hash: &str) -> String {
    format!("{{\"e\":{entry},\"p\":\"{previous}\",\"h\":\"{hash}\"}}\n")
}

/// A line taken apart.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line<'a> {
    /// The record's exact bytes.
    #[serde(borrow)]
    pub e: &'a RawValue,
    /// Hash of the record before.
    pub p: &'a str,
    /// Hash of this record.
    pub h: &'a str,
}

/// What the chain itself reads of a record.
#[derive(Debug, Deserialize)]
pub struct Marked<'a> {
    /// Its number.
    pub seq: u64,
    /// What happened.
    #[serde(borrow, default)]
    pub event: Cow<'a, str>,
    /// What the log says of itself.
    #[serde(borrow, default)]
    pub log: Option<&'a RawValue>,
}

impl Marked<'_> {
    /// The mark of a record of the log's own.
    ///
    /// # Errors
    /// One line when there is none, or one of another kind.
    pub fn mark<T: for<'de> Deserialize<'de>>(&self) -> Result<T, String> {
        serde_json::from_str(self.log.map_or("null", RawValue::get))
            .map_err(|error| format!("record {} does not say what it must: {error}", self.seq))
    }
}

impl<'a> Line<'a> {
    /// Takes a line apart; it may end in a line feed.
    pub fn parse(text: &'a str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("it is no audit record: {error}"))
    }

    /// The record's number and kind.
    pub fn marked(&self) -> Result<Marked<'a>, String> {
        serde_json::from_str(self.e.get()).map_err(|error| format!("it has no number: {error}"))
    }
}

/// The end of a chain so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Number of the last record; 0 before the first.
    pub seq: u64,
    /// Its hash.
    pub hash: String,
}

impl Default for Head {
    fn default() -> Self {
        Self { seq: 0, hash: GENESIS.to_owned() }
    }
}

impl Head {
    /// The head after one more line.
    ///
    /// # Errors
    /// One line that says what does not fit.
    pub fn follow(&self, line: &Line<'_>, marked: &Marked<'_>) -> Result<Self, String> {
        let seq = marked.seq;
        if marked.event == "gap" {
            let missing: Range = marked.mark()?;
            let fits = missing.from == self.seq + 1
                && missing.to >= missing.from
                && missing.to + 1 == seq
                && missing.after.as_deref() == Some(&self.hash);
            if !fits {
                return Err(format!("record {seq} tells of another gap than the one before it"));
            }
        } else if seq != self.seq + 1 {
            return Err(format!("record {} should follow, but this is record {seq}", self.seq + 1));
        } else if line.p != self.hash {
            return Err(format!(
                "record {seq} does not follow the record before it: its previous hash differs"
            ));
        }
        let hash = link(line.p, line.e.get());
        if hash != line.h {
            return Err(format!("record {seq} was changed: its hash does not match its content"));
        }
        Ok(Self { seq, hash })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chain(count: u64) -> Vec<String> {
        let mut previous = GENESIS.to_owned();
        (1..=count)
            .map(|seq| {
                let entry = format!("{{\"seq\":{seq},\"text\":\"n{seq}\"}}");
                let hash = link(&previous, &entry);
                let text = line(&entry, &previous, &hash);
                previous = hash;
                text
            })
            .collect()
    }

    fn verify(lines: &[String]) -> Result<Head, String> {
        lines.iter().try_fold(Head::default(), |head, text| {
            let line = Line::parse(text)?;
            head.follow(&line, &line.marked()?)
        })
    }

    #[test]
    fn a_whole_chain_verifies_and_its_head_is_the_last_record() {
        let lines = chain(5);
        let head = verify(&lines).unwrap();
        assert_eq!(head.seq, 5);
        assert!(lines[4].contains(&head.hash));
        assert_eq!(verify(&[]).unwrap(), Head::default());
    }

    #[test]
    fn hex_is_lower_case_and_in_order() {
        assert_eq!(hex(&[0x00, 0x1f, 0xa0, 0xff]), "001fa0ff");
    }

    #[test]
    fn a_gap_is_accepted_only_where_it_says_what_is_missing() {
        let lines = chain(3);
        let head = verify(&lines).unwrap();
        let gap = |seq: u64, from: u64, to: u64, after: &str| {
            let entry = format!(
                r#"{{"seq":{seq},"event":"gap","log":{{"from":{from},"to":{to},"after":"{after}"}}}}"#
            );
            let text = line(&entry, "kept elsewhere", &link("kept elsewhere", &entry));
            verify(&[lines.clone(), vec![text]].concat()).is_ok()
        };
        assert!(gap(9, 4, 8, &head.hash));
        assert!(!gap(9, 4, 8, "another") && !gap(9, 3, 8, &head.hash) && !gap(9, 4, 9, &head.hash));
        assert!(!gap(4, 4, 3, &head.hash));
    }

    proptest! {
        /// Any single changed byte breaks the chain or is not even a record any more.
        #[test]
        fn a_changed_byte_is_found(at in 0usize..600, with in 0x20u8..0x7f) {
            let mut lines = chain(3);
            let joined: String = lines.concat();
            let at = at % joined.len();
            let mut bytes = joined.clone().into_bytes();
            prop_assume!(bytes[at] != with && bytes[at] != b'\n');
            bytes[at] = with;
            lines = String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect();
            prop_assert!(verify(&lines).is_err());
        }

        /// So is a removed or moved line, unless the tail alone is cut.
        #[test]
        fn a_removed_or_moved_line_is_found(from in 0usize..6, to in 0usize..6) {
            let lines = chain(6);
            let mut moved = lines.clone();
            let line = moved.remove(from);
            prop_assert_eq!(verify(&moved).is_ok(), from == 5);
            moved.insert(to, line);
            prop_assert_eq!(verify(&moved).is_ok(), from == to);
        }
    }
}
