//! The benchmark behind `scripts/bench`: the same client, the same machine, one run, ratios.
//!
//! Invariant: the original and ours are measured in turn, round by round; nothing is printed that was not measured in
//! this run; a failure is an error, never a number.
#![allow(clippy::cast_precision_loss, reason = "counts and sizes stay far below 2^53")]
#![allow(clippy::print_stderr, reason = "progress; the result goes to standard output")]

pub mod audit;
pub mod baselines;
pub mod client;
pub mod copier;
pub mod measures;
pub mod memory;
pub mod message;
pub mod report;
pub mod rounds;
pub mod samples;
pub mod scale;
pub mod subject;
