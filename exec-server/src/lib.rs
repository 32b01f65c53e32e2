//! The exec-server: runs commands and touches files inside the sandbox, in the protocol of `codex exec-server`.
//!
//! Architecture invariant: everything runs on one thread, so nothing is locked; only long file operations use others.
//! The environment of the process is read in `main` and passed in; unsafe code lives in `sys` alone.

pub mod config;
mod confine;
mod connection;
mod discover;
mod dispatch;
mod environment;
mod error;
mod fs;
mod http;
mod limits;
mod listener;
mod memory;
mod outgoing;
mod process;
mod server;
mod session;
pub mod startup;
pub mod sys;
pub mod token;
mod transport;
