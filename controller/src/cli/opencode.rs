//! `opencode`: the installed OpenCode in a sandbox of its own, its tools in the session's.
//!
//! Invariant: OpenCode's sandbox shows nothing of the project. All its model can do is what the plugin hands to
//! [`bridge`], and without the plugin, or without us, nothing.

mod bridge;
mod config;
mod inside;
mod screen;
mod user;

use std::path::PathBuf;
use std::rc::Rc;

use legion_protocol::fs::{FileContent, Metadata, OnPath};
use legion_protocol::{Method, PathUri};
use rustix::termios::isatty;
use tokio::task::JoinHandle;

use self::bridge::Bridge;
use self::inside::Inside;
use self::user::User;
pub(super) use self::user::base;
use super::access::Lease;
use super::program::{self, Program};
use super::run_dir::RunDir;
use super::{Context, Wanted, command};
use crate::client::{CallError, Client};
use crate::config::{Config, MountAt};
use crate::failure::{Failure, Outcome};
use crate::limits::MAX_INSTRUCTIONS_BYTES;
use crate::tools::Toolbox;

/// The persona of OpenCode itself.
const CLIENT: &str = "opencode-client";

/// What the audit calls it.
const NAME: &str = "opencode";

/// Files in which projects have instructions for agents; the first there is counts.
const INSTRUCTIONS: [&str; 2] = ["AGENTS.md", "CLAUDE.md"];

#[derive(clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    wanted: Wanted,
    /// What OpenCode is given; put -- before it when it begins with an option that Legion has as well
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    rest: Vec<String>,
}

pub(super) async fn run(context: Context, args: Args) -> Outcome<u8> {
    let program = Program::find(&context.environment, "opencode")?;
    let user = user::read(&context.environment)?;
    let run_dir = RunDir::make(&context)?;
    let inside = Inside::make(run_dir.path(), &user)?;
    let mut config = Config::load(&context.environment, &context.overrides(Vec::new()))?;
    let remote = Lease::of_running(&context, &args.wanted).await?;
    let (workspace, mount_at) = project(&context, &args.wanted, &config, remote.as_ref())?;
    program::check_home(&context.environment, &workspace)?;
    let secret = bridge::secret()?;
    let client = config
        .personas
        .get_mut(CLIENT)
        .ok_or_else(|| Failure::internal(format_args!("there is no persona {CLIENT}")))?;
    client.mount_at = mount_at;
    client.mounts.extend(program.mounts.iter().cloned());
    inside.adapt(&context.environment, client, &user, &secret, args.rest.first().map(String::as_str))?;
    config.check()?;
    let (tools, harness) = sessions(&context, &args.wanted, config, remote).await?;
    let tools = Rc::new(tools);
    let ended = match serve(&inside, &tools, &user, &secret).await {
        Ok(serving) => {
            let tty = isatty(rustix::stdio::stdin()) && isatty(rustix::stdio::stdout());
            let cwd = Some(harness.opened.cwd.clone());
            let command_line = std::iter::once(program.path.display().to_string()).chain(args.rest).collect();
            let command = command::Command { argv: command_line, tty, cwd, ..Default::default() };
            let ended = command::run(&context, harness, command).await;
            // Its end takes along what it is still connected with.
            serving.abort();
            let _ = serving.await;
            ended
        }
        Err(failure) => {
            harness.release().await;
            Err(failure)
        }
    };
    tools.release().await;
    ended
}

/// Where the project is, and where in the session of the tools.
fn project(
    context: &Context,
    wanted: &Wanted,
    config: &Config,
    remote: Option<&Lease>,
) -> Outcome<(PathBuf, MountAt)> {
    if let Some(Lease { opened, .. }) = remote {
        let at_host = opened.cwd == opened.workspace;
        return Ok((opened.workspace.clone(), if at_host { MountAt::Host } else { MountAt::Workspace }));
    }
    let persona = config.persona(wanted.persona.as_deref())?;
    let workspace = context.environment.resolve(wanted.workspace.as_ref().unwrap_or(&persona.workspace));
    Ok((workspace, persona.mount_at))
}

/// The session of the tools, and that of OpenCode itself.
async fn sessions(
    context: &Context,
    wanted: &Wanted,
    config: Config,
    remote: Option<Lease>,
) -> Outcome<(Lease, Lease)> {
    let of_client = |tools: &Lease| Wanted {
        persona: Some(CLIENT.to_owned()),
        workspace: Some(tools.opened.workspace.clone()),
        ttl: wanted.ttl.clone(),
    };
    if let Some(tools) = remote {
        let harness = Lease::embed(context, config, &of_client(&tools)).await?;
        return Ok((tools, harness));
    }
    let tools = Lease::embed(context, config, wanted).await?;
    match tools.another(context, &of_client(&tools)).await {
        Ok(harness) => Ok((tools, harness)),
        Err(failure) => {
            tools.release().await;
            Err(failure)
        }
    }
}

/// Everything OpenCode finds when it starts.
async fn serve(inside: &Inside, tools: &Rc<Lease>, user: &User, secret: &str) -> Outcome<JoinHandle<()>> {
    let project = project_instructions(tools).await?;
    inside.instruct(user.instructions.iter().chain(&project))?;
    let lease = Rc::clone(tools);
    let connect = move || {
        let lease = Rc::clone(&lease);
        Box::pin(async move { lease.websocket().await }) as _
    };
    let toolbox = Toolbox::new(Box::new(connect), NAME.to_owned(), tools.opened.cwd.clone());
    let bridge = Bridge::listen(&inside.socket(), toolbox, secret)?;
    Ok(tokio::task::spawn_local(bridge.serve()))
}

/// The project's instructions, read in the session like everything else of the project.
async fn project_instructions(tools: &Lease) -> Outcome<Option<String>> {
    let failed = |error: CallError| {
        Failure::unavailable(format_args!("cannot read the project's instructions: {error}"))
    };
    let client = Client::open(tools.websocket().await?, NAME).await.map_err(failed)?;
    for name in INSTRUCTIONS {
        let path: PathBuf = tools.opened.cwd.join(name);
        let path = PathUri::from_path(&path)
            .ok_or_else(|| Failure::internal("the workspace has no absolute path"))?;
        let on_path = OnPath { path, sandbox: None, follow_symlinks: None };
        let found = client.call::<_, Metadata>(Method::FsGetMetadata, &on_path).await;
        match found {
            Ok(found) if found.is_file && found.size > MAX_INSTRUCTIONS_BYTES => {
                tracing::warn!("{name} is left out: it is larger than {MAX_INSTRUCTIONS_BYTES} bytes");
            }
            Ok(found) if found.is_file => {
                let content = client.call::<_, FileContent>(Method::FsReadFile, &on_path).await;
                let content = content.map_err(failed)?.data_base64.0;
                return Ok(Some(String::from_utf8_lossy(&content).into_owned()));
            }
            // A policy may refuse it; then there are none.
            Ok(_) | Err(CallError::Answered(_)) => {}
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(None)
}
