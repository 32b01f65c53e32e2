//! Sandboxes: what one looks like ([`spec`]), as bwrap arguments ([`argv`]), which bwrap there is ([`bwrap`]), starting
//! and ending one ([`launch`], [`spawner`]).
//!
//! Invariant: bwrap never runs with uid 0 and an exec-server never runs without it.

pub mod argv;
pub mod bwrap;
pub mod launch;
pub mod run_as;
pub mod spawner;
pub mod spec;
pub mod workspace;

pub use launch::{Launcher, Sandbox};
pub use spec::Spec;
