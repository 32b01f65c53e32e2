//! `legion-controller mcp`, as the official SDK sees it.
//!
//! Invariant: what a tool answers is compared with what is on disk, or with what a process does.

mod commands;
mod endings;
mod files;
mod opencode;
mod patches;
mod policy;
mod protocol;
mod search;

use std::time::Duration;

/// What may pass between a client giving up a command and the command being gone.
const PROMPT: Duration = Duration::from_secs(1);
