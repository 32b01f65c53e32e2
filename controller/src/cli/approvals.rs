//! `approvals list|watch|approve|deny`: answers to what agents ask, for all controllers of the user.

use std::path::PathBuf;

use jiff::Timestamp;

use super::{Context, print_json, print_lines, prompt, table};
use crate::approvals::{Question, Scope};
use crate::config::quantity;
use crate::control::{Client, Reply, Request};
use crate::failure::{Exit, Failure, Outcome};

#[derive(clap::Subcommand)]
pub(super) enum ApprovalsCommand {
    /// List the questions that wait
    List {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Ask in this terminal, as questions come; without a terminal, or with --json, only print them
    Watch {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Let a call go on, once unless more is said
    Approve {
        /// Of the question
        id: String,
        #[command(flatten)]
        scope: ScopeArgs,
    },
    /// Refuse a call
    Deny {
        /// Of the question
        id: String,
    },
}

#[derive(clap::Args)]
#[group(multiple = false)]
pub(super) struct ScopeArgs {
    /// The same call so many times
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    times: Option<u32>,
    /// The same call for the rest of the session
    #[arg(long)]
    session: bool,
    /// The same call in the session until a time, e.g. 2026-11-29T18:00:00Z, or for so long, e.g. 30m
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// The same call in this workspace, for good
    #[arg(long)]
    workspace: bool,
}

impl ScopeArgs {
    fn scope(&self) -> Outcome<Scope> {
        if let Some(text) = &self.until {
            return Ok(Scope::Until { time: time_to_come(text)? });
        }
        Ok(match (self.times, self.session, self.workspace) {
            (Some(count), ..) => Scope::Times { count },
            (_, true, _) => Scope::Session,
            (_, _, true) => Scope::Workspace,
            _ => Scope::Once,
        })
    }
}

/// A time, or how long from now on.
fn time_to_come(text: &str) -> Outcome<Timestamp> {
    let now = Timestamp::now();
    let after = |time| now.checked_add(time).ok();
    let time = text.parse().ok().or_else(|| quantity::duration(text, "--until").ok().and_then(after));
    match time {
        Some(time) if time > now => Ok(time),
        Some(_) => Err(Failure::usage(format_args!("{text} is over: name a time to come"))),
        None => Err(Failure::usage(format_args!(
            "`{text}` is no time to come: write 30m, or 2026-11-29T18:00:00Z"
        ))),
    }
}

pub(super) async fn run(context: &Context, command: ApprovalsCommand) -> Outcome<u8> {
    let sockets = context.dirs()?.control_sockets();
    match command {
        ApprovalsCommand::List { json } => list(&sockets, json).await,
        ApprovalsCommand::Watch { json } => {
            prompt::watch(context.dirs()?, json).await?;
            Ok(0)
        }
        ApprovalsCommand::Approve { id, scope } => answer(&sockets, id, Some(scope.scope()?)).await,
        ApprovalsCommand::Deny { id } => answer(&sockets, id, None).await,
    }
}

async fn list(sockets: &[PathBuf], json: bool) -> Outcome<u8> {
    let mut questions = Vec::new();
    for socket in sockets {
        // A controller that ends just now has no questions.
        let Some(mut client) = Client::connect(socket).await else { continue };
        if let Ok(Reply::Questions(some)) = client.ask(&Request::Questions { watch: false }).await {
            questions.extend(some);
        }
    }
    questions.sort_by_key(|question| question.asked);
    if json {
        return print_json(&questions);
    }
    let rows: Vec<_> = questions.iter().map(row).collect();
    print_lines(&table::lines(&["ID", "EXPIRES", "RULE", "CALL", "WHY", "WORKSPACE"], &rows))
}

fn row(question: &Question) -> Vec<String> {
    vec![
        question.id.clone(),
        format!("{:.0}", question.expires),
        question.rule.clone().unwrap_or_else(|| "-".to_owned()),
        question.call.clone(),
        question.why.clone(),
        question.workspace.clone(),
    ]
}

/// The question's controller is found by asking all: only one knows its id.
async fn answer(sockets: &[PathBuf], id: String, approve: Option<Scope>) -> Outcome<u8> {
    let request = Request::Answer { id: id.clone(), approve };
    for socket in sockets {
        let Some(mut client) = Client::connect(socket).await else { continue };
        match client.ask(&request).await {
            Ok(Reply::Answered(question)) => {
                let said = approve.map_or("denied".to_owned(), |scope| format!("approved {}", scope.text()));
                return print_lines(&[format!(
                    "{}: {said}: {}",
                    question.id,
                    table::printable(&question.call)
                )]);
            }
            Ok(other) => return Err(Failure::internal(format_args!("the controller answered {other:?}"))),
            Err(failure) if failure.exit == Exit::Usage => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::usage(format_args!(
        "no question {id} waits for an answer: see legion-controller approvals list"
    )))
}
