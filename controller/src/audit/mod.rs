//! The audit log (security.md 7): [`record`] says what is kept, [`redact`] keeps secrets out, [`chain`] links records by
//! hash, [`checkpoint`] signs them, [`log`] appends them to files several controllers may share, [`anchor`] keeps the
//! head elsewhere, [`recover`] finds the end again, [`forward`] sends copies on, [`read`] and [`verify`] look back.
//!
//! Invariant: the record of a call is in the file before the call is forwarded; a record that cannot be written
//! refuses the call.

pub mod anchor;
mod batch;
pub mod chain;
pub mod checkpoint;
mod clock;
mod commit;
mod files;
mod forward;
pub mod keys;
pub mod log;
mod mark;
pub mod ocsf;
pub mod query;
pub mod read;
pub mod record;
mod recover;
pub mod redact;
#[cfg(test)]
mod tests;
pub mod verify;

pub use log::AuditLog;
pub use record::{Event, Record};

/// The log's directory in the state directory.
pub const DIRECTORY: &str = "audit";
