//! legion-controller: outside the sandbox. Keeps `.env` and the policy, starts sandboxes, issues one token per
//! session, decides on every call, records it.

mod admission;
mod approvals;
mod audit;
mod cli;
mod client;
mod config;
mod control;
mod controller;
mod dirs;
mod environment;
mod failure;
mod front;
mod gate;
mod limits;
mod listener;
mod memory;
mod policy;
mod printable;
mod redaction;
mod relay;
mod reload;
mod sandbox;
mod secret;
mod session;
mod sys;
mod tls;
mod token;
mod tools;
mod upstream;
mod websocket;

use std::process::ExitCode;

fn main() -> ExitCode {
    sys::keep_freed_memory();
    match surroundings() {
        Ok(environment) => cli::main(environment, std::env::args_os()),
        Err(failure) => cli::report(&failure),
    }
}

/// The only place that reads the process's environment.
#[allow(clippy::disallowed_methods, reason = "main is where the environment is read")]
fn surroundings() -> failure::Outcome<environment::Environment> {
    let broken = |what: &str, error: std::io::Error| {
        failure::Failure::unavailable(format_args!("cannot tell {what}: {error}"))
    };
    let vars = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    Ok(environment::Environment {
        vars: vars.collect(),
        cwd: std::env::current_dir().map_err(|error| broken("the working directory", error))?,
        executable: std::env::current_exe()
            .and_then(std::fs::canonicalize)
            .map_err(|error| broken("the path of this program", error))?,
        uid: rustix::process::geteuid().as_raw(),
    })
}
