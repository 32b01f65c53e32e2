//! Legion as its users meet it: built binaries, the real bubblewrap, the real clients.
//!
//! Invariant: one test binary, because linking is what takes the time; a module per subject.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "this is a test")]

#[macro_use]
mod places;
#[macro_use]
mod ways;

mod as_root;
mod attached;
mod audit_log;
mod audit_search;
mod audit_trouble;
mod canaries;
mod codex_command;
mod codex_killed;
mod codex_reconnect;
mod codex_refused;
mod codex_scenarios;
mod codex_versions;
mod codex_wss;
mod command_line;
mod env_file;
mod exec;
mod exec_streams;
mod exec_terminal;
mod faults;
mod flood;
mod front_door;
mod handshakes;
mod http_request;
mod logged;
mod mcp;
mod opencode_command;
mod opencode_inside;
mod played;
mod policy_approvals;
mod policy_changes;
mod policy_commands;
mod policy_rules;
mod readme;
mod redacted;
mod sandbox;
mod scale;
mod secrets_per_command;
mod sessions;
mod setup;
mod setup_opencode;
mod stage;
mod start;
mod start_refused;
