//! `bash`: one command, with the output of both its streams as it comes.
//!
//! Invariant: the command is dead, with its process group, when the call has ended by time-out or was given up. What a
//! command that has ended left in the background stays, and the answer says so.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, timeout, timeout_at};

use super::arguments::whole;
use super::clip::Clip;
use super::remote::{Remote, failed, gone};
use super::text::Pieces;
use super::{Answer, Answered, ToolError};
use crate::client::{Event, Process};
use crate::limits::{
    DEFAULT_TOOL_TIMEOUT, MAX_TOOL_OUTPUT_BYTES, MAX_TOOL_TIMEOUT, TOOL_KILL_TIMEOUT, TOOL_OUTPUT_GRACE,
};

#[derive(Deserialize)]
pub(super) struct Arguments {
    command: String,
    #[serde(default, deserialize_with = "whole")]
    timeout: Option<u64>,
    #[serde(default)]
    workdir: Option<String>,
    #[serde(default)]
    description: Option<String>,
}

/// How it ended.
enum End {
    Exited { code: i32, limit: Option<String>, closed: bool },
    TimedOut,
}

pub(super) async fn run(remote: &Remote, arguments: Arguments, progress: &mut dyn FnMut(&str)) -> Answered {
    let allowed = arguments.timeout.map_or(DEFAULT_TOOL_TIMEOUT, Duration::from_millis);
    if allowed > MAX_TOOL_TIMEOUT || allowed.is_zero() {
        let most = MAX_TOOL_TIMEOUT.as_millis();
        return Err(ToolError::new(format_args!("timeout is between 1 and {most} milliseconds")));
    }
    let cwd = remote.path(arguments.workdir.as_deref().filter(|dir| !dir.is_empty()).unwrap_or("."))?;
    // Nothing is wrapped around the command: the policy and the audit see what the model wrote.
    let argv = [&remote.client.info().shell.path, "-c", &arguments.command].map(str::to_owned).to_vec();
    let deadline = Instant::now() + allowed;
    let start = remote.command(argv, cwd.clone());
    let no_start = |error| failed("start a command in", cwd.path(), &error);
    let mut process = match timeout_at(deadline, remote.client.start(&start)).await {
        Ok(started) => started.map_err(no_start)?,
        Err(_) => return Err(ToolError::new("the sandbox has not started the command in time")),
    };
    let mut output = Clip::new(MAX_TOOL_OUTPUT_BYTES);
    let mut pieces = Pieces::default();
    let mut take = |bytes: &[u8]| {
        output.push(bytes);
        let text = pieces.text(bytes);
        if !text.is_empty() {
            progress(&text);
        }
    };
    let exited = match timeout_at(deadline, exit(&mut process, &mut take)).await {
        Ok(Some((code, limit))) => {
            Some(End::Exited { code, limit, closed: rest(&mut process, &mut take).await })
        }
        Ok(None) => None,
        Err(_) => {
            process.kill();
            // What it had written belongs to the answer; its end is all that is waited for.
            let killed = async {
                if exit(&mut process, &mut take).await.is_some() {
                    rest(&mut process, &mut take).await;
                }
            };
            let _ = timeout(TOOL_KILL_TIMEOUT, killed).await;
            Some(End::TimedOut)
        }
    };
    let Some(end) = exited else {
        return Err(gone(&remote.client.why_ended().unwrap_or_default()));
    };
    Ok(answer(&arguments, &output, &end, allowed))
}

/// Takes output until the command has ended: its exit code, and the limit that ended it. `None` when the connection ended
/// before.
async fn exit(process: &mut Process, take: &mut impl FnMut(&[u8])) -> Option<(i32, Option<String>)> {
    loop {
        match process.next().await? {
            Event::Output(_, bytes) => take(&bytes),
            Event::Exited { code, limit } => return Some((code, limit)),
            Event::Closed => return None,
        }
    }
}

/// Takes what comes after the exit for a moment, however much something left in the background prints; whether that was all.
async fn rest(process: &mut Process, take: &mut impl FnMut(&[u8])) -> bool {
    let until = Instant::now() + TOOL_OUTPUT_GRACE;
    loop {
        match timeout_at(until, process.next()).await {
            Ok(Some(Event::Output(_, bytes))) => take(&bytes),
            Ok(Some(Event::Exited { .. })) => {}
            Ok(Some(Event::Closed) | None) => return true,
            Err(_) => return false,
        }
    }
}

fn answer(arguments: &Arguments, output: &Clip, end: &End, allowed: Duration) -> Answer {
    let mut notes = Vec::new();
    match end {
        End::Exited { code, limit, closed } => {
            notes.extend(limit.as_ref().map(|limit| format!("[killed: the persona's {limit} was reached]")));
            if !closed {
                notes.push("[what it started in the background still runs]".to_owned());
            }
            notes.push(format!("[exit code {code}]"));
        }
        End::TimedOut => notes.push(format!(
            "[killed: it took longer than the timeout of {} ms; if it needs more, ask for it with `timeout`]",
            allowed.as_millis()
        )),
    }
    let mut text = output.text();
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&notes.join("\n"));
    let (exit, timed_out) = match end {
        End::Exited { code, .. } => (Some(code), false),
        End::TimedOut => (None, true),
    };
    let metadata =
        json!({ "exit": exit, "timedOut": timed_out, "bytes": output.total(), "truncated": output.is_cut() });
    let title = arguments.description.as_ref().filter(|text| !text.is_empty()).unwrap_or(&arguments.command);
    Answer { title: title.clone(), output: text, metadata, ..Answer::default() }
}
