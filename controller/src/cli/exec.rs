//! `exec` and `run`: a command, or a whole harness, in a session of its own.

use rustix::termios::isatty;

use super::access::Lease;
use super::command::{self, Command};
use super::terminal::Keyboard;
use super::{Context, Wanted, prompt};
use crate::failure::Outcome;

#[derive(clap::Args)]
pub(super) struct ExecArgs {
    #[command(flatten)]
    wanted: Wanted,
    /// Give the command a terminal
    #[arg(long)]
    tty: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

#[derive(clap::Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    wanted: Wanted,
    /// The harness and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<String>,
}

pub(super) async fn exec(context: Context, args: ExecArgs) -> Outcome<u8> {
    let lease = Lease::open(&context, &args.wanted).await?;
    run_and_ask(&context, lease, args.command, args.tty).await
}

/// A harness gets a terminal when we have one, as if it had been started without us.
pub(super) async fn run(context: Context, args: RunArgs) -> Outcome<u8> {
    let tty = isatty(rustix::stdio::stdin()) && isatty(rustix::stdio::stdout());
    let lease = Lease::open(&context, &args.wanted).await?;
    run_and_ask(&context, lease, args.command, tty).await
}

/// What the rules ask about the command is asked here, like a password.
async fn run_and_ask(context: &Context, lease: Lease, argv: Vec<String>, tty: bool) -> Outcome<u8> {
    let (socket, session) = (lease.control_socket(), lease.opened.session.clone());
    let keyboard = Keyboard::default();
    let command = Command { argv, tty, keyboard: keyboard.clone(), ..Command::default() };
    tokio::select! {
        code = command::run(context, lease, command) => code,
        () = prompt::for_ever(socket, Some(session), keyboard) => Ok(0),
    }
}
