//! What a controller records: at once, soon, and again when it could not be written.
//!
//! Invariant: a call is refused when its record cannot be written; what has happened already is kept and tried again; no
//! record holds a known secret.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use super::Controller;
use crate::audit::Record;
use crate::limits::{AUDIT_COMMIT_WINDOW, AUDIT_RETRY, CHECKPOINT_INTERVAL};

impl Controller {
    /// Writes in time what was kept, and signs it.
    pub(super) fn keep_records(self: &Rc<Self>) {
        self.at_window_ends(&self.deferred, AUDIT_COMMIT_WINDOW, Self::flush);
        self.at_window_ends(&self.unsigned, CHECKPOINT_INTERVAL, Self::sign_in_time);
        self.at_window_ends(&self.unwritten, AUDIT_RETRY, Self::flush);
    }

    /// Writes a record and returns its number.
    pub fn record(&self, record: &Record) -> io::Result<u64> {
        self.unsigned.notify_one();
        self.audit.borrow_mut().append(&self.redactor.record(record))
    }

    pub(super) fn sign(&self) {
        if let Err(error) = self.audit.borrow_mut().checkpoint() {
            tracing::error!(%error, "the audit log cannot be signed");
            self.unsigned.notify_one();
        }
    }

    /// Does something at the end of each window that a notice opens, as long as the controller lives.
    fn at_window_ends(self: &Rc<Self>, notice: &Rc<Notify>, window: Duration, act: fn(&Self)) {
        let (controller, notice) = (Rc::downgrade(self), Rc::clone(notice));
        tokio::task::spawn_local(async move {
            loop {
                notice.notified().await;
                sleep(window).await;
                match controller.upgrade() {
                    Some(controller) => act(&controller),
                    None => return,
                }
            }
        });
    }

    /// Signs what has not been signed for long enough.
    fn sign_in_time(&self) {
        if self.audit.borrow().is_unsigned() {
            self.sign();
        }
    }

    /// Writes a record of something that has happened already and cannot be refused any more. While it cannot be written
    /// it is kept.
    pub fn note(&self, record: &Record) {
        self.unsigned.notify_one();
        self.keep(record);
        self.flush();
    }

    /// Notes what became of a call: soon, together with what else is noted in the window.
    pub fn note_outcome(&self, record: &Record) {
        if self.keep(record) { self.flush() } else { self.deferred.notify_one() }
    }

    /// Keeps a record, or counts it as lost; whether it is time to flush.
    fn keep(&self, record: &Record) -> bool {
        let kept = self.audit.borrow_mut().defer(&self.redactor.record(record));
        kept.unwrap_or_else(|error| {
            // It is counted; that nothing can be written has been said already.
            if !self.is_unwritten.get() {
                tracing::error!(%error, event = ?record.event, "a record is lost");
            }
            false
        })
    }

    /// Writes what was kept. What cannot be written is tried again, whether or not anything else happens.
    fn flush(&self) {
        let flushed = self.audit.borrow_mut().flush();
        match flushed {
            Ok(()) => self.is_unwritten.set(false),
            Err(error) => {
                if !self.is_unwritten.replace(true) {
                    tracing::error!(%error, "records cannot be written; new calls are refused");
                }
                self.unwritten.notify_one();
            }
        }
    }
}
