//! Searching the log: which records somebody asks for. Pure.
//!
//! An outcome is found by what its call was about, and any record of a session by the session's persona.

use std::collections::HashMap;

use jiff::Timestamp;
use serde_json::Value;

use crate::limits::MAX_TRACKED_PROCESSES;

/// What the records must be like; each part that is given must fit.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// Not before.
    pub since: Option<Timestamp>,
    /// Not after.
    pub until: Option<Timestamp>,
    /// Members whose whole text must be this: `session`, `persona`, `method`, `event`, `decision`, `rule`.
    pub equal: Vec<(&'static str, String)>,
    /// A path of the call, or a directory above it.
    pub path: Option<String>,
    /// The host of an HTTP request, or a domain above it.
    pub host: Option<String>,
    /// A part of the command line.
    pub argv: Option<String>,
    /// Of a command that has ended.
    pub exit_code: Option<i64>,
}

/// A search under way: records must pass in their order.
#[derive(Debug, Default)]
pub struct Search {
    filter: Filter,
    personas: HashMap<String, Value>,
    /// What calls without an outcome yet are about, by their number.
    calls: HashMap<u64, [Value; 3]>,
}

/// What an outcome has of its call.
const INHERITED: [&str; 3] = ["object", "decision", "rule"];

impl Search {
    /// A search for these.
    pub fn new(filter: Filter) -> Self {
        Self { filter, ..Self::default() }
    }

    /// Whether a record is asked for. It gets what it has of its call and its session.
    pub fn admits(&mut self, record: &mut Value) -> bool {
        self.inherit(record);
        let filter = &self.filter;
        let time = || record["time"].as_str().and_then(|time| time.parse::<Timestamp>().ok());
        let in_time = (filter.since.is_none() && filter.until.is_none())
            || time().is_some_and(|time| {
                filter.since.is_none_or(|since| time >= since)
                    && filter.until.is_none_or(|until| time <= until)
            });
        let object = &record["object"];
        in_time
            && filter.equal.iter().all(|(name, wanted)| record[*name] == wanted.as_str())
            && filter.path.as_ref().is_none_or(|wanted| {
                ["path", "destination"].iter().any(|name| is_below(object[*name].as_str(), wanted, '/'))
            })
            && filter.host.as_ref().is_none_or(|wanted| {
                let reversed =
                    |host: &str| host.to_ascii_lowercase().split('.').rev().collect::<Vec<_>>().join(".");
                let host = object["url"].as_str().and_then(host_of).map(reversed);
                is_below(host.as_deref(), &reversed(wanted), '.')
            })
            && filter
                .argv
                .as_ref()
                .is_none_or(|wanted| command_line(object).is_some_and(|line| line.contains(wanted)))
            && filter.exit_code.is_none_or(|wanted| record["outcome"]["exitCode"] == wanted)
    }

    fn inherit(&mut self, record: &mut Value) {
        if let Some(session) = record["session"].as_str().map(str::to_owned) {
            if record["persona"].is_string() {
                self.personas.insert(session, record["persona"].clone());
            } else if let Some(persona) = self.personas.get(&session) {
                record["persona"] = persona.clone();
            }
        }
        if record["event"] == "call"
            && let Some(seq) = record["seq"].as_u64()
            && self.calls.len() < MAX_TRACKED_PROCESSES
        {
            self.calls.insert(seq, INHERITED.map(|name| record[name].clone()));
        } else if record["event"] == "outcome"
            && let Some(parts) = record["call"].as_u64().and_then(|call| self.calls.remove(&call))
        {
            for (name, part) in INHERITED.into_iter().zip(parts) {
                if record[name].is_null() && !part.is_null() {
                    record[name] = part;
                }
            }
        }
    }
}

/// The command as one text.
pub fn command_line(object: &Value) -> Option<String> {
    let words = object["argv"].as_array()?.iter().filter_map(Value::as_str);
    Some(words.collect::<Vec<_>>().join(" "))
}

/// `METHOD scheme://user@host:port/path`
pub fn host_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    match host.strip_prefix('[') {
        Some(address) => address.split(']').next(),
        None => host.split(':').next(),
    }
}

fn is_below(text: Option<&str>, above: &str, separator: char) -> bool {
    let above = above.strip_suffix(separator).unwrap_or(above);
    text.and_then(|text| text.strip_prefix(above))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(separator))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn log() -> Vec<Value> {
        vec![
            json!({"seq":1,"time":"2026-11-29T10:00:00Z","event":"sessionStarted","session":"a","persona":"p"}),
            json!({"seq":2,"time":"2026-11-29T10:00:01Z","event":"call","session":"a","decision":"allow",
                   "method":"process/start","object":{"argv":["cargo","test"],"cwd":"/w"}}),
            json!({"seq":3,"time":"2026-11-29T10:00:02Z","event":"call","session":"a","decision":"deny",
                   "method":"fs/remove","rule":"r1","object":{"path":"/w/src/a.rs"}}),
            json!({"seq":4,"time":"2026-11-29T10:00:03Z","event":"call","session":"b","decision":"allow",
                   "method":"http/request","object":{"url":"GET https://u@API.example.com:8443/x?y"}}),
            json!({"seq":5,"time":"2026-11-29T10:00:04Z","event":"outcome","session":"a","call":2,
                   "outcome":{"exitCode":101}}),
        ]
    }

    fn found(filter: Filter) -> Vec<u64> {
        let mut search = Search::new(filter);
        let admitted = log()
            .into_iter()
            .filter_map(|mut record| search.admits(&mut record).then(|| record["seq"].as_u64()));
        admitted.flatten().collect()
    }

    fn equal(name: &'static str, value: &str) -> Filter {
        Filter { equal: vec![(name, value.to_owned())], ..Filter::default() }
    }

    #[test]
    fn each_part_finds_what_it_names() {
        assert_eq!(found(Filter::default()), [1, 2, 3, 4, 5]);
        assert_eq!(found(equal("persona", "p")), [1, 2, 3, 5]);
        assert_eq!(found(equal("decision", "deny")), [3]);
        assert_eq!(found(equal("rule", "r1")), [3]);
        let time = |text: &str| Some(text.parse().unwrap());
        let filter = Filter {
            since: time("2026-11-29T10:00:02Z"),
            until: time("2026-11-29T10:00:03Z"),
            ..Filter::default()
        };
        assert_eq!(found(filter), [3, 4]);
        assert_eq!(found(Filter { argv: Some("go test".into()), ..Filter::default() }), [2, 5]);
        assert_eq!(found(Filter { exit_code: Some(101), ..Filter::default() }), [5]);
        for (path, seqs) in [("/w/src", &[3][..]), ("/w/src/", &[3]), ("/w/sr", &[]), ("/w/src/a.rs", &[3])] {
            assert_eq!(found(Filter { path: Some(path.into()), ..Filter::default() }), seqs, "{path}");
        }
        for (host, seqs) in [("example.com", &[4][..]), ("api.example.com", &[4]), ("ample.com", &[])] {
            assert_eq!(found(Filter { host: Some(host.into()), ..Filter::default() }), seqs, "{host}");
        }
    }

    #[test]
    fn hosts_are_read_out_of_any_url() {
        assert_eq!(host_of("GET http://[::1]:80/a"), Some("::1"));
        assert_eq!(host_of("GET http://a@b@c/"), Some("c"));
        assert_eq!(host_of("nonsense"), None);
    }
}
