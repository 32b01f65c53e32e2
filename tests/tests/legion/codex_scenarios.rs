//! SPEC section 11 with the real client: each scenario at every place.
//!
//! Invariant: assertions are on what the model gets, on the files of the host, and on the log; never on time.

mod commands;
mod discovery;
mod interaction;
mod isolation;
mod large_files;
mod patches;
mod sandbox_modes;
