//! `scripts/bench`: prints the table of what Legion costs beside the original, measured now.
//!
//! Invariant: servers live on the main thread and end with the program, also when it is interrupted; measuring blocks a
//! thread of its own.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::builder::PossibleValuesParser;
use legion_tests::bench::audit;
use legion_tests::bench::report::{self, Row};
use legion_tests::bench::rounds::{self, Plan};
use legion_tests::bench::scale;
use legion_tests::bench::subject::{self, ORIGINAL, Running, Servers};
use tokio::signal::unix::{SignalKind, signal};

/// Measures Legion beside the original `codex exec-server`
#[derive(Parser)]
#[command(name = "bench")]
struct Args {
    /// Measure this exec-server instead of Legion (ws:// or wss://)
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// File with the bearer token for --url
    #[arg(long, value_name = "FILE", requires = "url")]
    token_file: Option<PathBuf>,
    /// Certificate authority (PEM) of a wss:// URL
    #[arg(long, value_name = "FILE", requires = "url")]
    ca: Option<PathBuf>,
    /// Directory on the server of --url in which files may be made; its own working directory otherwise
    #[arg(long, value_name = "DIR", requires = "url")]
    directory: Option<PathBuf>,
    /// Measure legion-exec-server without controller and sandbox as well
    #[arg(long)]
    alone: bool,
    /// Rounds over all measures; each number is the mean of their middle half
    #[arg(long, value_name = "N", default_value_t = 15, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// Take only these measures, by their keys in the JSON output, separated by commas
    #[arg(long, value_name = "KEYS", value_delimiter = ',', value_parser = PossibleValuesParser::new(Plan::keys()))]
    only: Vec<String>,
    /// Where srt lies, when not in /usr/local/bin or /usr/bin
    #[arg(long, value_name = "FILE")]
    srt: Option<PathBuf>,
    /// Also measure how cost grows with sessions, processes and commands
    #[arg(long)]
    scale: bool,
    /// Only measure how cost grows
    #[arg(long, conflicts_with = "scale")]
    only_scale: bool,
    /// Only measure what the audit log and redaction cost
    #[arg(long, conflicts_with_all = ["scale", "only_scale", "url"])]
    only_audit: bool,
    /// Print one JSON object with all numbers instead of tables
    #[arg(long)]
    json: bool,
    /// Exit with 1 when a target is not reached
    #[arg(long)]
    check: bool,
}

type Tables = Vec<(String, Vec<Row>)>;

fn main() -> ExitCode {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        subject::kill_children();
    }));
    match run(&Args::parse()) {
        Ok(reached) => ExitCode::from(u8::from(!reached)),
        Err(error) => {
            eprintln!("bench: {error}");
            ExitCode::from(70)
        }
    }
}

fn run(args: &Args) -> io::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let ended = runtime.block_on(async {
        let mut servers = Servers::start(args.url.is_none(), args.alone).await;
        let mut subjects = servers.subjects().await?;
        if let Some(url) = args.url.clone() {
            let (token_file, ca, directory) =
                (args.token_file.clone(), args.ca.clone(), args.directory.clone());
            subjects.push(Running { url, token_file, ca, directory }.subject()?);
        }
        let mut plan = Plan {
            subjects,
            rounds: if args.only_scale { 0 } else { usize::from(args.rounds) },
            only: args.only.clone(),
            srt: args.srt.clone(),
            scratch: servers.scratch.clone(),
        };
        if args.only_audit {
            plan.rounds = 0;
            plan.subjects = servers.audited().await?;
        }
        let is_audit = args.only_audit;
        let grow = args.scale || args.only_scale;
        let measuring = tokio::task::spawn_blocking(move || measure(&plan, grow, is_audit));
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::select! {
            measured = measuring => measured.map_err(io::Error::other)?,
            _ = tokio::signal::ctrl_c() => Err(io::Error::other("interrupted")),
            _ = terminate.recv() => Err(io::Error::other("terminated")),
        }
    });
    // A thread that still measures has lost its servers and is not waited for.
    runtime.shutdown_background();
    let (measured, rounds, tables) = ended?;
    print(args, &measured, rounds, &tables);
    let missed = tables.iter().flat_map(|(_, rows)| rows).any(|row| row.is_reached() == Some(false));
    Ok(!(args.check && missed))
}

fn measure(plan: &Plan, grow: bool, is_audit: bool) -> io::Result<(rounds::Measured, usize, Tables)> {
    let mut measured = if plan.rounds == 0 { rounds::nothing() } else { rounds::run(plan)? };
    let mut tables = Tables::new();
    for subject in plan.subjects.iter().filter(|subject| subject.name != ORIGINAL && plan.rounds > 0) {
        tables.push((subject.name.clone(), report::rows(&measured, subject)));
    }
    if grow {
        for subject in &plan.subjects {
            tables.push((subject.name.clone(), scale::run(plan, subject)?));
        }
    }
    if is_audit {
        tables.push(("Audit log and redaction".to_owned(), audit::run(&plan.subjects, &plan.scratch)?));
    }
    measured.load[1] = rounds::load();
    Ok((measured, plan.rounds, tables))
}

#[expect(clippy::print_stdout, reason = "the result of the program")]
fn print(args: &Args, measured: &rounds::Measured, rounds: usize, tables: &Tables) {
    if args.json {
        println!("{}", report::json(measured, rounds, tables));
        return;
    }
    for (subject, rows) in tables {
        println!("{}", report::table(subject, rows));
    }
    print!("{}", report::notes(measured, rounds));
}
