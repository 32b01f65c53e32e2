//! The command line: one file a subcommand. This one parses, sets up, and turns failures into exit codes.

mod access;
mod approvals;
mod attach;
mod audit;
mod codex;
mod command;
mod connect;
mod doctor;
mod exec;
mod mcp;
mod opencode;
mod policy;
mod program;
mod prompt;
mod run_dir;
mod safe;
mod sessions;
mod setup;
mod signals;
mod start;
mod streams;
mod table;
mod terminal;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Overrides, quantity};
use crate::dirs::Dirs;
use crate::environment::Environment;
use crate::failure::{Exit, Failure, Outcome};

/// Lets AI coding agents work on a project without being trusted with the machine.
#[derive(Parser)]
#[command(name = "legion-controller", version, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// Flags every subcommand takes.
#[derive(Debug, Clone, clap::Args)]
struct Common {
    /// Configuration file; the default is legion/legion.toml in the configuration directory of the user
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Directory of the audit log and of the run-time sockets
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// File of secrets instead of the configured one; only what a persona names leaves it
    #[arg(long, global = true, value_name = "FILE")]
    env_file: Option<PathBuf>,
}

/// Which session a subcommand wants.
#[derive(Debug, Clone, clap::Args)]
struct Wanted {
    /// Persona of the session
    #[arg(long, value_name = "NAME")]
    persona: Option<String>,
    /// Directory the session may write
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Life of the session, e.g. 8h or 30m
    #[arg(long, value_name = "TIME")]
    ttl: Option<String>,
}

impl Wanted {
    fn ttl(&self) -> Outcome<Option<Duration>> {
        let parse = |text: &String| {
            quantity::duration(text, "--ttl").map_err(|failure| Failure::usage(failure.message))
        };
        self.ttl.as_ref().map(parse).transpose()
    }
}

#[derive(Subcommand)]
enum Command {
    /// Run the controller in the foreground and open a session for the workspace
    Start(start::Args),
    /// Speak the exec-server protocol on stdin and stdout, one JSON message a line
    Connect(connect::Args),
    /// Run one command in a session; its exit code is ours
    Exec(exec::ExecArgs),
    /// Run a whole harness in a session: its terminal, signals and exit code are ours
    Run(exec::RunArgs),
    /// Serve the tools of a session to a harness that speaks MCP, on stdin and stdout
    Mcp(mcp::Args),
    /// Run OpenCode in a sandbox of its own, with Legion's tools instead of its own
    Opencode(opencode::Args),
    /// Run Codex with Legion as the only place for its commands and files
    Codex(codex::Args),
    /// Issue, list and revoke tokens of the running controller
    #[command(subcommand)]
    Token(sessions::TokenCommand),
    /// List, show and kill sessions of the running controller
    #[command(subcommand)]
    Session(sessions::SessionCommand),
    /// Read and verify the audit log
    #[command(subcommand)]
    Audit(audit::AuditCommand),
    /// Say what the rules decide, check them, try them on a recorded session
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Answer what agents ask before they act
    #[command(subcommand)]
    Approvals(approvals::ApprovalsCommand),
    /// Prove that the sandbox works here, or say why not and what to do
    Doctor(doctor::Args),
    /// Point a client at Legion
    #[command(subcommand)]
    Setup(setup::SetupCommand),
    /// Print completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// What every subcommand is given.
struct Context {
    environment: Environment,
    common: Common,
}

impl Context {
    fn dirs(&self) -> Outcome<Dirs> {
        Dirs::choose(&self.environment, self.common.state_dir.as_deref())
    }

    fn overrides(&self, listen: Vec<String>) -> Overrides {
        Overrides { config: self.common.config.clone(), env_file: self.common.env_file.clone(), listen }
    }
}

/// Runs the command line to its exit code.
pub fn main(environment: Environment, args: impl Iterator<Item = OsString>) -> ExitCode {
    start_log(&environment);
    let args = match connect::with_options(&environment, args.collect()) {
        Ok(args) => args,
        Err(failure) => return report(&failure),
    };
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let context = Context { environment, common: cli.common };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return report(&Failure::unavailable(format_args!("cannot start the runtime: {error}")));
        }
    };
    let tasks = tokio::task::LocalSet::new();
    let outcome = tasks.block_on(&runtime, run(context, cli.command));
    drop(tasks);
    // A blocking read of stdin may never return; it must not keep the process.
    runtime.shutdown_background();
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(failure) => report(&failure),
    }
}

