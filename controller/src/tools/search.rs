//! `glob` and `grep`: files by their names, lines by their content.
//!
//! Invariant: programs of the sandbox do the work, each started with its plain arguments, so the policy and the audit see
//! what is searched, and what is found is what a command inside would find. Git is asked first, because it knows what is
//! to be ignored; without it find and grep look at everything. The answer is bounded and says when there is more.

use std::collections::HashMap;

use legion_protocol::PathUri;
use serde::Deserialize;
use serde_json::json;

use super::name_pattern::NamePattern;
use super::read::missing;
use super::records::{self, Ended, NOT_FOUND};
use super::remote::Remote;
use super::text::shortened;
use super::{Answer, Answered, ToolError};
use crate::limits::{MAX_FOUND, MAX_LINE_CHARS, MAX_SORTED, MAX_SORTED_BYTES, MAX_TOOL_OUTPUT_BYTES};

/// `git check-ignore` says that a path of a repository is not ignored.
const NOT_IGNORED: i32 = 1;

/// Whatever the configuration of the repository says about the output.
const PLAIN_OUTPUT: [&str; 5] =
    ["-nIzP", "--no-color", "--no-column", "--no-full-name", "--no-recurse-submodules"];

const LIST_BY_GIT: [&str; 6] = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"];

const LIST_ALL: [&str; 10] = ["find", ".", "-name", ".git", "-prune", "-o", "-type", "f", "-printf", "%P\\0"];

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
    let pattern = place.pattern(&arguments.pattern)?;
    let (mut names, mut bytes, mut more) = (Vec::new(), 0, false);
    let mut take = |name: &[u8]| {
        // In a conflict git lists a file several times.
        if pattern.matches(name) && names.last().is_none_or(|last| last != name) {
            bytes += name.len();
            more = names.len() >= MAX_SORTED || bytes > MAX_SORTED_BYTES;
            if !more {
                names.push(name.to_vec());
            }
        }
        !more
    };
    let argv: &[&str] = if place.is_in_repository(remote).await? { &LIST_BY_GIT } else { &LIST_ALL };
    let ended = records::run(remote, &place.directory, argv, 0, &mut take).await?;
    failed(&ended, names.is_empty())?;
    let mut names = place.newest(remote, names).await?;
    more |= names.len() > MAX_FOUND;
    names.truncate(MAX_FOUND);
    let mut lines: Vec<String> = names.iter().map(|name| place.shown(name)).collect();
    if lines.is_empty() {
        lines.push("No files match".to_owned());
    }
    if more {
        lines.push(format!(
            "(the {} last changed; there are more: narrow the pattern or the path)",
            names.len()
        ));
    }
    let metadata = json!({ "path": place.directory.path(), "count": names.len(), "truncated": more });
    let output = lines.join("\n");
    Ok(Answer { title: arguments.pattern, output, metadata, ..Answer::default() })
}

pub(super) async fn grep(remote: &Remote, arguments: GrepArguments) -> Answered {
    let place = Place::of(remote, arguments.path.as_deref()).await?;
    if arguments.pattern.is_empty() || arguments.pattern.contains(['\n', '\0']) {
        return Err(ToolError::new(
            "the pattern is a regular expression for a line: not empty, and of one line",
        ));
    }
    let include = arguments.include.as_deref().filter(|include| !include.is_empty());
    let include = include.map(|include| place.pattern(include)).transpose()?;
    let mut found = Found::default();
    let mut take = |record: &[u8]| match Match::parse(record) {
        Some(found_here) if include.as_ref().is_none_or(|include| include.matches(&found_here.name)) => {
            found.push(found_here)
        }
        _ => true,
    };
    let within = if place.file.is_none() && place.is_in_repository(remote).await? {
        "--untracked"
    } else {
        "--no-index"
    };
    let mut argv = [&["git", "grep", within], &PLAIN_OUTPUT[..], &["-e", &arguments.pattern, "--"]].concat();
    let specs = match &place.file {
        Some(file) => vec![format!(":(literal){file}")],
        None => include.as_ref().map(NamePattern::pathspecs).unwrap_or_default(),
    };
    argv.extend(specs.iter().map(String::as_str));
    let mut ended = records::run(remote, &place.directory, &argv, b'\n', &mut take).await?;
    if ended.code == NOT_FOUND {
        let start = place.file.as_deref().unwrap_or(".");
        let argv = [
            "grep",
            "-rnHIsZP",
            "--exclude-dir=.git",
            "--color=never",
            "-e",
            &arguments.pattern,
            "--",
            start,
        ];
        ended = records::run(remote, &place.directory, &argv, b'\n', &mut take).await?;
    }
    failed(&ended, found.matches.is_empty())?;
    found.sort(&place, remote).await?;
    let output = found.text(&place);
    let metadata =
        json!({ "path": place.directory.path(), "count": found.matches.len(), "truncated": found.more });
    Ok(Answer { title: arguments.pattern, output, metadata, ..Answer::default() })
}

