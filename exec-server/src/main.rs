//! `legion-exec-server`: sanitise, parse, run. The environment of the process is read here and nowhere else.

use std::process::ExitCode;

use legion_exec_server::config::{self, Command};
use legion_exec_server::startup::{self, ProcessFacts};
use legion_exec_server::sys;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};

fn main() -> ExitCode {
    // First of all: from here on no process of the same user can attach, read memory or steal descriptors.
    if let Err(error) = set_dumpable_behavior(DumpableBehavior::NotDumpable) {
        return fail(70, format_args!("legion-exec-server: cannot protect the process: {error}"));
    }
    let config = match config::parse(std::env::args_os().skip(1)) {
        Ok(Command::Serve(config)) => config,
        Ok(Command::Version) => {
            println!("legion-exec-server {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Err(error) => return fail(error.code, format_args!("{error}")),
    };
    if let Err(error) = sys::close_inherited(&config.descriptors()).and_then(|()| sys::unblock_signals()) {
        return fail(70, format_args!("legion-exec-server: cannot put inherited state in order: {error}"));
    }
    sys::keep_freed_memory();
    match startup::run(&config, process_facts()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(error.code(), format_args!("{error}")),
    }
}

#[allow(clippy::disallowed_methods, reason = "the one place where the environment is read")]
fn process_facts() -> ProcessFacts {
    ProcessFacts { env: std::env::vars_os().collect(), cwd: std::env::current_dir().ok() }
}

fn fail(code: u8, line: std::fmt::Arguments<'_>) -> ExitCode {
    eprintln!("{line}");
    ExitCode::from(code)
}
