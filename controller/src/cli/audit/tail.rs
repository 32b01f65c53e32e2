//! `audit tail`: the last records, and those to come.

use std::collections::VecDeque;
use std::path::Path;

use serde_json::Value;
use tokio::io::unix::AsyncFd;

use super::{cannot_read, view};
use crate::audit::chain::Line;
use crate::audit::read::Lines;
use crate::cli::streams::reader_left;
use crate::cli::{print_lines, table};
use crate::failure::Outcome;
use crate::sys;

/// Most records `tail` shows without following.
const MAX_TAIL: usize = 1_000_000;

#[derive(clap::Args)]
pub(in crate::cli) struct Args {
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
}

pub(super) async fn run(dir: &Path, args: Args) -> Outcome<u8> {
    let failed = |error: std::io::Error| cannot_read(&error);
    // The watch is set before the first read: nothing written in between is missed.
    let watch = if args.follow { Some(watch(dir).map_err(failed)?) } else { None };
    // The last file is enough most of the time.
    let short = if args.session.is_none() { Lines::open_last(dir).map_err(failed)? } else { None };
    let mut lines = short.unwrap_or_else(|| Lines::open(dir));
    let mut last = args.last(&mut lines).map_err(failed)?;
    if last.len() < args.lines {
        lines = Lines::open(dir);
        last = args.last(&mut lines).map_err(failed)?;
    }
    print_lines(&last.iter().filter_map(|line| args.show(line)).collect::<Vec<_>>())?;
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
        while lines.advance().map_err(failed)? {
            new.extend(args.show(&lines.lossy()));
        }
        print_lines(&new)?;
    }
}

impl Args {
    /// The last lines that are asked for; all are read.
    fn last(&self, lines: &mut Lines) -> std::io::Result<VecDeque<String>> {
        let mut last = VecDeque::new();
        while lines.advance()? {
            let line = lines.lossy();
            if self.session.is_some() && self.show(&line).is_none() {
                continue;
            }
            last.push_back(line.into_owned());
            if last.len() > self.lines.min(MAX_TAIL) {
                last.pop_front();
            }
        }
        Ok(last)
    }

    /// A line as it is shown; `None` for one of another session.
    fn show(&self, line: &str) -> Option<String> {
        let Ok(parsed) = Line::parse(line) else {
            return Some(format!("(spoiled) {}", table::printable(line)));
        };
        let record: Value = serde_json::from_str(parsed.e.get()).unwrap_or_default();
        if let Some(wanted) = &self.session
            && record["session"] != wanted.as_str()
        {
            return None;
        }
        Some(if self.json { parsed.e.get().to_owned() } else { view::human(&record) })
    }
}

fn watch(dir: &Path) -> std::io::Result<AsyncFd<std::os::fd::OwnedFd>> {
    use rustix::fs::inotify;
    let fd = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)?;
    inotify::add_watch(&fd, dir, inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE)?;
    sys::watch_fd(fd)
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
        let args = |json, session| Args { follow: false, lines: 1, json, session };
        let shown = args(false, None).show(line).unwrap();
        assert_eq!(shown, r#"3 T abcdefgh call allow process/start ["a\u001bb"] in /w"#);
        assert!(args(false, Some("other".into())).show(line).is_none());
        assert!(args(true, None).show(line).unwrap().starts_with("{\"seq\":3"));
    }
}