async fn run(context: Context, command: Command) -> Outcome<u8> {
    match command {
        Command::Start(args) => start::run(context, args).await,
        Command::Connect(args) => connect::run(context, args).await,
        Command::Exec(args) => exec::exec(context, args).await,
        Command::Run(args) => exec::run(context, args).await,
        Command::Mcp(args) => Box::pin(mcp::run(context, args)).await,
        Command::Opencode(args) => Box::pin(opencode::run(context, args)).await,
        Command::Codex(args) => codex::run(context, args).await,
        Command::Token(command) => sessions::token(&context, command).await,
        Command::Session(command) => sessions::session(&context, command).await,
        Command::Audit(command) => audit::run(&context, command).await,
        Command::Policy(command) => policy::run(&context, command),
        Command::Approvals(command) => approvals::run(&context, command).await,
        Command::Doctor(args) => doctor::run(context, args).await,
        Command::Setup(command) => setup::run(&context, command).await,
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "legion-controller", &mut text);
            // For bash, clap_complete 4.6 spells a hyphen in the program's name in two ways, so that nothing would be
            // completed after a subcommand (clap issue 6421).
            let text =
                String::from_utf8_lossy(&text).replace("legion__subcmd__controller", "legion__controller");
            print_bytes(text.as_bytes())
        }
    }
}

/// One line on stderr and the exit code of a failure.
pub fn report(failure: &Failure) -> ExitCode {
    print_error(&failure.message);
    failure.exit.into()
}

/// One line on stderr.
fn print_error(line: &str) {
    // Nothing can be done about a closed stderr.
    let _ = writeln!(std::io::stderr(), "legion-controller: {}", table::printable(line));
}

/// Lines on stderr that are no failure.
fn tell(notes: &[String]) {
    for note in notes {
        print_error(note);
    }
}

fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let usage = text.lines().find(|line| line.starts_with("Usage: ")).unwrap_or_default();
        return report(&Failure::usage(format_args!("a subcommand is missing: {usage}; see --help")));
    }
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("bad arguments");
    let line = line.strip_prefix("error: ").unwrap_or(line);
    let rest: Vec<&str> =
        if line.ends_with(':') { text.lines().skip(1).take(3).map(str::trim).collect() } else { vec![] };
    let line = format!("{line} {}", rest.join(" "));
    let failure = Failure::new(Exit::Usage, format_args!("{}; see legion-controller --help", line.trim()));
    report(&failure)
}

/// Logs to stderr, `warn` and above unless `$LEGION_LOG` says otherwise. Secrets and frames are never logged.
fn start_log(environment: &Environment) {
    let directives = environment.var("LEGION_LOG").unwrap_or("warn");
    let filter =
        directives.parse::<Targets>().unwrap_or_else(|_| Targets::new().with_default(tracing::Level::WARN));
    // Libraries log whole frames and scripts.
    let ours = filter_fn(|event| event.target().starts_with("legion"));
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    tracing_subscriber::registry().with(layer).with(filter).with(ours).init();
}

/// Prints to stdout; a reader that left is no failure.
fn print_bytes(bytes: &[u8]) -> Outcome<u8> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(0),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(0),
        Err(error) => Err(Failure::unavailable(format_args!("cannot write to stdout: {error}"))),
    }
}

/// Prints lines to stdout.
fn print_lines(lines: &[String]) -> Outcome<u8> {
    let mut text = lines.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    print_bytes(text.as_bytes())
}

/// Prints values as JSON, one object a line.
fn print_json<T: serde::Serialize>(values: &[T]) -> Outcome<u8> {
    let lines = values.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>();
    print_lines(&lines.map_err(Failure::internal)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
