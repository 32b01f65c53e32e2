//! `token issue|list|revoke` and `session list|show|attach|extend|kill`: requests to the running controller.

use std::path::PathBuf;

use jiff::SignedDuration;

use super::{Context, Wanted, attach, print_json, print_lines, table};
use crate::config::quantity;
use crate::control::{self, Opened, Reply, Request, SessionInfo};
use crate::dirs;
use crate::failure::{Failure, Outcome};

#[derive(clap::Subcommand)]
pub(super) enum TokenCommand {
    /// Make a session and print its token
    Issue {
        #[command(flatten)]
        wanted: Wanted,
        /// Print one JSON object
        #[arg(long, conflicts_with = "token_file")]
        json: bool,
        /// Write the token to this new file (mode 0600) instead of printing it
        #[arg(long, value_name = "FILE")]
        token_file: Option<PathBuf>,
    },
    /// List tokens by their public ids
    List {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Revoke a token; its sandbox is killed
    Revoke {
        /// Public id
        id: String,
    },
}

#[derive(clap::Subcommand)]
pub(super) enum SessionCommand {
    /// List sessions
    List {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Show one session
    Show {
        /// Public id
        id: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Watch what its commands print; nothing can be typed
    Attach {
        /// Public id
        id: String,
        /// Only this command: the number of its record, or the client's id of it
        process: Option<String>,
    },
    /// Let a session live longer
    Extend {
        /// Public id
        id: String,
        /// How long from now on, e.g. 8h
        #[arg(value_name = "TIME")]
        ttl: String,
    },
    /// End a session and everything that runs in it
    Kill {
        /// Public id
        id: String,
    },
}

pub(super) async fn token(context: &Context, command: TokenCommand) -> Outcome<u8> {
    match command {
        TokenCommand::Issue { wanted, json, token_file } => issue(context, &wanted, json, token_file).await,
        TokenCommand::List { json } => list(context, json).await,
        TokenCommand::Revoke { id } => end(context, id, true).await,
    }
}

pub(super) async fn session(context: &Context, command: SessionCommand) -> Outcome<u8> {
    match command {
        SessionCommand::List { json } => list(context, json).await,
        SessionCommand::Show { id, json } => show(context, id, json).await,
        SessionCommand::Attach { id, process } => attach::run(context, id, process).await,
        SessionCommand::Extend { id, ttl } => extend(context, id, &ttl).await,
        SessionCommand::Kill { id } => end(context, id, false).await,
    }
}

async fn ask(context: &Context, request: &Request) -> Outcome<Reply> {
    connect(context).await?.ask(request).await
}

/// A connection to the running controller.
pub(super) async fn connect(context: &Context) -> Outcome<control::Client> {
    let socket = context.dirs()?.control_socket();
    let client = control::Client::connect(&socket).await;
    client.ok_or_else(|| {
        Failure::unavailable(format_args!(
            "no controller answers at {}: start one with legion-controller start",
            socket.display()
        ))
    })
}

pub(super) fn unexpected(reply: &Reply) -> Failure {
    Failure::internal(format_args!("the controller gave an answer of the wrong kind: {reply:?}"))
}

/// Asks the running controller for a session of its own.
pub(super) async fn open(context: &Context, wanted: &Wanted) -> Outcome<Opened> {
    let request = Request::Open {
        persona: wanted.persona.clone(),
        workspace: wanted.workspace.as_ref().map(|path| context.environment.resolve(path)),
        cwd: context.environment.cwd.clone(),
        ttl_seconds: wanted.ttl()?.map(|ttl| ttl.as_secs()),
        lease: false,
    };
    match ask(context, &request).await? {
        Reply::Opened(opened) => Ok(opened),
        other => Err(unexpected(&other)),
    }
}

async fn issue(context: &Context, wanted: &Wanted, json: bool, token_file: Option<PathBuf>) -> Outcome<u8> {
    let token_file = token_file.map(|path| context.environment.resolve(&path));
    if let Some(path) = &token_file
        && path.symlink_metadata().is_ok()
    {
        return Err(Failure::usage(format_args!("{} exists: name a new file", path.display())));
    }
    let opened = open(context, wanted).await?;
    if json {
        return print_json(&[opened]);
    }
    let Some(path) = token_file else { return print_lines(&[opened.token]) };
    let written = write_new_private(&path, &opened.token);
    if let Err(error) = written {
        // A token nobody has must not stay good.
        ask(context, &Request::End { id: opened.session, revoke: true }).await?;
        return Err(Failure::unavailable(format_args!("cannot write {}: {error}", path.display())));
    }
    print_lines(&[format!("session {}: the token is in {}", opened.session, path.display())])
}

fn write_new_private(path: &std::path::Path, token: &str) -> std::io::Result<()> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(format!("{token}\n").as_bytes())
}

async fn list(context: &Context, json: bool) -> Outcome<u8> {
    let sessions = match ask(context, &Request::List).await? {
        Reply::Sessions(sessions) => sessions,
        other => return Err(unexpected(&other)),
    };
    if json {
        return print_json(&sessions);
    }
    let rows: Vec<Vec<String>> = sessions.iter().map(row).collect();
    print_lines(&table::lines(
        &["ID", "PERSONA", "STATE", "EXPIRES", "CONNECTIONS", "CALLS", "WORKSPACE"],
        &rows,
    ))
}

fn row(session: &SessionInfo) -> Vec<String> {
    vec![
        session.id.clone(),
        session.persona.clone(),
        session.state.clone(),
        format!("{:.0}", session.expires),
        session.connections.to_string(),
        session.calls.to_string(),
        session.workspace.clone(),
    ]
}

async fn show(context: &Context, id: String, json: bool) -> Outcome<u8> {
    let sessions = match ask(context, &Request::Show { id }).await? {
        Reply::Sessions(sessions) => sessions,
        other => return Err(unexpected(&other)),
    };
    if json {
        return print_json(&sessions);
    }
    let rows: Vec<Vec<String>> = sessions
        .iter()
        .flat_map(|session| facts(session).into_iter().chain(sandbox(session)).chain(processes(session)))
        .map(|(name, value)| vec![name, value])
        .collect();
    print_lines(&table::lines(&["WHAT", "VALUE"], &rows))
}

type Fact = (String, String);

fn facts(session: &SessionInfo) -> Vec<Fact> {
    let optional = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    let facts = [
        ("id", session.id.clone()),
        ("persona", session.persona.clone()),
        ("workspace", session.workspace.clone()),
        ("state", session.state.clone()),
        ("created", format!("{:.0}", session.created)),
        ("expires", format!("{:.0}", session.expires)),
        ("idle limit", span(session.idle_seconds)),
        ("connections", session.connections.to_string()),
        ("calls", session.calls.to_string()),
        ("last call", optional(session.last_call.map(|time| format!("{time:.0}")))),
        ("running commands", session.running.to_string()),
        ("policy digest", optional(session.policy.clone())),
        ("sandbox process", optional(session.sandbox_pid.map(|pid| pid.to_string()))),
    ];
    facts.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A duration as people write it: 8h, 1h 30m.
fn span(seconds: u64) -> String {
    i64::try_from(seconds).map(SignedDuration::from_secs).map_or("-".to_owned(), |span| format!("{span:#}"))
}

fn sandbox(session: &SessionInfo) -> Vec<Fact> {
    let Some(facts) = &session.sandbox else { return Vec::new() };
    vec![
        ("bubblewrap".to_owned(), facts.bwrap.clone()),
        ("arguments sha256".to_owned(), facts.arguments_sha256.clone()),
        ("runs as uid".to_owned(), facts.uid.to_string()),
        ("limits by".to_owned(), facts.limits_by.clone()),
    ]
}

fn processes(session: &SessionInfo) -> impl Iterator<Item = Fact> {
    session.processes.iter().map(|process| {
        let value = format!(
            "{}, {} bytes printed, id {}: {}",
            span(process.seconds),
            process.output_bytes,
            process.id,
            process.command
        );
        (format!("command {}", process.call), value)
    })
}

async fn extend(context: &Context, id: String, ttl: &str) -> Outcome<u8> {
    let ttl = quantity::duration(ttl, "TIME").map_err(|failure| Failure::usage(failure.message))?;
    match ask(context, &Request::Extend { id, ttl_seconds: ttl.as_secs() }).await? {
        Reply::Sessions(sessions) => {
            let line = |session: &SessionInfo| format!("session {} until {:.0}", session.id, session.expires);
            print_lines(&sessions.iter().map(line).collect::<Vec<_>>())
        }
        other => Err(unexpected(&other)),
    }
}

async fn end(context: &Context, id: String, revoke: bool) -> Outcome<u8> {
    match ask(context, &Request::End { id, revoke }).await? {
        Reply::Ended(session) => print_lines(&[format!("session {}: {}", session.id, session.state)]),
        other => Err(unexpected(&other)),
    }
}

/// Writes the token of `start` where its user finds it.
pub(super) fn write_token_file(dirs: &dirs::Dirs, uid: u32, token: &str) -> Outcome<PathBuf> {
    let path = dirs.token_file();
    let run = dirs::open_private(&dirs.run, uid)?;
    dirs::write_private(&run, "token", format!("{token}\n").as_bytes())
        .map_err(|error| Failure::config(format_args!("cannot write {}: {error}", path.display())))?;
    Ok(path)
}
