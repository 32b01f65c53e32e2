//! `glob` and `grep`: files by their names, lines by their content.
//!
//! Invariant: one process inside does all of it, with the tools that every system has (git, find, grep), so one call is
//! recorded and what is found is what a command inside would find; the answer is bounded, and the process is killed when
//! it is full.

use legion_protocol::PathUri;
use legion_protocol::process::Stream;
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

use super::clip::Clip;
use super::name_pattern::expression;
use super::read::missing;
use super::remote::{Remote, failed, gone};
use super::text::shortened;
use super::{Answer, Answered, ToolError};
use crate::client::Event;
use crate::limits::{
    DEFAULT_TOOL_TIMEOUT, MAX_FOUND, MAX_FOUND_RECORD_BYTES, MAX_LINE_CHARS, MAX_TOOL_OUTPUT_BYTES,
};

/// Lists or searches files; what it takes is said in it.
const SCRIPT: &str = include_str!("search.sh");

/// What is kept of its complaints.
const COMPLAINT_BYTES: usize = 2 << 10;

#[derive(Deserialize)]
pub(super) struct GlobArguments {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct GrepArguments {
    pattern: String,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    include: Option<String>,
}

pub(super) async fn glob(remote: &Remote, arguments: GlobArguments) -> Answered {
    let place = Place::of(remote, arguments.path.as_deref()).await?;
    if let Some(file) = &place.file {
        return Err(ToolError::new(format_args!("{file} is a file: path is the directory to look in")));
    }
    let names = place.expression(&arguments.pattern)?;
    let mut found = Found::until(0);
    search(remote, &place, vec![names], &mut found).await?;
    let mut lines: Vec<String> = found.records.iter().map(|record| place.shown(after_time(record))).collect();
    let count = lines.len();
    if found.more {
        lines.push(format!("(the {count} last changed; there are more: narrow the pattern or the path)"));
    }
    let output = if count == 0 { "No files match".to_owned() } else { lines.join("\n") };
    let metadata = json!({ "path": place.directory.path(), "count": count, "truncated": found.more });
    Ok(Answer { title: arguments.pattern, output, metadata, attachments: Vec::new() })
}

pub(super) async fn grep(remote: &Remote, arguments: GrepArguments) -> Answered {
    let place = Place::of(remote, arguments.path.as_deref()).await?;
    if arguments.pattern.is_empty() || arguments.pattern.contains('\n') {
        return Err(ToolError::new(
            "the pattern is a regular expression for a line: not empty, and of one line",
        ));
    }
    let include = arguments.include.as_deref().filter(|include| !include.is_empty()).unwrap_or("*");
    let names = place.expression(include)?;
    let for_script = [Some(names), Some(arguments.pattern.clone()), place.file.clone()];
    let mut found = Found::until(b'\n');
    search(remote, &place, for_script.into_iter().flatten().collect(), &mut found).await?;
    let matches: Vec<Match> = found.records.iter().filter_map(|record| Match::parse(record)).collect();
    let mut lines = vec![match (matches.len(), found.more) {
        (0, _) => "No matches".to_owned(),
        (count, false) => format!("Found {count} matches"),
        (count, true) => {
            format!(
                "Found more than {count} matches; these are the first: narrow the pattern, path or include"
            )
        }
    }];
    let mut last = None;
    for Match { name, line, text } in &matches {
        if last != Some(name) {
            lines.extend([String::new(), format!("{}:", place.shown(name))]);
            last = Some(name);
        }
        lines.push(format!("  Line {line}: {}", shortened(&String::from_utf8_lossy(text), MAX_LINE_CHARS)));
    }
    let output = lines.join("\n");
    let metadata = json!({ "path": place.directory.path(), "count": matches.len(), "truncated": found.more });
    Ok(Answer { title: arguments.pattern, output, metadata, attachments: Vec::new() })
}

/// Where to search: a directory, or one file in it.
struct Place {
    directory: PathUri,
    file: Option<String>,
}

impl Place {
    async fn of(remote: &Remote, path: Option<&str>) -> Result<Self, ToolError> {
        let path = remote.path(path.filter(|path| !path.is_empty()).unwrap_or("."))?;
        let Some(metadata) = remote.metadata(&path).await? else { return Err(missing(remote, &path).await) };
        let parent = path.path().parent().and_then(PathUri::from_path);
        let name = path.path().file_name().and_then(|name| name.to_str()).map(str::to_owned);
        match (metadata.is_directory, parent, name) {
            (false, Some(directory), Some(name)) => Ok(Self { directory, file: Some(name) }),
            _ => Ok(Self { directory: path, file: None }),
        }
    }

