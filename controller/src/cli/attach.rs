//! `session attach`: watching what a session's commands print, live.

use std::io::Write;
use std::pin::pin;

use rustix::termios::isatty;

use super::safe::{RESTORE, Safe};
use super::sessions::{connect, unexpected};
use super::streams::reader_left;
use super::{Context, print_bytes};
use crate::control::{Reply, Request};
use crate::failure::Outcome;
use crate::session::watchers::Shown;

pub(super) async fn run(context: &Context, id: String, process: Option<String>) -> Outcome<u8> {
    let mut client = connect(context).await?;
    let session = match client.ask(&Request::Attach { id, process: process.clone() }).await? {
        Reply::Attached(session) => session,
        other => return Err(unexpected(&other)),
    };
    for process in &session.processes {
        say(&format!("{} runs: {}", process.call, process.command));
    }
    let is_terminal = isatty(rustix::stdio::stdout());
    let mut safe = Safe::default();
    let mut last = None;
    let mut reader_left = pin!(reader_left());
    loop {
        let shown = tokio::select! {
            shown = client.next_shown() => shown?,
            () = &mut reader_left => return Ok(0),
        };
        let Some(shown) = shown else { break };
        match shown {
            Shown::Output { call, chunk, missed, .. } => {
                if process.is_none() && last.is_some_and(|last| last != call) {
                    say(&format!("from {call}:"));
                }
                last = Some(call);
                if missed > 0 {
                    say(&format!("{missed} bytes were not shown: this terminal was too slow"));
                }
                print_bytes(&if is_terminal { safe.pass(&chunk.0) } else { chunk.0 })?;
            }
            Shown::Ended { call, exit_code } => match exit_code {
                Some(code) => say(&format!("{call} ended with {code}")),
                None => say(&format!("{call} ended")),
            },
        }
    }
    if is_terminal {
        print_bytes(RESTORE)?;
    }
    say("nothing more will come");
    Ok(0)
}

/// One line beside the output.
fn say(line: &str) {
    // Nothing can be done about a closed stderr.
    let _ = writeln!(std::io::stderr(), "legion-controller: {}", super::table::printable(line));
}
