//! `audit query`, `show` and `export`: records somebody asks for.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{cannot_read, view};
use crate::audit::chain::Line;
use crate::audit::ocsf;
use crate::audit::query::{Filter, Search};
use crate::audit::read::Lines;
use crate::cli::{print_bytes, print_lines, table};
use crate::config::quantity;
use crate::failure::{Failure, Outcome};

/// Bytes printed at once.
const PRINT_BYTES: usize = 64 << 10;

#[derive(clap::Args)]
struct FilterArgs {
    /// Not before this time (RFC 3339), or not longer ago than this (2h, 30m)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Not after this time, or at least so long ago
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Of this session
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Of sessions of this persona
    #[arg(long, value_name = "NAME")]
    persona: Option<String>,
    /// Of this event, e.g. call, outcome, violation
    #[arg(long, value_name = "NAME")]
    event: Option<String>,
    /// Calls of this method and what became of them, e.g. process/start
    #[arg(long, value_name = "NAME")]
    method: Option<String>,
    /// Decided so: allow, ask or deny
    #[arg(long, value_name = "WHAT")]
    decision: Option<String>,
    /// Decided by this rule
    #[arg(long, value_name = "ID")]
    rule: Option<String>,
    /// About this file, or what lies below this directory
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// About HTTP requests to this host, or below this domain
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// About commands that hold this text
    #[arg(long, value_name = "TEXT")]
    argv: Option<String>,
    /// Ends of commands with this exit code
    #[arg(long, value_name = "CODE")]
    exit_code: Option<i64>,
}

impl FilterArgs {
    fn filter(self) -> Outcome<Filter> {
        let named = [
            ("session", self.session),
            ("persona", self.persona),
            ("event", self.event),
            ("method", self.method),
            ("decision", self.decision),
            ("rule", self.rule),
        ];
        Ok(Filter {
            since: self.since.map(|text| moment(&text, "--since")).transpose()?,
            until: self.until.map(|text| moment(&text, "--until")).transpose()?,
            equal: named.into_iter().filter_map(|(name, value)| Some((name, value?))).collect(),
            path: self.path,
            host: self.host,
            argv: self.argv,
            exit_code: self.exit_code,
        })
    }
}

/// A time, or how long ago.
fn moment(text: &str, flag: &str) -> Outcome<Timestamp> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago = quantity::duration(text, flag).ok();
    ago.and_then(|ago| Timestamp::now().checked_sub(ago).ok()).ok_or_else(|| {
        Failure::usage(format_args!(
            "`{text}` is no {flag}: write 2026-11-29T10:00:00Z, or 2h for two hours ago"
        ))
    })
}

#[derive(clap::Args)]
pub(in crate::cli) struct QueryArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(super) fn query(dir: &Path, args: QueryArgs) -> Outcome<u8> {
    let json = args.json;
    print_found(
        dir,
        args.filter.filter()?,
        |line, record| {
            if json { line.e.get().to_owned() } else { view::human(record) }
        },
    )
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// The lines of the log, with their hashes
    Jsonl,
    /// Events of the Open Cybersecurity Schema Framework
    Ocsf,
}

#[derive(clap::Args)]
pub(in crate::cli) struct ExportArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// How
    #[arg(long, value_enum)]
    format: Format,
}

pub(super) fn export(dir: &Path, args: ExportArgs) -> Outcome<u8> {
    let format = args.format;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    print_found(dir, args.filter.filter()?, |line, record| match format {
        Format::Jsonl => format!("{{\"e\":{},\"p\":\"{}\",\"h\":\"{}\"}}", line.e.get(), line.p, line.h),
        Format::Ocsf => ocsf::event(record, line.h, &host).to_string(),
    })
}

