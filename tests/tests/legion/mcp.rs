//! `legion-controller mcp`, as the official SDK sees it.
//!
//! Invariant: what a tool answers is compared with what is on disk, or with what a process does.

mod commands;
mod endings;
mod files;
mod patches;
mod policy;
mod protocol;
mod search;
