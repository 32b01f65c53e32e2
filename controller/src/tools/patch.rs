//! The patch format that models know from Codex: parsing it, and applying its changes to the bytes of a file.
//!
//! Invariant: pure; lines that a change does not touch keep their bytes, their line ends, and whether the last one has a
//! line end at all.

use super::replace::mostly_crlf;

/// Lines of a change that are shown when it does not fit.
const SHOWN_LINES: usize = 3;

/// What a patch does with one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Add { path: String, content: String },
    Delete { path: String },
    Update { path: String, move_to: Option<String>, changes: Vec<Change> },
}

/// One place in a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Lines before the place, one after the other.
    anchors: Vec<String>,
    lines: Vec<(Kind, String)>,
    /// It is at the end of the file.
    at_end: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stays,
    Goes,
    Comes,
}

/// The operations of a patch in their order.
///
/// # Errors
/// One line that says what is wrong with which line of the patch.
pub(super) fn parse(text: &str) -> Result<Vec<Operation>, String> {
    let text = text.replace("\r\n", "\n");
    let lines: Vec<&str> = text.split('\n').collect();
    let begin = lines.iter().position(|line| line.trim() == "*** Begin Patch");
    let begin = begin.ok_or("a patch begins with the line `*** Begin Patch`")?;
    let end = lines.iter().rposition(|line| line.trim() == "*** End Patch").filter(|end| *end > begin);
    let end = end.ok_or("a patch ends with the line `*** End Patch`")?;
    let mut operations = Vec::new();
    let mut at = begin + 1;
    while at < end {
        let line = lines[at].trim_end();
        let number = at + 1;
        let body_end = lines[at + 1..end].iter().position(|line| is_header(line)).map_or(end, |n| at + 1 + n);
        let body = &lines[at + 1..body_end];
        let path = |prefix: &str| line.strip_prefix(prefix).map(|path| path.trim().to_owned());
        let operation = if let Some(path) = path("*** Add File:") {
            Operation::Add { path, content: added(body, number)? }
        } else if let Some(path) = path("*** Delete File:") {
            if let Some(extra) = body.iter().position(|line| !line.trim().is_empty()) {
                return Err(format!("line {}: a file that is deleted has no lines", number + 1 + extra));
            }
            Operation::Delete { path }
        } else if let Some(path) = path("*** Update File:") {
            update(path, body, number)?
        } else if line.is_empty() {
            at += 1;
            continue;
        } else {
            return Err(format!(
                "line {number}: `{line}` is none of `*** Add File:`, `*** Update File:` and `*** Delete File:`"
            ));
        };
        operations.push(operation);
        at = body_end;
    }
    if operations.is_empty() { Err("the patch changes nothing".to_owned()) } else { Ok(operations) }
}

fn is_header(line: &str) -> bool {
    ["*** Add File:", "*** Delete File:", "*** Update File:"].iter().any(|header| line.starts_with(header))
}

fn added(body: &[&str], number: usize) -> Result<String, String> {
    let mut content = String::new();
    // Blank lines before the next header are for the eye.
    let length = body.iter().rposition(|line| !line.trim().is_empty()).map_or(0, |last| last + 1);
    for (index, line) in body[..length].iter().enumerate() {
        let line = line
            .strip_prefix('+')
            .ok_or_else(|| format!("line {}: each line of a new file begins with `+`", number + 1 + index))?;
        content.push_str(line);
        content.push('\n');
    }
    Ok(content)
}

fn update(path: String, body: &[&str], number: usize) -> Result<Operation, String> {
    let mut move_to = None;
    let mut changes: Vec<Change> = Vec::new();
    let mut current = Change::default();
    let mut finish = |current: &mut Change| {
        if !current.lines.is_empty() {
            changes.push(std::mem::take(current));
        }
    };
    for (index, line) in body.iter().enumerate() {
        if index == 0
            && let Some(to) = line.strip_prefix("*** Move to:")
        {
            move_to = Some(to.trim().to_owned());
        } else if line.trim_end() == "*** End of File" {
            current.at_end = true;
        } else if line.trim_end() == "@@" {
            finish(&mut current);
        } else if let Some(anchor) = line.strip_prefix("@@ ") {
            finish(&mut current);
            current.anchors.push(anchor.to_owned());
        } else {
            let (kind, rest) = match line.chars().next() {
                None => (Kind::Stays, ""),
                Some(' ') => (Kind::Stays, &line[1..]),
                Some('-') => (Kind::Goes, &line[1..]),
                Some('+') => (Kind::Comes, &line[1..]),
                Some(_) => {
                    return Err(format!(
                        "line {}: a line of a change begins with a space, `-` or `+`: `{line}`",
                        number + 1 + index
                    ));
                }
            };
            current.lines.push((kind, rest.to_owned()));
        }
    }
    finish(&mut current);
    if changes.is_empty() && move_to.is_none() {
        return Err(format!("line {number}: no change is given for {path}"));
    }
    Ok(Operation::Update { path, move_to, changes })
}

