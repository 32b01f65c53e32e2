//! `audit tail` and `audit verify`.

use std::collections::VecDeque;
use std::path::Path;

use serde_json::Value;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::{Context, print_lines, table};
use crate::audit::chain::Line;
use crate::audit::read::{self, Lines};
use crate::failure::{Failure, Outcome};
use crate::sys;

/// Most records `tail` shows without following.
const MAX_TAIL: usize = 1_000_000;

#[derive(clap::Subcommand)]
pub(super) enum AuditCommand {
    /// Show the last records
    Tail {
        /// Go on with new records as they come
        #[arg(short, long)]
        follow: bool,
        /// How many to start with
        #[arg(short = 'n', long, default_value_t = 20, value_name = "COUNT")]
        lines: usize,
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
        /// Only records of this session
        #[arg(long, value_name = "ID")]
        session: Option<String>,
    },
    /// Check that no record was changed, removed or moved
    Verify,
}

pub(super) async fn run(context: &Context, command: AuditCommand) -> Outcome<u8> {
    let dir = context.dirs()?.audit();
    match command {
        AuditCommand::Verify => verify(&dir),
        AuditCommand::Tail { follow, lines, json, session } => {
            Tail { json, session }.run(&dir, lines.min(MAX_TAIL), follow).await
        }
    }
}

fn verify(dir: &Path) -> Outcome<u8> {
    let head = read::verify(dir).map_err(|error| match error {
        read::VerifyError::Io(error) => cannot_read(dir, &error),
        broken @ read::VerifyError::Broken { .. } => {
            Failure::refused(format_args!("the audit log does not verify: {broken}"))
        }
    })?;
    print_lines(&[format!("{} records verified; head {}", head.seq, head.hash)])
}

fn cannot_read(dir: &Path, error: &std::io::Error) -> Failure {
    Failure::unavailable(format_args!("cannot read the audit log in {}: {error}", dir.display()))
}

struct Tail {
    json: bool,
    session: Option<String>,
}

impl Tail {
    async fn run(&self, dir: &Path, count: usize, follow: bool) -> Outcome<u8> {
        let failed = |error: std::io::Error| cannot_read(dir, &error);
        // The watch is set before the first read: nothing written in between is missed.
        let watch = if follow { Some(watch(dir).map_err(failed)?) } else { None };
        let mut lines = Lines::open(dir).map_err(failed)?;
        let mut last = VecDeque::new();
        while let Some(line) = lines.next_complete().map_err(failed)? {
            if let Some(shown) = self.show(&line) {
                last.push_back(shown);
                if last.len() > count {
                    last.pop_front();
                }
            }
        }
        print_lines(&Vec::from(last))?;
        let Some(watch) = watch else { return Ok(0) };
        let reader_left = reader_left();
        tokio::pin!(reader_left);
        loop {
            let mut ready = tokio::select! {
                ready = watch.readable() => ready.map_err(failed)?,
                () = &mut reader_left => return Ok(0),
            };
            drain(&watch);
            ready.clear_ready();
            let mut new = Vec::new();
            while let Some(line) = lines.next_complete().map_err(failed)? {
                new.extend(self.show(&line));
            }
            print_lines(&new)?;
        }
    }

    /// A line as it is shown; `None` for one of another session.
    fn show(&self, line: &str) -> Option<String> {
        let Ok(parsed) = Line::parse(line) else {
            return Some(format!("(spoiled) {}", table::printable(line.trim_end())));
        };
        let record: Value = serde_json::from_str(parsed.e.get()).unwrap_or_default();
        if let Some(wanted) = &self.session
            && record["session"] != wanted.as_str()
        {
            return None;
        }
        Some(if self.json { parsed.e.get().to_owned() } else { table::printable(&human(&record)) })
    }
}

/// `12 2026-11-29T10:00:00.123Z abcdefgh call allow process/start ["ls"] in /w`
fn human(record: &Value) -> String {
    let text = |value: &Value| match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut parts: Vec<String> = vec![text(&record["seq"]), text(&record["time"])];
    parts.push(record["session"].as_str().unwrap_or("-").to_owned());
    for name in ["event", "decision", "method", "reason"] {
        parts.extend(record.get(name).map(text));
    }
    if let Some(call) = record.get("call") {
        parts.push(format!("of {call}"));
    }
    let object = &record["object"];
    parts.extend(["argv", "path", "url", "processId"].iter().find_map(|name| object.get(name)).map(text));
    for (name, label) in [("cwd", "in"), ("destination", "to")] {
        parts.extend(object.get(name).map(|value| format!("{label} {}", text(value))));
    }
    if let Some(Value::Object(outcome)) = record.get("outcome") {
        parts.extend(outcome.iter().map(|(name, value)| format!("{name}={}", text(value))));
    }
    parts.join(" ")
}

fn watch(dir: &Path) -> std::io::Result<AsyncFd<std::os::fd::OwnedFd>> {
    use rustix::fs::inotify;
    let fd = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&fd, dir, inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE)?;
    sys::watch_fd(fd)
}

/// Resolves when our stdout is a pipe, a socket or a terminal and its other end is closed.
async fn reader_left() {
    let stdout = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 0).map_err(Into::into);
    match stdout.and_then(sys::watch_fd) {
        Ok(stdout) if stdout.ready(Interest::ERROR).await.is_ok() => {}
        // A file cannot be watched: nobody leaves it.
        _ => std::future::pending().await,
    }
}

/// Takes all pending events; what they say does not matter, the log is read anyway.
fn drain(watch: &AsyncFd<std::os::fd::OwnedFd>) {
    let mut buffer = [0u8; 4096];
    while matches!(rustix::io::read(watch.get_ref(), &mut buffer), Ok(count) if count > 0) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_shown_on_one_safe_line() {
        let line = r#"{"e":{"seq":3,"time":"T","event":"call","session":"abcdefgh","method":"process/start","object":{"argv":["a\u001bb"],"cwd":"/w"},"decision":"allow"},"p":"0","h":"1"}"#;
        let shown = Tail { json: false, session: None }.show(line).unwrap();
        assert_eq!(shown, r#"3 T abcdefgh call allow process/start ["a\u001bb"] in /w"#);
        assert!(Tail { json: false, session: Some("other".into()) }.show(line).is_none());
        assert!(Tail { json: true, session: None }.show(line).unwrap().starts_with("{\"seq\":3"));
    }
}
