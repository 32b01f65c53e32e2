//! The program that tries the forbidden things inside a sandbox: one attempt a process, told by its arguments, its
//! outcome as one word on standard output.
//!
//! Invariant: it only tries and reports. What must happen is written in `tests/abuse`, never here, and an attempt that
//! succeeds is told as plainly as one that is refused.

mod batch;
mod errno;
mod files;
mod kernel;
mod network;
mod processes;
mod sys;
mod terminal;

use std::io;
use std::process::ExitCode;

/// What an attempt came to, when no error ended it: `ok`, or what was seen.
type Seen = io::Result<String>;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    if let ["batch", list] = words[..] {
        return batch::run(list);
    }
    let seen = [files::attempt, kernel::attempt, processes::attempt, network::attempt, terminal::attempt]
        .into_iter()
        .find_map(|attempt| attempt(&words));
    let Some(seen) = seen else {
        eprintln!("no such attempt: {words:?}");
        return ExitCode::FAILURE;
    };
    println!("{}", seen.unwrap_or_else(|error| errno::name(&error)));
    ExitCode::SUCCESS
}

/// The outcome of a call that gives nothing but success.
fn ok<T>(result: Result<T, impl Into<io::Error>>) -> Seen {
    result.map(|_| "ok".to_owned()).map_err(Into::into)
}