/// A line of a file and what ends it.
#[derive(Clone, Copy)]
struct Line<'a> {
    text: &'a [u8],
    end: &'a [u8],
}

fn lines(content: &[u8]) -> Vec<Line<'_>> {
    content
        .split_inclusive(|byte| *byte == b'\n')
        .map(|line| {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            let text = if text.len() < line.len() { text.strip_suffix(b"\r").unwrap_or(text) } else { text };
            Line { text, end: &line[text.len()..] }
        })
        .collect()
}

/// The content with all changes made, each after the one before.
///
/// # Errors
/// One text that shows the lines which are not in the file.
pub(super) fn apply(content: &[u8], changes: &[Change]) -> Result<Vec<u8>, String> {
    let old = lines(content);
    let end: &[u8] = if mostly_crlf(content) { b"\r\n" } else { b"\n" };
    let mut new: Vec<Line<'_>> = Vec::with_capacity(old.len());
    let mut at = 0;
    for (index, change) in changes.iter().enumerate() {
        let (place, length) =
            find(&old, at, change).map_err(|what| format!("change {}: {what}", index + 1))?;
        new.extend_from_slice(&old[at..place]);
        at = place;
        for (kind, text) in &change.lines {
            match kind {
                Kind::Comes => new.push(Line { text: text.as_bytes(), end }),
                // Blank lines at its end may have been left out to find the place.
                Kind::Stays if at < place + length => {
                    new.push(old[at]);
                    at += 1;
                }
                Kind::Goes if at < place + length => at += 1,
                Kind::Stays | Kind::Goes => {}
            }
        }
    }
    new.extend_from_slice(&old[at..]);
    let last_has_end = old.last().is_none_or(|line| !line.end.is_empty());
    let mut result = Vec::with_capacity(content.len());
    for (index, line) in new.iter().enumerate() {
        result.extend_from_slice(line.text);
        let is_last = index + 1 == new.len();
        match (is_last, line.end.is_empty()) {
            (true, _) if !last_has_end => {}
            (_, true) => result.extend_from_slice(end),
            (_, false) => result.extend_from_slice(line.end),
        }
    }
    Ok(result)
}

/// Where the lines of a change begin, from `from` on, and how many there are.
fn find(old: &[Line<'_>], from: usize, change: &Change) -> Result<(usize, usize), String> {
    let mut from = from;
    for anchor in &change.anchors {
        let place = seek(old, from, &[anchor.as_str()])
            .ok_or_else(|| format!("there is no line `{anchor}` after the change before"))?;
        from = place + 1;
    }
    let wanted = change.lines.iter().filter(|(kind, _)| *kind != Kind::Comes);
    let mut wanted: Vec<&str> = wanted.map(|(_, text)| text.as_str()).collect();
    if wanted.is_empty() {
        // Nothing to be found by: behind its anchor, or at the end.
        let place = if change.anchors.is_empty() || change.at_end { old.len() } else { from };
        return Ok((place, 0));
    }
    loop {
        let tail = old.len().checked_sub(wanted.len()).filter(|start| change.at_end && *start >= from);
        let place =
            tail.filter(|start| seek(old, *start, &wanted).is_some()).or_else(|| seek(old, from, &wanted));
        if let Some(place) = place {
            return Ok((place, wanted.len()));
        }
        // A blank line at the end is often only a part of the patch.
        if wanted.len() < 2 || wanted.last() != Some(&"") {
            break;
        }
        wanted.pop();
    }
    let shown: Vec<_> = wanted.iter().take(SHOWN_LINES).map(|line| format!("`{line}`")).collect();
    let more = if wanted.len() > SHOWN_LINES { " and so on" } else { "" };
    Err(format!("the lines {}{more} are not there one after the other", shown.join(", ")))
}

/// What of a line is compared.
type Rest = fn(&[u8]) -> &[u8];

/// The first place from `from` on where these lines are: exactly, else but for white space at their ends, else but for
/// white space at both sides, as Codex does it.
fn seek(old: &[Line<'_>], from: usize, wanted: &[&str]) -> Option<usize> {
    let rests: [Rest; 3] = [|line| line, <[u8]>::trim_ascii_end, <[u8]>::trim_ascii];
    let windows = || old.get(from..).unwrap_or_default().windows(wanted.len());
    rests.iter().find_map(|rest| {
        let fits = |window: &[Line<'_>]| {
            window.iter().zip(wanted).all(|(line, wanted)| rest(line.text) == rest(wanted.as_bytes()))
        };
        windows().position(fits).map(|place| place + from)
    })
}

#[cfg(test)]
mod tests;