fn print_found(dir: &Path, filter: Filter, show: impl Fn(&Line<'_>, &Value) -> String) -> Outcome<u8> {
    let mut search = Search::new(filter);
    let mut text = String::new();
    each_line(dir, |line| {
        let Ok(mut record) = serde_json::from_str(line.e.get()) else { return Ok(()) };
        if search.admits(&mut record) {
            text.push_str(&show(line, &record));
            text.push('\n');
        }
        if text.len() >= PRINT_BYTES {
            print_bytes(std::mem::take(&mut text).as_bytes())?;
        }
        Ok(())
    })?;
    print_bytes(text.as_bytes())
}

fn each_line(dir: &Path, mut visit: impl FnMut(&Line<'_>) -> Outcome<()>) -> Outcome<()> {
    let failed = |error: std::io::Error| cannot_read(&error);
    let mut lines = Lines::open(dir);
    while lines.advance().map_err(failed)? {
        // A line that is no record is for `verify` to tell.
        let Some(line) = lines.line().ok().and_then(|text| Line::parse(text).ok()) else { continue };
        visit(&line)?;
    }
    Ok(())
}

#[derive(clap::Args)]
pub(in crate::cli) struct ShowArgs {
    /// Number of the record
    seq: u64,
    /// Print the record and those that belong to it as JSON, one object a line
    #[arg(long)]
    json: bool,
}

/// What a record says it belongs to.
#[derive(Deserialize)]
struct Links {
    seq: u64,
    call: Option<u64>,
    process: Option<u64>,
    file: Option<u64>,
    asked: Option<u64>,
}

/// A record, its exact text and its hash.
struct Found {
    record: Value,
    text: String,
    hash: String,
}

/// A record by its number.
fn find(dir: &Path, seq: u64) -> Outcome<Option<Found>> {
    let mut found = None;
    each_line(dir, |line| {
        if line.marked().is_ok_and(|marked| marked.seq == seq) {
            let record = serde_json::from_str(line.e.get()).unwrap_or_default();
            found = Some(Found { record, text: line.e.get().to_owned(), hash: line.h.to_owned() });
        }
        Ok(())
    })?;
    Ok(found)
}

pub(super) fn show(dir: &Path, args: &ShowArgs) -> Outcome<u8> {
    let seq = args.seq;
    let unknown =
        || Failure::usage(format_args!("there is no record {seq}: see legion-controller audit tail"));
    let Found { record, text, hash } = find(dir, seq)?.ok_or_else(unknown)?;
    // The call, its outcome, what was done with its process or its file, and what a person was asked about it.
    let link = |record: &Value, names: &[&str]| names.iter().find_map(|name| record[*name].as_u64());
    let call = link(&record, &["call", "process", "file"]).unwrap_or(seq);
    let asked = match link(&record, &["asked"]) {
        None if call != seq => find(dir, call)?.and_then(|found| link(&found.record, &["asked"])),
        asked => asked,
    };
    let mut belong = [seq, call].into_iter().chain(asked).collect::<BTreeSet<_>>();
    let mut related = Vec::new();
    each_line(dir, |line| {
        let Ok(links) = serde_json::from_str::<Links>(line.e.get()) else { return Ok(()) };
        let named = [links.call, links.process, links.file, links.asked];
        if !belong.contains(&links.seq) && !named.into_iter().flatten().any(|named| belong.contains(&named)) {
            return Ok(());
        }
        if links.asked.is_some() {
            belong.insert(links.seq);
        }
        if links.seq != seq {
            let other = || serde_json::from_str(line.e.get()).unwrap_or_default();
            related.push(if args.json { line.e.get().to_owned() } else { view::human(&other()) });
        }
        Ok(())
    })?;
    let mut lines = if args.json {
        vec![text]
    } else {
        let text = serde_json::to_string_pretty(&record).map_err(Failure::internal)?;
        let mut lines: Vec<String> = text.lines().map(table::printable).collect();
        lines.push(format!("hash {hash}"));
        lines
    };
    lines.extend(related);
    print_lines(&lines)
}
