//! Known secret values are replaced by `<redacted:NAME>` before anything becomes a record.

use std::borrow::Cow;

use ring::digest;

use super::chain::hex;
use super::record::Record;
use crate::limits::{MAX_RECORD_ITEMS, MAX_RECORD_TEXT_BYTES};
use crate::redaction::Patterns;
use crate::secret::Secrets;

/// Makes texts fit for a record: redacted, then bounded.
#[derive(Debug, Default)]
pub struct Redactor {
    patterns: Patterns,
}

impl Redactor {
    /// Looks for every value of `.env` that is long enough to be told from ordinary text.
    pub fn new(secrets: &Secrets) -> Self {
        Self { patterns: Patterns::new(secrets) }
    }

    /// What it looks for.
    pub fn patterns(&self) -> &Patterns {
        &self.patterns
    }

    /// The text without secrets, at most [`MAX_RECORD_TEXT_BYTES`] long; of what is cut, length and hash are told.
    pub fn text(&self, text: &str) -> String {
        bounded(self.patterns.text(text))
    }

    /// The record without secrets in what nobody has looked through yet: the texts of our own words.
    pub fn record<'r>(&self, record: &'r Record) -> Cow<'r, Record> {
        let is_clean = |text: &String| self.is_clean(text);
        let texts = [&record.reason, &record.workspace, &record.persona, &record.rule];
        if texts.into_iter().flatten().all(is_clean) && record.notes.iter().all(is_clean) {
            return Cow::Borrowed(record);
        }
        let mut record = record.clone();
        let texts = [&mut record.reason, &mut record.workspace, &mut record.persona, &mut record.rule];
        for text in texts.into_iter().flatten().chain(&mut record.notes) {
            *text = self.text(text);
        }
        Cow::Owned(record)
    }

    fn is_clean(&self, text: &str) -> bool {
        text.len() <= MAX_RECORD_TEXT_BYTES && matches!(self.patterns.text(text), Cow::Borrowed(_))
    }
    /// The texts, without secrets also where they are put together as a command line, each bounded as by [`Self::text`]; beyond [`MAX_RECORD_ITEMS`] only their number is told.
    pub fn list<'a>(&self, texts: impl ExactSizeIterator<Item = &'a str>) -> Vec<String> {
        let count = texts.len();
        let texts: Vec<&str> = texts.take(MAX_RECORD_ITEMS).collect();
        let clean = self.patterns.texts(&texts);
        let mut list: Vec<String> = clean.into_iter().map(bounded).collect();
        if count > MAX_RECORD_ITEMS {
            list.push(format!("…[{} items cut]", count - MAX_RECORD_ITEMS));
        }
        list
    }
}

fn bounded(text: Cow<'_, str>) -> String {
    if text.len() <= MAX_RECORD_TEXT_BYTES {
        return text.into_owned();
    }
    let mut end = MAX_RECORD_TEXT_BYTES;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let (kept, cut) = text.split_at(end);
    let hash = digest::digest(&digest::SHA256, cut.as_bytes());
    format!("{kept}…[{} bytes cut, sha256 {}]", cut.len(), hex(hash.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_and_long_texts_are_cut_with_their_hash() {
        let secrets = Secrets::from([
            ("KEY".to_owned(), "hunter22".to_owned().into()),
            ("PHRASE".to_owned(), "correct horse".to_owned().into()),
            ("SHORT".to_owned(), "1".to_owned().into()),
        ]);
        let redactor = Redactor::new(&secrets);
        assert_eq!(redactor.text("curl -H hunter22 1"), "curl -H <redacted:KEY> 1");
        let words = ["say", "correct", "horse", "hunter22", "correct"];
        assert_eq!(
            redactor.list(words.into_iter()),
            ["say", "<redacted:PHRASE>", "", "<redacted:KEY>", "correct"]
        );
        let long = "é".repeat(MAX_RECORD_TEXT_BYTES);
        let cut = redactor.text(&long);
        assert!(
            cut.len() < MAX_RECORD_TEXT_BYTES + 120 && cut.contains("8192 bytes cut, sha256 "),
            "{}",
            cut.len()
        );
        let many = vec!["x"; MAX_RECORD_ITEMS + 3];
        assert_eq!(redactor.list(many.into_iter()).last().unwrap(), "…[3 items cut]");
    }
}
