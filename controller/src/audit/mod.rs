//! The audit: who asked for what, what was decided, what became of it.
//!
//! [`record`] says what a record holds, [`chain`] links records by hash, [`log`] appends them to a file several
//! controllers may share, [`read`] reads them back.
//!
//! Invariant: the record of a call is in the file before the call is forwarded; a record that cannot be written
//! refuses the call.

pub mod chain;
pub mod log;
pub mod read;
pub mod record;
pub mod redact;

pub use log::AuditLog;
pub use record::{Event, Record};