/// Nothing found and something to complain about is no answer.
fn failed(ended: &Ended, found_nothing: bool) -> Result<(), ToolError> {
    if found_nothing && !ended.complaint.is_empty() {
        return Err(ToolError::new(format_args!("the search failed: {}", ended.complaint)));
    }
    Ok(())
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

    fn pattern(&self, pattern: &str) -> Result<NamePattern, ToolError> {
        NamePattern::new(pattern, self.directory.path()).map_err(ToolError::new)
    }

    /// A name relative to the directory as a path.
    fn shown(&self, name: &[u8]) -> String {
        self.directory.path().join(String::from_utf8_lossy(name).as_ref()).display().to_string()
    }

    /// Whether git has something to say about what is in the directory.
    async fn is_in_repository(&self, remote: &Remote) -> Result<bool, ToolError> {
        let argv = ["git", "check-ignore", "-q", "."];
        Ok(records::run(remote, &self.directory, &argv, 0, |_| true).await?.code == NOT_IGNORED)
    }

    /// The regular files among these, the last changed first.
    async fn newest(&self, remote: &Remote, names: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, ToolError> {
        let utf8 = names.iter().filter_map(|name| std::str::from_utf8(name).ok());
        let argv: Vec<&str> = ["stat", "--printf=%.9Y %f %n\\0", "--"].into_iter().chain(utf8).collect();
        if argv.len() == 3 {
            return Ok(names);
        }
        let mut changed: HashMap<Vec<u8>, Option<f64>> = HashMap::new();
        let ended = records::run(remote, &self.directory, &argv, 0, |record| {
            let text = String::from_utf8_lossy(record);
            if let [time, mode, name] = text.splitn(3, ' ').collect::<Vec<_>>()[..] {
                // The locale may have a comma in numbers. A mode of 8… is that of a regular file.
                let time = time.replace(',', ".").parse().ok();
                changed.insert(name.as_bytes().to_vec(), time.filter(|_| mode.starts_with('8')));
            }
            true
        });
        let ended = ended.await?;
        if changed.is_empty() && ended.code == NOT_FOUND {
            return Ok(names);
        }
        // What has no UTF-8 name could not be asked about; it comes last.
        let time = |name: &Vec<u8>| match changed.get(name) {
            Some(time) => *time,
            None => std::str::from_utf8(name).is_err().then_some(f64::MIN),
        };
        let mut names: Vec<_> = names.into_iter().filter_map(|name| Some((time(&name)?, name))).collect();
        names.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        Ok(names.into_iter().map(|(_, name)| name).collect())
    }
}

/// A line of output of `git grep -nz`, or of `grep -nHZ`.
struct Match {
    name: Vec<u8>,
    line: u64,
    text: Vec<u8>,
}

impl Match {
    fn parse(record: &[u8]) -> Option<Self> {
        let end = memchr::memchr(0, record)?;
        let (name, rest) = (&record[..end], &record[end + 1..]);
        let colon = memchr::memchr2(0, b':', rest)?;
        let line = std::str::from_utf8(&rest[..colon]).ok()?.parse().ok()?;
        let name = name.strip_prefix(b"./").unwrap_or(name);
        Some(Self { name: name.to_vec(), line, text: rest[colon + 1..].trim_ascii_end().to_vec() })
    }
}

#[derive(Default)]
struct Found {
    matches: Vec<Match>,
    bytes: usize,
    more: bool,
}

impl Found {
    /// Whether there is room for more.
    fn push(&mut self, found: Match) -> bool {
        self.bytes += found.text.len() + found.name.len();
        self.more = self.matches.len() >= MAX_SORTED || self.bytes > MAX_SORTED_BYTES;
        if !self.more {
            self.matches.push(found);
        }
        !self.more
    }

    /// The last changed files first; what is too much is left out.
    async fn sort(&mut self, place: &Place, remote: &Remote) -> Result<(), ToolError> {
        let mut names: Vec<Vec<u8>> = self.matches.iter().map(|found| found.name.clone()).collect();
        names.dedup();
        let names = place.newest(remote, names).await?;
        let rank: HashMap<&[u8], usize> =
            names.iter().enumerate().map(|(at, name)| (name.as_slice(), at)).collect();
        self.matches.sort_by_key(|found| rank.get(found.name.as_slice()).copied().unwrap_or(usize::MAX));
        self.more |= self.matches.len() > MAX_FOUND;
        self.matches.truncate(MAX_FOUND);
        Ok(())
    }

    fn text(&mut self, place: &Place) -> String {
        let (mut lines, mut bytes, mut last) = (Vec::new(), 0, None);
        let mut shown = 0;
        for Match { name, line, text } in &self.matches {
            let line =
                format!("  Line {line}: {}", shortened(&String::from_utf8_lossy(text), MAX_LINE_CHARS));
            bytes += line.len();
            if bytes > MAX_TOOL_OUTPUT_BYTES {
                self.more = true;
                break;
            }
            if last != Some(name) {
                lines.extend([String::new(), format!("{}:", place.shown(name))]);
                last = Some(name);
            }
            lines.push(line);
            shown += 1;
        }
        let head = match (shown, self.more) {
            (0, _) => "No matches".to_owned(),
            (count, false) => format!("Found {count} matches"),
            (count, true) => format!("Found more than {count} matches; narrow the pattern, path or include"),
        };
        lines.insert(0, head);
        lines.join("\n")
    }
}
