//! Sandboxes: what one looks like ([`spec`]), as bwrap arguments ([`argv`]), which system calls it may make
//! ([`seccomp`]), what of the workspace is protected ([`protect`], [`git`]), which bwrap there is ([`bwrap`]), starting,
//! watching and ending one ([`launch`], [`spawner`], [`process`]).
//!
//! Invariant: bwrap never runs with uid 0 and an exec-server never runs without it.

pub mod aftermath;
pub mod argv;
pub mod bwrap;
pub mod cgroup;
pub mod diagnose;
pub mod disarm;
pub mod git;
pub mod git_config;
pub mod launch;
pub mod process;
pub mod protect;
pub mod run_as;
pub mod seccomp;
pub mod secrets;
pub mod spawner;
pub mod spec;
pub mod stage;
pub mod toolchains;
pub mod watch;
pub mod workspace;

pub use launch::{Launcher, Sandbox};
pub use spec::Spec;
