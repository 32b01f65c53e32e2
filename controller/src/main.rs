//! legion-controller: outside the sandbox. Keeps `.env` and the policy, starts sandboxes, issues one token per
//! session, decides on every call, records it.

pub mod config;
pub mod dirs;
pub mod environment;
pub mod failure;
pub mod limits;
pub mod secret;
pub mod token;

fn main() {}
