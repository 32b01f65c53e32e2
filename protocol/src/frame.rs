//! A frame whose content is kept apart: what a file is to hold may be megabytes, and the JSON parser need not pass over it
//! again and again. The scan that every frame goes through knows where it lies (SPEC 5).
//!
//! Invariant: a [`Frame`] and [`Head::parse`] see the same. A plain string is emptied in the text that is parsed; whether
//! that text is JSON, and what else it says, does not depend on it.

use std::borrow::Cow;

use serde_json::value::RawValue;

use crate::{Head, scan};

/// From this length on content is kept apart: below it a copy of the rest costs more than is saved.
const APART_BYTES: usize = 4 << 10;

/// One message.
#[derive(Debug)]
pub struct Frame<'a> {
    whole: &'a str,
    /// The message with its content emptied, or what is wrong with its shape.
    text: Result<Cow<'a, str>, String>,
    content: Option<&'a str>,
}

impl<'a> Frame<'a> {
    /// Checks the shape of a text and takes its content out.
    pub fn new(whole: &'a str) -> Self {
        match scan::check(whole).map(|content| content.filter(|range| range.len() >= APART_BYTES)) {
            Ok(Some(range)) => Self {
                whole,
                text: Ok(Cow::Owned(whole[..range.start].to_owned() + &whole[range.end..])),
                content: Some(&whole[range]),
            },
            Ok(None) => Self { whole, text: Ok(Cow::Borrowed(whole)), content: None },
            Err(error) => Self { whole, text: Err(error), content: None },
        }
    }

    /// Reads its head.
    ///
    /// # Errors
    /// See [`Head::parse`].
    pub fn head(&self) -> Result<Head<'_>, String> {
        let text = self.text.as_deref().map_err(Clone::clone)?;
        match (Head::of_checked(text), self.content) {
            (Ok(Head::Request { id, method, params: Some(params) }), content) => {
                Ok(Head::Request { id, method, params: Some(Params { content, ..params }) })
            }
            // What is wrong is told with its place in the whole; nothing but a request has use for a content.
            (_, Some(_)) => Head::of_checked(self.whole),
            (head, None) => head,
        }
    }
}

/// Parameters of a request, not yet decoded.
#[derive(Debug, Clone, Copy)]
pub struct Params<'a> {
    json: &'a RawValue,
    content: Option<&'a str>,
}

impl<'a> Params<'a> {
    /// Their JSON text, with an empty string for a content kept apart.
    pub fn get(self) -> &'a str {
        self.json.get()
    }

    /// The string `dataBase64`, when it is kept apart.
    pub fn content(self) -> Option<&'a str> {
        self.content
    }
}

impl<'a> From<&'a RawValue> for Params<'a> {
    fn from(json: &'a RawValue) -> Self {
        Self { json, content: None }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    /// What a frame says, the content back in its place.
    fn said(head: Result<Head<'_>, String>) -> Result<(String, Option<Value>), String> {
        Ok(match head? {
            Head::Request { id, method, params } => {
                let mut json = params.map(|params| serde_json::from_str::<Value>(params.get()).unwrap());
                if let (Some(json), Some(content)) = (&mut json, params.and_then(Params::content)) {
                    assert_eq!(json["dataBase64"], "");
                    json["dataBase64"] = content.into();
                }
                (format!("{id:?} {method}"), json)
            }
            other => (format!("{other:?}"), None),
        })
    }

    #[test]
    fn long_content_is_kept_apart_and_only_that() {
        let long = "x".repeat(APART_BYTES);
        let is_apart = |text: &str| {
            let frame = Frame::new(text);
            assert_eq!(said(frame.head()), said(Head::parse(text)), "{text:.80}");
            frame.content.is_some()
        };
        let request = |params: &str| format!(r#"{{"id":1,"method":"fs/writeFile","params":{params}}}"#);
        assert!(is_apart(&request(&format!(
            r#"{{"path":"file:///a","dataBase64":"{long}","sandbox":null}}"#
        ))));
        for params in [
            format!(r#"{{"dataBase64":"{}"}}"#, &long[1..]),
            format!(r#"{{"data":"{long}"}}"#),
            format!(r#"{{"dataBase64":["{long}"]}}"#),
            format!(r#"[{{"dataBase64":"{long}"}}]"#),
            format!(r#"{{"a":{{"dataBase64":"{long}"}}}}"#),
            format!(r#"{{"dataBase64":"{long}\n"}}"#),
            format!(r#"{{"dataBase64\u0000":"{long}"}}"#),
            format!(r#"["dataBase64","{long}"]"#),
            format!(r#""{long}""#),
        ] {
            assert!(!is_apart(&request(&params)), "{params:.80}");
        }
        assert!(!is_apart(&format!(r#"{{"id":1,"method":"x","dataBase64":"{long}"}}"#)));
    }

    #[test]
    fn what_is_wrong_is_told_as_of_the_whole() {
        let long = "x".repeat(APART_BYTES);
        for text in [
            format!(r#"{{"id":1,"method":"x","params":{{"dataBase64":"{long}"}}"#),
            format!(r#"{{"id":1,"method":"x","params":{{"dataBase64":"{long}"#),
            format!(r#"{{"id":1,"method":"x","params":{{"dataBase64":"{long}"}},"trace":5}}"#),
            format!(r#"{{"id":1,"method":"x","params":{{"dataBase64":"{long}é"#),
            format!("{{\"id\":1,\"method\":\"x\",\"params\":{{\"dataBase64\":\"{long}\n\"}}}}"),
        ] {
            let error = said(Frame::new(&text).head()).unwrap_err();
            assert_eq!(error, said(Head::parse(&text)).unwrap_err(), "{text:.80}");
        }
    }

    proptest! {
        /// Wherever a frame is damaged, it is read as the full parse reads it.
        #[test]
        fn a_frame_agrees_with_the_full_parse(
            more in 0..100usize, before in "(\"path\":\"[a\\\\]?\",)?", after in "(,\"sandbox\":(null|\"\"|\\{\\}))?",
            edits in prop::collection::vec((any::<prop::sample::Index>(), "[{}\\[\\]\",:\\\\aé\n ]{0,2}"), 0..3),
            end in prop::option::of((any::<prop::sample::Index>(), "[xé\"]{0,2}"))
        ) {
            let long = "x".repeat(APART_BYTES + more);
            let mut text = format!(r#"{{"id":1,"method":"fs/writeFile","params":{{{before}"dataBase64":"{long}"{after}}}}}"#);
            for (at, with) in edits {
                // Not inside the content, but for its ends: that is most of the text.
                let places: Vec<usize> = (0..=text.len()).filter(|at| text.is_char_boundary(*at) && text.get(at.saturating_sub(2)..(at + 2).min(text.len())) != Some("xxxx")).collect();
                let at = places[at.index(places.len())];
                let end = text.ceil_char_boundary((at + with.len() % 2).min(text.len()));
                text.replace_range(at..end, &with);
            }
            // Cut off within the content, or behind it.
            if let Some((at, with)) = end {
                text.truncate(text.floor_char_boundary(APART_BYTES + at.index(text.len() - APART_BYTES)));
                text.push_str(&with);
            }
            prop_assert_eq!(said(Frame::new(&text).head()), said(Head::parse(&text)));
        }
    }
}
