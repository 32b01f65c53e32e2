//! A program of the sandbox that prints records: run to its end, or until there are enough.
//!
//! Invariant: memory is bounded whatever it prints; it is killed when the caller has enough, and after a time.

use legion_protocol::PathUri;
use legion_protocol::process::Stream;
use tokio::time::{Instant, timeout_at};

use super::ToolError;
use super::clip::Clip;
use super::remote::{Remote, failed, gone};
use crate::client::{CallError, Event};
use crate::limits::{DEFAULT_TOOL_TIMEOUT, MAX_FOUND_LINE_BYTES};

/// What is kept of its complaints.
const COMPLAINT_BYTES: usize = 2 << 10;

/// Exit code of a program that is not there, as shells have it.
pub(super) const NOT_FOUND: i32 = 127;

/// How it ended.
pub(super) struct Ended {
    /// Its exit code; 0 when it was not let go on.
    pub(super) code: i32,
    /// What it wrote to stderr, on one line.
    pub(super) complaint: String,
}

/// Runs a program in `directory` and hands on what it prints, in records that end with `until`, while `take` wants more.
pub(super) async fn run(
    remote: &Remote,
    directory: &PathUri,
    argv: &[&str],
    until: u8,
    mut take: impl FnMut(&[u8]) -> bool,
) -> Result<Ended, ToolError> {
    let deadline = Instant::now() + DEFAULT_TOOL_TIMEOUT;
    let argv = argv.iter().map(|word| (*word).to_owned()).collect();
    let start = remote.command(argv, directory.clone());
    let mut process = match remote.client.start(&start).await {
        Ok(process) => process,
        Err(CallError::Answered(error))
            if error.data.as_ref().is_some_and(|data| data.get().contains("spawnNotFound")) =>
        {
            return Ok(Ended { code: NOT_FOUND, complaint: error.message });
        }
        Err(error) => return Err(failed("search in", directory.path(), &error)),
    };
    let (mut code, mut complaints, mut current) = (0, Clip::new(COMPLAINT_BYTES), Vec::new());
    loop {
        let event = timeout_at(deadline, process.next()).await.map_err(|_| {
            let allowed = DEFAULT_TOOL_TIMEOUT.as_secs();
            ToolError::new(format_args!(
                "the search took longer than {allowed} s: narrow the path or the pattern"
            ))
        })?;
        match event {
            Some(Event::Output(Stream::Stderr, bytes)) => complaints.push(&bytes),
            Some(Event::Output(_, bytes)) => {
                for piece in bytes.split_inclusive(|byte| *byte == until) {
                    let text = piece.strip_suffix(&[until]).unwrap_or(piece);
                    // The rest of a very long line is of no use.
                    let room = MAX_FOUND_LINE_BYTES.saturating_sub(current.len());
                    current.extend_from_slice(&text[..text.len().min(room)]);
                    if text.len() < piece.len() && !take(&std::mem::take(&mut current)) {
                        // Dropping the process kills it.
                        return Ok(Ended { code: 0, complaint: String::new() });
                    }
                }
            }
            Some(Event::Exited { code: exit, .. }) => code = exit,
            Some(Event::Closed) => break,
            None => return Err(gone(&remote.client.why_ended().unwrap_or_default())),
        }
    }
    let complaint = complaints.text().split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(Ended { code, complaint })
}
