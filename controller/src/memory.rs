//! Giving memory back after large messages.
//!
//! The allocator is told to keep what is freed (`sys::keep_freed_memory`), because returning it after each message and
//! asking for it again costs more than the message. So it is returned once nothing large has been moved for a while.

use std::cell::Cell;
use std::rc::Rc;

use tokio::task::spawn_local;
use tokio::time::{Instant, sleep_until};

use crate::limits::{LARGE_MESSAGE_BYTES, TRIM_AFTER};
use crate::sys;

/// See the module.
#[derive(Default)]
pub struct Trim {
    last_large: Cell<Option<Instant>>,
    runs: Cell<bool>,
}

impl Trim {
    /// A message of this size was received or sent.
    pub fn moved(self: &Rc<Self>, bytes: usize) {
        if bytes < LARGE_MESSAGE_BYTES {
            return;
        }
        self.last_large.set(Some(Instant::now()));
        if !self.runs.replace(true) {
            spawn_local(Rc::clone(self).run());
        }
    }

    async fn run(self: Rc<Self>) {
        while let Some(last) = self.last_large.get() {
            let due = last + TRIM_AFTER;
            if due > Instant::now() {
                sleep_until(due).await;
            } else {
                self.last_large.set(None);
                sys::return_freed_memory();
            }
        }
        self.runs.set(false);
    }
}
