//! Reads the audit log (security.md section 7) as it is on disk, and waits for records to come.
//!
//! Invariant: the log is only read; whether its chain holds is for `legion-controller audit verify` to say.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::inotify;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use crate::child::DEADLINE;
use crate::legion;
use crate::scratch::Scratch;

/// Room for the events of one wake-up; more come with the next one.
const EVENT_BUFFER: usize = 4096;

/// The log of one test, all sessions.
#[derive(Debug, Default)]
pub struct Audit {
    records: Vec<Value>,
}

impl Audit {
    /// Where the log is.
    pub fn directory(scratch: &Scratch) -> PathBuf {
        scratch.root().join("state/legion/audit")
    }

    /// All complete lines, oldest first: the `e` member of each.
    pub fn read(scratch: &Scratch) -> Self {
        let mut files: Vec<_> = fs::read_dir(Self::directory(scratch))
            .expect("there is a log")
            .map(|entry| entry.expect("the directory is readable").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"))
            .collect();
        files.sort();
        Self { records: files.iter().flat_map(|path| read_file(path)).collect() }
    }

    /// Waits until the log satisfies `reached`; panics with the whole log when it does not come to that.
    pub async fn wait(scratch: &Scratch, what: &str, reached: impl Fn(&Self) -> bool) -> Self {
        let mut changes = Changes::of(&Self::directory(scratch));
        let waiting = async {
            loop {
                let audit = Self::read(scratch);
                if reached(&audit) {
                    return audit;
                }
                changes.next().await;
            }
        };
        let outcome = tokio::time::timeout(DEADLINE, waiting).await;
        outcome.unwrap_or_else(|_| panic!("{what}: not in the log {:#?}", Self::read(scratch).lines()))
    }

    /// `legion-controller audit verify` finds the chain whole.
    pub async fn verify(scratch: &Scratch) {
        legion::run(scratch, &["audit", "verify"]).await.assert_success();
    }

    /// All records.
    pub fn records(&self) -> &[Value] {
        &self.records
    }

    /// Records of one event.
    pub fn events(&self, event: &str) -> impl Iterator<Item = &Value> {
        self.records.iter().filter(move |record| record["event"] == event)
    }

    /// Decisions on calls of one method.
    pub fn calls(&self, method: &str) -> impl Iterator<Item = &Value> {
        self.events("call").filter(move |record| record["method"] == method)
    }

    /// What became of a call. Panics when there are two.
    pub fn outcome(&self, call: &Value) -> Option<&Value> {
        let mut found = self.events("outcome").filter(|record| record["call"] == call["seq"]);
        let first = found.next();
        assert!(found.next().is_none(), "two outcomes of {call}");
        first
    }

    /// One line a record, for messages.
    pub fn lines(&self) -> Vec<String> {
        self.records.iter().map(Value::to_string).collect()
    }
}

fn read_file(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    // What follows the last line end is being written.
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().map(parse).collect()
}

fn parse(line: &str) -> Value {
    let mut record: Value =
        serde_json::from_str(line).unwrap_or_else(|error| panic!("not a record: {error}: {line}"));
    record["e"].take()
}

/// Tells when a file in a directory changes.
struct Changes {
    /// An inotify descriptor. All that tokio's type does is to wait until it is readable and to read, and it asks
    /// for no more here, so it serves for any descriptor.
    events: pipe::Receiver,
}

impl Changes {
    fn of(directory: &Path) -> Self {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let watch = inotify::init(flags).expect("inotify");
        let events =
            inotify::WatchFlags::MODIFY | inotify::WatchFlags::CREATE | inotify::WatchFlags::MOVED_TO;
        inotify::add_watch(&watch, directory, events)
            .unwrap_or_else(|error| panic!("cannot watch {}: {error}", directory.display()));
        Self { events: pipe::Receiver::from_owned_fd_unchecked(watch).expect("it can be polled") }
    }

    /// Waits for a change since the last call, or since the start.
    async fn next(&mut self) {
        let mut buffer = [0; EVENT_BUFFER];
        let count = self.events.read(&mut buffer).await.expect("inotify can be read");
        assert!(count > 0, "inotify has no end");
    }
}
