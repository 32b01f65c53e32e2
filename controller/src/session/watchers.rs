//! Those who watch a session's output live: `session attach`.
//!
//! Invariant: who watches slowly misses output and is told how much; nobody else waits for it.

use std::cell::RefCell;

use legion_protocol::Chunk;
use legion_protocol::process::Stream;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::limits::{MAX_QUEUED_SHOWN, MAX_WATCHERS};

/// What a watcher is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Shown {
    /// A command printed something.
    Output {
        /// Number of its record.
        call: u64,
        /// Where it came from.
        stream: Stream,
        /// What.
        chunk: Chunk,
        /// Bytes missed before it.
        missed: u64,
    },
    /// A command ended.
    Ended {
        /// Number of its record.
        call: u64,
        /// None when that was not seen.
        exit_code: Option<i32>,
    },
}

struct Watcher {
    /// Of one command only.
    call: Option<u64>,
    queue: mpsc::Sender<Shown>,
    missed: u64,
}

/// All of them.
#[derive(Default)]
pub struct Watchers(RefCell<Vec<Watcher>>);

impl Watchers {
    /// One more, of one command or of all; `None` when there are too many.
    pub fn add(&self, call: Option<u64>) -> Option<mpsc::Receiver<Shown>> {
        let mut watchers = self.0.borrow_mut();
        watchers.retain(|watcher| !watcher.queue.is_closed());
        if watchers.len() >= MAX_WATCHERS {
            return None;
        }
        let (queue, shown) = mpsc::channel(MAX_QUEUED_SHOWN);
        watchers.push(Watcher { call, queue, missed: 0 });
        Some(shown)
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Nothing more will come. What is on its way still arrives.
    pub fn close(&self) {
        self.0.borrow_mut().clear();
    }

    /// Shows what a command printed.
    pub fn output(&self, call: u64, stream: Stream, bytes: &[u8]) {
        self.0.borrow_mut().retain_mut(|watcher| {
            if watcher.call.is_some_and(|wanted| wanted != call) {
                return true;
            }
            let chunk = Chunk(bytes.to_vec());
            match watcher.queue.try_send(Shown::Output { call, stream, chunk, missed: watcher.missed }) {
                Ok(()) => watcher.missed = 0,
                Err(mpsc::error::TrySendError::Full(_)) => watcher.missed += bytes.len() as u64,
                Err(mpsc::error::TrySendError::Closed(_)) => return false,
            }
            true
        });
    }

    /// Shows that a command ended. Who watched only that one is done.
    pub fn ended(&self, call: u64, exit_code: Option<i32>) {
        self.0.borrow_mut().retain(|watcher| match watcher.call {
            Some(wanted) if wanted != call => true,
            wanted => {
                // Who has no room for this sees the end of the stream instead.
                let _ = watcher.queue.try_send(Shown::Ended { call, exit_code });
                wanted.is_none()
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_watcher_misses_and_is_told() {
        let watchers = Watchers::default();
        let mut slow = watchers.add(None).unwrap();
        let mut other = watchers.add(Some(8)).unwrap();
        for _ in 0..MAX_QUEUED_SHOWN + 3 {
            watchers.output(7, Stream::Stdout, b"xy");
        }
        assert!(other.try_recv().is_err());
        let mut missed = Vec::new();
        while let Ok(Shown::Output { missed: bytes, .. }) = slow.try_recv() {
            missed.push(bytes);
        }
        assert_eq!(missed, vec![0; MAX_QUEUED_SHOWN]);
        watchers.output(7, Stream::Stdout, b"z");
        assert!(matches!(slow.try_recv(), Ok(Shown::Output { missed: 6, .. })));
        watchers.ended(8, Some(1));
        assert!(matches!(other.try_recv(), Ok(Shown::Ended { call: 8, exit_code: Some(1) })));
        assert_eq!(other.try_recv().unwrap_err(), mpsc::error::TryRecvError::Disconnected);
        drop(slow);
        watchers.output(7, Stream::Stdout, b"z");
        assert!(watchers.is_empty());
    }
}
