//! `audit`: reading the log, searching it, and noticing that somebody has changed it.

mod query;
mod replay;
mod tail;
mod view;

use std::io::Write;
use std::path::PathBuf;

use serde::Serialize;

use super::{Context, print_json, print_lines};
use crate::audit::anchor::{Anchor, Anchored};
use crate::audit::checkpoint::PublicKey;
use crate::audit::keys;
use crate::audit::verify::{self, Expected, Report, VerifyError};
use crate::dirs::{self, Dirs};
use crate::failure::{Failure, Outcome};

#[derive(clap::Subcommand)]
pub(super) enum AuditCommand {
    /// Show the last records
    Tail(tail::Args),
    /// Show the records that fit all that is given
    Query(query::QueryArgs),
    /// Show one record and what belongs to it
    Show(query::ShowArgs),
    /// Check that no record was changed, removed or moved, and who signed them
    Verify(VerifyArgs),
    /// Play what a session's commands printed, when its persona says `record`
    Replay(replay::Args),
    /// Print records for other systems
    Export(query::ExportArgs),
    /// Print the public key that checks the log's signatures
    Key,
    /// Print where the log ends, number and hash of its last record, to be noted elsewhere
    Head,
}

#[derive(clap::Args)]
pub(super) struct VerifyArgs {
    /// Public key (PEM) of the checkpoints, as `audit key` prints it; the default is the one in the state directory
    #[arg(long, value_name = "FILE")]
    pubkey: Option<PathBuf>,
    /// Hash of a record that must be there, noted earlier; its number before it does not matter
    #[arg(long, value_name = "HASH")]
    expect_head: Option<String>,
    /// Do not fail for what is missing or unexplained when the log itself says so
    #[arg(long)]
    allow_gaps: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(context: &Context, command: AuditCommand) -> Outcome<u8> {
    let dirs = context.dirs()?;
    match command {
        AuditCommand::Tail(args) => {
            // There may be no log yet: what can be followed is a directory.
            dirs::open_private(&dirs.state, context.environment.uid)?;
            dirs::open_private(&dirs.audit(), context.environment.uid)?;
            tail::run(&dirs.audit(), args).await
        }
        AuditCommand::Query(args) => query::query(&dirs.audit(), args),
        AuditCommand::Show(args) => query::show(&dirs.audit(), &args),
        AuditCommand::Export(args) => query::export(&dirs.audit(), args),
        AuditCommand::Replay(args) => replay::run(&dirs.state, args).await,
        AuditCommand::Verify(args) => verify(context, &dirs, &args),
        AuditCommand::Key => match keys::find_public(&dirs.state)? {
            Some(key) => print_lines(&[key.pem()]),
            None => Err(Failure::unavailable("there is no key yet: the first controller makes one")),
        },
        AuditCommand::Head => match head(&dirs) {
            Ok(Some(Anchored { seq, hash, .. })) => print_lines(&[format!("{seq} {hash}")]),
            Ok(None) => Err(Failure::unavailable("there is no log yet: the first controller begins it")),
            Err(error) => Err(cannot_read(&error)),
        },
    }
}

fn cannot_read(error: &std::io::Error) -> Failure {
    Failure::unavailable(format_args!("cannot read the audit log: {error}"))
}

fn verify(context: &Context, dirs: &Dirs, args: &VerifyArgs) -> Outcome<u8> {
    let key = match &args.pubkey {
        None => keys::find_public(&dirs.state)?,
        Some(path) => {
            let path = context.environment.resolve(path);
            let fail = |why: &dyn std::fmt::Display| {
                Failure::usage(format_args!("cannot use the key {}: {why}", path.display()))
            };
            let text = std::fs::read_to_string(&path).map_err(|error| fail(&error))?;
            Some(PublicKey::parse(&text).map_err(|error| fail(&error))?)
        }
    };
    let checked_by = key.as_ref().map(PublicKey::fingerprint);
    let noted = args.expect_head.as_ref().and_then(|head| head.split_whitespace().last());
    let head = noted.map(str::to_ascii_lowercase);
    let report = verify::verify(&dirs.state, &Expected { key, head }).map_err(|error| match error {
        VerifyError::Io(error) => cannot_read(&error),
        broken => Failure::refused(format_args!("the audit log does not verify: {broken}")),
    })?;
    let printed = if args.json {
        print_json(&[Verified::of(&report, checked_by.as_deref())])
    } else {
        print_lines(&lines(&report, checked_by.as_deref()))
    };
    match report.findings.first() {
        Some(first) if !args.allow_gaps => Err(Failure::refused(format_args!(
            "the audit log is not whole: {first}{}",
            match report.findings.len() - 1 {
                0 => String::new(),
                more => format!(" (and {more} more)"),
            }
        ))),
        _ => printed,
    }
}

fn lines(report: &Report, checked_by: Option<&str>) -> Vec<String> {
    let mut lines = report.findings.clone();
    if report.torn > 0 {
        lines.push(format!("{} half lines were cut, none of them a record", report.torn));
    }
    let signatures = match checked_by {
        Some(key) => format!(
            "{} checkpoints signed by key {key}, {} records after the last one",
            report.checkpoints, report.unsigned
        ),
        None => "signatures not checked: there is no key here".to_owned(),
    };
    lines.push(format!("{} records in {} files verified; {signatures}", report.records, report.files));
    lines.push(format!("head {} {}", report.head.seq, report.head.hash));
    lines
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Verified<'a> {
    records: u64,
    files: usize,
    checkpoints: u64,
    unsigned: u64,
    torn: u64,
    seq: u64,
    head: &'a str,
    key: Option<&'a str>,
    findings: &'a [String],
}

impl<'a> Verified<'a> {
    fn of(report: &'a Report, key: Option<&'a str>) -> Self {
        Self {
            records: report.records,
            files: report.files,
            checkpoints: report.checkpoints,
            unsigned: report.unsigned,
            torn: report.torn,
            seq: report.head.seq,
            head: &report.head.hash,
            key,
            findings: &report.findings,
        }
    }
}

fn head(dirs: &Dirs) -> std::io::Result<Option<Anchored>> {
    let Some(mut anchor) = Anchor::find(&dirs.state)? else { return Ok(None) };
    anchor.is_news()?;
    Ok(anchor.says())
}

/// Tells on stderr where the log ends, for whoever wants to note it elsewhere: who can cut it can change the head that
/// is kept beside it.
pub(super) fn tell_head(dirs: &Dirs) {
    if let Ok(Some(Anchored { seq, hash, .. })) = head(dirs) {
        // Nothing can be done about a closed stderr.
        let _ = writeln!(std::io::stderr(), "audit head: record {seq} {hash}");
    }
}
