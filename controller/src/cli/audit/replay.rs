//! `audit replay`: playing what a session's commands printed. The recordings are asciicast v2, for any player.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::termios::isatty;
use serde_json::Value;
use tokio::time::sleep;

use crate::audit::read::LineReader;
use crate::cli::safe::{RESTORE, Safe};
use crate::cli::{print_bytes, print_lines, table};
use crate::failure::{Failure, Outcome};
use crate::session::recording::DIRECTORY;

#[derive(clap::Args)]
pub(in crate::cli) struct Args {
    /// Public id of the session
    session: String,
    /// Only the command of this record
    #[arg(long, value_name = "SEQ")]
    call: Option<u64>,
    /// How many times as fast; at once when the output is no terminal
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR")]
    speed: f64,
    /// Longest pause, in seconds
    #[arg(long, default_value_t = 2.0, value_name = "SECONDS")]
    idle: f64,
    /// List the recordings' files instead
    #[arg(long)]
    list: bool,
}

pub(super) async fn run(state: &Path, args: Args) -> Outcome<u8> {
    if !(args.speed > 0.0 && args.idle >= 0.0) {
        return Err(Failure::usage("--speed must be above 0, and --idle not below"));
    }
    let recordings = find(state, &args)?;
    if args.list {
        return print_lines(&recordings.iter().map(|path| path.display().to_string()).collect::<Vec<_>>());
    }
    let is_terminal = isatty(rustix::stdio::stdout());
    for path in &recordings {
        play(path, &args, is_terminal).await?;
    }
    if is_terminal { print_bytes(RESTORE) } else { Ok(0) }
}

/// The files of a session, in the order of its commands.
fn find(state: &Path, args: &Args) -> Outcome<Vec<PathBuf>> {
    let dir = state.join(DIRECTORY);
    let call_of = |name: &str| -> Option<u64> {
        let rest = name.strip_prefix(args.session.as_str())?.strip_prefix('-')?;
        rest.strip_suffix(".cast")?.parse().ok()
    };
    let names = std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let mut found: Vec<(u64, PathBuf)> = names
        .filter_map(|name| Some((call_of(name.to_str()?)?, dir.join(&name))))
        .filter(|(call, _)| args.call.is_none_or(|wanted| wanted == *call))
        .collect();
    found.sort();
    if found.is_empty() {
        return Err(Failure::usage(format_args!(
            "nothing of session {} was recorded: set record = \"16MiB\" in its persona",
            args.session
        )));
    }
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

async fn play(path: &Path, args: &Args, is_terminal: bool) -> Outcome<()> {
    let failed =
        |error: std::io::Error| Failure::unavailable(format_args!("cannot read {}: {error}", path.display()));
    let mut lines = LineReader::new(BufReader::new(File::open(path).map_err(failed)?));
    let mut safe = Safe::default();
    let mut at = 0.0;
    while lines.advance().map_err(failed)? {
        let line: Value = serde_json::from_str(lines.line().map_err(failed)?).unwrap_or_default();
        if let Some(title) = line["title"].as_str() {
            print_bytes(format!("$ {}\r\n", table::printable(title)).as_bytes())?;
        }
        let (Some(time), Some("o"), Some(text)) = (line[0].as_f64(), line[1].as_str(), line[2].as_str())
        else {
            continue;
        };
        if is_terminal {
            let pause = (time - at).clamp(0.0, args.idle) / args.speed;
            sleep(Duration::try_from_secs_f64(pause).unwrap_or_default()).await;
        }
        at = time;
        print_bytes(&if is_terminal { safe.pass(text.as_bytes()) } else { text.as_bytes().to_vec() })?;
    }
    Ok(())
}
