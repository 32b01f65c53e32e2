//! `codex`: the installed Codex with a private configuration in which Legion is the only place for commands and files.
//!
//! Invariant: of the user's own Codex directory, Codex changes what is not configuration, such as the login and the
//! conversations; `config.toml` and `environments.toml` are never written there.

mod home;

use std::path::PathBuf;
use std::process::Command;

use rustix::termios::isatty;

use self::home::CodexHome;
use super::access::Lease;
use super::program::{self, Program};
use super::{Context, Wanted, command, connect, setup};
use crate::config::{Config, Mount, MountMode};
use crate::failure::{Failure, Outcome};

/// The persona of Codex itself with `--boxed`.
const BOXED: &str = "codex-client";

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// Put Codex itself into a sandbox too (persona codex-client), its commands into another
    #[arg(long)]
    boxed: bool,
    /// What Codex is given; put -- before it when it begins with an option that Legion has as well
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    rest: Vec<String>,
}

pub(super) async fn run(context: Context, args: Args) -> Outcome<u8> {
    let codex = Program::find(&context.environment, "codex")?;
    let environments = setup::codex_by_program(&context, &[]);
    let home = CodexHome::prepare(&context.environment, &context.dirs()?, &environments)?;
    let ended = if args.boxed {
        boxed(&context, args, &codex, &home).await
    } else {
        let mut command = Command::new(&codex.path);
        command.args(&args.rest).envs(home.variables()).env_remove("CODEX_EXEC_SERVER_URL");
        command.env(connect::OPTIONS, connect::options_variable(&setup::options(&context, &args.wanted))?);
        program::run(command).await
    };
    home.keep()?;
    ended
}

/// Codex in a sandbox of its own. `--persona` is that of its commands.
async fn boxed(context: &Context, args: Args, codex: &Program, home: &CodexHome) -> Outcome<u8> {
    let mut config = Config::load(&context.environment, &context.overrides(Vec::new()))?;
    let client = config
        .personas
        .get_mut(BOXED)
        .ok_or_else(|| Failure::internal(format_args!("there is no persona {BOXED}")))?;
    let connect = client.connect.as_mut().ok_or_else(|| {
        Failure::config(format_args!("persona {BOXED} has no [persona.{BOXED}.connect]: Codex needs one"))
    })?;
    connect.codex_home = Some(home.path.clone());
    if let Some(persona) = args.wanted.persona {
        connect.persona = persona;
    }
    // Codex needs none of them.
    let workspace = context.environment.resolve(args.wanted.workspace.as_ref().unwrap_or(&client.workspace));
    program::check_home(&context.environment, &workspace)?;
    client.workspace_parts.iter_mut().for_each(|parts| parts.retain(|part| workspace.join(part).is_dir()));
    let writable = |path: PathBuf| Mount { mode: MountMode::Rw, from: Some(path.clone()), to: path };
    client.mounts.retain(|mount| mount.to != home.own);
    client.mounts.extend([writable(home.own.clone()), writable(home.path.clone())]);
    client.mounts.extend(codex.mounts.iter().cloned());
    client.env.set.extend(home.variables());
    config.check()?;
    let wanted = Wanted { persona: Some(BOXED.to_owned()), ..args.wanted };
    let lease = Lease::embed(context, config, &wanted).await?;
    let tty = isatty(rustix::stdio::stdin()) && isatty(rustix::stdio::stdout());
    let command_line = std::iter::once(codex.path.display().to_string()).chain(args.rest).collect();
    command::run(context, lease, command::Command { argv: command_line, tty, ..Default::default() }).await
}