    fn expression(&self, pattern: &str) -> Result<String, ToolError> {
        expression(pattern, self.directory.path()).map_err(ToolError::new)
    }

    /// A name that the script has given, as a path.
    fn shown(&self, name: &[u8]) -> String {
        self.directory.path().join(String::from_utf8_lossy(name).as_ref()).display().to_string()
    }
}

/// What a search has found so far.
struct Found {
    /// Ends a record.
    until: u8,
    records: Vec<Vec<u8>>,
    current: Vec<u8>,
    bytes: usize,
    more: bool,
}

impl Found {
    fn until(until: u8) -> Self {
        Self { until, records: Vec::new(), current: Vec::new(), bytes: 0, more: false }
    }

    /// Takes output; whether there is room for more.
    fn push(&mut self, bytes: &[u8]) -> bool {
        for piece in bytes.split_inclusive(|byte| *byte == self.until) {
            let (text, ends) = match piece.strip_suffix(&[self.until]) {
                Some(text) => (text, true),
                None => (piece, false),
            };
            // The rest of a very long line is not shown anyway.
            let room = MAX_FOUND_RECORD_BYTES.saturating_sub(self.current.len());
            self.current.extend_from_slice(&text[..text.len().min(room)]);
            if ends {
                let record = std::mem::take(&mut self.current);
                self.bytes += record.len();
                if self.records.len() == MAX_FOUND || self.bytes > MAX_TOOL_OUTPUT_BYTES {
                    self.more = true;
                    return false;
                }
                self.records.push(record);
            }
        }
        true
    }
}

/// A line of output of `grep -nHZ`.
struct Match {
    name: Vec<u8>,
    line: u64,
    text: Vec<u8>,
}

impl Match {
    fn parse(record: &[u8]) -> Option<Self> {
        let end = record.iter().position(|byte| *byte == 0)?;
        let (name, rest) = (&record[..end], &record[end + 1..]);
        let colon = rest.iter().position(|byte| *byte == b':')?;
        let line = std::str::from_utf8(&rest[..colon]).ok()?.parse().ok()?;
        let text = rest[colon + 1..].trim_ascii_end().to_vec();
        Some(Self { name: name.to_vec(), line, text })
    }
}

fn after_time(record: &[u8]) -> &[u8] {
    record.iter().position(|byte| *byte == b' ').map_or(record, |at| &record[at + 1..])
}

/// Runs the script until it ends or `found` is full.
async fn search(
    remote: &Remote,
    place: &Place,
    arguments: Vec<String>,
    found: &mut Found,
) -> Result<(), ToolError> {
    let directory = place.directory.path();
    let deadline = Instant::now() + DEFAULT_TOOL_TIMEOUT;
    let fixed = [&remote.client.info().shell.path, "-c", SCRIPT, "search"].map(str::to_owned);
    let argv = fixed.into_iter().chain(arguments).collect();
    let start = remote.start(argv, place.directory.clone());
    let process = remote.client.start(&start).await;
    let mut process = process.map_err(|error| failed("search in", directory, &error))?;
    let mut complaints = Clip::new(COMPLAINT_BYTES);
    let mut exit = 0;
    loop {
        let event = timeout_at(deadline, process.next()).await.map_err(|_| {
            let allowed = DEFAULT_TOOL_TIMEOUT.as_secs();
            ToolError::new(format_args!(
                "the search took longer than {allowed} s: narrow the path or the pattern"
            ))
        })?;
        match event {
            Some(Event::Output(Stream::Stderr, bytes)) => complaints.push(&bytes),
            // Dropping the process kills it.
            Some(Event::Output(_, bytes)) if !found.push(&bytes) => return Ok(()),
            Some(Event::Output(..)) => {}
            Some(Event::Exited { code, .. }) => exit = code,
            Some(Event::Closed) => break,
            None => return Err(gone(&remote.client.why_ended().unwrap_or_default())),
        }
    }
    if found.records.is_empty() && complaints.total() > 0 {
        let complaint = complaints.text();
        return Err(ToolError::new(format_args!("the search failed ({exit}): {}", complaint.trim())));
    }
    Ok(())
}
